"""Compiled steps of vector clocks: what nearly every arrival and every barrier asks of them, and does to them."""

from kernbench.ptx.emulator.lanes.arrays import Bools, Int32s, Int64s
from kernbench.ptx.emulator.lanes.compiled import kernel
from kernbench.ptx.emulator.lanes.lanes import WARP


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
