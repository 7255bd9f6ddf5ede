"""Compiled steps of vector clocks: what nearly every arrival, fence and meeting of a warp asks of them, and does."""

import numpy as np

from kernbench.ptx.emulator.lanes.arrays import Bools, Int32s, Int64s, UInt32s
from kernbench.ptx.emulator.lanes.compiled import kernel
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.lanes.warp_bits import active_in


@kernel
def advance_once(lanes: Int64s, clocks: Int32s, seen: Bools) -> None:
    """Advance the clocks of the warps of lanes, each once; `seen` has an entry for each warp, all false."""
    ctas = clocks.shape[0]
    for i in range(lanes.size):
        warp = lanes[i] // WARP
        if not seen[warp]:
            seen[warp] = True
            clocks[warp % ctas, warp // ctas, warp // ctas] += 1
    for i in range(lanes.size):
        seen[lanes[i] // WARP] = False


@kernel
def count_aware(
    slots: Int64s, lanes: Int64s, ctas: int, homes: Int64s, special: Bools, partly_met: Bools, aware: Bools
) -> int:
    """How many lanes, which arrive on mbarriers of their CTAs, know more than their warps' clocks, or their warps do."""
    count = 0
    for i in range(slots.size):
        warp = lanes[i] // WARP
        if slots[i] >= 0 and homes[slots[i]] == warp % ctas and (special[lanes[i]] or partly_met[warp] or aware[warp]):
            count += 1
    return count


@kernel
def meet_whole(
    warps: Int64s, mask: Bools, named: UInt32s, members: UInt32s, clocks: Int32s, met: Int64s, partly_met: Bools
) -> bool:
    """Lanes of warps meet and begin a new epoch, if each names all `members` of its warp; else nothing is done.

    `mask` says which lanes there are, all where it is empty.
    """
    ctas = clocks.shape[0]
    for position in range(named.size):
        missing = np.int64(members[warps[position // WARP]]) & ~np.int64(named[position])
        if missing != 0 and (mask.size == 0 or mask[position]):
            return False
    for i in range(warps.size):
        warp = warps[i]
        if active_in(mask, i):
            met[warp] = clocks[warp % ctas, warp // ctas, warp // ctas]
            partly_met[warp] = False
            clocks[warp % ctas, warp // ctas, warp // ctas] += 1
    return True


@kernel
def show(warps: Int64s, one: int, two: int, clocks: Int32s) -> None:
    """Copy what warps know of each other into the columns from `one` on, and from `two` on; they begin a new epoch."""
    ctas, count = clocks.shape[0], clocks.shape[1]
    for i in range(warps.size):
        row, inside = clocks[warps[i] % ctas, warps[i] // ctas], warps[i] // ctas
        for other in range(count):
            row[one + other] = max(row[one + other], row[other])
            row[two + other] = max(row[two + other], row[other])
        row[inside] += 1
