"""Compiled quick tests for mbarrier operations: which warps use which barriers, and whether there is a fault.

Mostly there is none: then one loop over the lanes has shown that, and the slow path is skipped.
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

# columns of a use: the warp's number in the batch, the barrier, its phase, and the sum of the amounts
USE = 4


@kernel
def uses_of(
    slots: Int64s, lanes: Int64s, amounts: Int64s, ctas: int, followed: int, state: Int64s, uses: Int64s
) -> int:
    """Uses of barriers by warps of the first `followed` CTAs, a row each, sorted by warp and barrier.

    Returns how many.
    """
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
def count_new(slots: Int64s, counts: Int64s) -> int:
    """Count lanes that initialise a barrier where there never was one, with a valid count."""
    new = 0
    for i in range(slots.size):
        new += slots[i] == -1 and 1 <= counts[i] <= LIMIT
    return new


@kernel
def open_new(
    ctas: Int64s,
    offsets: Int64s,
    counts: Int64s,
    first: int,
    first_column: int,
    last_column: int,
    rows: tuple[Int64s, Int64s, Int64s, Int64s, Int64s, Int64s],
    memory: tuple[int, UInt64s],
) -> None:
    """Initialise new barriers, from number `first` on, at offsets in the shared memory of distinct CTAs.

    Their columns in vector clocks begin at `first_column`; later barriers share the last column. `rows` are the number
    of barriers of each CTA, the barrier at each offset, and each barrier's CTA, offset, column and state; `memory` the
    stride between CTAs in bytes, and the states of each eight bytes.
    """
    used, lookup, homes, held_at, columns, state = rows[0], rows[1], rows[2], rows[3], rows[4], rows[5]
    stride, written = memory[0], memory[1]
    for i in range(ctas.size):
        slot, cta = first + i, ctas[i]
        columns[slot] = min(first_column + used[cta], last_column)
        used[cta] += 1
        lookup[cta, offsets[i] // 8] = slot
        homes[slot] = cta
        held_at[slot] = offsets[i]
        state[slot, LIVE] = ALIVE
        state[slot, LAST_LANE] = -1
        state[slot, PENDING] = counts[i]
        state[slot, EXPECTED] = counts[i]
        word = (cta * stride + offsets[i]) // 8
        written[word] = np.uint64(np.int64(written[word]) & ~TOUCHED)
