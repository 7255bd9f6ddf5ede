"""Compiled loops over vector clocks: what nearly every arrival, fence and reconvergence needs to check and record.

A round of a barrier is closed when all warps that it waits for have arrived. Warps that arrive at the next round must
know that.
"""

import numpy as np

from kernbench.ptx.emulator.lanes.arrays import Bools, Int, Int32s, Int64s, UInt32s
from kernbench.ptx.emulator.lanes.compiled import kernel, part
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.lanes.warp_bits import active_in
from kernbench.ptx.emulator.memory.cells import CLOCK_SHIFT, FLOOR, MET, NUMBER, NUMBER_SHIFT, OWN


def drop_floors(table: Int64s) -> None:
    """Make each comparison with FLOOR fail."""
    table[:-1, FLOOR] = 0


@kernel
def fill_table(clocks: Int32s, table: Int64s) -> None:
    """Fill in each warp's epoch in the format of a cell, and FLOOR, the least entry of its vector clock.

    For a warp's own entry FLOOR counts the clock at which its lanes last met: an access that is not later than FLOOR is
    ordered before everything the warp does now, whichever warp of the CTA made it.
    """
    ctas, warps = clocks.shape[0], clocks.shape[1]
    for warp in range(ctas * warps):
        inside, floor = warp // ctas, table[warp, MET]
        known = clocks[warp % ctas, inside]
        for other in range(warps):
            if other != inside:
                floor = min(floor, np.int64(known[other]))
        table[warp, FLOOR] = floor
        own = np.int64(known[inside]) << CLOCK_SHIFT
        table[warp, OWN] = own | (table[warp, NUMBER] + 1) << NUMBER_SHIFT


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
    """Count arrivals on mbarriers of the own CTA whose lane or warp knows more than the warp's vector clock.

    Compiled loops pass on the warp's vector clock alone, so such arrivals take the slow path.
    """
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
    """Let lanes of warps meet and begin a new epoch, if each names all `members` of its warp; otherwise change nothing.

    `mask` says which lanes are active; empty means all. Returns whether they met.
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
    """Copy what warps know of each other into the columns from `one` on and from `two` on, then begin a new epoch."""
    ctas, count = clocks.shape[0], clocks.shape[1]
    for i in range(warps.size):
        row, inside = clocks[warps[i] % ctas, warps[i] // ctas], warps[i] // ctas
        for other in range(count):
            row[one + other] = max(row[one + other], row[other])
            row[two + other] = max(row[two + other], row[other])
        row[inside] += 1


@part
def _knows_a_waiter(ends: Int64s, row: Int32s, inside: Int, lane: Int) -> bool:
    """Whether a warp waited in the last round itself, or its vector clock covers the release of one that did."""
    if ends[inside] >= 0:
        return True
    for other in range(ends.size):
        if ends[other] < 0:
            continue
        if row[other] > ends[other] or (lane >= 0 and row[lane + other] >> 5 > ends[other]):
            return True
    return False


@part
def _waiters(ends: Int64s) -> Int:
    """How many warps waited in the last round; the others only arrived."""
    count = 0
    for other in range(ends.size):
        count += ends[other] >= 0
    return count


@part
def _unknown_arrivals(row: Int32s, arrivals: Int64s, cta: Int, inside: Int) -> Int:
    """How many arrivals of other warps in the last round of arrivals alone a warp has not acquired."""
    count = 0
    if arrivals.size:
        for other in range(arrivals.shape[1]):
            count += other != inside and row[other] <= arrivals[cta, other]
    return count


@kernel
def count_unsure(warps: Int64s, mask: Bools, last: Int64s, clocks: Int32s, lane: int, arrivals: Int64s) -> int:
    """Count the warps arriving at a barrier that may be counted in another round of it.

    `last` has for each warp that waited in the last round its clock at the end of that round, -1 for the others.
    `arrivals` has the same for warps that only arrived. Either is empty if there was no such round. `lane` is the first
    column of the clocks of single lanes in a vector clock, or -1.
    """
    ctas, unsure = clocks.shape[0], 0
    if last.size == 0:
        return 0
    for i in range(warps.size):
        cta, inside = warps[i] % ctas, warps[i] // ctas
        if active_in(mask, i) == 0:
            continue
        ends, row = last[cta], clocks[cta, inside]
        if _knows_a_waiter(ends, row, inside, lane):
            continue
        if _waiters(ends) or _unknown_arrivals(row, arrivals, cta, inside):
            unsure += 1
    return unsure


@kernel
def close_round(done: Bools, waiting: Bools, clocks: Int32s, came: Int64s, last: Int64s, before: Int64s) -> None:
    """Keep of a complete round, in `last`, the clocks at which the warps that waited go on, and `came` in `before`."""
    for cta in range(done.size):
        if not done[cta]:
            continue
        for inside in range(waiting.shape[1]):
            before[cta, inside] = came[cta, inside]
            last[cta, inside] = clocks[cta, inside, inside] - 1 if waiting[cta, inside] else -1


@part
def _join(cta: Int, present: Bools, given: Int32s, clocks: Int32s) -> Int:
    """Join the clocks of the warps of `present`, and `given` ones, in the row of the first such warp.

    Returns its index.
    """
    first = -1
    for inside in range(clocks.shape[1]):
        if present[cta, inside] and first < 0:
            first = inside
        elif present[cta, inside]:
            for column in range(clocks.shape[2]):
                clocks[cta, first, column] = max(clocks[cta, first, column], clocks[cta, inside, column])
    if first >= 0 and given.size:
        for column in range(clocks.shape[2]):
            clocks[cta, first, column] = max(clocks[cta, first, column], given[cta, column])
    return first


@part
def _are_unlike(cta: Int, first: Int, present: Bools, aware: Bools, shared: Int64s) -> bool:
    """Whether some warps of `present` know of single lanes, and not all of them share the same such knowledge."""
    ctas, some, others = present.shape[0], False, False
    for inside in range(present.shape[1]):
        number = inside * ctas + cta
        if present[cta, inside]:
            some |= aware[number]
            others |= not aware[number] or shared[number] != shared[first * ctas + cta]
    return some and others


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
    """Let the warps of `present` meet in the CTAs of `done`: all release, all acquire, and each begins a new epoch.

    `given` has the clocks of warps that only arrived, or is empty. Returns the number of CTAs in which warps are
    `aware` of single lanes and do not all share that knowledge.
    """
    ctas, unlike = clocks.shape[0], 0
    for cta in range(ctas):
        first = _join(cta, present, given, clocks) if done[cta] else -1
        if first < 0:
            continue
        unlike += _are_unlike(cta, first, present, aware, shared)
        for inside in range(clocks.shape[1]):
            if present[cta, inside]:
                partly_met[inside * ctas + cta] = False
                met[inside * ctas + cta] = clocks[cta, first, inside]
                for column in range(clocks.shape[2]):
                    clocks[cta, inside, column] = clocks[cta, first, column]
        for inside in range(clocks.shape[1]):
            if present[cta, inside]:
                clocks[cta, inside, inside] += 1
    return unlike
