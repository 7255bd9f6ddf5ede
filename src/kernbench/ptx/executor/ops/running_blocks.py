"""Blocks of a grid, one after the other: their warps run in turn, and meet at the barriers of the block."""

import numpy as np

from kernbench.common.native_loops import native_loop
from kernbench.ptx.emulator.lanes.arrays import Int64s, UInt64s
from kernbench.ptx.executor.ops.layout import (
    ACTIVE,
    ALIVE,
    BARRIER,
    CODE,
    COMMITTED,
    COPIES,
    COPY,
    ENTRY,
    FIRST_SERIAL,
    FLOOR,
    GROUPS,
    IMMEDIATE,
    LAUNCH,
    LEFT,
    MEETS,
    MET,
    NOW,
    NUMBER,
    PARTS,
    READING,
    RECORD_BYTES,
    REGISTERS,
    RESUME,
    ROOM,
    RUNS,
    SEEN,
    SERIAL,
    SHARED_BYTES,
    SHARED_READS,
    SHARED_STATES,
    SHARED_WRITES,
    SHOWN,
    SHOWN_BEFORE,
    STATE,
    SUSPECT,
    SUSPECT_SITE,
    VISIBLE,
    WAITS,
    WARP_WORDS,
    WARPS,
    WARPS_AT,
)
from kernbench.ptx.executor.ops.views import Flag, Int, enter, numbers_at, words_at

# from this time on stamps are erased before a block begins; and the last time that a barrier may reach
LATE, LAST_TIME = 1 << 14, (1 << 16) - 2
# special registers that differ between blocks: the coordinates of the block, and the multiprocessor
X, Y, Z, PROCESSOR = range(4)


@native_loop
def run_blocks(
    block: Int,
    first: Int,
    last: Int,
    shape: tuple[int, int, int],
    alive: Int64s,
    specials: Int64s,
    states: Int,
    budget: Int,
) -> Int:
    """Run the blocks from first to last - 1; returns the number of the block at which a suspect stopped it, else last.

    `shape` has the grid's extents along x and y, and the number of multiprocessors; `alive` the lanes of each warp,
    `specials` a row for each special register: its offset, which it is, and its bytes; `states` is the address of the
    states of a block's shared memory at its beginning.
    """
    b = numbers_at(block)
    launch = numbers_at(b[LAUNCH])
    for number in range(first, last):
        begin(block, number, shape, alive, specials, states, budget)
        going: Flag = True
        while going:
            for warp in range(b[WARPS]):
                at = b[WARPS_AT] + 8 * WARP_WORDS * warp
                w = numbers_at(at)
                if w[STATE] == RUNS:
                    enter(numbers_at(w[RESUME] + CODE)[0], at, w[RESUME], w[ACTIVE])
                    if launch[SUSPECT]:
                        return number
            going = release(block, alive)
            if launch[SUSPECT]:
                return number
    return last


def begin(
    block: Int, number: Int, shape: tuple[int, int, int], alive: Int64s, specials: Int64s, states: Int, budget: Int
) -> None:
    """A block begins: nothing of the one before is left."""
    b = numbers_at(block)
    launch = numbers_at(b[LAUNCH])
    words = (b[SHARED_BYTES] + 3) >> 2
    now = latest(block) + 1
    if now > LATE:
        writes, reads = words_at(b[SHARED_WRITES]), words_at(b[SHARED_READS])
        for word in range(words):
            writes[word] = 0
            reads[word] = 0
        now = 1
    b[FLOOR] = now
    b[VISIBLE] = now
    b[SERIAL] = launch[FIRST_SERIAL] + 1 + number
    fresh, template = words_at(b[SHARED_STATES]), words_at(states)
    for word in range(words):
        fresh[word] = template[word]
    for warp in range(b[WARPS]):
        w = numbers_at(b[WARPS_AT] + 8 * WARP_WORDS * warp)
        w[ACTIVE] = alive[warp]
        w[ALIVE] = alive[warp]
        w[STATE] = RUNS
        w[RESUME] = launch[ENTRY]
        w[PARTS] = 0
        w[NOW] = now
        w[MET] = now
        w[SHOWN] = now
        w[SHOWN_BEFORE] = now
        w[SEEN] = now
        w[COMMITTED] = 0
        w[COPIES] = 0
        w[GROUPS] = 0
        w[LEFT] = budget
        w[NUMBER] = warp
        for row in range(specials.shape[0]):
            value = coordinate(number, specials[row, 1], shape)
            if specials[row, 2] == 8:
                wide = numbers_at(w[REGISTERS] + specials[row, 0])
                for lane in range(32):
                    wide[lane] = value
            else:
                narrow = words_at(w[REGISTERS] + specials[row, 0])
                for lane in range(32):
                    narrow[lane] = value


def coordinate(number: Int, which: Int, shape: tuple[int, int, int]) -> Int:
    """The value of a special register that is the same for a block."""
    if which == X:
        return number % shape[0]
    if which == Y:
        return number // shape[0] % shape[1]
    if which == Z:
        return number // (shape[0] * shape[1])
    return number % shape[2]


def release(block: Int, alive: Int64s) -> Flag:
    """All warps have stopped: those that wait at one barrier go on; returns whether there are any.

    A barrier is a suspect if a warp has ended, or lanes of one: it orders only what those do that come to it.
    """
    b = numbers_at(block)
    launch = numbers_at(b[LAUNCH])
    copies: Int = b[READING]
    waiting: Int = 0
    ended: Int = 0
    barrier = -1
    for warp in range(b[WARPS]):
        w = numbers_at(b[WARPS_AT] + 8 * WARP_WORDS * warp)
        copies += w[COPIES]
        if w[STATE] == RUNS:
            # its warpgroup has met
            return True
        if w[STATE] == WAITS:
            waiting += 1
            here = numbers_at(w[RESUME] - RECORD_BYTES + IMMEDIATE)[0]
            if (barrier >= 0 and here != barrier) or w[ALIVE] != alive[warp]:
                ended += 1
            barrier = here
        else:
            ended += 1
            waiting += np.int64(w[STATE] == MEETS)
    if waiting == 0:
        if copies:
            launch[SUSPECT] = COPY
            launch[SUSPECT_SITE] = -1
        return False
    if ended or (barrier >> 8 != 0 and barrier >> 8 != 32 * b[WARPS]):
        launch[SUSPECT] = BARRIER
        launch[SUSPECT_SITE] = -1
        return False
    now = latest(block) + 1
    if now >= LAST_TIME:
        launch[SUSPECT] = ROOM
        return False
    pass_barrier(block, now)
    return True


def latest(block: Int) -> Int:
    """The latest time of a block's warps."""
    b = numbers_at(block)
    found: Int = 0
    for warp in range(b[WARPS]):
        found = max(found, numbers_at(b[WARPS_AT] + 8 * WARP_WORDS * warp)[NOW])
    return found


def pass_barrier(block: Int, now: Int) -> None:
    """All warps of a block know of each other what they did, and what proxy fences have shown."""
    b = numbers_at(block)
    seen, shown = b[VISIBLE], now
    for warp in range(b[WARPS]):
        w = numbers_at(b[WARPS_AT] + 8 * WARP_WORDS * warp)
        seen = max(seen, w[SEEN])
        shown = min(shown, w[SHOWN])
        w[SHOWN_BEFORE] = w[SHOWN]
        w[STATE] = RUNS
        w[NOW] = now
    b[FLOOR] = now
    b[VISIBLE] = max(seen, shown)


@native_loop
def all_written(states: UInt64s) -> Flag:
    """Whether the states of all bytes, eight in a word, say that they are written."""
    different = np.uint64(0)
    for first in range(0, states.size, 4096):
        for number in range(first, min(first + 4096, states.size)):
            different |= (states[number] & np.uint64(0x7F7F7F7F7F7F7F7F)) ^ np.uint64(0x0303030303030303)
        if different != np.uint64(0):
            return False
    return True
