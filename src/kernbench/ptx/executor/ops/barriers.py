"""Barriers of a block: of all its threads, and those of some of its warps, which are counted."""

import numpy as np

from kernbench.ptx.executor.ops.clocks import acquire, fill, lanes_meet, release
from kernbench.ptx.executor.ops.flow import LAST_TIME, suspect
from kernbench.ptx.executor.ops.layout import (
    ALIVE,
    BARRIER,
    BLOCK,
    CLOCKED,
    COUNTED,
    DIVERGED,
    EVENTS,
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
from kernbench.ptx.executor.ops.views import Int, lanes_of, numbers_at, words_at

# words of a counted barrier: how many threads it is for, the warps that have come, those that wait, and those of the
# round before; behind them what they have released
EXPECTED, CAME, WAITING, BEFORE = range(4)
EVERY_WARP = -1


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
    b = numbers_at(w[BLOCK])
    if b[CLOCKED]:
        # one that some warps had for themselves may count those that come here, too
        named = numbers_at(b[NAMED_AT] + NAMED_BYTES * (which & 0xFF))
        if named[CAME] or (named[BEFORE] and named[BEFORE] != EVERY_WARP):
            return suspect(warp, record, BARRIER)
        named[BEFORE] = EVERY_WARP
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


def come_to_barrier(warp: Int, record: Int, which: Int, many: Int, waits: Int) -> Int:
    """A warp comes to a barrier of some threads, which are the same warps in each round."""
    w = numbers_at(warp)
    b = numbers_at(w[BLOCK])
    at = b[NAMED_AT] + NAMED_BYTES * which
    named, bit = numbers_at(at), 1 << w[NUMBER]
    vector = at + 8 * NAMED_WORDS
    if named[CAME] == 0:
        named[EXPECTED] = many
        fill(vector, 0)
    if named[CAME] & bit or named[EXPECTED] != many or w[ALIVE] != 0xFFFFFFFF:
        return suspect(warp, record, BARRIER)
    named[CAME] |= bit
    if waits:
        lanes_meet(warp)
    release(warp, w[ALIVE], vector)
    if w[NOW] >= LAST_TIME:
        return suspect(warp, record, ROOM)
    if waits:
        named[WAITING] |= bit
        w[STATE] = COUNTED
        w[RESUME] = record + RECORD_BYTES
    count = 32 * lanes_of(named[CAME])
    if count < many:
        return 0 if waits else record + RECORD_BYTES
    if count > many or (named[BEFORE] and named[BEFORE] != named[CAME]):
        return suspect(warp, record, BARRIER)
    for number in range(b[WARPS]):
        if named[WAITING] >> number & 1:
            other = b[WARPS_AT] + 8 * WARP_WORDS * number
            acquire(other, numbers_at(other)[ALIVE], vector)
            numbers_at(other)[STATE] = RUNS
    named[BEFORE], named[CAME], named[WAITING] = named[CAME], 0, 0
    b[EVENTS] += 1
    return record + RECORD_BYTES
