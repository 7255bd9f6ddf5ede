"""Compiled loops for CTA barriers: warps arrive and are counted, and rounds complete.

Warps come with a mask of their lanes, which is empty if all are active. A run of warps may contain warps without an
active lane, which do not arrive.
"""

import numpy as np

from kernbench.ptx.emulator.lanes.arrays import Bools, Int, Int64s, UInt32s
from kernbench.ptx.emulator.lanes.compiled import kernel, part
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.lanes.warp_bits import active_in, bits_set


@part
def _units(count: Int, living: Int, before: Int) -> Int:
    """How many threads a warp's arrival counts for, if `count` lanes arrive after `before` others.

    Missing and exited lanes count together with the last living lane to arrive: a diverged warp arrives in parts.
    """
    alive = max(bits_set(living), 1)
    return count + (WARP - alive) * ((before + count) // alive - before // alive)


@kernel
def find_rounds(
    warps: Int64s,
    mask: Bools,
    living: UInt32s,
    came: Int64s,
    units: Int64s,
    count: int,
    sums: Int64s,
    rounds: Int64s,
) -> int:
    """The round of a barrier for `count` threads in which each warp is counted, 0 for the open one; returns the last.

    `sums` is a buffer with an entry for each CTA. Entries of `rounds` for other warps stay.
    """
    ctas, last = units.size, 0
    for cta in range(ctas):
        sums[cta] = units[cta]
    for i in range(warps.size):
        here, cta = bits_set(active_in(mask, i)), warps[i] % ctas
        rounds[warps[i]] = 0
        if here:
            sums[cta] += _units(here, np.int64(living[warps[i]]), came[cta, warps[i] // ctas])
            rounds[warps[i]] = (sums[cta] - 1) // count
            last = max(last, rounds[warps[i]])
    return last


@kernel
def pass_alone(
    warps: Int64s,
    mask: Bools,
    living: UInt32s,
    count: int,
    lanes: Int64s,
    alive: Int64s,
    sums: Int64s,
) -> bool:
    """Whether the arriving lanes complete the round of each of their CTAs by themselves, with all their living lanes.

    It is required that none have arrived before. `count` is as in `enter`; `sums` is a buffer with two entries per CTA.
    """
    ctas = lanes.size
    for cta in range(ctas):
        sums[0, cta] = 0
        sums[1, cta] = 0
    for i in range(warps.size):
        active, cta = active_in(mask, i), warps[i] % ctas
        if active == 0:
            continue
        if active != np.int64(living[warps[i]]) or lanes[cta] > 0:
            return False
        sums[0, cta] += bits_set(active)
        sums[1, cta] += WARP
    for cta in range(ctas):
        missing = sums[0, cta] < alive[cta] if count < 0 else sums[1, cta] < count
        if sums[0, cta] > 0 and missing:
            return False
    return True


@kernel
def enter(
    warps: Int64s,
    mask: Bools,
    living: UInt32s,
    waits: bool,
    count: int,
    lanes: Int64s,
    units: Int64s,
    expected: Int64s,
    came: Int64s,
    present: Bools,
) -> None:
    """Count arriving lanes, and record the barrier's thread count; -1, for the whole block, is the default."""
    ctas = lanes.size
    for i in range(warps.size):
        here, cta, inside = bits_set(active_in(mask, i)), warps[i] % ctas, warps[i] // ctas
        if here == 0:
            continue
        lanes[cta] += here
        units[cta] += _units(here, np.int64(living[warps[i]]), came[cta, inside])
        came[cta, inside] += here
        if waits:
            present[cta, inside] = True
        if count >= 0:
            expected[cta] = count


@kernel
def complete(lanes: Int64s, units: Int64s, expected: Int64s, alive: Int64s, done: Bools) -> tuple[int, int]:
    """Find the CTAs whose barrier is complete; returns how many, and how many of them wait for the whole block."""
    count, whole = 0, 0
    for cta in range(lanes.size):
        everybody = expected[cta] < 0
        enough = lanes[cta] == alive[cta] if everybody else units[cta] >= expected[cta]
        done[cta] = lanes[cta] > 0 and enough
        if done[cta]:
            count += 1
            whole += everybody
    return count, whole


@kernel
def begin_again(
    done: Bools, lanes: Int64s, units: Int64s, expected: Int64s, votes: Int64s, came: Int64s, present: Bools
) -> None:
    """Begin a new round in the CTAs of `done`."""
    for cta in range(lanes.size):
        if not done[cta]:
            continue
        lanes[cta] = 0
        units[cta] = 0
        expected[cta] = -1
        votes[cta] = 0
        for inside in range(came.shape[1]):
            came[cta, inside] = 0
            present[cta, inside] = False


@kernel
def count_others(warps: Int64s, mask: Bools, lanes: Int64s, expected: Int64s, everybody: int, count: int) -> int:
    """Count warps that arrive with another thread count than the earlier arrivals of their CTA."""
    ctas, others = lanes.size, 0
    for i in range(warps.size):
        cta = warps[i] % ctas
        before = everybody if expected[cta] < 0 else expected[cta]
        if lanes[cta] > 0 and before != count and active_in(mask, i):
            others += 1
    return others
