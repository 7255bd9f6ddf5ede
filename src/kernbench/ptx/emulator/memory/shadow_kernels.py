"""Loops of the shadow: ranges of operations are entered in the cells of memory, and compared with what is there."""

from typing import NamedTuple

import numpy as np

from kernbench.ptx.emulator.lanes.arrays import Bytes, Flag, Int, Int32s, Int64s, UInt32s, UInt64s
from kernbench.ptx.emulator.lanes.compiled import kernel, part, prefetch
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.memory.arena import TRACKED
from kernbench.ptx.emulator.memory.cells import (
    APART,
    CELLS,
    CLOCK_LIMIT,
    CLOCK_SHIFT,
    EARLIER_READ,
    GROUP,
    LANES,
    NUMBER_MASK,
    NUMBER_SHIFT,
    READ,
    STAMP,
    STRONG,
    STRONG_WRITE,
    WRITE,
    covers_line,
    head_line,
    knows_far_lane,
    knows_lane,
    line_of,
    unfold,
    who,
)

# the kinds of faults
RACE, FENCE = 0, 1
# prefetch distances in ranges: for the lines of heads, and for words with lines of their own
_AHEAD, _NEAR = 16, 8


@kernel
def describe(
    lanes: Int64s,
    columns: Int64s,
    clocks: Int64s,
    homes: Int64s,
    base: Int,
    known: Int32s,
    first_numbers: Int64s,
    first_lane: Int,
    knowledge: Int32s,
    found: Int64s,
) -> None:
    """The origin of operations: warps, their CTAs, the numbers of these CTAs' first actors, and the accesses as cells.

    Of its own warp an operation knows its own lane's accesses, and those of other lanes up to where they met; a
    `first_lane` of -1 says that `knowledge` has that.
    """
    ctas = known.shape[0]
    for i in range(lanes.size):
        warp = lanes[i] // WARP
        cta, inside = warp % ctas, warp // ctas
        owner = cta if homes.size == 0 else homes[i]
        number = first_numbers[owner] + columns[i] + 1
        found[0, i], found[1, i], found[2, i] = warp, cta, first_numbers[cta]
        found[3, i] = base | (np.int64(clocks[i]) << CLOCK_SHIFT) | (np.int64(number) << NUMBER_SHIFT)
        if first_lane >= 0:
            knowledge[i, first_lane + inside] = known[cta, inside, inside] * WARP + lanes[i] % WARP


@part
def _touched(start: Int, length: Int, word: Int) -> Int:
    low = max(start - 4 * word, 0)
    high = min(start + length - 4 * word, 4)
    return ((1 << (high - low)) - 1) << low


class Operations(NamedTuple):
    """Operations that lanes began: ranges of bytes with the operation of each, and what the operations know.

    For each operation: `knowledge` is its vector clock, `firsts` the number of its CTA's first actor in the grid,
    `stamps` its access as a cell, `ctas` and `warps` its origin.
    """

    starts: Int64s
    lengths: Int64s
    owners: Int64s
    knowledge: Int32s
    firsts: Int64s
    stamps: Int64s
    ctas: Int64s
    warps: Int64s


class Memory(NamedTuple):
    """The memory that operations access: cells and lanes, the byte at which they begin, and the states of bytes."""

    cells: UInt64s
    lanes: UInt32s
    first_byte: int
    state: Bytes


class Order(NamedTuple):
    """What orders operations beside their own vector clocks, and column offsets in these.

    `known` and `known_rows` are what warps know of other CTAs, `arrivals` the clocks of lanes that arrived alone.
    `warps` is the number of warps of a CTA, `first_lane` the first column of single lanes, `proxied` the first column
    of what the async proxy sees.
    """

    known: Int32s
    known_rows: Int64s
    arrivals: Int32s
    warps: int
    first_lane: int
    proxied: int


# the same three as plain tuples
GivenOperations = tuple[Int64s, Int64s, Int64s, Int32s, Int64s, Int64s, Int64s, Int64s]
GivenMemory = tuple[UInt64s, UInt32s, int, Bytes]
GivenOrder = tuple[Int32s, Int64s, Int32s, int, int, int]


@part
def _missing(cell: Int, mask: Int, plain: bool, operation: Int, what: Operations, order: Order) -> int:
    """-1 if the access of `cell` happens before an operation, else the fault: FENCE or RACE.

    A thread's ordinary access that the operation knows is ordered. But the async proxy sees it only after a proxy
    fence, except `plain` ones (reads, which have no visible effect).
    """
    knowledge, count = what.knowledge, what.knowledge.shape[1]
    number = ((cell >> NUMBER_SHIFT) & NUMBER_MASK) - 1
    clock = (cell >> CLOCK_SHIFT) & CLOCK_LIMIT
    column, lanes, warps = number - what.firsts[operation], order.first_lane, order.warps
    if column < 0 or column >= count:
        known_row, known = order.known_rows[what.warps[operation]], order.known
        if known_row < 0:
            return RACE
        thread = number % count < warps and knows_far_lane(clock, mask, known[known_row], number + lanes, lanes)
        return -1 if clock <= known[known_row, number] or thread else RACE
    if clock > knowledge[operation, column]:
        them, lane = column * (order.known_rows.size // warps) + what.ctas[operation], lanes + column
        if column >= warps or not knows_lane(clock, mask, knowledge[operation, lane], order.arrivals[them, WARP]):
            return RACE
    if column < warps and not plain and clock > knowledge[operation, column + order.proxied]:
        return FENCE
    return -1


@part
def _operations_of(given: GivenOperations) -> Operations:
    """Name the parts; plain tuples are passed, whose types numba infers in half the time."""
    return Operations(given[0], given[1], given[2], given[3], given[4], given[5], given[6], given[7])


@kernel
def note_ranges(
    writes: bool, operations: GivenOperations, where: GivenMemory, known: GivenOrder, suspects: Int64s, before: UInt64s
) -> Int:
    """Enter ranges of operations, and collect what does not happen before them; returns how much that is.

    Arguments are the parts of `Operations`, `Memory` and `Order`, and a buffer for a line. The new content of a line
    depends only on its old content and the operation. Most lines of a tile are equal, so the last result is copied.
    """
    what, memory = _operations_of(operations), Memory(where[0], where[1], where[2], where[3])
    order = Order(known[0], known[1], known[2], known[3], known[4], known[5])
    count: Int = 0
    cells, lanes, first_byte = memory.cells, memory.lanes, memory.first_byte
    # the operation of the last group without faults, and its line; `before` is that line's old content
    last_operation: Int
    last_line: Int
    last_operation, last_line = np.int64(-1), np.int64(0)
    for i in range(what.starts.size):
        operation = what.owners[i]
        offset, length = what.starts[i] - first_byte, what.lengths[i]
        word, last_word = offset >> 2, (offset + length + 3) >> 2
        if i + _AHEAD < what.starts.size:
            _fetch_heads((what.starts[i + _AHEAD] - first_byte) >> 2, what.lengths[i + _AHEAD], cells, lanes)
        if i + _NEAR < what.starts.size:
            _fetch_words((what.starts[i + _NEAR] - first_byte) >> 2, what.lengths[i + _NEAR], cells, lanes)
        while word < last_word:
            byte = max(4 * word, offset)
            if not memory.state[byte + first_byte] & TRACKED:
                word += 1
                continue
            head = head_line(word, lanes)
            line = line_of(word, head, lanes)
            folded = lanes[head, APART] == 0
            whole = covers_line(folded, line, head, np.int64(GROUP), lanes)
            whole = whole and _covers_group(offset, length, word, first_byte, memory.state)
            if folded and not whole:
                unfold(head, cells, lanes)
            if whole:
                if last_operation == operation and _is_same(cells, line, before):
                    _copy_line(cells, last_line, line)
                    word += GROUP
                    continue
                for k in range(CELLS):
                    before[k] = cells[line, k]
            spot = line, byte, _touched(offset, length, word)
            noted = _note_line(spot, whole, operation, writes, what, memory, order, suspects, count)
            whole = whole and noted == count
            count = noted
            last_operation, last_line = operation if whole else np.int64(-1), line
            word += GROUP if whole else 1
    return count


@part
def _fetch_heads(word: Int, length: Int, cells: UInt64s, lanes: UInt32s) -> None:
    """Prefetch the heads of a range's first two groups: a product reads 32 bytes of a row."""
    head = head_line(word, lanes)
    prefetch(cells, head, 0)
    if length > 4 * GROUP:
        prefetch(cells, head + 1, 0)


@part
def _fetch_words(word: Int, length: Int, cells: UInt64s, lanes: UInt32s) -> None:
    """Prefetch the other words of these groups, if they have lines of their own.

    An empty range may be anywhere, even outside memory, and is skipped. Memory that a launch only reads has no lines:
    it is before the first line or after the last.
    """
    if length <= 0:
        return
    for group in range(word & ~(GROUP - 1), word + min((length + 3) >> 2, 2 * GROUP), GROUP):
        head = head_line(group, lanes)
        if 0 <= head < lanes.shape[0] and lanes[head, APART] != 0:
            for member in range(1, GROUP):
                prefetch(cells, line_of(member, head, lanes), 0)


@part
def _note_line(
    spot: tuple[Int, Int, Int],
    whole: Flag,
    operation: Int,
    writes: bool,
    what: Operations,
    memory: Memory,
    order: Order,
    suspects: Int64s,
    count: Int,
) -> Int:
    """Enter an operation's access to a word, or to the `whole` group of a head; returns `count` plus the faults.

    A spot is a line, the first byte accessed there, and the accessed bytes of the word.
    """
    line, byte, touched = spot
    mine, cells, lanes = what.stamps[operation], memory.cells, memory.lanes
    for column in range(EARLIER_READ + 1 if writes else READ):
        cell = np.int64(cells[line, column])
        if not cell & touched or (mine & STRONG and cell & STRONG):
            continue
        mask = who(cell, np.int64(lanes[line, LANES + column]), touched)
        code = _missing(cell, mask, column >= READ, operation, what, order)
        if code >= 0:
            if whole:
                unfold(line, cells, lanes)
                whole = False
            if count < suspects.shape[0]:
                suspects[count, 0] = operation
                suspects[count, 1] = byte + memory.first_byte
                suspects[count, 2] = cell
                suspects[count, 3] = mask
                suspects[count, 4] = code
            count += 1
    _replace(line, mine | touched, writes, cells, lanes)
    return count


@part
def _is_same(cells: UInt64s, line: Int, held: UInt64s) -> Flag:
    """Whether a line equals a saved one."""
    different = np.uint64(0)
    for k in range(CELLS):
        different |= cells[line, k] ^ held[k]
    same: Flag = different == 0
    return same


@part
def _copy_line(cells: UInt64s, source: Int, target: Int) -> None:
    for k in range(CELLS):
        cells[target, k] = cells[source, k]


@part
def _covers_group(start: Int, length: Int, word: Int, first_byte: Int, state: Bytes) -> Flag:
    """Whether a range covers the four words from one on, and all of them are watched."""
    if start > 4 * word or start + length < 4 * (word + GROUP):
        return False
    watched = TRACKED
    for other in range(word, word + GROUP):
        watched &= state[4 * other + first_byte]
    return watched != 0


@part
def _replace(line: Int, mine: Int, writes: bool, cells: UInt64s, lanes: UInt32s) -> None:
    """Store an operation's access in the cells of a word."""
    column = READ
    if writes:
        column = STRONG_WRITE if mine & STRONG else WRITE
        if column == WRITE:
            for other in range(STRONG_WRITE, EARLIER_READ + 1):
                if not np.int64(cells[line, other]) & 15 & ~mine:
                    cells[line, other] = 0
    last = np.int64(cells[line, column])
    if last and not (last ^ mine) & STAMP:
        mine |= last & 15
    elif last and column != WRITE:
        cells[line, column + 1] = cells[line, column]
        lanes[line, LANES + column + 1] = lanes[line, LANES + column]
    cells[line, column] = np.uint64(mine)
    lanes[line, LANES + column] = 1
