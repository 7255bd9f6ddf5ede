"""Bulk copies and boxes of tensors between global and shared memory: moved at once, known to who waits for them.

A copy to shared memory is known to those who know of the phase of its mbarrier, a copy from there to those who know of
a wait for its group. In global memory nothing in the same launch is ordered after it, as far as the fast tests know.
Tensor maps are decoded before the launch; one that is not known ends the run, and is decoded for the next.
"""

import numpy as np

from kernbench.ptx.executor.ops.clocks import (
    EVERY_BYTE,
    MANY,
    MBARRIERS,
    NOT_SHOWN,
    PENDING,
    STORES,
    agent_stamp,
    begin_work,
    copy,
    is_read_before,
    known_to,
    own_of,
    pair_of,
    read_piece,
    seen_by,
    shown_piece,
)
from kernbench.ptx.executor.ops.flow import LAST_TIME, suspect
from kernbench.ptx.executor.ops.layout import (
    ACCESS_WORDS,
    ACCESSES,
    BLOCK,
    BOUNDS,
    CONTENTS,
    COPY,
    DEFINED,
    DIVERGED,
    FIRST_ROW,
    FIRST_SERIAL,
    FLAGS,
    JOINED_AT,
    LAUNCH,
    MAP_COUNT,
    MAPS_AT,
    MBARRIERS_AT,
    MET,
    MISALIGNED,
    NO_SUSPECT,
    NUMBER,
    OPERANDS,
    RACE,
    READ_LAST,
    RECORD_BYTES,
    REGISTERS,
    ROOM,
    SERIAL,
    SHARED,
    SHARED_BYTES,
    SHARED_READS,
    SHARED_STATES,
    SHARED_WRITES,
    SHOWN_LAST,
    SITE,
    SPACE,
    STATES,
    STORE_LANES,
    STORED,
    STORES_BEGUN,
    STORES_DONE,
    SWIZZLES_AT,
    THREADS,
    TRACKED,
    UNKNOWN_MAP,
    UNWRITTEN,
)
from kernbench.ptx.executor.ops.loads_stores import GLOBAL_BASE, STATE_BITS, WRITTEN, array_of
from kernbench.ptx.executor.ops.mbarriers import (
    MBARRIER_BYTES,
    PHASE,
    complete,
    expect,
    is_shown_to_copies,
    mbarrier_at,
)
from kernbench.ptx.executor.ops.shadow import READ, WRITE, note_words, save_range
from kernbench.ptx.executor.ops.views import (
    Flag,
    Int,
    bytes_at,
    halves_at,
    ints_at,
    longs_at,
    lowest,
    numbers_at,
    words_at,
)

# words of a tensor map: its address, the tensor's offset in global memory, dimensions, bytes of an element, the mask
# and shift of its swizzle, the bytes between rows of a box in shared memory, and the mark of its swizzle; then for each
# dimension the size, the stride in bytes, and the size of a box
(MAP_ADDRESS, BASE, RANK, ELEMENT, MASK, SHIFT, PITCH, MARK, DIMS) = range(9)
MOST_RANK, MOST_MAPS = 5, 64
STRIDES, BOX = DIMS + MOST_RANK, DIMS + 2 * MOST_RANK
MAP_WORDS = DIMS + 3 * MOST_RANK
PIECE, ALIGNMENT = 16, 128
# addresses of shared memory, mbarriers and maps: the first operands of copies; then sizes or coordinates
END, OTHER, MAP, POINT = range(4)


def value_of(warp: Int, record: Int, operand: Int, lane: Int, wide: Int) -> Int:
    """The number that a lane has in an operand of 64 or 32 bits."""
    row = numbers_at(warp)[REGISTERS] + words_at(record + OPERANDS)[operand]
    return numbers_at(row)[lane] if wide else np.int64(words_at(row)[lane])


def offset_of(record: Int, operand: Int) -> Int:
    """The offset of an address, which is an operand by itself."""
    return np.int64(ints_at(record + OPERANDS)[operand])


def know(warp: Int, mask: Int) -> None:
    """What a copy knows that lanes begin: of their own warp what it did before it last met."""
    w = numbers_at(warp)
    b = numbers_at(w[BLOCK])
    copy(known_to(warp, mask), b[JOINED_AT])
    halves_at(b[JOINED_AT])[w[NUMBER]] = w[MET]
    begin_work(w[BLOCK])


def fill_piece(block: Int, at: Int, mine: Int, seen: Int, mark: Int) -> Int:
    """Enter that a copy writes a piece of shared memory; returns what is suspect of it."""
    b = numbers_at(block)
    if at < 0 or at + PIECE > b[SHARED_BYTES]:
        return np.int64(BOUNDS)
    writes, reads = longs_at(b[SHARED_WRITES] + at), longs_at(b[SHARED_READS] + at)
    shown, read = pair_of(b[SHOWN_LAST]), pair_of(b[READ_LAST])
    if (writes[0] != shown or writes[1] != shown) and shown_piece(block, at, seen) == NOT_SHOWN:
        return np.int64(RACE)
    if (reads[0] != read or reads[1] != read) and not are_read_before(block, at, seen):
        return np.int64(RACE)
    twice, states = pair_of(mine), longs_at(b[SHARED_STATES] + at)
    known = states[0] & states[1] & np.uint64(0x0101010101010101)
    for half in range(2):
        writes[half], reads[half] = twice, np.uint64(0)
        states[half] = states[half] & np.uint64(0x8080808080808080) | np.uint64(0x0303030303030303)
    bytes_at(b[SWIZZLES_AT])[at >> 4] = mark
    return np.int64(NO_SUSPECT) if known == np.uint64(0x0101010101010101) else np.int64(BOUNDS)


def are_read_before(block: Int, at: Int, seen: Int) -> Flag:
    """Whether a copy knows all reads of a piece."""
    reads = words_at(numbers_at(block)[SHARED_READS] + at)
    for word in range(4):
        read = np.int64(reads[word])
        if read >> 16 >= seen and not is_read_before(block, read):
            return False
    return True


def take_piece(block: Int, at: Int, mine: Int, seen: Int) -> Int:
    """Enter that a copy reads a piece of shared memory; returns what is suspect of it."""
    b = numbers_at(block)
    if at < 0 or at + PIECE > b[SHARED_BYTES]:
        return np.int64(BOUNDS)
    states = longs_at(b[SHARED_STATES] + at)
    bad = (states[0] | states[1]) & np.uint64(0x7C7C7C7C7C7C7C7C)
    bad |= states[0] & states[1] & np.uint64(0x0303030303030303) ^ np.uint64(0x0303030303030303)
    if shown_piece(block, at, seen) == NOT_SHOWN:
        return np.int64(RACE)
    read_piece(block, at, mine)
    return np.int64(NO_SUSPECT) if bad == np.uint64(0) else np.int64(UNWRITTEN)


def global_range(warp: Int, record: Int, low: Int, nbytes: Int, kind: Int) -> Int:
    """Enter that a copy reads or writes a range of global memory; returns what is suspect of it."""
    w = numbers_at(warp)
    b = numbers_at(w[BLOCK])
    launch = b[LAUNCH]
    access = numbers_at(launch)[ACCESSES] + 8 * ACCESS_WORDS * numbers_at(record + SITE)[0]
    entry = array_of(launch, access, low, low + nbytes)
    if entry == 0 or low & 3 or nbytes & 3:
        return np.int64(BOUNDS)
    e = numbers_at(entry)
    states, flags = numbers_at(launch)[STATES] - GLOBAL_BASE, e[FLAGS]
    if kind == READ and not flags & DEFINED and not are_all_written(states + low, nbytes):
        return np.int64(UNWRITTEN)
    if kind == WRITE:
        if not flags & TRACKED:
            return np.int64(SPACE)
        save_range(launch, entry, low, nbytes)
        if not flags & DEFINED:
            mark_all_written(states + low, nbytes)
    if flags & TRACKED:
        # not ordered before anything in this launch
        mine = b[SERIAL] << 32 | PENDING << 16 | EVERY_BYTE | MANY << 6 | MANY
        moment = numbers_at(launch)[FIRST_SERIAL], np.int64(0), np.int64(0), numbers_at(launch)[THREADS]
        at = low
        while at < low + nbytes:
            row, inside = (at >> 7) - e[FIRST_ROW], at >> 2 & 31
            size = min(low + nbytes, (at | 127) + 1) - at
            if not note_words(entry, row, inside, size, mine, moment, kind, 0):
                return np.int64(RACE)
            at += size
    return np.int64(NO_SUSPECT)


def are_all_written(states: Int, nbytes: Int) -> Flag:
    """Whether all bytes of a range are written."""
    held, bad = bytes_at(states), np.uint8(0)
    for number in range(nbytes):
        bad |= held[number] & np.uint8(STATE_BITS) ^ np.uint8(WRITTEN)
    return bad == 0


def mark_all_written(states: Int, nbytes: Int) -> None:
    """All bytes of a range are written from now on."""
    held = bytes_at(states)
    for number in range(nbytes):
        held[number] = held[number] & np.uint8(0x80) | np.uint8(WRITTEN)


def move(source: Int, target: Int, nbytes: Int) -> None:
    """Move bytes."""
    given, out = bytes_at(source), bytes_at(target)
    for number in range(nbytes):
        out[number] = given[number]


def barrier_of(warp: Int, record: Int, mask: Int, lane: Int, wide: Int, offset: Int) -> Int:
    """The number of the mbarrier of a copy that a lane begins, which the copy engine sees; -1 for a suspect."""
    number = mbarrier_at(warp, mask, value_of(warp, record, OTHER, lane, wide) + offset)
    if number < 0 or not is_shown_to_copies(warp, mask, number):
        return np.int64(-1)
    return number


def deliver_bytes(block: Int, number: Int, nbytes: Int) -> Flag:
    """Bytes of a copy have come; False if an mbarrier cannot count them."""
    expect(numbers_at(block)[MBARRIERS_AT] + MBARRIER_BYTES * number, -nbytes)
    return complete(block, number)


def load_range(warp: Int, record: Int, mask: Int, wide: Int, wide_barrier: Int) -> Int:
    """cp.async.bulk to shared memory: the target, the mbarrier, the source, the size, and the offsets of addresses."""
    w = numbers_at(warp)
    b, lane = numbers_at(w[BLOCK]), lowest(mask)
    if mask & (mask - 1):
        return suspect(warp, record, DIVERGED)
    target = value_of(warp, record, END, lane, wide) + offset_of(record, 4)
    source = value_of(warp, record, MAP, lane, 1) + offset_of(record, 6)
    size = value_of(warp, record, POINT, lane, 0)
    if (target | source | size) & (PIECE - 1):
        return suspect(warp, record, MISALIGNED)
    number = barrier_of(warp, record, mask, lane, wide_barrier, offset_of(record, 5))
    if number < 0:
        return suspect(warp, record, COPY)
    know(warp, mask)
    m = numbers_at(b[MBARRIERS_AT] + MBARRIER_BYTES * number)
    mine, seen = agent_stamp(w[BLOCK], MBARRIERS + number, m[PHASE] + 1), seen_by(w[BLOCK], b[JOINED_AT])
    why = global_range(warp, record, source, size, READ)
    for at in range(target, target + size, PIECE):
        if why == NO_SUSPECT:
            why = fill_piece(w[BLOCK], at, mine, seen, 0)
    if why != NO_SUSPECT:
        return suspect(warp, record, why)
    move(numbers_at(b[LAUNCH])[CONTENTS] - GLOBAL_BASE + source, b[SHARED] + target, size)
    return record + RECORD_BYTES if deliver_bytes(w[BLOCK], number, size) else suspect(warp, record, COPY)


def store_range(warp: Int, record: Int, mask: Int, wide: Int) -> Int:
    """cp.async.bulk to global memory: the source, the target, the size, and the offsets of addresses."""
    w = numbers_at(warp)
    b, lane = numbers_at(w[BLOCK]), lowest(mask)
    source = value_of(warp, record, END, lane, wide) + offset_of(record, 3)
    target = value_of(warp, record, OTHER, lane, 1) + offset_of(record, 4)
    size = value_of(warp, record, MAP, lane, 0)
    if (target | source | size) & (PIECE - 1):
        return suspect(warp, record, MISALIGNED)
    if mask & (mask - 1) or not begins_store(warp, mask):
        return suspect(warp, record, DIVERGED)
    know(warp, mask)
    mine, seen = store_stamp(warp), seen_by(w[BLOCK], b[JOINED_AT])
    why = global_range(warp, record, target, size, WRITE)
    for at in range(source, source + size, PIECE):
        if why == NO_SUSPECT:
            why = take_piece(w[BLOCK], at, mine, seen)
    if why != NO_SUSPECT:
        return suspect(warp, record, why)
    move(b[SHARED] + source, numbers_at(b[LAUNCH])[CONTENTS] - GLOBAL_BASE + target, size)
    return record + RECORD_BYTES


def begins_store(warp: Int, mask: Int) -> Flag:
    """Lanes of a warp begin a copy of a group; False if they are not always the same ones."""
    w = numbers_at(warp)
    if w[STORES_BEGUN] and w[STORE_LANES] != mask:
        return False
    w[STORE_LANES] = mask
    w[STORES_BEGUN] = w[STORED] + 1
    return True


def are_alike(warp: Int, record: Int, mask: Int, operand: Int, wide: Int) -> Flag:
    """Whether all lanes have the same number in an operand."""
    first, different = value_of(warp, record, operand, lowest(mask), wide), np.int64(0)
    for lane in range(32):
        if mask >> lane & 1:
            different |= value_of(warp, record, operand, lane, wide) ^ first
    return different == 0


def are_one_box(warp: Int, record: Int, mask: Int, rank: Int, wide: Int) -> Flag:
    """Whether all lanes store the same box, which is stored once then."""
    alike: Flag = are_alike(warp, record, mask, END, wide) and are_alike(warp, record, mask, MAP, 1)
    for dimension in range(rank):
        alike = alike and are_alike(warp, record, mask, POINT + dimension, 0)
    return alike


def store_stamp(warp: Int) -> Int:
    """The stamp of what copies of a warp's open group read."""
    w = numbers_at(warp)
    return agent_stamp(w[BLOCK], STORES + w[NUMBER], w[STORED] + 1)


def commit_stores(warp: Int, record: Int, mask: Int) -> Int:
    """cp.async.bulk.commit_group."""
    w = numbers_at(warp)
    if w[STORES_BEGUN] and w[STORE_LANES] & ~mask == 0:
        if w[STORED] >= LAST_TIME:
            return suspect(warp, record, ROOM)
        w[STORED] += 1
    return record + RECORD_BYTES


def wait_for_stores(warp: Int, record: Int, mask: Int, keep: Int) -> Int:
    """cp.async.bulk.wait_group: lanes know that all groups but the last ones have been read."""
    w = numbers_at(warp)
    if w[STORES_BEGUN] and w[STORE_LANES] & ~mask == 0:
        done = max(w[STORES_DONE], w[STORED] - keep)
        w[STORES_DONE] = done
        # of other lanes the same wait says nothing
        own = own_of(warp, w[STORE_LANES])
        halves_at(own)[STORES + w[NUMBER]] = done
    return record + RECORD_BYTES


def map_of(warp: Int, address: Int) -> Int:
    """The decoded tensor map at an address; 0 if it is not known."""
    b = numbers_at(numbers_at(warp)[BLOCK])
    entry = b[MAPS_AT]
    for _ in range(b[MAP_COUNT]):
        if numbers_at(entry)[MAP_ADDRESS] == address:
            return entry
        entry += 8 * MAP_WORDS
    b[UNKNOWN_MAP] = address
    return np.int64(0)


def row_of(entry: Int, record: Int, warp: Int, lane: Int, row: Int) -> Int:
    """The offset of a box's row in global memory, from its first coordinate 0 on; -1 if it is outside of the tensor."""
    m = numbers_at(entry)
    found, rest = m[BASE], row
    for dimension in range(1, m[RANK]):
        size = m[BOX + dimension]
        step = rest
        if rest >= size:
            step = np.int64(np.uint64(rest) % np.uint64(size))
            rest = np.int64(np.uint64(rest) // np.uint64(size))
        else:
            rest = np.int64(0)
        at = coordinate_of(warp, record, dimension, lane) + step
        if at < 0 or at >= m[DIMS + dimension]:
            return np.int64(-1)
        found += at * m[STRIDES + dimension]
    return found


def coordinate_of(warp: Int, record: Int, dimension: Int, lane: Int) -> Int:
    """A coordinate of a box."""
    row = numbers_at(warp)[REGISTERS] + words_at(record + OPERANDS)[POINT + dimension]
    return np.int64(ints_at(row)[lane])


def is_negative(warp: Int, record: Int, rank: Int, lane: Int) -> Flag:
    """Whether a coordinate of a box is negative, which stores may not have."""
    least: Int = np.int64(0)
    for dimension in range(rank):
        least = min(least, coordinate_of(warp, record, dimension, lane))
    return least < 0


def rows_of(entry: Int) -> Int:
    """The rows of a box."""
    m = numbers_at(entry)
    found: Int = 1
    for dimension in range(1, m[RANK]):
        found *= m[BOX + dimension]
    return found


def swizzled(offset: Int, entry: Int) -> Int:
    """Where a byte of a box lies in shared memory."""
    m = numbers_at(entry)
    return offset ^ (offset >> 7 & m[MASK]) << m[SHIFT]


def load_box(warp: Int, record: Int, mask: Int, rank: Int, wide: Int, wide_barrier: Int) -> Int:
    """cp.async.bulk.tensor to shared memory: the target, the mbarrier, the map, coordinates, and offsets."""
    w = numbers_at(warp)
    b, lane = numbers_at(w[BLOCK]), lowest(mask)
    if mask & (mask - 1):
        return suspect(warp, record, DIVERGED)
    target = value_of(warp, record, END, lane, wide) + offset_of(record, POINT + rank)
    number = barrier_of(warp, record, mask, lane, wide_barrier, offset_of(record, POINT + rank + 1))
    entry = map_of(warp, value_of(warp, record, MAP, lane, 1) + offset_of(record, POINT + rank + 2))
    if number < 0 or entry == 0:
        return suspect(warp, record, COPY)
    m = numbers_at(entry)
    start = coordinate_of(warp, record, 0, lane) * m[ELEMENT]
    if m[RANK] != rank or target & (ALIGNMENT - 1) or start & (PIECE - 1):
        return suspect(warp, record, MISALIGNED)
    know(warp, mask)
    phase = numbers_at(b[MBARRIERS_AT] + MBARRIER_BYTES * number)[PHASE]
    mine, seen = agent_stamp(w[BLOCK], MBARRIERS + number, phase + 1), seen_by(w[BLOCK], b[JOINED_AT])
    inner, rows = m[BOX] * m[ELEMENT], rows_of(entry)
    low = max(np.int64(0), -start)
    high = max(low, min(inner, m[DIMS] * m[ELEMENT] - start))
    contents = numbers_at(b[LAUNCH])[CONTENTS]
    for row in range(rows):
        from_row = row_of(entry, record, warp, lane, row)
        some = from_row >= 0 and high > low
        why: Int = np.int64(NO_SUSPECT)
        if some:
            why = global_range(warp, record, GLOBAL_BASE + from_row + start + low, high - low, READ)
        for piece in range(0, inner, PIECE):
            at = swizzled(target + row * m[PITCH] + piece, entry)
            if why == NO_SUSPECT:
                why = fill_piece(w[BLOCK], at, mine, seen, m[MARK])
            if why != NO_SUSPECT:
                return suspect(warp, record, why)
            words = longs_at(b[SHARED] + at)
            words[0], words[1] = np.uint64(0), np.uint64(0)
            begin, end = max(piece, low), min(piece + PIECE, high)
            if some and begin < end:
                move(contents + from_row + start + begin, b[SHARED] + at + begin - piece, end - begin)
    return record + RECORD_BYTES if deliver_bytes(w[BLOCK], number, inner * rows) else suspect(warp, record, COPY)


def store_box(warp: Int, record: Int, mask: Int, rank: Int, wide: Int) -> Int:
    """cp.async.bulk.tensor to global memory: the source, twice, the map, coordinates, and offsets."""
    w = numbers_at(warp)
    b, lane = numbers_at(w[BLOCK]), lowest(mask)
    source = value_of(warp, record, END, lane, wide) + offset_of(record, POINT + rank)
    entry = map_of(warp, value_of(warp, record, MAP, lane, 1) + offset_of(record, POINT + rank + 1))
    if entry == 0:
        return suspect(warp, record, COPY)
    m = numbers_at(entry)
    start, inner, rows = coordinate_of(warp, record, 0, lane) * m[ELEMENT], m[BOX] * m[ELEMENT], rows_of(entry)
    end = max(np.int64(0), min(inner, m[DIMS] * m[ELEMENT] - start))
    if m[RANK] != rank or source & (ALIGNMENT - 1) or (start | end) & (PIECE - 1):
        return suspect(warp, record, MISALIGNED)
    alike = are_one_box(warp, record, mask, rank, wide)
    if not alike or is_negative(warp, record, rank, lane) or not begins_store(warp, mask):
        return suspect(warp, record, DIVERGED)
    know(warp, mask)
    mine, seen, contents = store_stamp(warp), seen_by(w[BLOCK], b[JOINED_AT]), numbers_at(b[LAUNCH])[CONTENTS]
    for row in range(rows):
        to_row = row_of(entry, record, warp, lane, row)
        why: Int = np.int64(NO_SUSPECT)
        if to_row >= 0 and end:
            why = global_range(warp, record, GLOBAL_BASE + to_row + start, end, WRITE)
        for piece in range(0, inner, PIECE):
            at = swizzled(source + row * m[PITCH] + piece, entry)
            if why == NO_SUSPECT:
                why = take_piece(w[BLOCK], at, mine, seen)
            if why != NO_SUSPECT:
                return suspect(warp, record, why)
            if to_row >= 0 and piece < end:
                move(b[SHARED] + at, contents + to_row + start + piece, PIECE)
    return record + RECORD_BYTES
