"""Barriers of a block: of all its threads, and those of some of its warps, which are counted."""

import numpy as np

from kernbench.ptx.executor.ops.clocks import VECTOR_BYTES, acquire, copy, fill, knows_all, lanes_meet, release
from kernbench.ptx.executor.ops.flow import LAST_TIME, suspect
from kernbench.ptx.executor.ops.layout import (
    ALIVE,
    BARRIER,
    BLOCK,
    CLOCKED,
    COUNTED,
    DIVERGED,
    EVENTS,
    EVERYBODY,
    IMMEDIATE,
    NAMED_AT,
    NOW,
    NUMBER,
    OPERANDS,
    PARTS,
    RECORD_BYTES,
    REGISTERS,
    RESUME,
    ROOM,
    RUNS,
    STATE,
    WAITS,
    WAITS_AT,
    WARP_WORDS,
    WARPS,
    WARPS_AT,
)
from kernbench.ptx.executor.ops.mbarriers import MOST_NAMED, NAMED_BYTES, NAMED_WORDS
from kernbench.ptx.executor.ops.views import Flag, Int, numbers_at, words_at

# words of a counted barrier: how many threads it is for, how many have come, the warps that wait, and how many rounds
# are over; behind them what those that came have released, in this round and in the one before
EXPECTED, CAME, WAITING, ROUNDS = range(4)


def wait_at_barrier(warp: Int, record: Int, mask: Int, waits: Int, by_operand: Int, counted: Int) -> Int:
    """bar.sync and bar.arrive; the immediate is its number and the count of threads, 0 for all.

    Its number may be an operand (`by_operand`); with `counted`, those that count threads are for some warps.
    """
    w = numbers_at(warp)
    if w[PARTS] != 0 or mask != w[ALIVE]:
        return suspect(warp, record, DIVERGED)
    which = numbers_at(record + IMMEDIATE)[0]
    if by_operand:
        number = number_of(warp, record)
        if number < 0 or number >= MOST_NAMED:
            return suspect(warp, record, BARRIER)
        which |= number
    many = which >> 8
    if not waits or (many != 0 and (counted or many != 32 * numbers_at(w[BLOCK])[WARPS])):
        return come_to_barrier(warp, record, which & 0xFF, many, waits)
    # one that some warps had for themselves may count those that come here, too
    if numbers_at(w[BLOCK])[CLOCKED] and not is_next_round(warp, which & 0xFF):
        return suspect(warp, record, BARRIER)
    w[STATE] = WAITS
    w[WAITS_AT] = which
    w[RESUME] = record + RECORD_BYTES
    return 0


def number_of(warp: Int, record: Int) -> Int:
    """The number of a barrier that all lanes of a warp have in an operand; -1 if they differ."""
    row = words_at(numbers_at(warp)[REGISTERS] + words_at(record + OPERANDS)[0])
    different = np.uint32(0)
    for lane in range(32):
        different |= row[lane] ^ row[0]
    return np.int64(row[0]) if different == np.uint32(0) else np.int64(-1)


def is_next_round(warp: Int, which: Int) -> Flag:
    """Whether a warp comes to a barrier that nobody has come to since all that it knows of its rounds."""
    at = numbers_at(numbers_at(warp)[BLOCK])[NAMED_AT] + NAMED_BYTES * which
    return numbers_at(at)[CAME] == 0 and is_past_round(warp, at)


def is_past_round(warp: Int, at: Int) -> Flag:
    """Whether a warp knows of all that came to a barrier's last round, so that it cannot be one of them."""
    if numbers_at(at)[ROUNDS] == 0:
        return True
    return knows_all(warp, numbers_at(warp)[ALIVE], at + 8 * NAMED_WORDS + VECTOR_BYTES)


def come_to_barrier(warp: Int, record: Int, which: Int, many: Int, waits: Int) -> Int:
    """A warp comes to a barrier of some threads."""
    w = numbers_at(warp)
    b = numbers_at(w[BLOCK])
    at = b[NAMED_AT] + NAMED_BYTES * which
    named, vector = numbers_at(at), at + 8 * NAMED_WORDS
    if named[CAME] == 0:
        named[EXPECTED] = many
        fill(vector, 0)
    whole = w[ALIVE] == EVERYBODY and many & 31 == 0 and named[EXPECTED] == many
    if not whole or not is_past_round(warp, at) or is_of_all(w[BLOCK], which):
        return suspect(warp, record, BARRIER)
    if waits:
        lanes_meet(warp)
    release(warp, w[ALIVE], vector)
    if w[NOW] >= LAST_TIME:
        return suspect(warp, record, ROOM)
    if waits:
        named[WAITING] |= 1 << w[NUMBER]
        w[STATE] = COUNTED
        w[RESUME] = record + RECORD_BYTES
    named[CAME] += 32
    if named[CAME] < many:
        return 0 if waits else record + RECORD_BYTES
    pass_round(w[BLOCK], at)
    return record + RECORD_BYTES


def is_of_all(block: Int, which: Int) -> Flag:
    """Whether warps wait at a barrier of this number for all threads of the block."""
    b, found = numbers_at(block), np.int64(0)
    for number in range(b[WARPS]):
        other = numbers_at(b[WARPS_AT] + 8 * WARP_WORDS * number)
        found += np.int64(other[STATE] == WAITS and other[WAITS_AT] & 0xFF == which)
    return found != 0


def pass_round(block: Int, at: Int) -> None:
    """All have come: those that wait go on, and know what all have released."""
    b, named, vector = numbers_at(block), numbers_at(at), at + 8 * NAMED_WORDS
    for number in range(b[WARPS]):
        if named[WAITING] >> number & 1:
            other = b[WARPS_AT] + 8 * WARP_WORDS * number
            acquire(other, numbers_at(other)[ALIVE], vector)
            numbers_at(other)[STATE] = RUNS
    copy(vector, vector + VECTOR_BYTES)
    named[CAME], named[WAITING] = 0, 0
    named[ROUNDS] += 1
    b[EVENTS] += 1
