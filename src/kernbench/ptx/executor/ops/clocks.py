"""Vector clocks: what warps know of each other where more than barriers of the whole block orders accesses.

A vector has a column for each actor of the block. Column v of what somebody knows is the time before which all that
warp v did is known; column SHOWN + v is the time before which its ordinary accesses are shown to the async proxy, too.
For asynchronous work the columns count: groups of products of a warpgroup, groups of stores of a warp, phases of an
mbarrier. Some lanes of a warp may know more than the others; there is one such set of lanes for each warp, and what
another set knew for itself is forgotten, which may call ordered accesses a suspect and never the reverse.

A stamp of shared memory whose time is IDS or later is the number of a vector: whoever made the accesses, they are known
to those who know as much as the vector says. So it stands for the accesses of several warps, and of asynchronous work.
"""

import numpy as np

from kernbench.ptx.executor.ops.layout import (
    AGENTS_AT,
    ALIVE,
    BLOCK,
    ELECTED,
    ELECTED_AT,
    FIRST_VECTOR,
    FLOOR,
    JOINED_AT,
    KNOWN_AT,
    KNOWN_FLOOR,
    LEFT_IN,
    MET,
    NEXT_VECTOR,
    NOW,
    NUMBER,
    READ_LAST,
    SERIAL,
    SHARED_READS,
    SHARED_WRITES,
    SHOWN_LAST,
    UNITED_AT,
    VECTORS_AT,
    WARP_WORDS,
    WARPS,
    WARPS_AT,
)
from kernbench.ptx.executor.ops.views import Flag, Int, halves_at, numbers_at, words_at

# columns: warps, what they have shown, warpgroups' products, warps' bulk stores, mbarriers
SHOWN, PRODUCTS, STORES, MBARRIERS = 32, 64, 72, 104
MOST_MBARRIERS = 64
COLUMNS = MBARRIERS + MOST_MBARRIERS
VECTOR_BYTES = 2 * COLUMNS
# times from here on are numbers of vectors; the last one is of what is never known
IDS, MOST_VECTORS = 0x8000, 0x7FFE
# unions of two stamps that are kept
MOST_UNITED = 256
PENDING = 0xFFFF
# no pair of stamps
NOT_SHOWN = np.uint64(0xFFFFFFFFFFFFFFFF)
EVERY_BYTE, MANY = 15 << 12, 63


def known_to(warp: Int, mask: Int) -> Int:
    """The vector of what lanes of a warp know."""
    w = numbers_at(warp)
    known: Int = w[ELECTED_AT] if w[ELECTED] and mask & ~w[ELECTED] == 0 else w[KNOWN_AT]
    return known


def own_of(warp: Int, mask: Int) -> Int:
    """The vector of what lanes of a warp know, to be changed for them."""
    w = numbers_at(warp)
    if mask == w[ALIVE]:
        return w[KNOWN_AT]
    if not w[ELECTED] or mask & ~w[ELECTED]:
        copy(w[KNOWN_AT], w[ELECTED_AT])
    w[ELECTED] = mask
    return w[ELECTED_AT]


def copy(source: Int, target: Int) -> None:
    """A vector becomes another."""
    given, out = halves_at(source), halves_at(target)
    for column in range(COLUMNS):
        out[column] = given[column]


def join(source: Int, target: Int) -> None:
    """A vector learns what another knows."""
    given, out = halves_at(source), halves_at(target)
    for column in range(COLUMNS):
        out[column] = max(out[column], given[column])


def fill(target: Int, value: Int) -> None:
    """All columns of warps and of what they have shown get a value, and the others 0."""
    out = halves_at(target)
    for column in range(PRODUCTS):
        out[column] = value
    for column in range(PRODUCTS, COLUMNS):
        out[column] = 0


def lanes_meet(warp: Int) -> None:
    """All lanes of a warp know what each of them knew, and what all of them did."""
    w = numbers_at(warp)
    w[NOW] += 1
    w[MET] = w[NOW]
    if w[ELECTED]:
        join(w[ELECTED_AT], w[KNOWN_AT])
        w[ELECTED] = 0
        find_floor(warp)


def find_floor(warp: Int) -> None:
    """The time before which a warp knows all accesses of others."""
    w = numbers_at(warp)
    known, found = halves_at(w[KNOWN_AT]), np.int64(w[MET])
    for other in range(numbers_at(w[BLOCK])[WARPS]):
        found = min(found, np.int64(w[MET]) if other == w[NUMBER] else np.int64(known[other]))
    w[KNOWN_FLOOR] = found


def own_time(warp: Int, mask: Int) -> Int:
    """The time before which lanes know what their warp did: when it last met, now if these are all that it began with.

    Those that have exited released nothing.
    """
    w = numbers_at(warp)
    if mask != w[ALIVE] or w[LEFT_IN] == numbers_at(w[BLOCK])[SERIAL]:
        return np.int64(w[MET])
    w[NOW] += 1
    return np.int64(w[NOW])


def release(warp: Int, mask: Int, target: Int) -> None:
    """Lanes pass on what they know."""
    w = numbers_at(warp)
    own = own_time(warp, mask)
    if w[ELECTED] and w[ELECTED] & ~mask == 0:
        join(w[ELECTED_AT], target)
    join(known_to(warp, mask), target)
    out = halves_at(target)
    out[w[NUMBER]] = max(np.int64(out[w[NUMBER]]), own)


def acquire(warp: Int, mask: Int, source: Int) -> None:
    """Lanes learn what a vector knows."""
    w = numbers_at(warp)
    join(source, own_of(warp, mask))
    if mask == w[ALIVE]:
        if w[ELECTED]:
            join(source, w[ELECTED_AT])
        w[MET] = max(w[MET], np.int64(halves_at(source)[w[NUMBER]]))
        find_floor(warp)


def knows_all(warp: Int, mask: Int, vector: Int) -> Flag:
    """Whether lanes know all that a vector says of others."""
    w = numbers_at(warp)
    asked, known, unknown = halves_at(vector), halves_at(known_to(warp, mask)), np.int32(0)
    for column in range(COLUMNS):
        unknown += np.int32(asked[column] > known[column])
    return unknown == np.int32(asked[w[NUMBER]] > known[w[NUMBER]])


def show(warp: Int, mask: Int) -> None:
    """A proxy fence: what lanes know is shown to the async proxy."""
    w = numbers_at(warp)
    own = own_time(warp, mask)
    known = halves_at(own_of(warp, mask))
    known[w[NUMBER]] = max(np.int64(known[w[NUMBER]]), np.int64(w[MET]))
    for column in range(32):
        known[SHOWN + column] = max(known[SHOWN + column], known[column])
    known[SHOWN + w[NUMBER]] = max(np.int64(known[SHOWN + w[NUMBER]]), own)


def is_id_known(block: Int, time: Int, known: Int, own: Int, met: Int) -> Flag:
    """Whether somebody knows what a vector stands for; of the own warp only what it did before it met."""
    b = numbers_at(block)
    number = time - IDS
    if number < b[FIRST_VECTOR]:
        return True
    asked, given = halves_at(b[VECTORS_AT] + VECTOR_BYTES * number), halves_at(known)
    unknown = np.int32(0)
    for column in range(COLUMNS):
        unknown += np.int32(asked[column] > given[column])
    if own < 32:
        unknown -= np.int32(asked[own] > given[own])
        unknown += np.int32(np.int64(asked[own]) > met)
    return unknown == 0


def new_vector(block: Int) -> Int:
    """The number of a vector of zeros; -1 if there is no room for more."""
    b = numbers_at(block)
    if b[NEXT_VECTOR] >= MOST_VECTORS:
        return np.int64(-1)
    number = b[NEXT_VECTOR]
    b[NEXT_VECTOR] = number + 1
    out = halves_at(b[VECTORS_AT] + VECTOR_BYTES * number)
    for column in range(COLUMNS):
        out[column] = 0
    return number


def stamp_of(number: Int) -> Int:
    """The stamp of the accesses that a vector stands for."""
    time = PENDING if number < 0 else IDS + number
    return time << 16 | EVERY_BYTE | MANY << 6 | MANY


def agent_stamp(block: Int, column: Int, count: Int) -> Int:
    """The stamp of asynchronous work that is known to those who know `count` in its column."""
    b = numbers_at(block)
    last = numbers_at(b[AGENTS_AT] + 16 * column)
    if last[0] == count and last[1] >= b[FIRST_VECTOR]:
        return stamp_of(last[1])
    number = new_vector(block)
    if number >= 0:
        halves_at(b[VECTORS_AT] + VECTOR_BYTES * number)[column] = count
        last[0], last[1] = count, number
    return stamp_of(number)


def united(block: Int, stamp: Int, mine: Int) -> Int:
    """A stamp for the accesses of two, of which neither is known to have been before the other."""
    b = numbers_at(block)
    old, new = stamp >> 16 << 6 | stamp >> 6 & 63, mine >> 16 << 6 | mine >> 6 & 63
    if old == new:
        return mine | stamp & EVERY_BYTE
    last = numbers_at(b[UNITED_AT] + 24 * ((old ^ old >> 7 ^ new * 5) & (MOST_UNITED - 1)))
    if last[0] == old and last[1] == new and last[2] >= b[FIRST_VECTOR]:
        return stamp_of(last[2])
    number = new_vector(block)
    if number >= 0:
        at = b[VECTORS_AT] + VECTOR_BYTES * number
        add_accesses(block, at, stamp)
        add_accesses(block, at, mine)
        last[0], last[1], last[2] = old, new, number
    return stamp_of(number)


def forget_vectors(block: Int) -> None:
    """No stamp names a vector any more."""
    b = numbers_at(block)
    b[NEXT_VECTOR] = 0
    for column in range(COLUMNS):
        numbers_at(b[AGENTS_AT] + 16 * column)[1] = -1
    for number in range(MOST_UNITED):
        numbers_at(b[UNITED_AT] + 24 * number)[2] = -1


def add_accesses(block: Int, target: Int, stamp: Int) -> None:
    """A vector stands for the accesses of a stamp, too."""
    time, who = stamp >> 16, stamp >> 6 & 63
    out = halves_at(target)
    if time >= IDS:
        join(numbers_at(block)[VECTORS_AT] + VECTOR_BYTES * (time - IDS), target)
    elif who < 32:
        out[who] = max(np.int64(out[who]), time + 1)
    else:
        # several warps at a time that none of them has passed
        for column in range(32):
            out[column] = max(np.int64(out[column]), time + 1)


def pass_block(block: Int, now: Int, room: Int) -> None:
    """All warps of a block know what each of them knew and did; their time is `now`."""
    b = numbers_at(block)
    first = b[WARPS_AT]
    fill(room, 0)
    for warp in range(b[WARPS]):
        at = first + 8 * WARP_WORDS * warp
        w = numbers_at(at)
        if w[ELECTED]:
            join(w[ELECTED_AT], w[KNOWN_AT])
            w[ELECTED] = 0
        join(w[KNOWN_AT], room)
    out = halves_at(room)
    for warp in range(32):
        out[warp] = now
    for warp in range(b[WARPS]):
        w = numbers_at(first + 8 * WARP_WORDS * warp)
        copy(room, w[KNOWN_AT])
        w[NOW] = now
        w[MET] = now
        w[KNOWN_FLOOR] = now
    b[FLOOR] = now


def seen_by(block: Int, known: Int) -> Int:
    """The time before which all accesses of a block's warps are known, and shown."""
    given = halves_at(known)
    found = np.int64(IDS)
    for warp in range(numbers_at(block)[WARPS]):
        found = min(found, np.int64(min(given[warp], given[SHOWN + warp])))
    return found


def is_shown(block: Int, stamp: Int) -> Flag:
    """Whether asynchronous work sees a write: ordinary ones after a proxy fence."""
    b = numbers_at(block)
    if stamp == b[SHOWN_LAST]:
        return True
    found = is_shown_to(block, stamp, b[JOINED_AT])
    if found:
        b[SHOWN_LAST] = stamp
    return found


def is_read_before(block: Int, stamp: Int) -> Flag:
    """Whether reads of a word are known to asynchronous work."""
    b = numbers_at(block)
    if stamp == b[READ_LAST]:
        return True
    time, who = stamp >> 16, stamp >> 6 & 63
    if time >= IDS:
        found: Flag = time != PENDING and is_id_known(block, time, b[JOINED_AT], 63, 0)
    else:
        found = who < 32 and time < np.int64(halves_at(b[JOINED_AT])[who])
    if found:
        b[READ_LAST] = stamp
    return found


def begin_work(block: Int) -> None:
    """Asynchronous work begins, of which JOINED_AT says what it knows."""
    b = numbers_at(block)
    # a stamp of no access, which everybody knows
    b[SHOWN_LAST] = 0
    b[READ_LAST] = 0


def is_shown_to(block: Int, stamp: Int, known: Int) -> Flag:
    """Whether who knows a vector sees a write by the async proxy."""
    b, given = numbers_at(block), halves_at(known)
    time, who = stamp >> 16, stamp >> 6 & 63
    if time == PENDING:
        return False
    if time >= IDS:
        if not is_id_known(block, time, known, 63, 0):
            return False
        asked, hidden = halves_at(b[VECTORS_AT] + VECTOR_BYTES * (time - IDS)), np.int32(0)
        for column in range(32):
            hidden += np.int32(asked[column] > given[SHOWN + column])
        return hidden == 0 or time - IDS < b[FIRST_VECTOR]
    return who < 32 and time < np.int64(min(given[who], given[SHOWN + who]))


def read_by_agent(block: Int, stamp: Int, mine: Int, ground: Int) -> Int:
    """The stamp of a word that asynchronous work reads, too."""
    if stamp == mine or stamp >> 16 < ground:
        return mine
    if stamp >> 16 >= IDS and (stamp >> 16) - IDS < numbers_at(block)[FIRST_VECTOR]:
        return mine
    return united(block, stamp, mine)


def pair_of(stamp: Int) -> Int:
    """A stamp of two words."""
    return np.uint64(stamp) << np.uint64(32) | np.uint64(stamp)


def shown_piece(block: Int, at: Int, seen: Int) -> Int:
    """Whether asynchronous work sees all writes of a piece: the stamp of its last two words, or NOT_SHOWN."""
    stamps = words_at(numbers_at(block)[SHARED_WRITES] + at)
    for word in range(4):
        stamp = np.int64(stamps[word])
        if stamp >> 16 >= seen and not is_shown(block, stamp):
            return NOT_SHOWN
    return np.uint64(stamps[3]) << np.uint64(32) | np.uint64(stamps[2])


def read_piece(block: Int, at: Int, mine: Int) -> None:
    """Asynchronous work reads a piece."""
    b = numbers_at(block)
    stamps = words_at(b[SHARED_READS] + at)
    for word in range(4):
        stamps[word] = read_by_agent(block, np.int64(stamps[word]), mine, b[FLOOR])
