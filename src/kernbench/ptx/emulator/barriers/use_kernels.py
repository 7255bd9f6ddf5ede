"""Compiled answers to what steps of mbarriers ask first: who uses which of them, and whether anything is the matter.

Mostly nothing is: then one loop over the lanes has found that out, and nobody looks any further.
"""

from kernbench.ptx.emulator.barriers.mbarrier_kernels import PHASE, START
from kernbench.ptx.emulator.lanes.arrays import Int64s
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
