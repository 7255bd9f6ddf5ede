"""Compiled steps of what is known of rounds of barriers: who may come to the next one, and how one is closed."""

import numpy as np

from kernbench.ptx.emulator.lanes.arrays import Bools, Int, Int32s, Int64s, UInt32s
from kernbench.ptx.emulator.lanes.compiled import kernel, part
from kernbench.ptx.emulator.lanes.warp_bits import active_in


@part
def _knows_a_waiter(ends: Int64s, row: Int32s, inside: Int, lane: Int) -> bool:
    """Whether a warp knows by its vector clock that one who waited in the last round, or one of its lanes, went on."""
    if ends[inside] >= 0:
        return True
    for other in range(ends.size):
        if ends[other] < 0:
            continue
        if row[other] > ends[other] or (lane >= 0 and row[lane + other] >> 5 > ends[other]):
            return True
    return False


@part
def _nobody_waited(ends: Int64s) -> bool:
    """Whether all who came to the last round only arrived."""
    for other in range(ends.size):
        if ends[other] >= 0:
            return False
    return True


@part
def _knows_arrivals(row: Int32s, arrivals: Int64s, cta: Int, inside: Int) -> bool:
    """Whether a warp knows of each of the arrivals of the last round, if there were any."""
    if arrivals.size == 0:
        return True
    for other in range(arrivals.shape[1]):
        if other != inside and row[other] <= arrivals[cta, other]:
            return False
    return True


@kernel
def count_unsure(
    warps: Int64s, mask: Bools, last: Int64s, clocks: Int32s, lane: int, arrivals: Int64s, come: UInt32s
) -> int:
    """How many warps that come to a barrier may be counted in another round of it; the others' lanes have `come`.

    `last` has for each warp that waited in the last round its clock then, -1 for the others, `arrivals` the same of
    those who only arrived; either is empty where there was no such round. `lane` is where what is known of single lanes
    begins in a vector clock, or -1. Where some are unsure, nobody has `come`.
    """
    ctas, unsure = clocks.shape[0], 0
    for i in range(warps.size):
        here, cta, inside = active_in(mask, i), warps[i] % ctas, warps[i] // ctas
        if here == 0:
            continue
        if come.size and np.int64(come[cta, inside]) & here:
            unsure += 1
        if last.size == 0:
            continue
        ends, row = last[cta], clocks[cta, inside]
        if _knows_a_waiter(ends, row, inside, lane):
            continue
        if not _nobody_waited(ends) or not _knows_arrivals(row, arrivals, cta, inside):
            unsure += 1
    if unsure == 0 and come.size:
        for i in range(warps.size):
            here = active_in(mask, i) | np.int64(come[warps[i] % ctas, warps[i] // ctas])
            come[warps[i] % ctas, warps[i] // ctas] = np.uint32(here)
    return unsure


@kernel
def close_round(done: Bools, waiting: Bools, clocks: Int32s, come: UInt32s, last: Int64s) -> None:
    """Nobody has come to the next round; of this one the clocks are kept at which those who waited went on."""
    for cta in range(done.size):
        if not done[cta]:
            continue
        for inside in range(waiting.shape[1]):
            if come.size:
                come[cta, inside] = 0
            last[cta, inside] = clocks[cta, inside, inside] - 1 if waiting[cta, inside] else -1


@kernel
def join_round(
    done: Bools,
    present: Bools,
    given: Int32s,
    clocks: Int32s,
    met: Int64s,
    partly_met: Bools,
    aware: Bools,
    shared: Int64s,
) -> int:
    """The warps of `present` met in the CTAs of `done`: all release and all acquire, and begin a new epoch.

    `given` are the clocks of those who only arrived, or empty. Gives in how many CTAs warps are `aware` of single lanes
    and do not all share that.
    """
    ctas, warps, columns = clocks.shape[0], clocks.shape[1], clocks.shape[2]
    unlike = 0
    for cta in range(ctas):
        first, some, others = -1, False, False
        for inside in range(warps):
            if not done[cta] or not present[cta, inside]:
                continue
            number = inside * ctas + cta
            if first < 0:
                first = inside
            else:
                for column in range(columns):
                    clocks[cta, first, column] = max(clocks[cta, first, column], clocks[cta, inside, column])
            some |= aware[number]
            others |= not aware[number] or shared[number] != shared[first * ctas + cta]
        if first < 0:
            continue
        if some and others:
            unlike += 1
        if given.size:
            for column in range(columns):
                clocks[cta, first, column] = max(clocks[cta, first, column], given[cta, column])
        for inside in range(warps):
            if present[cta, inside]:
                partly_met[inside * ctas + cta] = False
                met[inside * ctas + cta] = clocks[cta, first, inside]
                for column in range(columns):
                    clocks[cta, inside, column] = clocks[cta, first, column]
        for inside in range(warps):
            if present[cta, inside]:
                clocks[cta, inside, inside] += 1
    return unlike
