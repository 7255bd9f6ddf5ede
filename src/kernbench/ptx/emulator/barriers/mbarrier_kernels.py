"""Compiled operations on mbarriers: lane after lane in order, so that phases complete exactly where they would.

The state of all mbarriers of a batch is one matrix, a row each, with the columns below. `held` collects what arriving
warps know, `done` is what it was when a phase last completed. Trouble is counted in `report`: for each code how often,
the first position and the barrier.
"""

from typing import Any

import numpy as np

from kernbench.ptx.emulator.lanes.compiled import kernel, part
from kernbench.ptx.emulator.lanes.lanes import WARP

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
) = range(12)
COLUMNS = 12
NEVER, ALIVE, INVALID = range(3)
LIMIT = (1 << 20) - 1

(OUTSIDE, UNUSED, DEAD, TOO_MANY, UNWAITED, RANGE, COMPLETES) = range(7)
CODES = 7


def new_report() -> Any:
    """An empty report: per code how often, the first position, its barrier."""
    return np.zeros((CODES, 3), np.int64)


@part
def _count(report: Any, code: Any, position: Any, slot: Any) -> None:
    if report[code, 0] == 0:
        report[code, 1] = position
        report[code, 2] = slot
    report[code, 0] += 1


@kernel
def locate(
    addresses: Any, lanes: Any, ctas: Any, cluster: Any, rank_shift: Any, size: Any, lookup: Any, slots: Any
) -> None:
    """The barrier at each lane's address: -1 where none was ever made, -2 where none can be."""
    for i in range(lanes.size):
        inside = np.int64(addresses[i]) & ((1 << 44) - 1)
        cta = (lanes[i] // WARP) % ctas
        offset = inside
        if cluster > 1:
            offset = inside & ((1 << rank_shift) - 1)
            rank = inside >> rank_shift
            cta = cta - cta % cluster + rank if rank < cluster else -1
        legal = cta >= 0 and offset + 8 <= size and offset % 8 == 0
        slots[i] = lookup[cta, offset >> 3] if legal else -2


@kernel
def unordered(
    slots: Any, lanes: Any, ctas: Any, homes: Any, opened: Any, clocks: Any, known: Any, known_rows: Any, firsts: Any
) -> Any:
    """How many uses of barriers are not ordered after their initialisation, and the first position."""
    count, first = 0, -1
    warp_before, slot_before = -1, -1
    for i in range(slots.size):
        slot, warp = slots[i], lanes[i] // WARP
        if slot < 0 or (warp == warp_before and slot == slot_before):
            continue
        warp_before, slot_before = warp, slot
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
    return count, first


@part
def complete(slot: Any, state: Any, held: Any, done: Any, column: Any) -> Any:
    """Complete the phase if nothing is pending; whether it did."""
    row = state[slot]
    if row[PENDING] != 0 or row[TX] != 0:
        return False
    row[PHASE] += 1
    row[PENDING] = row[EXPECTED]
    row[BYTES_BEFORE] = row[BYTES_EXPECTED]
    row[BYTES_EXPECTED] = 0
    row[BYTES_DELIVERED] = 0
    if done.shape[1]:
        held[slot, column] = row[PHASE]
        for k in range(done.shape[1]):
            done[slot, k] = held[slot, k]
    return True


@part
def _usable(slot: Any, state: Any, report: Any, position: Any) -> Any:
    if slot < 0:
        _count(report, OUTSIDE if slot == -2 else UNUSED, position, -1)
        return False
    if state[slot, LIVE] != ALIVE:
        _count(report, DEAD if state[slot, LIVE] == INVALID else UNUSED, position, slot)
        return False
    return True


@kernel
def publish(
    slot: Any, lane: Any, whole: Any, ctas: Any, clocks: Any, met: Any, arrivals: Any, held: Any, lanes: Any
) -> None:
    """What a lane knows is known to those who wait: of its warp's other lanes, what they did before they last met."""
    warp = lane // WARP
    inside = warp // ctas
    row = clocks[warp % ctas, inside]
    for k in range(held.shape[1]):
        value = row[k]
        if k == inside and not whole:
            value = met[warp]
        elif k == lanes + inside:
            value = row[inside] * WARP + lane % WARP
        held[slot, k] = max(held[slot, k], value)
    if not whole:
        arrivals[warp, WARP, lane % WARP] = row[inside]


@kernel
def arrive(
    slots: Any,
    lanes: Any,
    counts: Any,
    transactions: Any,
    drop: Any,
    no_complete: Any,
    release: Any,
    whole: Any,
    first_lane: Any,
    ctas: Any,
    homes: Any,
    columns: Any,
    state: Any,
    held: Any,
    done: Any,
    clocks: Any,
    met: Any,
    lane_arrivals: Any,
    arrivals: Any,
    site: Any,
    tokens: Any,
    report: Any,
) -> Any:
    """Arrivals of lanes; gives how many phases completed. `tokens` receives the state before each."""
    completed = 0
    warp_before, slot_before = -1, -1
    for i in range(slots.size):
        slot = slots[i]
        if not _usable(slot, state, report, i):
            tokens[i] = 0
            continue
        row, warp = state[slot], lanes[i] // WARP
        if row[PHASE] > row[WAITED] and counts[i]:
            _count(report, UNWAITED, i, slot)
            row[WAITED] = row[PHASE]
        tokens[i] = (row[PHASE] << 24) | row[PENDING]
        row[TX] += transactions[i]
        row[BYTES_EXPECTED] += transactions[i]
        if counts[i] > row[PENDING]:
            _count(report, TOO_MANY, i, slot)
            continue
        if row[TX] > LIMIT:
            _count(report, RANGE, i, slot)
        if drop:
            row[EXPECTED] -= counts[i]
        row[PENDING] -= counts[i]
        row[LAST_LANE] = lanes[i]
        row[LAST_SITE] = site
        local = warp % ctas == homes[slot]
        if local:
            arrivals[slot, warp // ctas, 0] = row[PHASE] + 1
            arrivals[slot, warp // ctas, 1] = site
        if release and local and done.shape[1] and (not whole[warp] or warp != warp_before or slot != slot_before):
            publish(slot, lanes[i], whole[warp], ctas, clocks, met, lane_arrivals, held, first_lane)
        warp_before, slot_before = warp, slot
        if no_complete and row[PENDING] == 0:
            _count(report, COMPLETES, i, slot)
        completed += complete(slot, state, held, done, columns[slot])
    return completed


@kernel
def expect(slots: Any, amounts: Any, state: Any, held: Any, done: Any, columns: Any, report: Any) -> Any:
    """expect_tx (positive) and complete_tx (negative) of lanes; gives how many phases completed."""
    completed = 0
    for i in range(slots.size):
        slot = slots[i]
        if not _usable(slot, state, report, i):
            continue
        row = state[slot]
        row[TX] += amounts[i]
        if amounts[i] > 0:
            row[BYTES_EXPECTED] += amounts[i]
        else:
            row[BYTES_DELIVERED] -= amounts[i]
        if row[TX] > LIMIT or row[TX] < -LIMIT:
            _count(report, RANGE, i, slot)
        completed += complete(slot, state, held, done, columns[slot])
    return completed


@kernel
def test(slots: Any, wanted: Any, parity: Any, state: Any, passed: Any, report: Any) -> None:
    """Whether the phase each lane waits for has completed: by parity, or by the state of an arrival."""
    for i in range(slots.size):
        slot = slots[i]
        passed[i] = True
        if not _usable(slot, state, report, i):
            continue
        phase = state[slot, PHASE]
        passed[i] = (phase & 1) != (wanted[i] & 1) if parity else phase > (wanted[i] >> 24)
        if passed[i]:
            state[slot, WAITED] = phase


@kernel
def acquire(
    slots: Any, lanes: Any, passed: Any, whole: Any, ctas: Any, homes: Any, done: Any, clocks: Any, met: Any
) -> None:
    """Warps whose lanes have all waited learn what the arrivals knew."""
    warp_before, slot_before = -1, -1
    for i in range(slots.size):
        slot, warp = slots[i], lanes[i] // WARP
        if not passed[i] or slot < 0 or not whole[warp] or warp % ctas != homes[slot]:
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


@kernel
def skipped(slots: Any, lanes: Any, passed: Any, ctas: Any, homes: Any, columns: Any, state: Any, clocks: Any) -> Any:
    """How many waits passed by a parity without their warp knowing of the phase before, and the first position."""
    count, first = 0, -1
    warp_before, slot_before = -1, -1
    for i in range(slots.size):
        slot, warp = slots[i], lanes[i] // WARP
        if not passed[i] or slot < 0 or warp % ctas != homes[slot] or (warp == warp_before and slot == slot_before):
            continue
        warp_before, slot_before = warp, slot
        row, inside = state[slot], warp // ctas
        before = row[PHASE] - 1
        if row[LIVE] == ALIVE and before > row[START] and clocks[warp % ctas, inside, columns[slot]] < before:
            if count == 0:
                first = i
            count += 1
    return count, first
