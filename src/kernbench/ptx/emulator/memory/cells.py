"""Shadow cells: the last writes and reads of each word of memory, and whether a new access happens after them.

The algorithm is that of vector-clock race detectors (FastTrack and its kin), with a warp in the role of a thread.

*Epochs.* Every warp counts its releases; the count is its clock. "Warp w at clock c" is an epoch: all accesses of w
between two releases. A cell keeps the epoch of the last access, not a whole vector clock: if the vector clock of the
warp that accesses now has at least c for w, the earlier access happens before this one. That one comparison is exact,
since clocks are only acquired from releases, and a release includes all earlier accesses of its warp.

*One clock for a warp.* 32 lanes share a clock, so acquiring a warp's clock means acquiring from all its lanes. If that
would claim too much, single lanes are distinguished: a cell keeps *which* lanes made the access; lanes of one warp know
each other up to the clock at which they last met (`MET`), and single lanes by `peers`; a lane that arrives on an
mbarrier alone publishes its own clock only (`knows_lane`); a lane that exits before its warp releases is withheld
(`part_from`). What a single lane has acquired for itself is not visible here: what these kernels cannot order goes into
the report as a suspect, and `checks` decides with all knowledge. So a kernel may suspect too much, never too little.

*Strong accesses* (relaxed, acquire, release, volatile, atomics), each in the scope of the other, do not race with each
other, whatever their order: PTX calls such a pair morally strong. A strong write that changes the value of the last one
has observed it, and replaces it. An update whose old value is unused (a reduction, an atomic without result) might as
well have come first, so its thread has observed nothing: the other write stays beside it, and a strong read of the last
one has observed both.

*A cell* is one 64-bit word: accessed bytes (4 bits), scope of a strong access (2, see `access_order`), lanes with
different bytes (1), a read that observed the last strong write (1), clock (20), number of the warp in the grid plus one
(20), number of the instruction (16, see `AccessSites`). A 4-byte word of memory has five cells: the last weak write,
two strong writes, two reads. A weak write of other bytes or by another instruction than the last may be in the cell of
the earlier strong one. For the earlier strong write the "observed" bit says that the last one updated it. Beside each
cell are its lanes: a mask, or one lane for each byte. Together they fill a cache line of 64 bytes: `cells` with eight
columns, and `lanes` with sixteen over the same memory.

*Four words share a line.* Most accesses of tiles have 16 bytes. As long as all accesses of four words had, the line of
the first word, the head, represents all four, and the other lines are unused; untouched memory begins like that. When a
narrower access comes, or one that needs the slow path, each word gets a copy of the head's line (`unfold`), and the
head is marked by `APART`. The result is the same: a line depends only on the accesses of its word.

*Heads are contiguous* (`head_line`). Lines come in blocks: the heads of a block, then its second words, its third and
its fourth ones. Tiles touch heads only, so the system has to allocate and clear only a fourth of the pages, and
consecutive accesses touch consecutive lines. A block is a large page of heads, and small pages for the others, which
are touched sparsely; for small memory, or memory far larger than what is touched, half a page of heads.

*Two reads are kept, not all.* A write races with every read that it does not happen after; of many unordered readers
the last two warps are kept. A third replaces the oldest, so a race with that one alone is missed. Threads that read
alike race alike, and the last two represent them.

*The arrays* (`ShadowArrays`). `clocks[cta, w, u]` is the vector clock of warp w of a CTA: the last clock of actor u of
the same CTA that all lanes of w have acquired, and its own clock where u = w. `table` has for each warp of the batch:
its CTA in the batch; its number in the CTA and in the grid; its epoch in the format of a cell; its floor, the least
entry of its vector clock, up to which it happens after all warps of its CTA (nearly every access is ordered by this one
comparison); the clock up to which its lanes know each other; and its row in `known`, the clocks of other CTAs that it
has acquired. The last row of `table` has the number of warps of a CTA, the number of actors of a CTA, and the first
actor column for single lanes (-1: none). `peers[warp, lane]` is what a lane knows of other lanes of its warp beyond
`MET`, `peers[warp, 32]` the clocks at which lanes last arrived on an mbarrier alone. `clusters` has the cluster number
of each CTA of the grid, and is empty without clusters. `cell_entries` enters accesses.
"""

from typing import NamedTuple

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.arrays import Flag, Int, Int32s, Int64s, UInt32s, UInt64s
from kernbench.ptx.emulator.lanes.compiled import inlined, kernel, part
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.memory.pages.allocation import is_mapped, sparse_zeros, striped_zeros
from kernbench.ptx.emulator.program.access_order import CLUSTER_SCOPE, GPU_SCOPE

# the index of a race in access.CODES
RACE_CODE = 3
# rows of a report before the suspects; a suspect has its position, the other's cell and lanes, and cell and lanes of a
# read that observed the other
SUSPECTS = 5
SUSPECT = 5

# the columns of a word, and the index of the first cell's lanes in the 32-bit view
WRITE, STRONG_WRITE, EARLIER_STRONG, READ, EARLIER_READ = range(5)
CELLS = 8
LANES = 10
# in the same view: 1 if the four words from a head on have lines of their own
APART = 15
GROUP = 4
# in the last row of that view: the logarithm of the number of heads in a block
BLOCK = 2
# there, too: 1 if words never share a line
ALONE = 3
_HEADS_OF_A_LARGE_PAGE, _HEADS_OF_A_PART = 15, 5
# the columns of `table`
CTA, INSIDE, NUMBER, OWN, FLOOR, MET, KNOWN = range(7)
TABLE = 7
# the fields of a cell, from its lowest bit: bytes, scope, flags, clock, warp, site
SCOPE = 4
STRONG = 3 << SCOPE
MIXED = 1 << 6
SEEN = 1 << 7
CLOCK_SHIFT = 8
NUMBER_SHIFT = 28
SITE_SHIFT = 48
CLOCK_LIMIT = (1 << 20) - 1
NUMBER_MASK = (1 << 20) - 1
# the epoch in a cell: clock and warp
STAMP = ((1 << 40) - 1) << CLOCK_SHIFT
WARP_LIMIT = NUMBER_MASK - 1
# kinds of writes: a store, an update whose thread observes the old value, or one that does not
STORE, UPDATE, BLIND_UPDATE = 0, 1, 2


class ShadowArrays(NamedTuple):
    """The shadow cells, and the vector clocks they are compared with: see above.

    Python passes it as a plain tuple, whose type numba infers in half the time; kernels name its parts.
    """

    cells: UInt64s
    lanes: UInt32s
    table: Int64s
    clocks: Int32s
    peers: Int32s
    known: Int32s
    clusters: Int64s


# the same as a plain tuple
Shadow = tuple[UInt64s, UInt32s, Int64s, Int32s, Int32s, Int32s, Int64s]


@part
def named(shadow: Shadow) -> ShadowArrays:
    """Name the parts of a tuple."""
    return ShadowArrays(shadow[0], shadow[1], shadow[2], shadow[3], shadow[4], shadow[5], shadow[6])


def decode(cell: int) -> tuple[int, int, int]:
    """Site, number of the warp in the grid, and clock of a cell's access."""
    return cell >> SITE_SHIFT, ((cell >> NUMBER_SHIFT) & NUMBER_MASK) - 1, (cell >> CLOCK_SHIFT) & CLOCK_LIMIT


def sites_of(cells: Array) -> Array:
    """The sites of the accesses of cells."""
    found: Array = (cells.astype(np.int64).view(np.uint64) >> np.uint64(SITE_SHIFT)).astype(np.int64)
    return found


def scope_of(cell: int) -> int:
    """The scope of a cell's access, 0 if it is weak."""
    return (cell >> SCOPE) & 3


@kernel
def part_from(cells: UInt64s, lanes: UInt32s, rows: Int64s, clocks: Int64s) -> None:
    """Lanes have exited: give their accesses at their last clocks a clock that nobody ever acquires.

    `rows` has for the number of a warp its row in `clocks`, or -1; that row has for each lane its last clock, or 0.
    Other lanes' accesses at that clock in the same cell are dropped: what races with them races with an exited lane,
    too.
    """
    # CLOCK_LIMIT is larger than any clock that is ever released, so no vector clock covers it
    for word in range(cells.shape[0] - 1):
        for column in range(EARLIER_READ + 1):
            cell = np.int64(cells[word, column])
            number = ((cell >> NUMBER_SHIFT) & NUMBER_MASK) - 1
            if number < 0 or number >= rows.size or rows[number] < 0:
                continue
            ends, clock = clocks[rows[number]], (cell >> CLOCK_SHIFT) & CLOCK_LIMIT
            held, left = np.int64(lanes[word, LANES + column]), np.int64(0)
            if cell & MIXED:
                for byte in range(4):
                    if cell & (1 << byte) and ends[(held >> (8 * byte)) & 31] == clock:
                        left |= 1 << byte
                cell = cell & ~np.int64(15) | left
            else:
                for lane in range(WARP):
                    if (held >> lane) & 1 and ends[lane] == clock:
                        left |= np.int64(1) << lane
                held = left
            if left:
                cells[word, column] = np.uint64(cell | (np.int64(CLOCK_LIMIT) << CLOCK_SHIFT))
                lanes[word, LANES + column] = np.uint32(held)


def new_cells(words: int, first_byte: int = 0, shared: bool = True) -> tuple[UInt64s, UInt32s]:
    """The cells of memory from a byte on, one line for each word, and the lanes beside them, in the same order.

    The first byte is a multiple of 16. An additional last line has the first byte and the block size. Unless lines are
    `shared`, accesses give each word its own.
    """
    heads = -(-words // GROUP)
    wide = heads > 1 << _HEADS_OF_A_LARGE_PAGE and not is_mapped(GROUP * heads * CELLS)
    block = _HEADS_OF_A_LARGE_PAGE if wide else _HEADS_OF_A_PART
    lines = GROUP * (-(-heads >> block) << block)
    size = (lines + 2) * CELLS
    room = striped_zeros(size, 8 * CELLS * GROUP << block) if wide else sparse_zeros(size)
    skipped = -(room.ctypes.data // 8) % CELLS
    cells = room[skipped : skipped + (lines + 1) * CELLS].reshape(lines + 1, CELLS)
    lanes = cells.view(np.uint32)
    cells[-1, 0], lanes[-1, BLOCK] = first_byte, block
    if not shared:
        keep_apart(lanes)
    return cells, lanes


def keep_apart(lanes: UInt32s) -> None:
    """From now on no words share a line."""
    lanes[-1, ALONE] = 1


def lines_of(lanes: UInt32s, words: Int64s) -> Int64s:
    """The lines that represent words; `lanes` is the 32-bit view."""
    block = int(lanes[-1, BLOCK])
    groups = words // GROUP
    heads = (groups >> block << block) * (GROUP - 1) + groups
    found: Int64s = np.where(lanes[heads, APART] == 0, heads, heads + (words % GROUP << block))
    return found


def clear(cells: UInt64s, lanes: UInt32s, first: int, last: int) -> None:
    """Remove all accesses of the words from `first` up to `last`."""
    block = int(lanes[-1, BLOCK])
    for start in range(first >> block + 2 << block, -(-last // GROUP), 1 << block):
        for member in range(GROUP):
            line = (GROUP * start) + (member << block)
            begin, end = (min(max(-((member - word) // GROUP) - start, 0), 1 << block) for word in (first, last))
            cells[line + begin : line + end] = 0


def block_lines(lanes: UInt32s, first: int, last: int) -> slice:
    """The lines of the blocks that contain the words from `first` up to `last`."""
    block = int(lanes[-1, BLOCK]) + 2
    return slice(first >> block << block, -(-last >> block) << block)


@part
def head_line(word: Int, lanes: UInt32s) -> Int:
    """The line of the head of a word's group."""
    block = np.int64(lanes[lanes.shape[0] - 1, BLOCK])
    group = word >> 2
    return (group >> block << block) * (GROUP - 1) + group


@part
def line_of(word: Int, head: Int, lanes: UInt32s) -> Int:
    """The line of a word, given the line of its group's head."""
    return head + ((word & (GROUP - 1)) << np.int64(lanes[lanes.shape[0] - 1, BLOCK]))


@part
def covers_line(folded: Flag, line: Int, head: Int, words: Int, lanes: UInt32s) -> Flag:
    """Whether an access to so many words from a line's word on may be entered in the line of all four."""
    return folded and line == head and words >= GROUP and lanes[lanes.shape[0] - 1, ALONE] == 0


@kernel
def unfold(head: Int, cells: UInt64s, lanes: UInt32s) -> None:
    """Copy the head's line to each other word of its group."""
    for word in range(1, GROUP):
        line = line_of(word, head, lanes)
        for column in range(CELLS):
            cells[line, column] = cells[head, column]
    lanes[head, APART] = 1


@part
def who(cell: Int, lanes: Int, touched: Int) -> Int:
    """The lanes of a cell's access that accessed some of the bytes, as a mask."""
    if not cell & MIXED:
        return lanes
    found = np.int64(0)
    for byte in range(4):
        if cell & touched & (1 << byte):
            found |= np.int64(1) << ((lanes >> (8 * byte)) & 31)
    return found


@part
def knows_lane(clock: Int, mask: Int, known: Int, arrivals: Int32s) -> Flag:
    """Whether `known` (of a single lane: a clock times 32, plus the lane) covers the lanes of `mask` at `clock`.

    Only one lane is kept for a warp; other lanes that arrived on an mbarrier alone are taken as known as well.
    """
    if clock > known >> 5:
        return False
    return _late(clock, mask & ~(np.int64(1) << (known & 31)), arrivals) == 0


@part
def _late(clock: Int, mask: Int, clocks: Int32s) -> Int:
    """The lanes of `mask` whose entries in `clocks` are below `clock`."""
    late = np.int64(0)
    for lane in range(WARP):
        if (mask >> lane) & 1 and clocks[lane] < clock:
            late |= np.int64(1) << lane
    return late


@part
def by_thread(cell: Int, table: Int64s) -> Flag:
    """Whether a thread made the access of `cell`, rather than an asynchronous operation."""
    last = table.shape[0] - 1
    thread: Flag = (((cell >> NUMBER_SHIFT) & NUMBER_MASK) - 1) % table[last, 1] < table[last, 0]
    return thread


@kernel
def ordered(cell: Int, mask: Int, lane: Int, warp: Int, shadow: ShadowArrays) -> Flag:
    """Whether the access of a cell, by the lanes of `mask`, happens before what `lane` of `warp` does now.

    This uses what all lanes of the warp know, and what this lane knows of its own warp, but not what it acquired alone.
    """
    table, clocks, peers, known = shadow.table, shadow.clocks, shadow.peers, shadow.known
    number = ((cell >> NUMBER_SHIFT) & NUMBER_MASK) - 1
    clock = (cell >> CLOCK_SHIFT) & CLOCK_LIMIT
    cta, inside = table[warp, CTA], table[warp, INSIDE]
    last = table.shape[0] - 1
    if number == table[warp, NUMBER]:
        # same warp: a lane's own accesses are in program order, those of other lanes are ordered up to where they met
        rest: Int = mask & ~(np.int64(1) << lane)
        if rest == 0 or clock <= table[warp, MET]:
            return True
        if peers.shape[0] > 1:
            rest = _late(clock, rest, peers[warp, lane])
        # a lane that arrived on an mbarrier on which the whole warp has waited since
        own = table[last, 2]
        return rest == 0 or (own >= 0 and knows_lane(clock, rest, clocks[cta, inside, own + inside], peers[warp, WARP]))
    first = table[warp, NUMBER] - inside
    if first <= number < first + table[last, 1]:
        # an actor of the same CTA: compare its epoch with the vector clock, then with the clock of a single lane
        column = number - first
        if clock <= clocks[cta, inside, column]:
            return True
        lanes, warps = table[last, 2], table[last, 0]
        if lanes < 0 or column >= warps:
            return False
        them = warp + (column - inside) * (last // warps)
        return knows_lane(clock, mask, clocks[cta, inside, lanes + column], peers[them, WARP])
    # an actor of another CTA: only clocks acquired through global memory or the cluster count
    row = table[warp, KNOWN]
    if row < 0:
        return False
    if clock <= known[row, number]:
        return True
    return by_thread(cell, table) and knows_far_lane(clock, mask, known[row], number + table[last, 2], table[last, 2])


@part
def knows_far_lane(clock: Int, mask: Int, known: Int32s, column: Int, lanes: Int) -> Flag:
    """As `knows_lane`, for a warp of another CTA: the clock of its single lane is in `column` of `known`."""
    if lanes < 0 or column >= known.size:
        return False
    covered: Flag = clock <= known[column] >> 5 and mask == np.int64(1) << (known[column] & 31)
    return covered


@part
def plainly_unordered(cell: Int, warp: Int, shadow: ShadowArrays) -> Flag:
    """Whether another warp's access is certainly unordered: a quick test that usually saves the call of `ordered`."""
    table, clocks = shadow.table, shadow.clocks
    number = ((cell >> NUMBER_SHIFT) & NUMBER_MASK) - 1
    inside, last = table[warp, INSIDE], table.shape[0] - 1
    column = number - table[warp, NUMBER] + inside
    if column < 0 or column >= table[last, 1]:
        stranger: Flag = table[warp, KNOWN] < 0
        return stranger
    clock = (cell >> CLOCK_SHIFT) & CLOCK_LIMIT
    later: Flag = column != inside and table[last, 2] < 0 and clock > clocks[table[warp, CTA], inside, column]
    return later


@inlined
def settled(cell: Int, lanes: Int, number: Int, bit: Int, floor: Int, first: Int, warps: Int, known: Int32s) -> Flag:
    """Whether an access certainly happens before a lane's: below its floor in the same CTA, or by the lane itself.

    For an asynchronous actor, its column in the vector clock `known` of the lane's warp decides.
    """
    theirs = ((cell >> NUMBER_SHIFT) & NUMBER_MASK) - 1
    clock, column = (cell >> CLOCK_SHIFT) & CLOCK_LIMIT, theirs - first
    if 0 <= column < warps:
        found = clock <= floor or (theirs == number and lanes == bit and not cell & MIXED)
    else:
        found = warps <= column < known.size and clock <= known[column]
    return found


@inlined
def outlived(cell: Int, lanes: Int, warp: Int, bit: Int, table: Int64s, known: Int32s) -> Flag:
    """Whether an access happens before a lane's by the vector clock `known` of its warp.

    Other than `settled` it does not depend on FLOOR, so that which of several reads are kept does not, either.
    """
    number, warps = table[warp, NUMBER], table[table.shape[0] - 1, 0]
    first, theirs = number - table[warp, INSIDE], ((cell >> NUMBER_SHIFT) & NUMBER_MASK) - 1
    column, clock = theirs - first, (cell >> CLOCK_SHIFT) & CLOCK_LIMIT
    found: Flag
    if 0 <= column < warps and clock <= (table[warp, MET] if theirs == number else np.int64(known[column])):
        found = True
    else:
        found = settled(cell, lanes, number, bit, table[warp, FLOOR], first, warps, known)
    return found


@part
def morally_strong(cell: Int, scope: Int, warp: Int, table: Int64s, clusters: Int64s) -> Flag:
    """Whether a cell's access and one of `scope` by a warp are both strong, each in the scope of the other."""
    theirs = (cell >> SCOPE) & 3
    if theirs == 0 or scope == 0:
        return False
    if theirs == GPU_SCOPE and scope == GPU_SCOPE:
        return True
    columns = table[table.shape[0] - 1, 1]
    number = (((cell >> NUMBER_SHIFT) & NUMBER_MASK) - 1) // columns
    mine = table[warp, NUMBER] // columns
    if number == mine:
        return True
    return (
        clusters.size > 0 and theirs >= CLUSTER_SCOPE and scope >= CLUSTER_SCOPE and clusters[number] == clusters[mine]
    )
