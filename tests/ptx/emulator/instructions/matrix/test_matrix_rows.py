"""ldmatrix by one loop for all rows says and does what loads of single lanes do, whatever was there before."""

import random

import numpy as np
import pytest
from tests import sampled

from kernbench.ptx import EmulatedDevice, parse
from kernbench.ptx.emulator.instructions.matrix import matrix

ROWS = 32


def program(seed):
    """Two or four warps that store to rows of shared memory, copy to them and load matrices, with barriers here and
    there.
    """
    rng = random.Random(seed)
    lines = []

    def guarded(text):
        warp = rng.randrange(5)
        lines.append(f"setp.eq.u32 %p0, %r1, {warp};" if warp < 4 else "setp.eq.u32 %p0, %r0, %r0;")
        lines.append(f"@!%p0 bra SKIP{len(lines)};")
        at = len(lines) - 1
        lines.append(text)
        lines.append(f"SKIP{at}:")

    def stored():
        word = 4 * rng.randrange(4)
        # a copy may still be under way when the next matrix is loaded
        copied = rng.choice(("", "cp.async.wait_all;"))
        return rng.choice(
            (
                "st.shared.v4.b32 [%r4], {%r0, %r1, %r2, %r3};",
                f"st.shared.b32 [%r5+{word}], %r0;",
                f"st.shared.b16 [%r5+{2 * rng.randrange(8)}], %h0;",
                "ld.shared.b32 %r6, [%r5];",
                f"cp.async.ca.shared.global [%r5+{word}], [%d2], 4; {copied}",
                f"st.relaxed.cta.shared.b32 [%r5+{word}], %r0;",
                f"atom.shared.add.u32 %r6, [%r5+{word}], 1;",
            )
        )

    # by the first warp, or by all of them at once, which is a race
    begun = (
        "setp.eq.u32 %p1, %r1, 0;",
        f"{rng.choice(('@%p1 ', '@%p1 ', ''))}st.shared.v4.b32 [%r4], {{%r0, %r1, %r2, %r3}};",
    )
    lines += [*begun, "bar.sync 0;"] if rng.random() < 0.9 else []
    for _ in range(rng.randrange(2, 9)):
        what = rng.random()
        if what < 0.25:
            lines.append("bar.sync 0;")
        elif what < 0.45:
            guarded(stored())
        else:
            count, trans = rng.choice((1, 2, 4)), rng.choice(("", ".trans"))
            # rows by lane, as they stand, turned round, with some given twice, or odd
            spread = rng.choice((1, 1, 3, 5, 2, 8, 16))
            shift = rng.choice((0, 0, 0, 0, 8, 4, 16 * ROWS)) if rng.random() < 0.2 else 0
            lines.append(f"mul.lo.u32 %r7, %r2, {spread}; and.b32 %r7, %r7, {ROWS - 1}; shl.b32 %r7, %r7, 4;")
            lines.append(f"add.u32 %r7, %r7, %r8; add.u32 %r7, %r7, {shift};")
            to = ", ".join(f"%r{10 + n}" for n in range(count))
            load = f"ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{to}}}, [%r7];"
            guarded(load) if rng.random() < 0.3 else lines.append(load)
            lines += [f"xor.b32 %r9, %r9, %r{10 + n}; mul.lo.u32 %r9, %r9, 31;" for n in range(count)]
    warps = rng.choice((2, 4))
    text = f"""
.version 8.0
.target sm_80
.address_size 64
.visible .entry kernel(.param .u64 out, .param .u64 words)
{{
.reg .b32 %r<16>; .reg .b16 %h<2>; .reg .b64 %d<4>; .reg .pred %p<2>;
.shared .align 16 .b8 tile[{16 * ROWS}];
ld.param.u64 %d2, [words]; mov.u32 %r0, %tid.x; shr.u32 %r1, %r0, 5; and.b32 %r2, %r0, 31; mov.u32 %r3, %ctaid.x;
mov.u32 %r8, tile; cvt.u16.u32 %h0, %r0; mov.u32 %r9, 0;
{" ".join(f"mov.u32 %r{n}, 0;" for n in (6, 10, 11, 12, 13))}
shl.b32 %r4, %r2, 4; add.u32 %r4, %r4, %r8; mul.lo.u32 %r5, %r2, 16; add.u32 %r5, %r5, %r8;
{chr(10).join(lines)}
ld.param.u64 %d0, [out]; mov.u32 %r14, %ntid.x; mad.lo.u32 %r14, %r3, %r14, %r0;
mul.wide.u32 %d1, %r14, 4; add.u64 %d0, %d0, %d1; st.global.b32 [%d0], %r9;
ret;
}}
"""
    return text, warps, rng.choice(("canonical", "reversed", 1))


def launched(text, warps, schedule, checks=True):
    device = EmulatedDevice("sm_80")
    out = device.array(np.zeros(2 * 32 * warps, np.uint32), "out")
    words = device.array(np.arange(4, dtype=np.uint32), "words")
    kernel = parse(text).kernels["kernel"]
    run = device.launch(kernel, (2,), (32 * warps,), [out, words], checks=checks, schedule=schedule)
    return run.outputs["out"].tobytes(), repr(run.findings), run.status


@pytest.mark.fast_paths
@pytest.mark.parametrize("first", range(0, sampled.examples(24, 48), 8))
def test_rows_at_once_are_as_lane_by_lane(first, monkeypatch):
    asked = []
    found = matrix._are_loaded
    for seed in range(first, first + 8):
        case = program(seed)
        monkeypatch.setattr(matrix, "_are_loaded", lambda *given: asked.append(found(*given)) or asked[-1])
        fast = launched(*case)
        monkeypatch.setattr(matrix, "_are_loaded", lambda *given: False)
        assert fast == launched(*case), seed
    assert any(asked)


def test_unchecked_rows_are_as_lane_by_lane(monkeypatch):
    fast = [launched(*program(seed), checks=False) for seed in range(60, 70)]
    monkeypatch.setattr(matrix, "_are_loaded", lambda *given: False)
    assert fast == [launched(*program(seed), checks=False) for seed in range(60, 70)]
