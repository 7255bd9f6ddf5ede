"""Blocks of a grid, one after the other: their warps run in turn, and meet at the barriers of the block."""

import numpy as np

from kernbench.common.native_loops import native_loop
from kernbench.ptx.emulator.lanes.arrays import UInt64s
from kernbench.ptx.executor.ops.clocks import fill, forget_vectors, pass_block
from kernbench.ptx.executor.ops.flow import LAST_TIME
from kernbench.ptx.executor.ops.layout import (
    ACTIVE,
    ALIVE,
    ALIVE_AT,
    BARRIER,
    BLOCK,
    BUDGET_OF,
    CLOCKED,
    CODE,
    COMMITTED,
    COPIES,
    COPY,
    ELECTED,
    ENDED,
    ENTRY,
    EVENTS,
    EXTENT_X,
    EXTENT_Y,
    FIRST,
    FIRST_SERIAL,
    FIRST_VECTOR,
    FLOOR,
    GROUPS,
    JOINED_AT,
    KNOWN_AT,
    KNOWN_FLOOR,
    LAST,
    LAUNCH,
    LEFT,
    MBARRIER_COUNT,
    MBARRIER_NUMBERS_AT,
    MBARRIERS_AT,
    MET,
    NAMED_AT,
    NEXT_VECTOR,
    NOW,
    NUMBER,
    PARKED,
    PARTS,
    PROCESSORS,
    PRODUCTS_BEGUN,
    PRODUCTS_DONE,
    REGISTERS,
    RESUME,
    ROOM,
    RUNS,
    SERIAL,
    SHARED_BYTES,
    SHARED_READS,
    SHARED_STATES,
    SHARED_WRITES,
    SPECIAL_COUNT,
    SPECIALS_AT,
    STATE,
    STATES_AT,
    STOPPED,
    STORED,
    STORES_BEGUN,
    STORES_DONE,
    SUSPECT,
    SUSPECT_SITE,
    SWIZZLES_AT,
    UNSET,
    UNSET_AT,
    UNSET_COUNT,
    WAITS,
    WAITS_AT,
    WARP_WORDS,
    WARPS,
    WARPS_AT,
)
from kernbench.ptx.executor.ops.mbarriers import MBARRIER_BYTES, MOST_NAMED, NAMED_BYTES, NAMED_WORDS, awaits_bytes
from kernbench.ptx.executor.ops.views import Flag, Int, bytes_at, enter, numbers_at, words_at

# from this time on, and from so many vectors on, stamps are erased before a block begins
LATE = 1 << 14
# special registers that differ between blocks: the coordinates of the block, and the multiprocessor
X, Y, Z, PROCESSOR = range(4)


def run_blocks(block: Int, task: Int, mask: Int) -> Int:
    """Run blocks one after the other, up to one at which a suspect stops it."""
    b, t = numbers_at(block), numbers_at(task)
    launch = numbers_at(b[LAUNCH])
    for number in range(t[FIRST], t[LAST]):
        t[STOPPED] = number
        begin(block, number, task)
        going: Flag = True
        while going:
            events = b[EVENTS]
            for warp in range(b[WARPS]):
                at = b[WARPS_AT] + 8 * WARP_WORDS * warp
                w = numbers_at(at)
                if w[STATE] == RUNS or w[STATE] == PARKED:
                    enter(numbers_at(w[RESUME] + CODE)[0], at, w[RESUME], w[ACTIVE])
                    if launch[SUSPECT]:
                        return 0
            going = b[EVENTS] != events or release(block, t[ALIVE_AT])
            if launch[SUSPECT]:
                return 0
    t[STOPPED] = t[LAST]
    return 0


def begin(block: Int, number: Int, task: Int) -> None:
    """A block begins: nothing of the one before is left."""
    b = numbers_at(block)
    launch = numbers_at(b[LAUNCH])
    words = (b[SHARED_BYTES] + 3) >> 2
    now = latest(block) + 1
    if now > LATE or (b[CLOCKED] and b[NEXT_VECTOR] > LATE):
        writes, reads = words_at(b[SHARED_WRITES]), words_at(b[SHARED_READS])
        for word in range(words):
            writes[word] = 0
            reads[word] = 0
        now = 1
        if b[CLOCKED]:
            forget_vectors(block)
    b[FIRST_VECTOR] = b[NEXT_VECTOR]
    b[FLOOR] = now
    if b[CLOCKED]:
        begin_clocked(block, words)
    b[SERIAL] = launch[FIRST_SERIAL] + 1 + number
    t = numbers_at(task)
    fresh, template = words_at(b[SHARED_STATES]), words_at(t[STATES_AT])
    for word in range(words):
        fresh[word] = template[word]
    for warp in range(b[WARPS]):
        at = b[WARPS_AT] + 8 * WARP_WORDS * warp
        begin_warp(at, warp, numbers_at(t[ALIVE_AT])[warp], now, t[BUDGET_OF])
        for row in range(t[UNSET_COUNT]):
            set_row(numbers_at(at)[REGISTERS] + numbers_at(t[UNSET_AT])[row], 4, UNSET)
        for row in range(t[SPECIAL_COUNT]):
            # its offset, which it is, and its bytes
            special = numbers_at(t[SPECIALS_AT] + 24 * row)
            set_row(numbers_at(at)[REGISTERS] + special[0], special[2], coordinate(number, special[1], task))


def set_row(at: Int, nbytes: Int, value: Int) -> None:
    """All lanes of a register of 8 or 4 bytes get a value."""
    wide, narrow = numbers_at(at), words_at(at)
    for lane in range(32):
        if nbytes == 8:
            wide[lane] = value
        else:
            narrow[lane] = value


def begin_warp(warp: Int, number: Int, alive: Int, now: Int, budget: Int) -> None:
    """A warp begins, with some lanes."""
    w = numbers_at(warp)
    b = numbers_at(w[BLOCK])
    w[ACTIVE], w[ALIVE], w[STATE], w[RESUME] = alive, alive, RUNS, numbers_at(b[LAUNCH])[ENTRY]
    w[PARTS], w[LEFT], w[NUMBER] = 0, budget, number
    w[NOW], w[MET], w[KNOWN_FLOOR], w[ELECTED] = now, now, now, 0
    w[COPIES], w[GROUPS], w[COMMITTED] = 0, 0, 0
    w[PRODUCTS_BEGUN], w[PRODUCTS_DONE] = 0, 0
    w[STORED], w[STORES_BEGUN], w[STORES_DONE] = 0, 0, 0
    if b[CLOCKED]:
        fill(w[KNOWN_AT], now)


def coordinate(number: Int, which: Int, task: Int) -> Int:
    """The value of a special register that is the same for a block."""
    t = numbers_at(task)
    one, width, height = np.uint64(number), np.uint64(t[EXTENT_X]), np.uint64(t[EXTENT_Y])
    if which == X:
        return np.int64(one % width)
    if which == Y:
        return np.int64(one // width % height)
    if which == Z:
        return np.int64(one // (width * height))
    return np.int64(one % np.uint64(t[PROCESSORS]))


def begin_clocked(block: Int, words: Int) -> None:
    """A block begins that has mbarriers or asynchronous work: it has no mbarrier yet, nor a tile of a tensor."""
    b = numbers_at(block)
    swizzles, numbers = bytes_at(b[SWIZZLES_AT]), bytes_at(b[MBARRIER_NUMBERS_AT])
    for piece in range((words >> 2) + 1):
        swizzles[piece] = 0
    for piece in range((words >> 1) + 1):
        numbers[piece] = 0
    b[MBARRIER_COUNT] = 0
    b[EVENTS] = 0
    for number in range(MOST_NAMED):
        named = numbers_at(b[NAMED_AT] + NAMED_BYTES * number)
        for word in range(NAMED_WORDS):
            named[word] = 0


def release(block: Int, alive: Int) -> Flag:
    """All warps have stopped: those that wait at one barrier go on; returns whether there are any.

    A barrier is a suspect if a warp has ended, or lanes of one: it orders only what those do that come to it.
    """
    b = numbers_at(block)
    launch = numbers_at(b[LAUNCH])
    copies: Int = 0
    waiting: Int = 0
    ended: Int = 0
    barrier = np.int64(-1)
    for warp in range(b[WARPS]):
        w = numbers_at(b[WARPS_AT] + 8 * WARP_WORDS * warp)
        copies += w[COPIES]
        if w[STATE] == RUNS:
            # others have let it go on
            return True
        if w[STATE] == WAITS:
            waiting += 1
            here = w[WAITS_AT]
            if (barrier >= 0 and here != barrier) or w[ALIVE] != numbers_at(alive)[warp]:
                ended += 1
            barrier = here
        else:
            ended += 1
            waiting += np.int64(w[STATE] != ENDED)
    if waiting == 0:
        if copies or (b[CLOCKED] and is_under_way(block)):
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
    """All warps of a block know of each other what they did."""
    b = numbers_at(block)
    if b[CLOCKED]:
        pass_block(block, now, b[JOINED_AT])
    b[FLOOR] = now
    for warp in range(b[WARPS]):
        w = numbers_at(b[WARPS_AT] + 8 * WARP_WORDS * warp)
        w[STATE] = RUNS
        w[NOW] = now
        w[KNOWN_FLOOR] = now


def is_under_way(block: Int) -> Flag:
    """Whether asynchronous work of a block is left that nobody has waited for."""
    b = numbers_at(block)
    for warp in range(b[WARPS]):
        w = numbers_at(b[WARPS_AT] + 8 * WARP_WORDS * warp)
        if w[PRODUCTS_DONE] < w[PRODUCTS_BEGUN] or w[STORES_DONE] < w[STORES_BEGUN]:
            return True
    left: Flag = False
    for number in range(b[MBARRIER_COUNT]):
        left = left or awaits_bytes(b[MBARRIERS_AT] + MBARRIER_BYTES * number)
    return left


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
