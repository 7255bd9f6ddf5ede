"""Compiled operations on mbarriers: lane after lane in order, so that phases complete exactly where they should.

The state of all mbarriers of a batch is one matrix, a row each, with the columns below. Faults are counted in `report`:
for each code how often, the first position and the barrier.

Happens-before: an arrival releases, a wait that passes acquires. `held` has a vector clock for each barrier, the join
of the arriving warps' clocks. When a phase completes it is copied to `done`, and a wait for that phase joins `done`.
`held` is not cleared then: phases complete one after the other, so arrivals for earlier phases happened before.
Arrivals for the next phase change `held` only, so a late wait for this phase does not acquire from them.
"""

from typing import NamedTuple

import numpy as np

from kernbench.ptx.emulator.lanes.arrays import Bools, Int, Int32s, Int64s, UInt32s, UInt64s
from kernbench.ptx.emulator.lanes.clusters import find_shared
from kernbench.ptx.emulator.lanes.compiled import kernel, part
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.lanes.warp_bits import bits_set
from kernbench.ptx.emulator.memory.arena import UNWRITTEN, WRITTEN

(
    LIVE,
    PHASE,
    PENDING,
    EXPECTED,
    TX,
    WAITED,
    BYTES_EXPECTED,
    BYTES_DELIVERED,
    LAST_LANE,
    LAST_SITE,
    START,
    BYTES_BEFORE,
    # for the last even and odd phase: whether all that completed it is in `comers`; for the open phase: whether
    # something is not
    LISTED,
    UNLISTED,
    # a phase with an arrival before anybody waited for the previous one: its number, the lane, and the site
    UNSEEN,
    UNSEEN_LANE,
    UNSEEN_SITE,
    # the last expect_tx of the open phase and of the one before: its site plus one
    EXPECT_SITE,
    EXPECT_BEFORE,
    # whether any lane has ever tested a phase
    TESTED,
) = (0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 14, 15, 16, 17, 18, 19, 20)
COLUMNS = 21
NEVER, ALIVE, INVALID = range(3)
LIMIT = (1 << 20) - 1
# the token that an arrival returns has the phase above this bit
TOKEN_SHIFT = 24
# bits that differ in the states of eight bytes if one of them was written
TOUCHED = (WRITTEN ^ UNWRITTEN) * 0x0101_0101_0101_0101

(OUTSIDE, UNUSED, DEAD, TOO_MANY, RANGE, COMPLETES) = range(6)
CODES = 6


class Barriers(NamedTuple):
    """The mbarriers of a batch: their CTAs, their columns in vector clocks, their state, and what arrivals publish.

    `arrivals` has for each warp of the barrier's CTA the phase of its last arrival plus one, and the site; `comers` for
    the last even and odd phase, and each warp, how the arrivals of its lanes may be known, and the phase plus one.
    """

    homes: Int64s
    columns: Int64s
    state: Int64s
    held: Int32s
    done: Int32s
    arrivals: Int64s
    comers: Int32s


class Publishers(NamedTuple):
    """What arriving warps know: vector clocks, when the lanes of each warp last met, and arrivals of single lanes.

    `whole` says for each warp whether all its lanes arrive; `ctas` is the number of CTAs of the batch, `first_lane` the
    first column of single lanes in a vector clock.
    """

    whole: Bools
    ctas: int
    clocks: Int32s
    met: Int64s
    lane_arrivals: Int32s
    first_lane: int


class Arriving(NamedTuple):
    """What arrives: barrier, lane, count and bytes of each position, and the instruction's modifiers.

    `numbers` is empty for arrivals of threads. Asynchronous work arrives after its lane has gone on: who knows of so
    many operations of the tensor core, begun by the lane's warp, knows of that; nobody does where it is 0.
    """

    slots: Int64s
    lanes: Int64s
    counts: Int64s
    transactions: Int64s
    drop: bool
    no_complete: bool
    release: bool
    site: int
    numbers: Int64s


# the same three as plain tuples
GivenBarriers = tuple[Int64s, Int64s, Int64s, Int32s, Int32s, Int64s, Int32s]
GivenPublishers = tuple[Bools, int, Int32s, Int64s, Int32s, int]
# the table of barriers: number of CTAs, CTAs of a cluster, bytes of shared memory, the barrier of each 8 bytes, and the
# states of barriers
GivenTable = tuple[int, int, int, Int64s, Int64s]
GivenArriving = tuple[Int64s, Int64s, Int64s, Int64s, bool, bool, bool, int, Int64s]


def new_report() -> Int64s:
    """An empty report: per code the count, the first position, and its barrier."""
    return np.zeros((CODES, 3), np.int64)


@part
def _count(report: Int64s, code: Int, position: Int, slot: Int) -> None:
    if report[code, 0] == 0:
        report[code, 1] = position
        report[code, 2] = slot
    report[code, 0] += 1


@part
def _troubles(report: Int64s) -> int:
    """The number of faults."""
    count = 0
    for code in range(CODES):
        count += report[code, 0]
    return count


@part
def _located(addresses: UInt64s, lanes: Int64s, table: GivenTable, slots: Int64s) -> int:
    ctas, cluster, size, lookup, state = table
    usable = 0
    for i in range(lanes.size):
        cta, offset = find_shared(addresses[i], lanes[i], ctas, cluster)
        legal = cta >= 0 and offset + 8 <= size and offset % 8 == 0
        slots[i] = lookup[cta, offset >> 3] if legal else -2
        if slots[i] >= 0 and state[slots[i], LIVE] == ALIVE:
            usable += 1
    return usable


@kernel
def locate(addresses: UInt64s, lanes: Int64s, table: GivenTable, slots: Int64s) -> int:
    """The barrier at each lane's address: -1 if there never was one, -2 if invalid; returns how many are usable."""
    return _located(addresses, lanes, table, slots)


@kernel
def unordered(
    slots: Int64s,
    lanes: Int64s,
    ctas: int,
    homes: Int64s,
    opened: Int64s,
    clocks: Int32s,
    known: Int32s,
    known_rows: Int64s,
    firsts: Int64s,
    memory: tuple[Int64s, int, UInt64s],
) -> tuple[int, int, int]:
    """Count uses of barriers that are not ordered after their initialisation; also returns the first position.

    The third result is the first position of a barrier whose memory something else has written since. `memory` has the
    offsets of barriers, the stride between CTAs in bytes, and the states of each eight bytes.
    """
    offsets, stride, written = memory[0], memory[1], memory[2]
    count, first, touched = 0, -1, -1
    warp_before, slot_before = -1, -1
    for i in range(slots.size):
        slot, warp = slots[i], lanes[i] // WARP
        if slot < 0 or (warp == warp_before and slot == slot_before):
            continue
        warp_before, slot_before = warp, slot
        if touched < 0 and np.int64(written[(homes[slot] * stride + offsets[slot]) // 8]) & TOUCHED:
            touched = i
        cta, inside, maker = warp % ctas, warp // ctas, opened[slot, 0]
        if cta == homes[slot]:
            ordered = maker == inside or clocks[cta, inside, maker] >= opened[slot, 1]
        else:
            row = known_rows[warp]
            ordered = row >= 0 and known[row, firsts[homes[slot]] + maker] >= opened[slot, 1]
        if not ordered:
            if count == 0:
                first = i
            count += 1
    return count, first, touched


@part
def complete(slot: Int, state: Int64s, held: Int32s, done: Int32s, column: Int) -> bool:
    """Complete the phase if nothing is pending; returns whether it did."""
    row = state[slot]
    if row[PENDING] != 0 or row[TX] != 0:
        return False
    row[LISTED + (row[PHASE] & 1)] = row[UNLISTED] == 0 and row[BYTES_EXPECTED] == 0 and row[BYTES_DELIVERED] == 0
    row[UNLISTED] = 0
    row[PHASE] += 1
    row[PENDING] = row[EXPECTED]
    row[BYTES_BEFORE] = row[BYTES_EXPECTED]
    row[EXPECT_BEFORE] = row[EXPECT_SITE]
    row[EXPECT_SITE] = 0
    row[BYTES_EXPECTED] = 0
    row[BYTES_DELIVERED] = 0
    if done.shape[1]:
        held[slot, column] = row[PHASE]
        for k in range(done.shape[1]):
            done[slot, k] = held[slot, k]
    return True


@part
def _usable(slot: Int, state: Int64s, report: Int64s, position: Int) -> bool:
    if slot < 0:
        _count(report, OUTSIDE if slot == -2 else UNUSED, position, -1)
        return False
    if state[slot, LIVE] != ALIVE:
        _count(report, DEAD if state[slot, LIVE] == INVALID else UNUSED, position, slot)
        return False
    return True


@part
def _publish(slot: Int, lane: Int, who: Publishers, held: Int32s) -> None:
    """Release a lane's clocks to a barrier; other lanes of its warp count up to where the warp last met."""
    warp = lane // WARP
    inside, whole = warp // who.ctas, who.whole[warp]
    row = who.clocks[warp % who.ctas, inside]
    for k in range(held.shape[1]):
        value = row[k]
        if k == inside and not whole:
            # the warp's clock would count for all its lanes, of which some have not arrived
            value = who.met[warp]
        elif k == who.first_lane + inside:
            # for the lane itself: its clock and its number in one column
            value = row[inside] * WARP + lane % WARP
        held[slot, k] = max(held[slot, k], value)
    if not whole:
        who.lane_arrivals[warp, WARP, lane % WARP] = row[inside]


@kernel
def publish(slots: Int64s, lanes: Int64s, publishers: GivenPublishers, held: Int32s) -> None:
    """Release the clocks of lanes to barriers; `publishers` has the parts of `Publishers`."""
    who = _publishers_of(publishers)
    for i in range(slots.size):
        _publish(slots[i], lanes[i], who, held)


@part
def _publishers_of(given: GivenPublishers) -> Publishers:
    """Name the parts; a plain tuple is passed, whose type numba infers in half the time."""
    return Publishers(given[0], given[1], given[2], given[3], given[4], given[5])


@part
def _expect(row: Int64s, amount: Int, site: Int) -> None:
    """The open phase expects more bytes, if any."""
    if amount != 0:
        row[TX] += amount
        row[BYTES_EXPECTED] += amount
        row[EXPECT_SITE] = site + 1


@part
def _goes_unseen(row: Int64s, lane: Int, count: Int, site: Int) -> None:
    """An arrival: if the previous phase was not waited for, note that."""
    if count != 0 and row[PHASE] > row[WAITED]:
        row[WAITED] = row[PHASE]
        row[UNSEEN] = row[PHASE]
        row[UNSEEN_LANE] = lane
        row[UNSEEN_SITE] = site


@part
def _list(slot: Int, lane: Int, position: Int, what: Arriving, barriers: Barriers, who: Publishers) -> None:
    """List an arrival by how it may be known: its clock, or negative a number of operations of the tensor core."""
    row, warp = barriers.state[slot], lane // WARP
    inside, known = warp // who.ctas, np.int64(0)
    if warp % who.ctas == barriers.homes[slot] and barriers.done.shape[1] > 0:
        known = who.clocks[warp % who.ctas, inside, inside]
        if what.numbers.size > 0:
            known = -what.numbers[position]
    if known == 0:
        row[UNLISTED] = 1
        return
    comers = barriers.comers[slot, row[PHASE] & 1, inside]
    if comers[WARP] != row[PHASE] + 1:
        for k in range(WARP):
            comers[k] = 0
        comers[WARP] = row[PHASE] + 1
    before = comers[lane % WARP]
    if before != 0 and (before > 0) != (known > 0):
        row[UNLISTED] = 1
    else:
        # both only grow
        comers[lane % WARP] = known


@kernel
def arrive(
    arriving: GivenArriving, publishers: GivenPublishers, these: GivenBarriers, tokens: Int64s, report: Int64s
) -> tuple[int, int]:
    """Arrivals of lanes; returns how many phases completed, and the faults; `tokens` gets the state before each.

    Arguments are the parts of `Arriving`, `Publishers` and `Barriers`.
    """
    what = Arriving(
        arriving[0], arriving[1], arriving[2], arriving[3], arriving[4], arriving[5], arriving[6], arriving[7],
        arriving[8],
    )  # fmt: skip
    who = _publishers_of(publishers)
    barriers = Barriers(these[0], these[1], these[2], these[3], these[4], these[5], these[6])
    completed = 0
    warp_before, slot_before = -1, -1
    state, orders = barriers.state, what.release and barriers.done.shape[1] > 0
    for i in range(what.slots.size):
        slot = what.slots[i]
        if not _usable(slot, state, report, i):
            tokens[i] = 0
            continue
        row, lane, count = state[slot], what.lanes[i], what.counts[i]
        warp = lane // WARP
        _goes_unseen(row, lane, count, what.site)
        tokens[i] = (row[PHASE] << TOKEN_SHIFT) | row[PENDING]
        _expect(row, what.transactions[i], what.site)
        if count > row[PENDING]:
            _count(report, TOO_MANY, i, slot)
            continue
        if row[TX] > LIMIT:
            _count(report, RANGE, i, slot)
        local = warp % who.ctas == barriers.homes[slot]
        if count != 0:
            _list(slot, lane, i, what, barriers, who)
        if what.drop:
            row[EXPECTED] -= count
        row[PENDING] -= count
        row[LAST_LANE] = lane
        row[LAST_SITE] = what.site
        if local:
            barriers.arrivals[slot, warp // who.ctas, 0] = row[PHASE] + 1
            barriers.arrivals[slot, warp // who.ctas, 1] = what.site
        # all lanes of a whole warp release the same: once is enough
        if orders and local and (not who.whole[warp] or warp != warp_before or slot != slot_before):
            _publish(slot, lane, who, barriers.held)
        warp_before, slot_before = warp, slot
        if what.no_complete and row[PENDING] == 0:
            _count(report, COMPLETES, i, slot)
        completed += complete(slot, state, barriers.held, barriers.done, barriers.columns[slot])
    return completed, _troubles(report)


@kernel
def expect(
    slots: Int64s,
    amounts: Int64s,
    site: int,
    state: Int64s,
    held: Int32s,
    done: Int32s,
    columns: Int64s,
    report: Int64s,
) -> tuple[int, int]:
    """expect_tx (positive) and complete_tx (negative) of lanes; returns how many phases completed, and the faults."""
    completed = 0
    for i in range(slots.size):
        slot = slots[i]
        if not _usable(slot, state, report, i):
            continue
        row = state[slot]
        if amounts[i] > 0:
            _expect(row, amounts[i], site)
        else:
            row[TX] += amounts[i]
            row[BYTES_DELIVERED] -= amounts[i]
        if row[TX] > LIMIT or row[TX] < -LIMIT:
            _count(report, RANGE, i, slot)
        completed += complete(slot, state, held, done, columns[slot])
    return completed, _troubles(report)


@part
def _has_passed(slot: Int, wanted: Int, parity: bool, state: Int64s) -> bool:
    """Whether the phase a lane waits for has completed: by parity, or by the token of an arrival."""
    if slot < 0 or state[slot, LIVE] != ALIVE:
        return True
    phase = state[slot, PHASE]
    return bool((phase & 1) != (wanted & 1) if parity else phase > (wanted >> TOKEN_SHIFT))


@kernel
def count_passed(slots: Int64s, wanted: Int64s, parity: bool, state: Int64s) -> int:
    """Count the lanes whose phase has completed."""
    count = 0
    for i in range(slots.size):
        count += _has_passed(slots[i], wanted[i], parity, state)
    return count


@part
def _tested(slots: Int64s, wanted: Int64s, parity: bool, state: Int64s, passed: Bools) -> int:
    count = 0
    for i in range(slots.size):
        slot = slots[i]
        passed[i] = _has_passed(slot, wanted[i], parity, state)
        if slot >= 0 and state[slot, LIVE] == ALIVE:
            state[slot, TESTED] = 1
            if passed[i]:
                state[slot, WAITED] = state[slot, PHASE]
        count += passed[i]
    return count


@kernel
def test(slots: Int64s, wanted: Int64s, parity: bool, state: Int64s, passed: Bools) -> int:
    """Test whether the phase each lane waits for has completed; returns how many have."""
    return _tested(slots, wanted, parity, state, passed)


@kernel
def look(
    addresses: UInt64s,
    lanes: Int64s,
    wanted: Int64s,
    parity: bool,
    table: GivenTable,
    slots: Int64s,
    passed: Bools,
) -> int:
    """As `locate`, and then `test`.

    Returns -1 without a test if not all barriers are usable, or if they may be in other CTAs.
    """
    if _located(addresses, lanes, table, slots) < lanes.size or table[1] > 1:
        return -1
    return _tested(slots, wanted, parity, table[4], passed)


@kernel
def cover(lanes: Int64s, chosen: Bools, members: UInt32s, counts: Int64s, whole: Bools) -> None:
    """Whether each warp has all its `members`, a mask each, among the chosen lanes; all lanes if none are given.

    Only the entries for warps of `lanes` are updated in `whole` and `counts`.
    """
    for i in range(lanes.size):
        counts[lanes[i] // WARP] = 0
    for i in range(lanes.size):
        if chosen.size == 0 or chosen[i]:
            counts[lanes[i] // WARP] += 1
    before = -1
    for i in range(lanes.size):
        warp = lanes[i] // WARP
        if warp != before:
            whole[warp] = counts[warp] >= bits_set(np.int64(members[warp]))
            before = warp


@kernel
def acquire(
    slots: Int64s,
    lanes: Int64s,
    passed: Bools,
    whole: Bools,
    ctas: int,
    homes: Int64s,
    done: Int32s,
    clocks: Int32s,
    met: Int64s,
    released: Bools,
) -> int:
    """Warps whose lanes have all waited acquire what the arrivals released: the join of two vector clocks.

    A warp's own clock stays, since it counts its own releases; its entry in the acquired clock says up to where its
    lanes have met. Returns how many lanes have more to acquire: lanes of other warps, and those of barriers with
    `released` knowledge.
    """
    warp_before, slot_before, more = -1, -1, 0
    for i in range(slots.size):
        slot, warp = slots[i], lanes[i] // WARP
        if not passed[i] or slot < 0:
            continue
        if not whole[warp] or (slot < released.size and released[slot]):
            more += 1
        if not whole[warp] or warp % ctas != homes[slot]:
            continue
        if warp == warp_before and slot == slot_before:
            continue
        warp_before, slot_before = warp, slot
        inside = warp // ctas
        row = clocks[warp % ctas, inside]
        own = row[inside]
        for k in range(done.shape[1]):
            row[k] = max(row[k], done[slot, k])
        row[inside] = own
        met[warp] = max(met[warp], done[slot, inside])
    return more


@kernel
def skipped(
    slots: Int64s,
    lanes: Int64s,
    passed: Bools,
    ctas: int,
    homes: Int64s,
    columns: Int64s,
    state: Int64s,
    clocks: Int32s,
) -> tuple[int, int, int]:
    """Count waits that passed by parity although their warp does not know the previous phase; and the first position.

    The third result counts waits that passed after a phase that was never waited for.
    """
    count, first, unseen = 0, -1, 0
    warp_before, slot_before = -1, -1
    for i in range(slots.size):
        slot, warp = slots[i], lanes[i] // WARP
        if not passed[i] or slot < 0:
            continue
        if state[slot, UNSEEN]:
            unseen += 1
        if warp % ctas != homes[slot] or (warp == warp_before and slot == slot_before):
            continue
        warp_before, slot_before = warp, slot
        row, inside = state[slot], warp // ctas
        before = row[PHASE] - 1
        if row[LIVE] == ALIVE and before > row[START] and clocks[warp % ctas, inside, columns[slot]] < before:
            if count == 0:
                first = i
            count += 1
    return count, first, unseen
