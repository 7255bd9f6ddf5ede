"""What runs beside products of the same warpgroup, and the clock while tensor cores or other pipes work."""

from collections.abc import Iterator

from ..case import Case, Data
from ..source import Source, lines, shared
from .tensor_cores import ONES, TILE, descriptors, mma_source, product, tile_filled, wgmma

KIB = 1 << 10
_SUM = 400
WORK = {
    "none": [],
    "fma": [f"fma.rn.f32 %f{500 + i % 16}, %f{500 + i % 16}, %f520, %f521;" for i in range(64)],
    "mufu": [f"ex2.approx.ftz.f32 %f{500 + i % 16}, %f{500 + i % 16};" for i in range(32)],
    "minmax": [
        f"{('max', 'min')[i // 16 % 2]}.f32 %f{500 + i % 16}, %f{500 + i % 16}, %f52{i // 16 % 2};" for i in range(64)
    ],
    "convert": [
        f"cvt.rn.bf16x2.f32 %r{230 + i % 16}, %f{500 + i % 16}, %f52{i // 16 % 2};\n"
        f"mov.b32 %f{500 + i % 16}, %r{230 + i % 16};"
        for i in range(32)
    ],
    "shuffle": [
        f"mov.b32 %r{230 + i % 8}, %f{500 + i % 8};\nshfl.sync.bfly.b32 %r{230 + i % 8}, %r{230 + i % 8}, 1, 31, -1;\n"
        f"mov.b32 %f{500 + i % 8}, %r{230 + i % 8};"
        for i in range(16)
    ],
}  # fmt: skip
_BEGUN = lines(
    "ld.global.f32 %f520, [%data];",
    "ld.global.f32 %f521, [%data+4];",
    *(f"mov.f32 %f{500 + i}, %f521;" for i in range(16)),
)
_KEPT = lines(*(f"mov.b32 %r220, %f{500 + i};\nxor.b32 %result, %result, %r220;" for i in range(16)))


def _setup(accumulators: int) -> str:
    begun = [f"mov.f32 %f{i}, 0f00000000;" for i in range(accumulators)]
    registers = [f"mov.b32 %r{210 + i}, {ONES};" for i in range(4)]
    predicates = ("setp.eq.u32 %p9, 0, 0;", "setp.ne.u32 %p8, 0, 0;")
    return lines(tile_filled(TILE // 4, "ones"), descriptors(), *begun, *registers, *predicates, _BEGUN)


def same_warpgroup() -> Iterator[Case]:
    """Four products, arithmetic that needs none of them, and the wait: what of it is hidden."""
    for n in (64, 128):
        for name, work in WORK.items():
            group = lines(
                "wgmma.fence.sync.aligned;",
                *[product(n, "ss")] * 4,
                "wgmma.commit_group.sync.aligned;",
                *work,
                "wgmma.wait_group.sync.aligned 0;",
            )
            made = Source(f"own_{n}_{name}", group, _setup(n // 2), lines("mov.b32 %result, %f0;", _KEPT), shared(TILE))
            for groups in (1, 2):
                varied: dict[str, float | str] = {"n": n, "beside": name, "instructions": len(work)}
                yield Case(
                    "wgmma.own", made, {**varied, "warpgroups": groups}, 4 * groups, "products", block=128 * groups,
                    turns=(64, 192),
                )  # fmt: skip


def _scores() -> list[str]:
    """32 sums of a row pair: maximum with its shuffles, exponentials, sums, conversions, and 64 sums to scale."""
    at = [f"%f{_SUM + i}" for i in range(32)]
    text: list[str] = []
    for half in (0, 1):
        most = f"%f{522 + half}"
        text += [f"max.f32 {most}, {most}, {register};" for register in at[half::2]]
        for lanes in (1, 2):
            text += [
                f"mov.b32 %r22{half}, {most};", f"shfl.sync.bfly.b32 %r22{half}, %r22{half}, {lanes}, 31, -1;",
                f"mov.b32 %f524, %r22{half};", f"max.f32 {most}, {most}, %f524;",
            ]  # fmt: skip
        text += [f"neg.f32 %f525, {most};"]
        text += [f"fma.rn.f32 {register}, {register}, %f520, %f525;" for register in at[half::2]]
        text += [f"ex2.approx.ftz.f32 {register}, {register};" for register in at[half::2]]
        text += [f"add.f32 %f{526 + half}, %f{526 + half}, {register};" for register in at[half::2]]
        text += [f"ex2.approx.ftz.f32 %f{528 + half}, %f525;"]
    text += [f"mul.f32 %f{i}, %f{i}, %f{528 + i % 2};" for i in range(64)]
    text += [f"cvt.rn.bf16x2.f32 %r{210 + i}, {at[2 * i + 1]}, {at[2 * i]};" for i in range(16)]
    return text


def _attention(parts: str) -> Source:
    """A turn of attention by one warpgroup: 64 x 64 scores over 128, softmax, then 64 x 128 sums over 64, with weights
    in registers (v) or in shared memory (w).
    """
    at = ", ".join(f"%f{_SUM + i}" for i in range(32))
    shape = "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16"
    scores = [f"{shape} {{{at}}}, %d80, %d81, {'%p8' if step == 0 else '%p9'}, 1, 1, 0, 0;" for step in range(8)]
    total = ", ".join(f"%f{i}" for i in range(64))
    sums: list[str] = []
    for step in range(4):
        rows = ", ".join(f"%r{210 + 4 * step + i}" for i in range(4))
        sums.append(
            f"wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {{{total}}}, {{{rows}}}, %d81, %p9, 1, 1, 0;"
        )
    fence, commit, wait = (f"wgmma.{name}.sync.aligned" for name in ("fence", "commit_group", "wait_group"))
    text: list[str] = []
    if "q" in parts:
        text += [f"{fence};", *scores, f"{commit};", f"{wait} 0;"]
    if "s" in parts:
        text += _scores()
    if "v" in parts:
        text += [f"{fence};", *sums, f"{commit};", f"{wait} 0;"]
    if "w" in parts:
        text += [f"{fence};", *[product(128, "ss")] * 4, f"{commit};", f"{wait} 0;"]
    begun = [f"mov.f32 %f{_SUM + i}, %f521;" for i in range(32)]
    begun += [f"mov.b32 %r{210 + i}, {ONES};" for i in range(16)]
    begun += [f"mov.f32 %f{522 + i}, 0f00000000;" for i in range(8)]
    kept = [f"mov.b32 %r240, %f{i};\nxor.b32 %result, %result, %r240;" for i in (0, 63, _SUM, 526, 527)]
    kept += [f"xor.b32 %result, %result, %r{210 + i};" for i in range(16)]
    return Source(f"attention_{parts}", lines(*text), lines(_setup(64), *begun), lines(*kept), shared(TILE))


def attention() -> Iterator[Case]:
    """Scores, softmax and sums, each alone, and together by one and two warpgroups and by two CTAs of them."""
    for parts in ("q", "s", "v", "w", "sv", "sw", "qs", "qsv"):
        made = _attention(parts)
        for groups, per_sm in ((1, 1), (2, 1), (2, 2)):
            if len(parts) < 3 and per_sm == 2:
                continue
            yield Case(
                "wgmma.turn", made, {"parts": parts, "warpgroups": groups, "ctas": per_sm}, groups, "turns",
                block=128 * groups, grid=0 if per_sm == 2 else 1, grid_per_sm=per_sm, turns=(32, 96),
            )  # fmt: skip


def clocks() -> Iterator[Case]:
    """Kernels of one kind that last about 10 us to 2 ms, on one SM and on all: at which clock they run."""
    fma = lines(*(f"fma.rn.f32 %f{500 + i % 16}, %f{500 + i % 16}, %f520, %f521;" for i in range(128)))
    kinds = {
        "wgmma": (wgmma(128, "ss", 8, 1), 512, 128),
        "mma": (mma_source(8), 132, 128),
        "fma": (Source("clock_fma", fma, _BEGUN, _KEPT), 136, 128),
    }
    for kind, (made, cycles, block) in kinds.items():
        for grid in (1, 0):
            for low, high in ((20_000, 100_000), (400_000, 4_000_000)):
                varied: dict[str, float | str] = {"kind": kind, "sms": grid or "all", "cycles": low}
                yield Case(
                    "clock.kind", made, varied, 1, "turns", block=block, grid=grid,
                    turns=(low // cycles, high // cycles), data=Data(4 * KIB),
                )  # fmt: skip
