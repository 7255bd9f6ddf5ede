"""The part of an output that each rank owns: ranges along one axis."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from kernbench.common.errors import MisuseError

Bounds = Sequence[tuple[int, int]]
Selection = tuple[slice, ...]


@dataclass(frozen=True)
class Shards:
    """Rank r owns the indices `bounds[r][0]` up to `bounds[r][1]` of `axis`."""

    axis: int
    bounds: tuple[tuple[int, int], ...]

    def part(self, rank: int) -> Selection:
        """The index of the rank's part in the output."""
        return (*(slice(None),) * self.axis, slice(*self.bounds[rank]))

    def locate(self, index: tuple[int, ...]) -> tuple[int, int] | None:
        """The rank that owns the element at `index`, and its row in that rank's part; None if no rank does."""
        row = index[self.axis]
        for rank, (start, stop) in enumerate(self.bounds):
            if start <= row < stop:
                return rank, row - start
        return None


def make_shards(shape: tuple[int, ...], axis: int | None, ranks: int | None, bounds: Bounds | None) -> Shards | None:
    """The shards of an output of `shape`: `ranks` equal ones (the last ragged) or `bounds`; None without an axis."""
    if axis is None:
        if ranks is not None or bounds is not None:
            raise MisuseError("ranks and rank_bounds need rank_axis: the axis that is shared out")
        return None
    if not -len(shape) <= axis < len(shape):
        raise MisuseError(f"rank_axis {axis} is no axis of an output of shape {shape}")
    axis %= len(shape)
    if (ranks is None) == (bounds is None):
        raise MisuseError("rank_axis needs either ranks (a count) or rank_bounds (a list of ranges)")
    return Shards(axis, _equal(shape[axis], ranks) if ranks is not None else _checked(shape[axis], bounds or ()))


def _equal(size: int, ranks: int) -> tuple[tuple[int, int], ...]:
    if ranks < 1:
        raise MisuseError(f"ranks must be at least 1, got {ranks}")
    share = -(-size // ranks)
    return tuple((min(r * share, size), min((r + 1) * share, size)) for r in range(ranks))


def _checked(size: int, bounds: Bounds) -> tuple[tuple[int, int], ...]:
    for start, stop in bounds:
        if not 0 <= start <= stop <= size:
            raise MisuseError(f"rank_bounds ({start}, {stop}) do not lie within the {size} indices of rank_axis")
    ordered = sorted(bounds)
    for (_, stop), (start, _) in pairwise(ordered):
        if start < stop:
            raise MisuseError(f"rank_bounds overlap: index {start} belongs to two ranks")
    return tuple((int(start), int(stop)) for start, stop in bounds)
