"""wgmma: four warps meet in an operation, and the last performs it; registers and tiles are in flight until a wait.

Which registers a program touches too early is known before it runs (`emulator.analysis.in_flight`). Of shared memory
there is a count for each piece of 16 bytes: how many operations in flight read it. Ordinary writes are seen by an
operation after a proxy fence of a warp that knew of them: `SHOWN` is the time of a warp before which its own accesses
are shown, `SEEN` that for all that it knew of other warps, and `VISIBLE` what the whole block knows to be shown.
"""

import numpy as np

from kernbench.ptx.emulator.lanes.arrays import Float32s, Int32s
from kernbench.ptx.executor.ops.flow import LAST_TIME, operand_at, suspect
from kernbench.ptx.executor.ops.layout import (
    ALIVE,
    BLOCK,
    BOUNDS,
    COMMITTED,
    DIVERGED,
    FLOOR,
    GROUP_WARPS,
    MEETS,
    MET,
    NO_SUSPECT,
    NOW,
    NUMBER,
    PARTS,
    PRODUCTS_AT,
    RACE,
    READERS_AT,
    READING,
    RECORD_BYTES,
    REGISTERS,
    RESUME,
    ROOM,
    ROOM_AT,
    RUNS,
    SEEN,
    SHARED,
    SHARED_BYTES,
    SHARED_READS,
    SHARED_STATES,
    SHARED_WRITES,
    SHOWN,
    SHOWN_BEFORE,
    SPACE,
    STATE,
    UNWRITTEN,
    VISIBLE,
    WARP_WORDS,
    WARPS,
)
from kernbench.ptx.executor.ops.products import (
    add_columns,
    element_of,
    elements_of,
    exponent,
    give_results,
    least_exponent,
    take_addends,
)
from kernbench.ptx.executor.ops.shadow import EVERY_BYTE, MANY, PENDING
from kernbench.ptx.executor.ops.views import (
    Flag,
    Int,
    bytes_at,
    floats,
    floats_at,
    halves_at,
    ints,
    ints_at,
    numbers_at,
    words_at,
)

WARP_BYTES = 8 * WARP_WORDS
# operations of a warpgroup that may be in flight, and the words of each: the descriptors, the rows and layouts of the
# tiles, and the group
MOST_PRODUCTS, PRODUCT_WORDS = 256, 4
A_TILE, B_TILE, FORM, GROUP = range(PRODUCT_WORDS)
IN_REGISTERS = -1
# bytes of a piece of a tile, of a tile's row along K, and rows of A
PIECE, ROW, A_ROWS = 16, 32, 64
MOST_ROWS = 256
# where an operation's tiles lie in its room: their words, then the elements of A and their exponents
B_WORDS_AT = 4 * 8 * A_ROWS
A_AT = B_WORDS_AT + 4 * 8 * MOST_ROWS
A_EXPONENTS_AT = A_AT + 4 * 32 * A_ROWS
ROOM_BYTES = A_EXPONENTS_AT + 4 * 32 * A_ROWS
# a tile: its first byte, distances of groups of eight lines and of patterns, pieces in a line of its pattern (a power
# of two, as its exponent), and the base of its pattern
Tile = tuple[Int, Int, Int, Int, Int]


def tile_of(bits: Int, across: Int) -> Tile:
    """The tile of a descriptor; `across` is 1 for elements that follow each other along the rows."""
    swizzle = bits >> 62 & 3
    leading, stride = (bits >> 16 & 0x3FFF) << 4, (bits >> 32 & 0x3FFF) << 4
    turned = across == 1 and swizzle == 0
    far = leading if turned else stride
    side = stride if turned else leading
    return (bits & 0x3FFF) << 4, far, side, (4 - swizzle) & 3, bits >> 49 & 7


def piece_at(tile: Tile, line: Int, piece: Int) -> Int:
    """The offset in shared memory of a line's piece."""
    start, far, side, width, base = tile
    across = (1 << width) - 1
    row = (line >> 3) * far + ((line & 7) << (4 + width))
    address = (start & 1023) + row + (piece & across) * PIECE + (piece >> width) * side
    return (address ^ ((address >> 7) - base & across) << 4) + (start & ~1023)


def lines_of(rows: Int, across: Int) -> Int:
    """The lines of a tile: one for each row, or for each element along K."""
    return np.int64(16) if across else rows


def pieces_of(rows: Int, across: Int) -> Int:
    """The pieces of a line."""
    return rows >> 3 if across else np.int64(ROW // PIECE)


def begin_product(
    warp: Int,
    record: Int,
    mask: Int,
    form: tuple[Int, Int, Int],
    in_registers: Int,
    across: tuple[Int, Int],
    negated: Int,
    adds: Int,
) -> Int:
    """wgmma.mma_async: A (a descriptor, or four registers), B, whether D is added, and D.

    `form` has the rows of B and the kinds of A and B, `across` which tiles follow the rows. `adds` is 0 or 1, 2 where
    an operand says it.
    """
    w = numbers_at(warp)
    b = numbers_at(w[BLOCK])
    rows, kind, other_kind = form
    first = warp - WARP_BYTES * (w[NUMBER] & (GROUP_WARPS - 1))
    if mask != 0xFFFFFFFF or w[PARTS] != 0 or w[NUMBER] | (GROUP_WARPS - 1) >= b[WARPS]:
        return suspect(warp, record, DIVERGED)
    w[STATE] = MEETS
    w[RESUME] = record
    for number in range(GROUP_WARPS):
        member = numbers_at(first + WARP_BYTES * number)
        if member[STATE] != MEETS or member[RESUME] != record:
            return 0
        if member[COMMITTED] != w[COMMITTED]:
            return suspect(warp, record, DIVERGED)
    why = take_tiles(first, record, rows, in_registers, across)
    if why != NO_SUSPECT:
        return suspect(warp, record, why)
    begin = 2 + 3 * in_registers + (adds >> 1)
    if in_registers:
        take_words(first, record, b[ROOM_AT])
    spread_a(b[ROOM_AT], kind, negated)
    for block in range(rows >> 3):
        multiply_columns(first, record, block, (rows, kind, other_kind, begin), adds)
    for number in range(GROUP_WARPS):
        member = numbers_at(first + WARP_BYTES * number)
        member[STATE] = RUNS
        member[RESUME] = record + RECORD_BYTES
    return record + RECORD_BYTES


def first_number(first: Int, record: Int, operand: Int) -> Int:
    """The value of a 64-bit operand in the first lane of a warpgroup; -1 if its warps differ."""
    offset = operand_at(record, operand)
    found = numbers_at(numbers_at(first)[REGISTERS] + offset)[0]
    for number in range(1, GROUP_WARPS):
        if numbers_at(numbers_at(first + WARP_BYTES * number)[REGISTERS] + offset)[0] != found:
            return np.int64(-1)
    return found


def take_tiles(first: Int, record: Int, rows: Int, in_registers: Int, across: tuple[Int, Int]) -> Int:
    """Check and gather the tiles of an operation, which are in flight from now on; returns what is suspect of them."""
    w = numbers_at(first)
    b = numbers_at(w[BLOCK])
    entry = b[PRODUCTS_AT] + 8 * (w[NUMBER] >> 2) * (1 + MOST_PRODUCTS * PRODUCT_WORDS)
    across_a, across_b = across
    count = numbers_at(entry)[0]
    if count >= MOST_PRODUCTS:
        return np.int64(ROOM)
    a_bits = np.int64(IN_REGISTERS) if in_registers else first_number(first, record, 0)
    b_bits = first_number(first, record, 1 + 3 * in_registers)
    if b_bits == -1 or (a_bits == -1 and not in_registers):
        return np.int64(SPACE)
    why: Int = np.int64(NO_SUSPECT)
    if not in_registers:
        why = take_tile(first, a_bits, A_ROWS, across_a, b[ROOM_AT])
    if why == NO_SUSPECT:
        why = take_tile(first, b_bits, rows, across_b, b[ROOM_AT] + B_WORDS_AT)
    if why != NO_SUSPECT:
        return why
    one = numbers_at(entry + 8 * (1 + PRODUCT_WORDS * count))
    one[A_TILE], one[B_TILE] = a_bits, b_bits
    one[FORM], one[GROUP] = rows << 2 | across_a << 1 | across_b, w[COMMITTED]
    numbers_at(entry)[0] = count + 1
    b[READING] += 1
    return why


def take_tile(first: Int, bits: Int, rows: Int, across: Int, out: Int) -> Int:
    """Check a tile, copy its words to [8, rows] of `out`, and count it as read."""
    b = numbers_at(numbers_at(first)[BLOCK])
    tile, memory, states = tile_of(bits, across), b[SHARED], b[SHARED_STATES]
    writes, readers = b[SHARED_WRITES], bytes_at(b[READERS_AT])
    latest, unwritten, end = np.uint32(0), np.uint32(0), b[SHARED_BYTES] - PIECE
    for line in range(lines_of(rows, across)):
        for piece in range(pieces_of(rows, across)):
            at = piece_at(tile, line, piece)
            if at > end:
                return np.int64(BOUNDS)
            for word in range(4):
                unwritten |= (words_at(states + at)[word] & np.uint32(0x7F7F7F7F)) ^ np.uint32(0x03030303)
                latest = max(latest, words_at(writes + at)[word])
            if readers[at >> 4] == 255:
                return np.int64(ROOM)
            readers[at >> 4] += 1
            copy_piece(memory + at, out, rows, line, piece, across)
    if unwritten != np.uint32(0):
        return np.int64(UNWRITTEN)
    if np.int64(latest >> 16) >= seen_by(first) and not all_shown(first, tile, rows, across):
        return np.int64(RACE)
    return np.int64(NO_SUSPECT)


def copy_piece(source: Int, out: Int, rows: Int, line: Int, piece: Int, across: Int) -> None:
    """A piece's words to [8, rows]: word k of a row has the elements 4 k bytes behind its beginning."""
    if across:
        # eight rows of one element along K: half of a word of each
        halves, given = halves_at(out + 4 * (rows * (line >> 1) + 8 * piece) + 2 * (line & 1)), halves_at(source)
        for number in range(8):
            halves[2 * number] = given[number]
        return
    words, held = words_at(out + 4 * (4 * rows * piece + line)), words_at(source)
    for number in range(4):
        words[rows * number] = held[number]


def seen_by(first: Int) -> Int:
    """The time before which all writes are shown to the operations of a warpgroup."""
    found = numbers_at(numbers_at(first)[BLOCK])[VISIBLE]
    for number in range(GROUP_WARPS):
        found = max(found, numbers_at(first + WARP_BYTES * number)[SEEN])
    return found


def all_shown(first: Int, tile: Tile, rows: Int, across: Int) -> Flag:
    """Whether each word of a tile was last written before a proxy fence of which the warpgroup knows.

    Lanes of its own warps must have met since, too.
    """
    w = numbers_at(first)
    b = numbers_at(w[BLOCK])
    seen, warps = seen_by(first), first - WARP_BYTES * w[NUMBER]
    for line in range(lines_of(rows, across)):
        for piece in range(pieces_of(rows, across)):
            held = words_at(b[SHARED_WRITES] + piece_at(tile, line, piece))
            for word in range(4):
                stamp = np.int64(held[word])
                time, writer = stamp >> 16, stamp >> 6 & 63
                if time >= seen:
                    if time == PENDING or writer >= b[WARPS]:
                        return False
                    other = numbers_at(warps + WARP_BYTES * writer)
                    mine = writer >> 2 == w[NUMBER] >> 2
                    if time >= other[SHOWN_BEFORE] and not (mine and time < min(other[SHOWN], other[MET])):
                        return False
    return True


def take_words(first: Int, record: Int, out: Int) -> None:
    """A of four registers of each warp, as words [8, 64]."""
    words = words_at(out)
    for number in range(GROUP_WARPS):
        registers = numbers_at(first + WARP_BYTES * number)[REGISTERS]
        for part in range(4):
            held = words_at(registers + operand_at(record, part))
            begin = 4 * (part >> 1) * A_ROWS + 16 * number + 8 * (part & 1)
            for lane in range(32):
                words[begin + (lane & 3) * A_ROWS + (lane >> 2)] = held[lane]


def spread_a(room: Int, kind: Int, negated: Int) -> None:
    """The elements of A and their exponents, by columns of 64."""
    words, out, exponents = words_at(room), floats_at(room + A_AT), ints_at(room + A_EXPONENTS_AT)
    per, least = elements_of(kind), least_exponent(kind)
    for word in range(8):
        for part in range(per):
            begin = A_ROWS * (per * word + part)
            for row in range(A_ROWS):
                value = element_of(words[A_ROWS * word + row], part, kind)
                out[begin + row] = -value if negated else value
                exponents[begin + row] = exponent(value, least)


def multiply_columns(first: Int, record: Int, block: Int, form: tuple[Int, Int, Int, Int], adds: Int) -> None:
    """Eight columns of D, for all rows: `form` has the rows of B, the kinds of A and B, and D's first operand."""
    rows, kind, other, begin = form
    room = numbers_at(numbers_at(first)[BLOCK])[ROOM_AT]
    factors, exponents = floats(), ints()
    spread_b(room + B_WORDS_AT, rows, 8 * block, other, factors, exponents)
    for number in range(GROUP_WARPS):
        a, ea = floats_at(room + A_AT + 64 * number), ints_at(room + A_EXPONENTS_AT + 64 * number)
        warp = first + WARP_BYTES * number
        c, ec, out = floats(), ints(), floats()
        added = adds == 1
        if adds == 2:
            registers = numbers_at(warp)[REGISTERS]
            added = bytes_at(registers + operand_at(record, begin - 1))[0] != 0
        if added:
            take_addends(warp, record, c, begin + 4 * block)
        else:
            for at in range(128):
                c[at] = np.float32(0.0)
        for at in range(128):
            ec[at] = exponent(c[at], -126)
        add_columns((a, factors, c), (ea, exponents, ec), out, kind, 8 * elements_of(kind), A_ROWS)
        give_results(warp, record, out, begin + 4 * block)


def spread_b(at: Int, rows: Int, row: Int, kind: Int, out: Float32s, exponents: Int32s) -> None:
    """The elements of eight rows of B and their exponents, by elements along K."""
    words, per, least = words_at(at), elements_of(kind), least_exponent(kind)
    for word in range(8):
        for part in range(per):
            begin = 8 * (per * word + part)
            for number in range(8):
                value = element_of(words[rows * word + row + number], part, kind)
                out[begin + number] = value
                exponents[begin + number] = exponent(value, least)


def commit_products(warp: Int, record: Int, mask: Int) -> Int:
    """wgmma.commit_group: a group of all operations since the last one."""
    w = numbers_at(warp)
    if mask != w[ALIVE]:
        return suspect(warp, record, DIVERGED)
    w[COMMITTED] += 1
    return record + RECORD_BYTES


def wait_for_products(warp: Int, record: Int, mask: Int, keep: Int) -> Int:
    """wgmma.wait_group: all groups but the last `keep` are complete; the warp knows it, and others that meet it."""
    w = numbers_at(warp)
    b = numbers_at(w[BLOCK])
    if mask != w[ALIVE]:
        return suspect(warp, record, DIVERGED)
    entry = b[PRODUCTS_AT] + 8 * (w[NUMBER] >> 2) * (1 + MOST_PRODUCTS * PRODUCT_WORDS)
    count, done, left = numbers_at(entry)[0], w[COMMITTED] - keep, 0
    for number in range(count):
        one = entry + 8 * (1 + PRODUCT_WORDS * number)
        if numbers_at(one)[GROUP] < done:
            leave_tiles(warp, one)
            b[READING] -= 1
        else:
            kept = numbers_at(entry + 8 * (1 + PRODUCT_WORDS * left))
            for word in range(PRODUCT_WORDS):
                kept[word] = numbers_at(one)[word]
            left += 1
    numbers_at(entry)[0] = left
    return record + RECORD_BYTES


def leave_tiles(warp: Int, one: Int) -> None:
    """An operation has read its tiles, as a warp knows from now on."""
    p = numbers_at(one)
    if p[A_TILE] != IN_REGISTERS:
        leave_tile(warp, p[A_TILE], A_ROWS, p[FORM] >> 1 & 1)
    leave_tile(warp, p[B_TILE], p[FORM] >> 2, p[FORM] & 1)


def leave_tile(warp: Int, bits: Int, rows: Int, across: Int) -> None:
    """A tile is not read any more: its words were read by several lanes until now."""
    w = numbers_at(warp)
    b = numbers_at(w[BLOCK])
    tile, readers = tile_of(bits, across), bytes_at(b[READERS_AT])
    mine = w[NOW] << 16 | EVERY_BYTE | MANY << 6 | MANY
    for line in range(lines_of(rows, across)):
        for piece in range(pieces_of(rows, across)):
            at = piece_at(tile, line, piece)
            readers[at >> 4] -= 1
            held = words_at(b[SHARED_READS] + at)
            for word in range(4):
                held[word] = mine


def show_writes(warp: Int, record: Int, mask: Int) -> Int:
    """fence.proxy.async: what a warp knows of is shown to asynchronous operations; what some lanes know is not."""
    w = numbers_at(warp)
    if mask == w[ALIVE]:
        w[SEEN] = numbers_at(w[BLOCK])[FLOOR]
        w[NOW] += 1
        w[SHOWN] = w[NOW]
        if w[NOW] >= LAST_TIME:
            return suspect(warp, record, ROOM)
    return record + RECORD_BYTES
