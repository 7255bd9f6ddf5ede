"""Tensor cores: wgmma by N, operands, chains and warpgroups; mma.sync by warps; and arithmetic beside wgmma."""

from collections.abc import Iterator

import numpy as np

from ..case import Case, Content, Data
from ..source import Source, lines, shared

# A of 64 x 64 and B of 256 x 64 elements, in core matrices of 8 rows of 16 bytes
_A_BYTES, _B_BYTES = 64 * 64 * 2, 256 * 64 * 2
TILE = _A_BYTES + _B_BYTES
ONES = 0x3F803F80
KIB = 1 << 10


def tile_filled(words: int, value: str) -> str:
    """The tile from `data`, or ones: what the elements are, not where, is what matters."""
    source = "ld.global.u32 %r203, [%d90];" if value == "data" else f"mov.u32 %r203, {ONES};"
    return lines(
        "mov.u32 %r200, tile;",
        "mov.u32 %r201, %thread;",
        "fill:",
        '.pragma "nounroll";',
        "mad.wide.u32 %d90, %r201, 4, %data;",
        source,
        "mad.lo.u32 %r202, %r201, 4, %r200;",
        "st.shared.u32 [%r202], %r203;",
        "add.u32 %r201, %r201, %threads;",
        f"setp.lt.u32 %p10, %r201, {words};",
        "@%p10 bra fill;",
        "fence.proxy.async.shared::cta;",
        "bar.sync 0;",
    )


def descriptors() -> str:
    """%d80 of A and %d81 of B: no swizzle, 128 bytes between core matrices along K, 1024 between those along M or N."""
    fixed = (128 >> 4) << 16 | (1024 >> 4) << 32
    return lines(
        "cvt.u64.u32 %d80, %r200;",
        "shr.u64 %d80, %d80, 4;",
        f"add.u64 %d81, %d80, {_A_BYTES >> 4};",
        f"or.b64 %d80, %d80, {fixed};",
        f"or.b64 %d81, %d81, {fixed};",
    )


def product(n: int, operands: str) -> str:
    """D += A B of 64 x n x 16."""
    accumulators = ", ".join(f"%f{i}" for i in range(n // 2))
    a = "%d80" if operands == "ss" else "{%r210, %r211, %r212, %r213}"
    tail = "%p9, 1, 1, 0, 0" if operands == "ss" else "%p9, 1, 1, 0"
    return f"wgmma.mma_async.sync.aligned.m64n{n}k16.f32.bf16.bf16 {{{accumulators}}}, {a}, %d81, {tail};"


def wgmma(n: int, operands: str, chain: int, groups: int, value: str = "ones", beside: str = "") -> Source:
    """`chain` products of one accumulator in a group, and a wait that leaves `groups` under way."""
    begun = [f"mov.f32 %f{i}, 0f00000000;" for i in range(n // 2)]
    registers = [f"mov.b32 %r{210 + i}, {ONES};" for i in range(4)]
    setup = lines(tile_filled(TILE // 4, value), descriptors(), *begun, *registers, "setp.eq.u32 %p9, 0, 0;")
    group = lines(
        "wgmma.fence.sync.aligned;",
        *[product(n, operands)] * chain,
        "wgmma.commit_group.sync.aligned;",
        f"wgmma.wait_group.sync.aligned {groups};",
    )
    name = f"wgmma_{n}_{operands}_{chain}_{groups}_{value}"
    finish = lines("wgmma.wait_group.sync.aligned 0;", "mov.b32 %result, %f0;")
    if not beside:
        return Source(name, group, setup, finish, shared(TILE))
    return Source(f"{name}_{beside}", setup=setup, roles=_beside(group, beside), finish=finish, outside=shared(TILE))


_OTHERS = {
    "fma": [f"fma.rn.f32 %f{500 + i % 16}, %f{500 + i % 16}, %f520, %f521;" for i in range(128)],
    "mufu": [f"ex2.approx.ftz.f32 %f{500 + i % 16}, %f{500 + i % 16};" for i in range(32)],
    "minmax": [
        f"{('max', 'min')[i // 16 % 2]}.f32 %f{500 + i % 16}, %f{500 + i % 16}, %f52{i // 16 % 2};" for i in range(64)
    ],
    "none": [],
}  # fmt: skip


def _beside(group: str, beside: str) -> str:
    """The first warpgroup multiplies, the second computes; each has its own count of turns and its own cycles."""
    work = _OTHERS[beside]
    begun = [f"mov.f32 %f{500 + i}, %f521;" for i in range(16)]
    kept = [f"mov.b32 %r220, %f{500 + i};\nxor.b32 %result, %result, %r220;" for i in range(16)] if work else []
    return lines(
        "ld.global.f32 %f520, [%data];",
        "ld.global.f32 %f521, [%data+4];",
        "setp.ge.u32 %p11, %thread, 128;",
        "@%p11 bra others;",
        "multiply:",
        '.pragma "nounroll";',
        group,
        "add.u32 %turn, %turn, 1;",
        "setp.lt.u32 %again, %turn, %turns;",
        "@%again bra multiply;",
        "bra done;",
        "others:",
        *begun,
        "compute:",
        '.pragma "nounroll";',
        *work,
        "add.u32 %turn, %turn, 1;",
        "setp.lt.u32 %again, %turn, %turns;",
        "@%again bra compute;",
        *kept,
        "st.global.u32 [%mine], %result;",
        "done:",
    )


def products() -> Iterator[Case]:
    """One warpgroup: by N with A in shared memory and in registers, groups of one product, waiting for each or not."""
    for operands in ("ss", "rs"):
        for n in (8, 16, 32, 64, 128, 192, 256):
            for chain, groups in ((1, 0), (4, 0), (16, 0), (8, 1)):
                yield _case("wgmma.rate", n, operands, chain, groups, 1)


def warpgroups() -> Iterator[Case]:
    """Two and three warpgroups that share the tensor cores."""
    for count in (2, 3):
        for n in (64, 128):
            yield _case("wgmma.rate", n, "ss", 8, 1, count)


def _case(name: str, n: int, operands: str, chain: int, groups: int, count: int) -> Case:
    varied: dict[str, float | str] = {
        "n": n,
        "operands": operands,
        "chain": chain,
        "groups": groups,
        "warpgroups": count,
    }
    turns = (32, 96)
    value = 2.0 * 16 * chain
    return Case(
        name, wgmma(n, operands, chain, groups), varied, chain * count, "products of an SM", block=128 * count,
        turns=turns, expected=np.full(128 * count, np.float32(value).view(np.uint32), np.uint32),
    )  # fmt: skip


def beside() -> Iterator[Case]:
    """Arithmetic of one warpgroup beside the products of another; `none` and no products for comparison."""
    for other in _OTHERS:
        varied: dict[str, float | str] = {"beside": other, "instructions": len(_OTHERS[other])}
        yield Case(
            "wgmma.beside", wgmma(128, "ss", 4, 1, "ones", other), varied, 4, "products", block=256, turns=(256, 768)
        )  # fmt: skip
        for n, operands in ((128, "rs"), (64, "ss"), (64, "rs")):
            made = wgmma(n, operands, 4, 1, "ones", other)
            given = {**varied, "n": n, "operands": operands}
            yield Case("wgmma.beside_others", made, given, 4, "products", block=256, turns=(256, 768))


def mma_source(chains: int) -> Source:
    """Sixteen products over so many accumulators."""
    body = [
        f"mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {{{d}}}, {{%r210, %r211, %r212, %r213}}, "
        f"{{%r214, %r215}}, {{{d}}};"
        for step in range(16)
        for d in [", ".join(f"%f{4 * (step % chains) + i}" for i in range(4))]
    ]
    begun = [f"mov.f32 %f{i}, 0f00000000;" for i in range(4 * chains)]
    registers = [f"mov.b32 %r{210 + i}, {ONES};" for i in range(6)]
    kept = [f"mov.b32 %r220, %f{4 * i};\nxor.b32 %result, %result, %r220;" for i in range(chains)]
    return Source(f"mma_{chains}", lines(*body), lines(*begun, *registers), lines(*kept))


def mma() -> Iterator[Case]:
    """mma.sync.m16n8k16: one chain of one warp for its latency, eight accumulators of 1 to 16 warps for its rate."""
    for chains, warps in ((1, 1), (8, 4), (8, 8), (8, 16)):
        made = mma_source(chains)
        expected = np.float32(16 * 32) if chains == 1 else np.float32(0)
        yield Case(
            "mma.rate", made, {"chains": chains, "warps": warps}, 16 * warps, "products of an SM", block=32 * warps,
            expected=np.full(32 * warps, expected.view(np.uint32), np.uint32),
        )  # fmt: skip


def power() -> Iterator[Case]:
    """All SMs multiply for tens of milliseconds, on ones, zeros and numbers that look random: what the clock does."""
    contents: tuple[Content, ...] = ("zeros", "ones", "numbers")
    for content in contents:
        yield Case(
            "clock.tensor", wgmma(256, "ss", 8, 1, "data"), {"data": content}, 8 * 2, "products of an SM", block=256,
            grid=0, turns=(10_000, 30_000), data=Data(64 * KIB, content), by_time=True,
        )  # fmt: skip
