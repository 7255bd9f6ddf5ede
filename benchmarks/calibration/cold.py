"""Kernels that read or write once what no cache holds, right after L2 was flushed: as kernels are measured that a model
is held to. Flushing writes (its lines must go to memory before others come) or reads.
"""

import ctypes
from collections.abc import Iterator
from statistics import median
from typing import Any

from .families.bandwidth import MIB
from .launch_gaps import Queue
from .source import opened

FLUSHED = 256 * MIB
SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
REPEATED, DROPPED = 24, 4
BLOCK, UNROLL = 256, 4
# every kernel here takes an address and a number
_DATA = "ld.param.u64 %d0, [p_data];\ncvta.to.global.u64 %d0, %d0;\n"
_TEXT = """ld.param.u32 %r40, [p_turns];
mov.u32 %r41, %ctaid.x;
mov.u32 %r42, %tid.x;
mov.u32 %r43, %nctaid.x;
mad.lo.u32 %r44, %r41, {block}, %r42;
mul.wide.u32 %d1, %r44, 16;
add.u64 %d1, %d0, %d1;
mul.wide.u32 %d2, %r43, {stride};
mov.u32 %r45, 0;
mov.u32 %r46, 0;
again:
{body}
add.u32 %r45, %r45, 1;
setp.lt.u32 %p0, %r45, %r40;
@%p0 bra again;
setp.eq.u32 %p1, %r46, 12345;
@%p1 st.global.u32 [%d0], %r46;
ret;
}}
"""


def _opened(name: str, number: str, registers: dict[str, int]) -> str:
    return opened(name, {"p_data": "u64", number: "u32"}, registers) + _DATA


def _turning(name: str, block: int, body: str) -> str:
    """A kernel that does something in turns, with CTAs of so many threads."""
    head = _opened(name, "p_turns", {"pred %p": 4, "b32 %r": 64, "b64 %d": 16})
    return head + _TEXT.format(block=block, stride=16 * block, body=body)


def _body(act: str) -> str:
    lines: list[str] = []
    for n in range(UNROLL):
        group = "{" + ", ".join(f"%r{4 * n + part}" for part in range(4)) + "}"
        value = "{%r45, %r45, %r45, %r45}"
        lines.append(f"ld.global.v4.u32 {group}, [%d1];" if act == "read" else f"st.global.v4.u32 [%d1], {value};")
        lines.append("add.u64 %d1, %d1, %d2;")
    if act == "read":
        lines += [f"xor.b32 %r46, %r46, %r{n};" for n in range(4 * UNROLL)]
    return "\n".join(lines)


def text(act: str) -> str:
    """A kernel whose CTAs go over all memory side by side: 16 bytes a thread, all CTAs' pieces, then the next ones."""
    return _turning(act, BLOCK, _body(act))


# threads of a CTA, CTAs, loads of 16 bytes that a thread has under way, and MiB: from a warp an SM to most of the rate
SPARSE = tuple(
    (block, ctas, loads, mib)
    for block, ctas, loads in ((32, 132, 1), (128, 132, 1), (128, 528, 1), (512, 132, 1), (512, 264, 1), (128, 132, 4))
    for mib in (16, 64)
)
# bytes from what is read to where it is written
APART = 128 * MIB + 24 * 1024


def sparse_text(act: str, block: int, loads: int) -> str:
    """A kernel as of `text` with fewer loads under way; a copy writes what it read."""
    lines: list[str] = ['.pragma "nounroll";']
    groups = ["{" + ", ".join(f"%r{4 * n + part}" for part in range(4)) + "}" for n in range(loads)]
    for group in groups:
        lines += [f"ld.global.v4.u32 {group}, [%d1];", "add.u64 %d1, %d1, %d2;"]
    if act == "copy":
        lines.append(f"add.u64 %d3, %d1, {APART};")
        for group in reversed(groups):
            lines += ["sub.u64 %d3, %d3, %d2;", f"st.global.v4.u32 [%d3], {group};"]
    lines += [f"xor.b32 %r46, %r46, %r{n};" for n in range(4 * loads)]
    # the next address depends on what came: a turn begins when the last one's loads are there
    lines += [
        "shr.u32 %r47, %r40, 31;",
        "and.b32 %r47, %r47, %r46;",
        "cvt.u64.u32 %d4, %r47;",
        "add.u64 %d1, %d1, %d4;",
    ]
    return _turning(act, block, "\n".join(lines))


# threads of a CTA, loads of a thread, MiB: CTAs that end after one turn, as many as it takes
BRIEF = tuple((block, loads, mib) for block, loads in ((128, 1), (256, 1), (256, 4), (512, 1)) for mib in (16, 64))
# words that are touched, and MiB of the table they are in
WORDS = tuple((words, mib) for words in (1 << 20, 1 << 23) for mib in (4, 32, 64, 128, 256))
_WORDS = """ld.param.u32 %r0, [p_mask];
mov.u32 %r1, %ctaid.x;
mov.u32 %r2, %tid.x;
mad.lo.u32 %r1, %r1, 256, %r2;
mul.lo.u32 %r1, %r1, 739982445;
and.b32 %r1, %r1, %r0;
shr.u32 %r3, %r1, 10;
xor.b32 %r1, %r1, %r3;
mul.lo.u32 %r1, %r1, 695872825;
and.b32 %r1, %r1, %r0;
shr.u32 %r3, %r1, 10;
xor.b32 %r1, %r1, %r3;
mad.wide.u32 %d1, %r1, 4, %d0;
{act}
ret;
}}
"""
_ACTS = {
    "load": "ld.global.u32 %r4, [%d1];\nsetp.eq.u32 %p0, %r4, 12345;\n@%p0 st.global.u32 [%d0], %r4;",
    "store": "st.global.u32 [%d1], %r1;",
    "red": "red.global.add.u32 [%d1], 1;",
}


def words_text(act: str) -> str:
    """A kernel whose threads each touch a word of a table with a power of two of them, none twice before all were."""
    return _table_text("words", _WORDS.format(act=_ACTS[act]))


def _table_text(name: str, body: str) -> str:
    return _opened(name, "p_mask", {"pred %p": 4, "b32 %r": 8, "b64 %d": 4}) + body


# rows of 512 bytes that are touched, a warp each, and MiB of the table they are in
ROWS = ((1 << 13, 4), (1 << 14, 8), (1 << 15, 128), (1 << 17, 64), (1 << 17, 128), (1 << 17, 256))
_OF_ROWS = {
    "load": ("ld.global.u32 %r4, [%d1+{at}];", "xor.b32 %r5, %r5, %r4;"),
    "store": ("st.global.u32 [%d1+{at}], %r1;",),
    "change": ("ld.global.u32 %r4, [%d1+{at}];", "add.u32 %r4, %r4, 1;", "st.global.u32 [%d1+{at}], %r4;"),
    "red.u32": ("red.global.add.u32 [%d1+{at}], 1;",),
    "red.f32": ("red.global.add.f32 [%d1+{at}], 0f3F800000;",),
}
_WHOLE = "red.global.add.v4.f32 [%d1], {%f0, %f0, %f0, %f0};"


def rows_text(act: str) -> str:
    """A kernel whose warps each touch a row of 512 bytes of a table, none twice before all were: 128 bytes at a time,
    or 16 of each lane at once (`red.v4.f32`).
    """
    words = _WORDS.format(act="{act}").replace(
        "mad.lo.u32 %r1, %r1, 256, %r2;",
        "mad.lo.u32 %r1, %r1, 256, %r2;\nand.b32 %r2, %r1, 31;\nshr.u32 %r1, %r1, 5;\nmov.b32 %r5, 0;",
    )
    width = 16 if act == "red.v4.f32" else 4
    at_row = f"mad.wide.u32 %d1, %r1, 512, %d0;\nmad.wide.u32 %d1, %r2, {width}, %d1;"
    pieces = [one.format(at=at) for at in range(0, 512, 128) for one in _OF_ROWS.get(act, ())]
    steps = pieces or [_WHOLE]
    begun = [".reg .f32 %f<2>;", "mov.f32 %f0, 0f3F800000;"] if act == "red.v4.f32" else []
    ended = ["setp.eq.u32 %p0, %r5, 12345;", "@%p0 st.global.u32 [%d0], %r5;"] if act == "load" else []
    words = words.replace("mad.wide.u32 %d1, %r1, 4, %d0;", at_row)
    return _table_text("rows", words.replace("{act}", "\n".join([*begun, *steps, *ended])))


# bytes of a piece: each thread stores 64 bytes piece by piece; 0: half of each sector, and no more
PIECES = (4, 8, 16, 0)
_PIECES = """ld.param.u32 %r0, [p_value];
mov.u32 %r1, %ctaid.x;
mov.u32 %r2, %tid.x;
mad.lo.u32 %r1, %r1, 256, %r2;
mad.wide.u32 %d1, %r1, 64, %d0;
{stores}
ret;
}}
"""


def pieces_text(width: int) -> str:
    """A kernel whose threads each store 64 bytes in pieces, or 16 bytes of each sector."""
    words = (width or 16) // 4
    value = "%r0" if words == 1 else "{" + ", ".join(["%r0"] * words) + "}"
    kind = "" if words == 1 else f".v{words}"
    places = range(0, 64, width or 32)
    stores = "\n".join(f"st.global{kind}.u32 [%d1+{at}], {value};" for at in places)
    return _opened("pieces", "p_value", {"b32 %r": 8, "b64 %d": 4}) + _PIECES.format(stores=stores)


CODE = (16, 128, 512, 1024, 2048, 4096, 8192)


def code_text(instructions: int) -> str:
    """A kernel of so many instructions in a row, each run once."""
    steps = [f"fma.rn.f32 %f{n % 8}, %f{n % 8}, %f8, %f9;" for n in range(instructions)]
    begun = ["mov.u32 %r0, %tid.x;"]
    begun += [f"add.u32 %r0, %r0, %r0;\ncvt.rn.f32.u32 %f{n}, %r0;" for n in range(10)]
    folded = [f"add.f32 %f0, %f0, %f{n};" for n in range(1, 8)]
    ended = ["setp.eq.f32 %p0, %f0, 0f3F9E0419;", "@%p0 st.global.f32 [%d0], %f0;", "ret;"]
    head = _opened("code", "p_turns", {"pred %p": 2, "b32 %r": 2, "f32 %f": 10, "b64 %d": 2})
    return head + "\n".join([*begun, *steps, *folded, *ended, "}", ""])


def grid_of(nbytes: int, sms: int) -> tuple[int, int]:
    """CTAs and turns: 8 CTAs for each SM at most, each with as many turns as it takes."""
    pieces = nbytes // (16 * BLOCK * UNROLL)
    ctas = 1
    while ctas * 2 <= min(pieces, 8 * sms):
        ctas *= 2
    return ctas, pieces // ctas


class Cold:
    """Buffers and kernels on a stream."""

    def __init__(self, queue: Queue, sms: int):
        self.queue, self.sms, self.driver = queue, sms, queue.driver
        self.flushed = self.driver.call("cuMemAlloc", FLUSHED)
        self.data = self.driver.call("cuMemAlloc", SIZES[-1] * MIB)
        self.driver.call("cuMemsetD8Async", self.data, 0, SIZES[-1] * MIB, queue.stream)
        self.kernels = {act: queue.function(act, text(act)) for act in ("read", "write")}

    def launch(self, act: str, address: Any, nbytes: int) -> None:
        """Queue a kernel over memory."""
        ctas, turns = grid_of(nbytes, self.sms)
        values = (ctypes.c_uint64(int(address)), ctypes.c_uint32(turns))
        pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(value) for value in values))
        self.driver.call(
            "cuLaunchKernel", self.kernels[act], ctas, 1, 1, BLOCK, 1, 1, 0, self.queue.stream,
            ctypes.addressof(pointers), 0,
        )  # fmt: skip

    def code(self, instructions: int, flush: bool) -> list[float]:
        """Nanoseconds of a kernel that runs its code once, right after L2 was flushed or after itself."""
        kernel = self.queue.function("code", code_text(instructions))
        values = (ctypes.c_uint64(int(self.data)), ctypes.c_uint32(1))
        pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(value) for value in values))
        found: list[float] = []
        for _ in range(REPEATED):
            self.driver.call("cuMemsetD8Async", self.flushed, 1, FLUSHED, self.queue.stream)
            for again in range(1 if flush else 2):
                if again or flush:
                    first = self.queue.event()
                self.driver.call(
                    "cuLaunchKernel", kernel, self.sms, 1, 1, 128, 1, 1, 0, self.queue.stream,
                    ctypes.addressof(pointers), 0,
                )  # fmt: skip
            found.append(self.queue.elapsed_ns(first, self.queue.event()))
        return found[DROPPED:]

    def flush(self, by: str) -> None:
        """Fill L2 with what nobody asks for, by writing or by reading."""
        if by == "writes":
            self.driver.call("cuMemsetD8Async", self.flushed, 1, FLUSHED, self.queue.stream)
        else:
            self.launch("read", self.flushed, FLUSHED)

    def sparse(self, act: str, shape: tuple[int, int, int, int], flush: str) -> list[float]:
        """Nanoseconds of a kernel that has little under way, right after L2 was flushed."""
        block, ctas, loads, mib = shape
        kernel = self.queue.function(act, sparse_text(act, block, loads))
        return self.timed(kernel, ctas, block, mib * MIB // (16 * block * loads * ctas), flush)

    def words(self, act: str, words: int, mib: int) -> list[float]:
        """Nanoseconds of so many words of a table, a thread each, none twice before all were touched."""
        kernel = self.queue.function("words", words_text(act))
        return self.timed(kernel, words // 256, 256, mib * MIB // 4 - 1, "writes")

    def rows(self, act: str, rows: int, mib: int) -> list[float]:
        """Nanoseconds of so many rows of a table, a warp each."""
        kernel = self.queue.function("rows", rows_text(act))
        return self.timed(kernel, rows // 8, 256, mib * MIB // 512 - 1, "writes")

    def pieces(self, width: int, mib: int) -> list[float]:
        """Nanoseconds of stores in pieces to so much memory."""
        kernel = self.queue.function("pieces", pieces_text(width))
        return self.timed(kernel, mib * MIB // (64 * 256), 256, 7, "writes")

    def timed(self, kernel: Any, ctas: int, block: int, number: int, flush: str) -> list[float]:
        """Nanoseconds of a kernel of the data and a number, each time right after L2 was flushed."""
        values = (ctypes.c_uint64(int(self.data)), ctypes.c_uint32(number))
        pointers = (ctypes.c_void_p * 2)(*(ctypes.addressof(value) for value in values))
        found: list[float] = []
        for _ in range(REPEATED // 2):
            self.flush(flush)
            first = self.queue.event()
            self.driver.call(
                "cuLaunchKernel", kernel, ctas, 1, 1, block, 1, 1, 0, self.queue.stream, ctypes.addressof(pointers), 0
            )
            found.append(self.queue.elapsed_ns(first, self.queue.event()))
        return found[DROPPED:]

    def once(self, act: str, nbytes: int, flush: str) -> float:
        """Nanoseconds of one kernel between events."""
        self.flush(flush)
        first = self.queue.event()
        self.launch(act, self.data, nbytes)
        return self.queue.elapsed_ns(first, self.queue.event())


def cold_rows(queue: Queue, sms: int) -> Iterator[dict[str, Any]]:
    """Rows by size, by what the kernel does, and by how L2 was flushed."""
    cold = Cold(queue, sms)
    for act in ("read", "write"):
        for flush in ("writes", "reads"):
            for size in SIZES:
                times = [cold.once(act, size * MIB, flush) for _ in range(REPEATED)][DROPPED:]
                varied = {"bytes": size * MIB, "flushed_by": flush, "ctas": grid_of(size * MIB, sms)[0]}
                yield {"benchmark": f"cold.{act}", "parameters": varied, "unit": "ns", "ns": median(times)}
    for instructions in CODE:
        for flushed in ("yes", "no"):
            varied = {"instructions": instructions, "flushed": flushed}
            yield {"benchmark": "cold.code", "parameters": varied, "unit": "ns",
                   "ns": median(cold.code(instructions, flushed == "yes"))}  # fmt: skip
    for act in ("read", "copy"):
        for flush in ("writes", "reads"):
            for shape in SPARSE:
                names = ("block", "ctas", "loads", "mib")
                varied = {"act": act, "flushed_by": flush, **dict(zip(names, shape, strict=True))}
                yield {"benchmark": "cold.sparse", "parameters": varied, "unit": "ns",
                       "ns": median(cold.sparse(act, shape, flush))}  # fmt: skip
    for address in (cold.flushed, cold.data):
        queue.driver.call("cuMemFree", address)


def brief_rows(queue: Queue, sms: int) -> Iterator[dict[str, Any]]:
    """Rows of kernels whose CTAs end soon, and of words at random, with nothing in any cache."""
    cold = Cold(queue, sms)
    for act in ("read", "copy"):
        for flush in ("writes", "reads"):
            for block, loads, mib in BRIEF:
                shape = (block, mib * MIB // (16 * block * loads), loads, mib)
                varied = {"act": act, "flushed_by": flush, "block": block, "loads": loads, "mib": mib}
                yield {"benchmark": "cold.brief", "parameters": varied, "unit": "ns",
                       "ns": median(cold.sparse(act, shape, flush))}  # fmt: skip
    for act in _ACTS:
        for words, mib in WORDS:
            varied = {"act": act, "words": words, "mib": mib}
            yield {"benchmark": "cold.words", "parameters": varied, "unit": "ns",
                   "ns": median(cold.words(act, words, mib))}  # fmt: skip
    yield from _rows_and_pieces(cold)
    for address in (cold.flushed, cold.data):
        queue.driver.call("cuMemFree", address)


def _rows_and_pieces(cold: Cold) -> Iterator[dict[str, Any]]:
    """Rows of a table, a warp each, and stores in pieces."""
    for act in (*_OF_ROWS, "red.v4.f32"):
        for count, mib in ROWS:
            varied = {"act": act, "rows": count, "mib": mib}
            yield {"benchmark": "cold.rows", "parameters": varied, "unit": "ns",
                   "ns": median(cold.rows(act, count, mib))}  # fmt: skip
    for width in PIECES:
        for mib in (8, 32, 128):
            varied = {"width": width, "mib": mib}
            yield {"benchmark": "cold.pieces", "parameters": varied, "unit": "ns",
                   "ns": median(cold.pieces(width, mib))}  # fmt: skip
