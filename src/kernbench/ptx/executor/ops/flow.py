"""Control flow of a warp: blocks, branches, ends and meetings.

A warp runs one fragment (a mask) until it waits or ends; the others wait in a list for their turn. The fragment at the
first record always runs, so that fragments meet again at the first block that they share.
"""

import numpy as np

from kernbench.ptx.executor.ops.clocks import IDS, lanes_meet
from kernbench.ptx.executor.ops.layout import (
    ACTIVE,
    ALIVE,
    BLOCK,
    BUDGET,
    DIVERGED,
    ENDED,
    EVERYBODY,
    FIRST_PART,
    IMMEDIATE,
    LANE_COUNTS,
    LAUNCH,
    LEFT,
    LEFT_IN,
    MOST_PARTS,
    NOW,
    OPERANDS,
    PARTS,
    RECORD_BYTES,
    REGISTERS,
    ROOM,
    SERIAL,
    SITE,
    SOME_OPERANDS,
    STATE,
    SUSPECT,
    SUSPECT_SITE,
    WARP_COUNTS,
)
from kernbench.ptx.executor.ops.views import Int, bytes_at, halves_at, lanes_of, longs_at, numbers_at, words_at

# the last time of a warp
LAST_TIME = IDS - 2


def suspect(warp: Int, record: Int, why: Int) -> Int:
    """End the run: something that the fast tests cannot clear."""
    w = numbers_at(warp)
    launch = numbers_at(numbers_at(w[BLOCK])[LAUNCH])
    launch[SUSPECT] = why
    launch[SUSPECT_SITE] = numbers_at(record + SITE)[0]
    return 0


def operand_at(record: Int, number: Int) -> Int:
    """The offset of an operand's row; operations of many operands have more of them in the records that follow."""
    at = record + RECORD_BYTES * (number >> 4) + OPERANDS
    return np.int64(words_at(at)[number & (SOME_OPERANDS - 1)])


def more_operands(warp: Int, record: Int, mask: Int) -> Int:
    """Operands of an operation before: nothing to do."""
    return record + RECORD_BYTES


def begin_block(warp: Int, record: Int, mask: Int) -> Int:
    """A basic block begins: the first fragment goes on, and is counted."""
    w = numbers_at(warp)
    if w[PARTS] > 0:
        record = first_part(warp, record, mask)
        mask = w[ACTIVE]
    number = numbers_at(record + IMMEDIATE)[0]
    if number < 0:
        # a block that only ends does not count
        return record + RECORD_BYTES
    launch = numbers_at(numbers_at(w[BLOCK])[LAUNCH])
    numbers_at(launch[LANE_COUNTS])[number] += lanes_of(mask)
    numbers_at(launch[WARP_COUNTS])[number] += 1
    w[LEFT] -= 1
    if w[LEFT] < 0:
        return suspect(warp, record, BUDGET)
    return record + RECORD_BYTES


def first_part(warp: Int, record: Int, mask: Int) -> Int:
    """The first record of all fragments, with those there made one; the given one waits, if it is not there."""
    w = numbers_at(warp)
    first = record
    for number in range(w[PARTS]):
        first = min(first, w[FIRST_PART + 2 * number + 1])
    if first != record and first < record:
        w[FIRST_PART + 2 * w[PARTS]] = mask
        w[FIRST_PART + 2 * w[PARTS] + 1] = record
        w[PARTS] += 1
        mask = 0
    kept = 0
    for number in range(w[PARTS]):
        if w[FIRST_PART + 2 * number + 1] == first:
            mask |= w[FIRST_PART + 2 * number]
        else:
            w[FIRST_PART + 2 * kept] = w[FIRST_PART + 2 * number]
            w[FIRST_PART + 2 * kept + 1] = w[FIRST_PART + 2 * number + 1]
            kept += 1
    w[PARTS] = kept
    w[ACTIVE] = mask
    return first


def next_part(warp: Int) -> Int:
    """The fragment that is first runs, as the running one has ended; 0 if there is none."""
    w = numbers_at(warp)
    if w[PARTS] == 0:
        w[STATE] = ENDED
        w[ACTIVE] = 0
        return 0
    w[PARTS] -= 1
    last = w[PARTS]
    return first_part(warp, w[FIRST_PART + 2 * last + 1], w[FIRST_PART + 2 * last])


def leave(warp: Int, lanes: Int) -> None:
    """Some lanes of a warp exit, and note in which block: what they did is not what the others release."""
    w = numbers_at(warp)
    w[ALIVE] &= ~lanes
    w[LEFT_IN] = numbers_at(w[BLOCK])[SERIAL]


def end_lanes(warp: Int, record: Int, mask: Int) -> Int:
    """Lanes exit."""
    w = numbers_at(warp)
    leave(warp, mask)
    left = w[ACTIVE] & ~mask
    if left:
        w[ACTIVE] = left
        return record + RECORD_BYTES
    return next_part(warp)


def held(warp: Int, record: Int, operand: Int) -> Int:
    """The lanes in which a predicate holds."""
    at = numbers_at(warp)[REGISTERS] + words_at(record + OPERANDS)[operand]
    row = bytes_at(at)
    found: Int = 0
    for lane in range(32):
        found |= np_int(row[lane] != 0) << lane
    return found


def np_int(truth: bool) -> Int:
    """A truth as a number."""
    return 1 if truth else 0


def branch(warp: Int, record: Int, mask: Int, guarded: bool, negated: bool, ends: Int) -> Int:
    """Lanes go to the record at a distance; where the target, or what follows, only ends, its lanes exit at once.

    `ends` has a bit for each: 1 for the target, 2 for what follows.
    """
    w = numbers_at(warp)
    target = record + numbers_at(record + IMMEDIATE)[0]
    following = record + RECORD_BYTES
    active = w[ACTIVE]
    taken = active
    if guarded:
        taken = held(warp, record, 0) & active
        if negated:
            taken = active & ~taken
    rest = active & ~taken
    if ends & 1 and taken:
        leave(warp, taken)
        taken = 0
    if ends & 2 and rest:
        leave(warp, rest)
        rest = 0
    if taken == 0 and rest == 0:
        return next_part(warp)
    if rest == 0:
        w[ACTIVE] = taken
        return target
    if taken == 0:
        w[ACTIVE] = rest
        return following
    if w[PARTS] + 2 > MOST_PARTS:
        return suspect(warp, record, ROOM)
    w[FIRST_PART + 2 * w[PARTS]] = taken
    w[FIRST_PART + 2 * w[PARTS] + 1] = target
    w[PARTS] += 1
    return first_part(warp, following, rest)


def meet_warp(warp: Int, record: Int, mask: Int) -> Int:
    """bar.warp.sync of all lanes: what they did before is ordered."""
    w = numbers_at(warp)
    members = words_at(w[REGISTERS] + words_at(record + OPERANDS)[0])
    if mask != w[ALIVE] or mask != 0xFFFFFFFF:
        return suspect(warp, record, DIVERGED)
    for lane in range(32):
        if members[lane] != 0xFFFFFFFF:
            return suspect(warp, record, DIVERGED)
    lanes_meet(warp)
    if w[NOW] >= LAST_TIME:
        return suspect(warp, record, ROOM)
    return record + RECORD_BYTES


def require_warp(warp: Int, record: Int, mask: Int) -> Int:
    """All lanes of a warp run an instruction together, which does nothing else."""
    return record + RECORD_BYTES if mask == EVERYBODY else suspect(warp, record, DIVERGED)


def require_divisor(warp: Int, record: Int, mask: Int, size: Int, why: Int) -> Int:
    """Integer divisors are not zero."""
    at = numbers_at(warp)[REGISTERS] + words_at(record + OPERANDS)[0]
    zeros: Int = 0
    for lane in range(32):
        value = longs_at(at)[lane] if size == 8 else np.uint64(words_at(at)[lane])
        if size == 2:
            value = np.uint64(halves_at(at)[lane])
        if mask >> lane & 1 and value == np.uint64(0):
            zeros += 1
    if zeros:
        return suspect(warp, record, why)
    return record + RECORD_BYTES
