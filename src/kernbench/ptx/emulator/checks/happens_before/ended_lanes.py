"""Lanes that exit before the rest of their warp: what they did since their warp last released is known to nobody.

A barrier orders the accesses of the threads that arrive at it. A lane that has exited is not waited for and never
arrives, so nothing promises that others see what it did. But a clock counts for a whole warp: whoever acquires the
warp's clock later would acquire that lane's accesses, too. So before a warp publishes its own clock, the shadow cells
of what its exited lanes did at their last clock get a clock that nobody ever acquires.

That is exact, since every release advances the clock of its warp. Clocks before a lane's last one were released while
the lane lived: either such a release included the lane, or it published other lanes by name. The last clock is first
published after the lane has exited.
"""

from collections.abc import Callable, Iterable

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.arrays import Bools, Int64s
from kernbench.ptx.emulator.lanes.compiled import kernel
from kernbench.ptx.emulator.lanes.lanes import NO_MASK, WARP, Mask, lane_bits
from kernbench.ptx.emulator.memory.cells import part_from
from kernbench.ptx.emulator.program.hub import BatchHub

# called with warps, and for each warp of the batch the last clocks of its lanes: their accesses then are never
# published
Forget = Callable[[Array, Array], None]


class EndedLanes:
    """Lanes of one batch that have exited while other lanes of their warps may live."""

    def __init__(self, batch: BatchHub, forget: Forget):
        self._forget = forget
        # lanes that have accessed memory, and the number of lanes that have not
        self._touched: Array = np.zeros(batch.lanes, bool)
        self._left = batch.lanes
        # of the first, lanes that have exited and whose warp has not published its clock since: a mask for each warp
        self.masks: Array = np.zeros(batch.warps, np.uint32)
        # whether any mask is not zero
        self.any = False
        # the warp's clock when each lane exited; 0 while the lane lives, or after `part`
        self._clocks: Array = np.zeros((batch.warps, WARP), np.int64)

    @property
    def all_touched(self) -> bool:
        """Whether every lane has accessed memory."""
        return not self._left

    def touched(self, lanes: Array, active: Mask | None) -> None:
        """Record that lanes access memory."""
        if self._left:
            self._left -= touch(self._touched, lanes, NO_MASK if active is None else active)

    def ended(self, warps: Array, active: Mask, clocks: Array) -> None:
        """Lanes of warps exit; `clocks` are their warps' clocks. A lane without accesses has nothing to withhold."""
        left = active & self._touched.reshape(-1, WARP)[warps]
        if left.any():
            self.any = True
            self.masks[warps] |= lane_bits(left)
            self._clocks[warps] = np.where(left, clocks[:, None], self._clocks[warps])

    def part(self, warps: Array) -> None:
        """Call before warps publish their own clocks: withholds what lanes that have exited did at their last clock."""
        if not self.any:
            return
        gone = warps[self.masks[warps] != 0]
        if len(gone):
            self._forget(gone, self._clocks)
            self.masks[gone] = 0
            self._clocks[gone] = 0
            self.any = bool(self.masks.any())


@kernel
def touch(touched: Bools, lanes: Int64s, mask: Bools) -> int:
    """Mark the active lanes (all, if there is no mask), and count those that were not marked before."""
    masked, count = mask.size > 0, 0
    for i in range(lanes.size):
        if (not masked or mask[i]) and not touched[lanes[i]]:
            touched[lanes[i]] = True
            count += 1
    return count


def part_from_lanes(memory: Iterable[tuple[Array, Array]], numbers: Array, clocks: Array) -> None:
    """Make the accesses of exited lanes at their last clocks known to nobody, for warps by their numbers in the grid.

    `memory` are cells with the lanes beside them.
    """
    rows: Array = np.full(int(numbers.max()) + 1, -1, np.int64)
    rows[numbers] = np.arange(len(numbers))
    for cells, lanes in memory:
        part_from(cells, lanes, rows, clocks)
