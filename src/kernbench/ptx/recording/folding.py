"""Compiled loops over the log of a batch: which warps did the same, and what one of each kind did.

Warps that did the same have the same 128-bit hash of all their rows. The rows of one of them are written out, loop
iterations that only waited are dropped, and events are assigned to their steps.
"""

import numpy as np

from kernbench.ptx.emulator.lanes.arrays import Bools, Int, Int64s, UInt64s
from kernbench.ptx.emulator.lanes.compiled import kernel, part
from kernbench.ptx.recording.kinds import Kind
from kernbench.ptx.recording.log import CHANGED, EVENT, STEP, GivenLog, LogParts, log_of
from kernbench.ptx.recording.recording import Int32s
from kernbench.ptx.recording.survey import COLUMNS, PHASE, REUSE

_FIRST, _SECOND = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xC2B2AE3D27D4EB4F)
_SHIFT, _ONE = np.uint64(29), np.uint64(1)
# how many steps are searched for the block of an event
_LOOK_BACK = 4096
# largest number of loops: one bit of a word each
MOST_LOOPS = 64
# columns of a written-out event before its data, and the column of its phase
BEFORE_DATA = 4
_PHASE = BEFORE_DATA + PHASE

_COPY, _COPY_COMMIT, _COPY_WAIT = int(Kind.ASYNC_COPY), int(Kind.ASYNC_COPY_COMMIT), int(Kind.ASYNC_COPY_WAIT)
_STORE, _REDUCE = int(Kind.BULK_STORE), int(Kind.BULK_REDUCE)
_BULK_COMMIT, _BULK_WAIT = int(Kind.BULK_COMMIT), int(Kind.BULK_WAIT)
_MULTIPLY, _MULTIPLY_COMMIT, _MULTIPLY_WAIT = int(Kind.WGMMA), int(Kind.WGMMA_COMMIT), int(Kind.WGMMA_WAIT)
# event kinds of each sort of group: members, commit, wait
_SORTS = (
    (_COPY, _COPY_COMMIT, _COPY_WAIT),
    (_STORE, _BULK_COMMIT, _BULK_WAIT),
    (_MULTIPLY, _MULTIPLY_COMMIT, _MULTIPLY_WAIT),
)


def group_table() -> Int64s:
    """For each event kind its sort of group plus 1 (0: none), and its role: member (0), commit (1) or wait (2)."""
    table: Int64s = np.zeros((max(Kind) + 1, 2), np.int64)
    for sort, kinds in enumerate(_SORTS, 1):
        for role, kind in enumerate(kinds):
            table[kind] = sort, role
    table[_REDUCE] = table[_STORE]
    return table


@part
def _warp(log: LogParts, of: Int, k: Int) -> Int:
    return log.set_first[of] + k if log.set_warps[of] < 0 else np.int64(log.warps[log.set_warps[of] + k])


@part
def _lanes(log: LogParts, of: Int, k: Int) -> Int:
    return np.int64(32) if log.set_lanes[of] < 0 else np.int64(log.lanes[log.set_lanes[of] + k])


@part
def _mix(hashes: UInt64s, value: Int) -> None:
    bits = np.uint64(value)
    hashes[0] = (hashes[0] ^ bits) * _FIRST
    hashes[0] ^= hashes[0] >> _SHIFT
    hashes[1] = (hashes[1] + bits) * _SECOND
    hashes[1] ^= hashes[1] >> _SHIFT


@kernel
def hash_warps(given: GivenLog, hashes: UInt64s, counts: Int64s) -> None:
    """Hash everything that each warp did, and count its rows and events."""
    log = log_of(given)
    for i in range(len(log.rows)):
        what, number, of, kind = log.rows[i, 0], log.rows[i, 1], log.rows[i, 2], log.rows[i, 3]
        first, spread = log.rows[i, 4], log.rows[i, 5]
        for k in range(log.set_count[of]):
            active = _lanes(log, of, k)
            if active == 0:
                continue
            warp = _warp(log, of, k)
            counts[warp, 0] += 1
            counts[warp, 1] += what == EVENT
            _mix(hashes[warp], (number << 18) | (kind << 10) | (active << 2) | what)
            if first >= 0:
                row = log.data[first + k * spread]
                for column in range(0, COLUMNS, 2):
                    low = np.int64(row[column + 1]) & 0xFFFFFFFF
                    _mix(hashes[warp], (np.int64(row[column]) << 32) | low)


@kernel
def write_out(given: GivenLog, chosen: Int64s, begins: Int64s, heads: Int32s, columns: Int32s) -> None:
    """Write out what chosen warps did.

    `chosen` has the number of each warp, or -1; `begins` is where the rows of each start. `heads` get what, number,
    lanes and kind; `columns` the data of events.
    """
    log = log_of(given)
    for i in range(len(log.rows)):
        of, first, spread = log.rows[i, 2], log.rows[i, 4], log.rows[i, 5]
        for k in range(log.set_count[of]):
            which = chosen[_warp(log, of, k)]
            active = _lanes(log, of, k)
            if which < 0 or active == 0:
                continue
            at = begins[which]
            begins[which] += 1
            heads[at, 0], heads[at, 1], heads[at, 2], heads[at, 3] = (
                log.rows[i, 0],
                log.rows[i, 1],
                active,
                log.rows[i, 3],
            )
            for column in range(COLUMNS):
                nothing = 0 if column < 4 else -1
                columns[at, column] = log.data[first + k * spread, column] if first >= 0 else nothing


# what folding needs of a program: the block of each instruction; the wait loops that contain each block, as bits; the
# wait loop of which a block is the head (or -1); instructions that an iteration which only waited may execute; blocks
# that only end threads
GivenProgram = tuple[Int32s, UInt64s, Int64s, Bools, Bools]


@kernel
def fold(
    heads: Int32s, columns: Int32s, program: GivenProgram, steps: Int32s, events: Int32s, kept: Int32s, scratch: Int64s
) -> tuple[int, int]:
    """Fold one warp's rows into steps and events; returns how many there are of each.

    - `steps` get the block, lanes, and the iterations dropped before;
    - `events` get their step, instruction, kind, lanes and data;
    - `kept` gets, for each event of the rows, its index among `events`, or -1;
    - `scratch` has a row for the events, and two of `MOST_LOOPS`.

    Lanes that end at different times are folded into one last step.
    """
    block_of, loops_of, head_of, harmless, ends = program
    origins, begun, first_event = scratch[0], scratch[1], scratch[2]
    step_count, event_count, seen, dropped = 0, 0, 0, 0
    # the last block that only ends threads, and how many lanes ended in such blocks
    ended_in, ended = -1, 0
    # the loops, as bits, that the warp has not left since it was at their heads
    within = np.uint64(0)
    # those of them whose current iteration has changed memory
    changed = np.uint64(0)
    for i in range(len(heads)):
        what, number = heads[i, 0], heads[i, 1]
        if what == STEP and ends[number]:
            ended_in, ended = max(ended_in, number), ended + heads[i, 2]
        elif what == STEP:
            within &= loops_of[number]
            loop = head_of[number]
            if loop >= 0:
                begun[loop], first_event[loop] = step_count, event_count
                within |= _ONE << np.uint64(loop)
                changed &= ~(_ONE << np.uint64(loop))
            steps[step_count, 0], steps[step_count, 1], steps[step_count, 2] = number, heads[i, 2], dropped
            step_count, dropped = step_count + 1, 0
        elif what == EVENT:
            at = _step_of(steps, step_count, block_of[number])
            _insert(events, event_count, at, heads[i], columns[i], origins, kept, seen)
            event_count, seen = event_count + 1, seen + 1
        elif what == CHANGED:
            changed |= within
        elif ((within & ~changed) >> np.uint64(number)) & _ONE != 0 and _only_waited(
            events, first_event[number], event_count, harmless
        ):
            dropped += 1 + int(_turns_before(steps, begun[number], step_count))
            step_count = begun[number]
            within &= _still_open(begun, step_count)
            for event in range(first_event[number], event_count):
                kept[origins[event]] = -1
            event_count = first_event[number]
    if ended_in >= 0:
        steps[step_count, 0], steps[step_count, 1], steps[step_count, 2] = ended_in, ended, dropped
        step_count += 1
    return step_count, event_count


@part
def _turns_before(steps: Int32s, since: Int, until: Int) -> Int:
    """Iterations dropped before some steps."""
    found = 0
    for step in range(since, until):
        found += steps[step, 2]
    return found


@part
def _still_open(begun: Int64s, steps: Int) -> np.uint64:
    """The loops, as bits, whose heads are among the first `steps` steps."""
    found = np.uint64(0)
    for loop in range(MOST_LOOPS):
        if begun[loop] < steps:
            found |= _ONE << np.uint64(loop)
    return found


@part
def _step_of(steps: Int32s, count: Int, block: Int) -> Int:
    """The last step of a block; if it is not found, the last of all."""
    for at in range(count - 1, max(-1, count - _LOOK_BACK), -1):
        if steps[at, 0] == block:
            return at
    return max(count - 1, 0)


@part
def _insert(
    events: Int32s, count: Int, at: Int, head: Int32s, data: Int32s, origins: Int64s, kept: Int32s, seen: Int
) -> None:
    """Insert an event of step `at` after those of its step and of earlier ones: nearly always at the end."""
    row = count
    while row > 0 and events[row - 1, 0] > at:
        for column in range(BEFORE_DATA + COLUMNS):
            events[row, column] = events[row - 1, column]
        origins[row] = origins[row - 1]
        kept[origins[row]] = row
        row -= 1
    events[row, 0], events[row, 1], events[row, 2], events[row, 3] = at, head[1], head[3], head[2]
    for column in range(COLUMNS):
        events[row, BEFORE_DATA + column] = data[column]
    origins[row] = seen
    kept[seen] = row


@part
def _only_waited(events: Int32s, since: Int, until: Int, harmless: Bools) -> bool:
    for event in range(since, until):  # noqa: SIM110 - compiled
        if not harmless[events[event, 1]]:
            return False
    return True


@kernel
def number_groups(events: Int32s, table: Int64s, committed: Int64s) -> None:
    """Assign phases to the group events of one warp, in order; `committed` has two zeros for each sort of group.

    Members and the commit of a group get the number of the group. A wait gets the number of groups that must have
    completed, computed from the number it leaves in flight, which the phase holds before (-1: everything, committed or
    not).
    """
    for i in range(len(events)):
        sort, role = table[events[i, 2], 0] - 1, table[events[i, 2], 1]
        if sort < 0:
            continue
        if role == 2:
            keep = events[i, _PHASE]
            if keep < 0:
                committed[sort, 0] += committed[sort, 1]
                committed[sort, 1] = 0
            events[i, _PHASE] = max(0, committed[sort, 0] - max(0, keep))
        else:
            events[i, _PHASE] = committed[sort, 0]
            committed[sort, 0] += role
            committed[sort, 1] = 1 - role


@kernel
def add_reuse(
    given: GivenLog, which: Int64s, starts: Int64s, kept: Int32s, totals_at: Int64s, totals: Int64s, seen: Int64s
) -> None:
    """Add the reuse data of each warp's events to the totals of the warp's trace.

    `which` is the written-out warp that each warp equals; its events are `kept` from `starts` on, and its trace has
    totals from `totals_at` on. `seen` counts the events of each warp.
    """
    log = log_of(given)
    for i in range(len(log.rows)):
        if log.rows[i, 0] != EVENT:
            continue
        of, first, spread = log.rows[i, 2], log.rows[i, 6], log.rows[i, 7]
        for k in range(log.set_count[of]):
            if _lanes(log, of, k) == 0:
                continue
            warp = _warp(log, of, k)
            number = seen[warp]
            seen[warp] += 1
            event = kept[starts[which[warp]] + number] if first >= 0 else -1
            if event >= 0:
                for column in range(REUSE):
                    totals[totals_at[which[warp]] + event, column] += log.reuse[first + k * spread, column]
