"""Lanes of a warp as bits, for compiled loops."""

from kernbench.ptx.emulator.lanes.arrays import Bools, Int
from kernbench.ptx.emulator.lanes.compiled import part
from kernbench.ptx.emulator.lanes.lanes import NO_MASK, WARP, Lanes, Mask, Warps
from kernbench.ptx.emulator.lanes.remembered import warps_of

_EVERYBODY = 0xFFFFFFFF


def given(lanes: Lanes) -> tuple[Warps, Mask]:
    """A set of lanes for compiled loops: its warps, and the mask of their lanes, empty if all are active."""
    return warps_of(lanes), NO_MASK if lanes.mask is None else lanes.mask


@part
def active_in(mask: Bools, row: Int) -> Int:
    """The active lanes of the warp in row `row` of a mask, which is empty if all are active."""
    if mask.size == 0:
        return _EVERYBODY
    found = 0
    for lane in range(WARP):
        if mask[row * WARP + lane]:
            found |= 1 << lane
    return found


@part
def bits_set(mask: Int) -> Int:
    """The number of lanes in a warp's mask."""
    count = 0
    while mask:
        mask &= mask - 1
        count += 1
    return count
