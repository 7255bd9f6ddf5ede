"""wgmma: four warps meet in an operation, and the last performs it; registers and tiles are in flight until a wait.

Which registers a program touches too early is known before it runs (`emulator.analysis.in_flight`). An operation knows
what each of its warps knew when it came; its tiles are read by an actor of its own (`ops.clocks`), and whoever knows of
a wait for its group knows that they have been read.
"""

import numpy as np

from kernbench.ptx.emulator.lanes.arrays import Float32s, Int32s
from kernbench.ptx.executor.ops.clocks import (
    NOT_SHOWN,
    PRODUCTS,
    agent_stamp,
    begin_work,
    fill,
    join,
    known_to,
    pair_of,
    read_piece,
    seen_by,
    show,
    shown_piece,
)
from kernbench.ptx.executor.ops.flow import LAST_TIME, operand_at, suspect
from kernbench.ptx.executor.ops.layout import (
    ALIVE,
    BLOCK,
    BOUNDS,
    COMMITTED,
    DIVERGED,
    EVERYBODY,
    GROUP_WARPS,
    JOINED_AT,
    KNOWN_AT,
    MEETS,
    MET,
    NO_SUSPECT,
    NOW,
    NUMBER,
    PARTS,
    PRODUCTS_BEGUN,
    PRODUCTS_DONE,
    RACE,
    RECORD_BYTES,
    REGISTERS,
    RESUME,
    ROOM,
    ROOM_AT,
    RUNS,
    SHARED,
    SHARED_BYTES,
    SHARED_READS,
    SHARED_STATES,
    SHARED_WRITES,
    SPACE,
    STATE,
    SWIZZLES_AT,
    UNSET,
    UNWRITTEN,
    WARP_WORDS,
    WARPS,
)
from kernbench.ptx.executor.ops.mbarriers import show_initialisation
from kernbench.ptx.executor.ops.products import (
    add_columns,
    element_of,
    elements_of,
    exponent,
    give_results,
    least_exponent,
    take_addends,
)
from kernbench.ptx.executor.ops.views import (
    Flag,
    Int,
    bytes_at,
    floats,
    floats_at,
    halves_at,
    ints,
    ints_at,
    longs_at,
    numbers_at,
    words_at,
)

WARP_BYTES = 8 * WARP_WORDS
IN_REGISTERS = -1
# the states of eight bytes, and those of written ones
EVERY_STATE, ALL_WRITTEN = np.uint64(0x7F7F7F7F7F7F7F7F), np.uint64(0x0303030303030303)
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
    unset: Int,
) -> Int:
    """wgmma.mma_async: A (a descriptor, or four registers), B, whether D is added, and D.

    `form` has the rows of B and the kinds of A and B, `across` which tiles follow the rows. `adds` is 0 or 1, 2 where
    an operand says it.
    """
    w = numbers_at(warp)
    b = numbers_at(w[BLOCK])
    rows, kind, other_kind = form
    first = warp - WARP_BYTES * (w[NUMBER] & (GROUP_WARPS - 1))
    if mask != EVERYBODY or w[PARTS] != 0 or w[NUMBER] | (GROUP_WARPS - 1) >= b[WARPS]:
        return suspect(warp, record, DIVERGED)
    w[STATE] = MEETS
    w[RESUME] = record
    come = members_at(first, record)
    if come < GROUP_WARPS:
        return 0 if come >= 0 else suspect(warp, record, DIVERGED)
    a_bits = np.int64(IN_REGISTERS) if in_registers else first_number(first, record, 0)
    b_bits = first_number(first, record, 1 + 3 * in_registers)
    if b_bits == -1 or (a_bits == -1 and not in_registers):
        return suspect(warp, record, SPACE)
    join_members(first)
    begin = 2 + 3 * in_registers + (adds >> 1)
    why = unset_fault(first, record, begin, rows >> 1, adds) if unset else np.int64(NO_SUSPECT)
    if why == NO_SUSPECT and not in_registers:
        why = take_tile(first, a_bits, A_ROWS, across[0], b[ROOM_AT])
    if why == NO_SUSPECT:
        why = take_tile(first, b_bits, rows, across[1], b[ROOM_AT] + B_WORDS_AT)
    if why != NO_SUSPECT:
        return suspect(warp, record, why)
    if in_registers:
        take_words(first, record, b[ROOM_AT])
    spread_a(b[ROOM_AT], kind, negated)
    for block in range(rows >> 3):
        multiply_columns(first, record, block, (rows, kind, other_kind, begin), adds)
    for number in range(GROUP_WARPS):
        member = numbers_at(first + WARP_BYTES * number)
        member[STATE] = RUNS
        member[RESUME] = record + RECORD_BYTES
        member[PRODUCTS_BEGUN] = w[COMMITTED] + 1
    return record + RECORD_BYTES


def members_at(first: Int, record: Int) -> Int:
    """How many warps of a warpgroup have come to an operation; -1 if all have, and count their groups differently."""
    found: Int = 0
    alike: Int = 0
    for number in range(GROUP_WARPS):
        member = numbers_at(first + WARP_BYTES * number)
        if member[STATE] == MEETS and member[RESUME] == record:
            found += 1
            alike += np.int64(member[COMMITTED] == numbers_at(first)[COMMITTED])
    return np.int64(-1) if found == GROUP_WARPS and alike < GROUP_WARPS else found


def first_number(first: Int, record: Int, operand: Int) -> Int:
    """The value of a 64-bit operand in the first lane of a warpgroup; -1 if its warps differ."""
    offset = operand_at(record, operand)
    found = numbers_at(numbers_at(first)[REGISTERS] + offset)[0]
    for number in range(1, GROUP_WARPS):
        if numbers_at(numbers_at(first + WARP_BYTES * number)[REGISTERS] + offset)[0] != found:
            return np.int64(-1)
    return found


def join_members(first: Int) -> None:
    """What an operation knows: all that its warps know, and what each of them did before it last met."""
    b = numbers_at(numbers_at(first)[BLOCK])
    joined = halves_at(b[JOINED_AT])
    fill(b[JOINED_AT], 0)
    for number in range(GROUP_WARPS):
        warp = first + WARP_BYTES * number
        join(known_to(warp, EVERYBODY), b[JOINED_AT])
    for number in range(GROUP_WARPS):
        w = numbers_at(first + WARP_BYTES * number)
        joined[w[NUMBER]] = w[MET]
    begin_work(numbers_at(first)[BLOCK])


def take_tile(first: Int, bits: Int, rows: Int, across: Int, out: Int) -> Int:
    """Check a tile, copy its words to [8, rows] of `out`, and enter its words as read."""
    w = numbers_at(first)
    b = numbers_at(w[BLOCK])
    tile, memory, states = tile_of(bits, across), b[SHARED], b[SHARED_STATES]
    seen, end = seen_by(w[BLOCK], b[JOINED_AT]), b[SHARED_BYTES] - PIECE
    mine = agent_stamp(w[BLOCK], PRODUCTS + (w[NUMBER] >> 2), w[COMMITTED] + 1)
    swizzle = swizzle_of(bits)
    swizzles, unwritten, twice = bytes_at(b[SWIZZLES_AT]), np.uint64(0), pair_of(mine)
    # stamps of no access
    shown: Int = np.uint64(0)
    for line in range(lines_of(rows, across)):
        for piece in range(pieces_of(rows, across)):
            at = piece_at(tile, line, piece)
            if at > end:
                return np.int64(BOUNDS)
            if swizzles[at >> 4] and np.int64(swizzles[at >> 4]) != swizzle:
                return np.int64(SPACE)
            held, stamps = longs_at(states + at), longs_at(b[SHARED_WRITES] + at)
            unwritten |= (held[0] & EVERY_STATE ^ ALL_WRITTEN) | (held[1] & EVERY_STATE ^ ALL_WRITTEN)
            # most pieces were written together, and read by this operation's group before
            if stamps[0] != shown or stamps[1] != shown:
                shown = shown_piece(w[BLOCK], at, seen)
                if shown == NOT_SHOWN:
                    return np.int64(RACE)
            reads = longs_at(b[SHARED_READS] + at)
            if reads[0] != twice or reads[1] != twice:
                read_piece(w[BLOCK], at, mine)
            copy_piece(memory + at, out, rows, line, piece, across)
    return np.int64(UNWRITTEN) if unwritten != np.uint64(0) else np.int64(NO_SUSPECT)


def swizzle_of(bits: Int) -> Int:
    """The mark of boxes with a descriptor's swizzle; none has that of a pattern that begins elsewhere."""
    swizzle = bits >> 62 & 3
    if swizzle and bits >> 49 & 7:
        return np.int64(255)
    return 1 + ((4 - swizzle) & 3)


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
        if is_added(warp, record, begin, adds):
            take_addends(warp, record, c, begin + 4 * block)
        else:
            for at in range(128):
                c[at] = np.float32(0.0)
        for at in range(128):
            ec[at] = exponent(c[at], -126)
        add_columns((a, factors, c), (ea, exponents, ec), out, kind, 8 * elements_of(kind), A_ROWS)
        give_results(warp, record, out, begin + 4 * block)


def is_added(warp: Int, record: Int, begin: Int, adds: Int) -> Flag:
    """Whether an operation adds to D, of which the registers are operands from `begin` on."""
    if adds == 2:
        return bytes_at(numbers_at(warp)[REGISTERS] + operand_at(record, begin - 1))[0] != 0
    return adds == 1


def unset_fault(first: Int, record: Int, begin: Int, count: Int, adds: Int) -> Int:
    """What is suspect of the registers that an operation adds to: that nobody has set one of them."""
    found = np.uint32(0)
    for number in range(GROUP_WARPS):
        warp = first + WARP_BYTES * number
        if is_added(warp, record, begin, adds):
            for operand in range(begin, begin + count):
                row = words_at(numbers_at(warp)[REGISTERS] + operand_at(record, operand))
                for lane in range(32):
                    found |= np.uint32(row[lane] == np.uint32(UNSET))
    return np.int64(NO_SUSPECT) if found == np.uint32(0) else np.int64(UNWRITTEN)


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
    if w[COMMITTED] >= LAST_TIME:
        return suspect(warp, record, ROOM)
    w[COMMITTED] += 1
    return record + RECORD_BYTES


def wait_for_products(warp: Int, record: Int, mask: Int, keep: Int) -> Int:
    """wgmma.wait_group: all groups but the last `keep` are complete; the warp knows it, and others that meet it."""
    w = numbers_at(warp)
    if mask != w[ALIVE]:
        return suspect(warp, record, DIVERGED)
    done = max(w[PRODUCTS_DONE], w[COMMITTED] - keep)
    w[PRODUCTS_DONE] = done
    halves_at(w[KNOWN_AT])[PRODUCTS + (w[NUMBER] >> 2)] = done
    return record + RECORD_BYTES


def show_writes(warp: Int, record: Int, mask: Int) -> Int:
    """fence.proxy.async: what lanes know of is shown to asynchronous operations."""
    w = numbers_at(warp)
    show(warp, mask)
    show_initialisation(warp, mask)
    if w[NOW] >= LAST_TIME:
        return suspect(warp, record, ROOM)
    return record + RECORD_BYTES
