"""Sets of lanes of a batch: a run of warps or a list of warps, and a mask if not every lane is active.

Positions number the lanes of the set's warps from 0; a mask has one entry for each position. A list has only warps with
an active lane; a run also has the warps between its first and its last one that have none. Values may be computed for
all positions and written under the mask, but code that *counts* warps, or records their arrival, must use `present()`.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernbench.ptx.emulator.lanes.arrays import Bools
from kernbench.ptx.emulator.lanes.compiled import kernel

WARP = 32
# a run with a smaller share of live warps is stored as a list
_DENSE = 0.125
# if a subset's run is at least this share of the enclosing run, the enclosing run is kept: its window is cached
_NEARLY = 0.75

Mask = NDArray[np.bool_]
Warps = NDArray[np.int64]
# for compiled loops: the mask of a set all of whose lanes are active
NO_MASK: Mask = np.zeros(0, bool)


@dataclass(frozen=True, slots=True, eq=False)
class Lanes:
    """Warps `first` to `last` (exclusive), or the list `warps`; `mask` over positions, None for all.

    `count` is the number of active lanes, `live` the number of warps that have one; `whole` says that in each warp all
    lanes are active, or none.
    """

    first: int
    last: int
    warps: Warps | None
    mask: Mask | None
    count: int
    live: int
    whole: bool = True

    @property
    def positions(self) -> int:
        """The number of lanes of the warps, active or not."""
        return self.warp_count * WARP

    @property
    def warp_count(self) -> int:
        """The number of warps of the list, or of the run, including warps without an active lane."""
        return self.last - self.first if self.warps is None else len(self.warps)

    def warp_numbers(self) -> Warps:
        """The warps' numbers in the batch, by position; for a run, including warps without an active lane."""
        return np.arange(self.first, self.last) if self.warps is None else self.warps

    def present(self) -> tuple[Warps, Mask]:
        """The numbers of the warps that have an active lane, and their masks: one row of 32 for each warp."""
        warps, active = self.warp_numbers(), self.active().reshape(-1, WARP)
        if self.live == len(warps):
            return warps, active
        here = active.any(axis=1)
        return warps[here], active[here]

    def lane_numbers(self) -> NDArray[np.int64]:
        """The lanes' numbers in the batch, by position."""
        return (self.warp_numbers()[:, None] * WARP + np.arange(WARP)).reshape(-1)

    def active(self) -> Mask:
        """The mask; all ones if there is none."""
        return np.ones(self.positions, bool) if self.mask is None else self.mask

    def listed(self) -> "Lanes":
        """The same lanes as a list of the warps that have one."""
        if self.warps is not None:
            return self
        warps, active = self.present()
        mask = None if self.count == active.size else np.ascontiguousarray(active).reshape(-1)
        return Lanes(0, 0, warps, mask, self.count, self.live, self.whole)

    def select(self, chosen: Mask) -> "Lanes | None":
        """The active lanes where `chosen` (over positions) holds; None if there are none."""
        mask = chosen if self.mask is None else chosen & self.mask
        return _normal(self, mask)

    def split(self, chosen: Mask) -> "tuple[Lanes | None, Lanes | None]":
        """Active lanes where `chosen` holds, and the others."""
        taken, rest = np.empty(len(chosen), bool), np.empty(len(chosen), bool)
        survey = _part(chosen, NO_MASK if self.mask is None else self.mask, taken, rest)
        if survey[0] == self.count:
            return self, None
        if survey[0] == 0:
            return None, self
        return _normal(self, taken, survey[:4]), _normal(self, rest, survey[4:])

    def spread(self, total: int) -> Mask:
        """The active lanes as a mask over all `total` lanes of the batch."""
        mask = np.zeros(total, bool)
        if self.warps is None:
            mask[self.first * WARP : self.last * WARP] = True if self.mask is None else self.mask
        else:
            mask.reshape(-1, WARP)[self.warps] = self.active().reshape(-1, WARP)
        return mask


def everything(warps: int) -> Lanes:
    """All lanes of `warps` warps."""
    return Lanes(0, warps, None, None, warps * WARP, warps)


def from_mask(mask: Mask) -> Lanes | None:
    """The lanes of a mask over all lanes of a batch; None if it is empty."""
    warps = len(mask) // WARP
    return _normal(everything(warps), mask)


def union(one: Lanes, two: Lanes, total: int) -> Lanes:
    """The union of two disjoint sets."""
    if one.mask is None and two.mask is None and one.warps is None and two.warps is None:
        low, high = (one, two) if one.first < two.first else (two, one)
        if low.last == high.first:
            return Lanes(low.first, high.last, None, None, one.count + two.count, one.live + two.live)
    mask = one.spread(total)
    mask |= two.spread(total)
    joined = from_mask(mask)
    assert joined is not None
    return joined


def _normal(within: Lanes, mask: Mask, survey: tuple[int, ...] | None = None) -> Lanes | None:
    """The lanes of `mask`, over the positions of `within`, in the cheapest form; `survey` is what `_survey` returns."""
    count, first, last, live = _survey(mask) if survey is None else survey
    if count == 0:
        return None
    if within.warps is None and count < (last - first) * WARP and last - first >= _NEARLY * within.warp_count:
        first, last = 0, within.warp_count
    kept = mask[first * WARP : last * WARP]
    if within.warps is None and live >= (last - first) * _DENSE:
        start, whole = within.first, live * WARP == count
        return Lanes(start + first, start + last, None, None if count == kept.size else kept, count, live, whole)
    rows = mask.reshape(-1, WARP)
    filled = rows.any(axis=1)
    mask = np.ascontiguousarray(rows[filled]).reshape(-1)
    warps = within.warp_numbers()[filled]
    return Lanes(0, 0, warps, None if count == mask.size else mask, count, live, live * WARP == count)


@kernel
def _survey(mask: Bools) -> tuple[int, int, int, int]:
    """The number of active lanes, the first and last + 1 warp that has one, and the number of warps that have one."""
    count = 0
    first = -1
    last = 0
    live = 0
    for warp in range(mask.size // WARP):
        here = 0
        for lane in range(WARP):
            here += mask[warp * WARP + lane]
        if here:
            count += here
            live += 1
            last = warp + 1
            if first < 0:
                first = warp
    return count, first, last, live


@kernel
def _part(chosen: Bools, mask: Bools, taken: Bools, rest: Bools) -> tuple[int, int, int, int, int, int, int, int]:
    """Split active lanes (all, if there is no mask) into the chosen and the others; returns `_survey` of both."""
    count, first, last, live = 0, -1, 0, 0
    others, first_other, last_other, live_others = 0, -1, 0, 0
    for warp in range(chosen.size // WARP):
        here, left = 0, 0
        for position in range(warp * WARP, (warp + 1) * WARP):
            active = mask.size == 0 or mask[position]
            taken[position] = active and chosen[position]
            rest[position] = active and not chosen[position]
            here += taken[position]
            left += rest[position]
        if here:
            count, last, live = count + here, warp + 1, live + 1
            if first < 0:
                first = warp
        if left:
            others, last_other, live_others = others + left, warp + 1, live_others + 1
            if first_other < 0:
                first_other = warp
    return count, first, last, live, others, first_other, last_other, live_others


def lane_bits(mask: Mask) -> NDArray[np.uint32]:
    """The active lanes of each warp of a mask, as bits."""
    packed = np.packbits(mask.reshape(-1, WARP), axis=1, bitorder="little")
    return np.ascontiguousarray(packed).view(np.uint32).reshape(-1)


def group(lanes: Warps, keys: Warps) -> list[tuple[int, int, int]]:
    """Group lanes by warp and key: warp, key, and the lanes as bits."""
    order = np.lexsort((keys, lanes // WARP))
    warps, sorted_keys = (lanes // WARP)[order], keys[order]
    if not len(order):
        return []
    begins = np.flatnonzero(np.r_[True, (warps[1:] != warps[:-1]) | (sorted_keys[1:] != sorted_keys[:-1])])
    masks = np.bitwise_or.reduceat(np.int64(1) << (lanes[order] % WARP), begins)
    return list(zip(warps[begins].tolist(), sorted_keys[begins].tolist(), masks.tolist(), strict=True))
