"""The PTX of a microbenchmark: a loop between two readings of the SM's clock and of the GPU's timer.

A kernel takes `out` (five u64 of each warp: cycles, ns before, ns after, SM, the clock before), `sink` (a word of each
thread, so that no assembler drops what is measured), `data` and `turns`. What is measured stands in `body`, which runs
`turns` times; costs are differences between launches with different `turns`, so that readings and tails cancel.

Registers by type: %r b32, %f f32, %d b64, %e f64, %p pred, %h b16; %thread, %lane, %warp, %cta and %turn have their
meaning, %sink, %data and %mine (this thread's place in sink) are addresses, %result is what is stored there.
"""

from collections.abc import Mapping
from dataclasses import dataclass

RECORD_WORDS = 5
_HEAD = """.version 8.3
.target {target}
.address_size 64
{outside}
.visible .entry {name}(.param .u64 p_out, .param .u64 p_sink, .param .u64 p_data, .param .u32 p_turns){launch}
{{
.reg .pred %p<32>;
.reg .b16 %h<32>;
.reg .b32 %r<512>;
.reg .f32 %f<640>;
.reg .b64 %d<128>;
.reg .f64 %e<64>;
.reg .pred %again, %first;
.reg .b32 %thread, %lane, %warp, %cta, %turn, %turns, %threads, %warps, %id, %sm, %result;
.reg .b64 %out, %sink, %data, %mine, %c0, %c1, %t0, %t1, %step;
ld.param.u64 %out, [p_out];
ld.param.u64 %sink, [p_sink];
ld.param.u64 %data, [p_data];
ld.param.u32 %turns, [p_turns];
cvta.to.global.u64 %out, %out;
cvta.to.global.u64 %sink, %sink;
cvta.to.global.u64 %data, %data;
mov.u32 %thread, %tid.x;
mov.u32 %threads, %ntid.x;
mov.u32 %cta, %ctaid.x;
and.b32 %lane, %thread, 31;
shr.u32 %warp, %thread, 5;
mad.lo.u32 %id, %cta, %threads, %thread;
mad.wide.u32 %mine, %id, 4, %sink;
mov.u32 %result, 0;
mov.u32 %turn, 0;
"""


def opened(name: str, parameters: Mapping[str, str], registers: Mapping[str, int], version: str = "8.3") -> str:
    """What the text of a kernel for an H200 begins with: its parameters by type, and so many registers of each kind."""
    listed = ", ".join(f".param .{kind} {parameter}" for parameter, kind in parameters.items())
    heads = [f".version {version}", ".target sm_90a", ".address_size 64", f".visible .entry {name}({listed})", "{"]
    return "\n".join([*heads, *(f".reg .{kind}<{count}>;" for kind, count in registers.items()), ""])


_BEGIN = """bar.sync 0;
mov.u64 %t0, %globaltimer;
mov.u64 %c0, %clock64;
"""
_LOOP = """again:
.pragma "nounroll";
{body}
add.u32 %turn, %turn, 1;
setp.lt.u32 %again, %turn, %turns;
@%again bra again;
done:
"""
_END = """mov.u64 %c1, %clock64;
mov.u64 %t1, %globaltimer;
{finish}
st.global.u32 [%mine], %result;
add.u32 %warps, %threads, 31;
shr.u32 %warps, %warps, 5;
mad.lo.u32 %id, %cta, %warps, %warp;
mad.wide.u32 %out, %id, 40, %out;
sub.u64 %c1, %c1, %c0;
mov.u32 %sm, %smid;
cvt.u64.u32 %step, %sm;
setp.eq.u32 %first, %lane, 0;
@%first st.global.u64 [%out], %c1;
@%first st.global.u64 [%out+8], %t0;
@%first st.global.u64 [%out+16], %t1;
@%first st.global.u64 [%out+24], %step;
@%first st.global.u64 [%out+32], %c0;
ret;
}}
"""


@dataclass(frozen=True)
class Source:
    """The parts of a kernel that are its own. `roles` replaces the loop: text with loops of its own, by warp."""

    name: str
    body: str = ""
    setup: str = ""
    finish: str = ""
    outside: str = ""
    roles: str = ""
    launch: str = ""
    target: str = "sm_90a"

    @property
    def text(self) -> str:
        """The module."""
        head = _HEAD.format(target=self.target, name=self.name, outside=self.outside, launch=f" {self.launch}".rstrip())
        middle = self.roles or _LOOP.format(body=self.body)
        return f"{head}{self.setup}\n{_BEGIN}{middle}\n{_END.format(finish=self.finish)}"


def shared(nbytes: int) -> str:
    """A declaration of that much shared memory, `tile`; dynamic beyond what a static array may have."""
    if nbytes > 48 << 10:
        return ".extern .shared .align 1024 .b8 tile[];"
    return f".shared .align 1024 .b8 tile[{nbytes}];"


def lines(*parts: str) -> str:
    """Lines of PTX."""
    return "\n".join(part for part in parts if part)
