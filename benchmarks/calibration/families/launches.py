"""Launches: kernels that are empty, or note when and where their CTAs begin and end; the clock while HBM streams."""

from collections.abc import Iterator

from ..case import Case, Data
from ..source import Source, lines
from .bandwidth import read_source

EMPTY = """.version 8.3
.target sm_90a
.address_size 64
.visible .entry empty()
{
ret;
}
"""
GRIDS = (1, 132, 1024, 10_000)
CLUSTERS = (1, 2, 4, 8)
_SPIN = lines(
    "mov.u64 %d1, %clock64;",
    "spin:",
    '.pragma "nounroll";',
    "mov.u64 %d2, %clock64;",
    "sub.u64 %d3, %d2, %d1;",
    "setp.lt.u64 %p1, %d3, {cycles};",
    "@%p1 bra spin;",
)


def starts() -> Iterator[Case]:
    """CTAs that each take some thousand cycles: `out` says which SM each was on, and when it began and ended."""
    for cycles in (4000, 20000):
        made = Source(f"starts_{cycles}", _SPIN.format(cycles=cycles))
        for block, waves in ((1024, 8), (256, 8)):
            varied = {"cycles": cycles, "block": block}
            yield Case(
                "launch.starts", made, varied, 1, "CTAs", block=block, grid=0, grid_per_sm=2048 // block * waves,
                turns=(1, 1), small=1, small_grid=3,
            )  # fmt: skip


def waves() -> Iterator[Case]:
    """CTAs that do next to nothing, many waves of them: what it takes to start and end one, by threads."""
    made = Source("waves", "mov.u32 %r0, %clock;")
    for block in (32, 128, 256, 512, 1024):
        for grid_per_sm in (1, 16, 128):
            yield Case(
                "launch.waves", made, {"block": block, "ctas": grid_per_sm}, 1, "CTAs of an SM", block=block, grid=0,
                grid_per_sm=grid_per_sm, turns=(1, 1), by_time=True, small=1, small_grid=3,
            )  # fmt: skip


def probe() -> Case:
    """One warp that waits for about 100 us: the clock as it is now."""
    return Case(
        "clock.probe", Source("probe", _SPIN.format(cycles=200_000)), {}, 200_000, "cycles", turns=(1, 1), small=1
    )


def streaming() -> Iterator[Case]:
    """All SMs read HBM for tens of milliseconds: what the clock does."""
    nbytes = 4 << 30
    small = Data(256 << 10, "numbers")
    yield Case(
        "clock.streaming", read_source(nbytes, 4, 512), {}, 512 * 64, "bytes of a CTA", block=512, grid=0,
        grid_per_sm=2, turns=(4000, 12000), data=Data(nbytes, "numbers"), by_time=True, small_data=small,
        small_source=read_source(small.nbytes, 4, 512),
    )  # fmt: skip
