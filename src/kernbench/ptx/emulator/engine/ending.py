"""Lanes that exit: they are removed from the living lanes, and the basic block that they ran last is kept."""

import numpy as np

from kernbench.ptx.emulator.lanes.arrays import Bools, Int64s, UInt32s
from kernbench.ptx.emulator.lanes.compiled import kernel
from kernbench.ptx.emulator.lanes.lanes import WARP

# values of `ended_in` that are not blocks: the lane lives, or was stopped
LIVING, STOPPED = -2, -3


@kernel
def end_lanes(
    warps: Int64s,
    mask: Bools,
    block: int,
    ended_in: Int64s,
    alive: Bools,
    alive_bits: UInt32s,
    alive_by_cta: Int64s,
) -> int:
    """Let lanes of warps exit in a basic block (all, if there is no mask); returns how many CTAs this leaves empty."""
    ctas, emptied = alive_by_cta.size, 0
    for i in range(warps.size):
        warp, gone = warps[i], 0
        bits = np.int64(alive_bits[warp])
        for lane in range(WARP):
            if mask.size > 0 and not mask[i * WARP + lane]:
                continue
            number = warp * WARP + lane
            gone += 1
            alive[number] = False
            bits &= ~(np.int64(1) << lane)
            if ended_in[number] == LIVING:
                ended_in[number] = block
        alive_bits[warp] = np.uint32(bits)
        alive_by_cta[warp % ctas] -= gone
        emptied += gone > 0 and alive_by_cta[warp % ctas] == 0
    return emptied
