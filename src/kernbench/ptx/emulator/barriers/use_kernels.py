"""Compiled answers to what steps of mbarriers ask first: who uses which of them, and whether anything is the matter.

Mostly nothing is: then one loop over the lanes has found that out, and nobody looks any further.
"""

import numpy as np

from kernbench.ptx.emulator.barriers.mbarrier_kernels import (
    ALIVE,
    EXPECTED,
    LAST_LANE,
    LIMIT,
    LIVE,
    PENDING,
    PHASE,
    START,
    TOUCHED,
)
from kernbench.ptx.emulator.lanes.arrays import Int64s, UInt64s
from kernbench.ptx.emulator.lanes.compiled import kernel
from kernbench.ptx.emulator.lanes.lanes import WARP

# what is said of a use: the warp's number in the batch, the barrier, its phase, and the sum of the amounts
USE = 4


@kernel
def uses_of(
    slots: Int64s, lanes: Int64s, amounts: Int64s, ctas: int, followed: int, state: Int64s, uses: Int64s
) -> int:
    """Barriers that warps of the first `followed` CTAs use, in the order of warps and barriers: a row each; how many."""
    count = 0
    for i in range(slots.size):
        slot, warp = slots[i], lanes[i] // WARP
        if slot < 0 or warp % ctas >= followed:
            continue
        at = count
        while at > 0 and (uses[at - 1, 0] > warp or (uses[at - 1, 0] == warp and uses[at - 1, 1] > slot)):
            at -= 1
        if at > 0 and uses[at - 1, 0] == warp and uses[at - 1, 1] == slot:
            uses[at - 1, 3] += amounts[i]
            continue
        for behind in range(count - at):
            for column in range(USE):
                uses[count - behind, column] = uses[count - behind - 1, column]
        uses[at, 0] = warp
        uses[at, 1] = slot
        uses[at, 2] = state[slot, PHASE] - state[slot, START]
        uses[at, 3] = amounts[i]
        count += 1
    return count


@kernel
def are_new(slots: Int64s, counts: Int64s) -> bool:
    """Whether there was never a barrier where lanes make one, and the number of arrivals that each gives is one."""
    for i in range(slots.size):
        if slots[i] != -1 or counts[i] < 1 or counts[i] > LIMIT:
            return False
    return True


@kernel
def open_new(
    ctas: Int64s,
    places: Int64s,
    counts: Int64s,
    first: int,
    first_column: int,
    last_column: int,
    used: Int64s,
    lookup: Int64s,
    homes: Int64s,
    offsets: Int64s,
    columns: Int64s,
    state: Int64s,
    stride: int,
    written: UInt64s,
) -> None:
    """Make barriers that are new, from number `first` on, at places of different CTAs; `used` counts those of each.

    Their columns in vector clocks are from `first_column` on, of which the last is of all that come later.
    """
    for i in range(ctas.size):
        slot, cta = first + i, ctas[i]
        columns[slot] = min(first_column + used[cta], last_column)
        used[cta] += 1
        lookup[cta, places[i] // 8] = slot
        homes[slot] = cta
        offsets[slot] = places[i]
        state[slot, LIVE] = ALIVE
        state[slot, LAST_LANE] = -1
        state[slot, PENDING] = counts[i]
        state[slot, EXPECTED] = counts[i]
        word = (cta * stride + places[i]) // 8
        written[word] = np.uint64(np.int64(written[word]) & ~TOUCHED)
