"""Atomics by how many words they share: in global memory, side by side or a line apart, and in shared memory.

Which word a lane takes looks random to the assembler as well: it adds up what lanes do to one word where it knows that
they do.
"""

from collections.abc import Iterator

from ..case import Case, Data
from ..source import Source, lines, shared
from .shared_memory import filled

KIB, MIB = 1 << 10, 1 << 20
UNROLL = 8
BLOCK = 256
_RANDOM = "mad.lo.u32 %r1, %r1, 1664525, 1013904223;\nshr.u32 %r2, %r1, 8;\nand.b32 %r2, %r2, %r60;"
# registers whose values only a launch knows: a mask, and zero
_OPAQUE = "sub.u32 %r61, %threads, {block};\nadd.u32 %r60, %r61, {mask};\nmov.f32 %f1, 0f3F800000;"
_SEED = "mad.lo.u32 %r1, %id, 1103515245, 12345;"
KINDS = {
    "red.u32": "red.global.add.u32 [%d3], 1;",
    "atom.u32": "atom.global.add.u32 %r3, [%d3], 1;\nxor.b32 %result, %result, %r3;",
    "red.f32": "red.global.add.f32 [%d3], %f1;",
    "red.v2.f32": "red.global.add.v2.f32 [%d3], {%f1, %f1};",
    "red.v4.f32": "red.global.add.v4.f32 [%d3], {%f1, %f1, %f1, %f1};",
}


def _one(kind: str, words: int, stride: int, per_sm: int = 2, grid: int = 0) -> Case:
    """Every lane takes any of the words."""
    body = lines(_RANDOM, f"mad.wide.u32 %d3, %r2, {stride}, %data;", KINDS[kind])
    setup = lines(_SEED, _OPAQUE.format(block=BLOCK, mask=words - 1))
    name = f"contention_{kind}_{words}_{stride}".replace(".", "_")
    turns = (2, 6) if words * stride < 64 * KIB else (8, 24)
    return Case(
        "contention.global", Source(name, lines(*[body] * UNROLL), setup),
        {"kind": kind, "words": words, "stride": stride, "sms": grid or "all"}, UNROLL * BLOCK // 32,
        "warp instructions of a CTA", block=BLOCK, grid=grid, grid_per_sm=per_sm, turns=turns,
        data=Data(max(words * stride, KIB), "zeros"), by_time=True, small=1,
    )  # fmt: skip


def words() -> Iterator[Case]:
    """Words that lanes share, side by side and apart; then kinds of operations on few and on many."""
    for count, stride in (
        (1, 4), (8, 4), (32, 4), (256, 4), (4096, 4), (8, 32), (8, 128), (64, 128), (512, 128), (4096, 128),
        (65536, 32), (2, 128),
    ):  # fmt: skip
        yield _one("red.u32", count, stride)
    for kind in ("atom.u32", "red.f32"):
        for count, stride in ((1, 4), (256, 4), (65536, 32)):
            yield _one(kind, count, stride)
    for kind in ("red.v2.f32", "red.v4.f32"):
        yield _one(kind, 65536, 32)


def rows() -> Iterator[Case]:
    """Lanes of a warp side by side, warps on any of many rows: by all SMs, by one, and by how many rows there are."""
    widths = {"red.u32": 4, "atom.u32": 4, "red.f32": 4, "red.v2.f32": 8, "red.v4.f32": 16}
    for kind, count, grid in (
        *((kind, 4096, 0) for kind in widths), ("red.f32", 4096, 1), ("red.v4.f32", 4096, 1), ("red.f32", 32, 0),
        ("red.f32", 1, 0), ("red.u32", 1, 0), ("red.u32", 8, 0), ("red.u32", 64, 0),
    ):  # fmt: skip
        width = widths[kind]
        body = lines(
            "mad.lo.u32 %r1, %r1, 1664525, 1013904223;\nshr.u32 %r2, %r1, 8;\nand.b32 %r2, %r2, %r60;",
            f"mad.lo.u32 %r2, %r2, {32 * width}, %r62;",
            "cvt.u64.u32 %d2, %r2;",
            "add.u64 %d3, %data, %d2;",
            KINDS[kind],
        )
        setup = lines(
            "mad.lo.u32 %r1, %cta, 8, %warp;",
            "mad.lo.u32 %r1, %r1, 1103515245, 12345;",
            _OPAQUE.format(block=BLOCK, mask=count - 1),
            f"mul.lo.u32 %r62, %lane, {width};",
        )
        name = f"contention_rows_{kind}_{count}".replace(".", "_")
        yield Case(
            "contention.rows", Source(name, lines(*[body] * UNROLL), setup),
            {"kind": kind, "rows": count, "sms": grid or "all"}, UNROLL * BLOCK // 32, "warp instructions of a CTA",
            block=BLOCK, grid=grid, grid_per_sm=4, turns=(16, 48), data=Data(max(count * 32 * width, KIB), "zeros"),
            by_time=True, small=1,
        )  # fmt: skip


_SHARED = {
    "red.u32": "red.shared.add.u32 [%r3], 1;",
    "add.u32": "red.shared.add.u32 [%r3], %turn;",
    "atom.u32": "atom.shared.add.u32 %r4, [%r3], 1;\nxor.b32 %result, %result, %r4;",
    "red.f32": "red.shared.add.f32 [%r3], %f1;",
}


def in_shared() -> Iterator[Case]:
    """Words of shared memory that lanes share, by kind and by warps."""
    wanted = [("red.u32", words, warps) for words in (1, 2, 8, 32, 256) for warps in (1, 8, 32)]
    wanted += [("add.u32", words, warps) for words in (1, 32, 256) for warps in (1, 8)]
    wanted += [("atom.u32", words, 8) for words in (1, 32, 256)]
    wanted += [("red.f32", words, warps) for words in (1, 32, 256) for warps in (1, 8)]
    for kind, count, warps in wanted:
        body = lines(_RANDOM, "mad.lo.u32 %r3, %r2, 4, %r300;", _SHARED[kind])
        setup = lines(filled(1024), _SEED, _OPAQUE.format(block=32 * warps, mask=count - 1))
        name = f"contention_shared_{kind}_{count}_{warps}".replace(".", "_")
        yield Case(
            "contention.shared", Source(name, lines(*[body] * UNROLL), setup, outside=shared(4096)),
            {"kind": kind, "words": count, "warps": warps}, UNROLL * warps, "instructions of an SM",
            block=32 * warps, small=1,
        )  # fmt: skip
