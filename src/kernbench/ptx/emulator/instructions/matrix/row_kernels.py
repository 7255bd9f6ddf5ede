"""Compiled loops of ldmatrix: 16-byte rows in shared memory, whose addresses lanes give, for all warps of a step.

Lane 8j + i gives the address of row i of matrix j. Plain, lane t reads word t % 4 of row t // 4; transposed, the halves
in column t // 4 of rows 2 (t % 4) and 2 (t % 4) + 1.

One loop checks all rows for faults, and changes nothing. If there are none, the reads are entered in the cells as if
each lane had loaded its word or halves by itself (`cell_entries.note_read`), matrix after matrix, and if transposed,
even rows before odd ones. An entry changes the cells of its own word only, so the words of a matrix may come in any
order.
"""

import numpy as np

from kernbench.ptx.emulator.lanes.arrays import Flag, Int, Int32s, Int64s, UInt32s, UInt64s
from kernbench.ptx.emulator.lanes.compiled import inlined, kernel, part
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.memory.arena import TRACKED, WRITTEN
from kernbench.ptx.emulator.memory.cell_entries import read_slowly, take_turns
from kernbench.ptx.emulator.memory.cells import (
    APART,
    CTA,
    EARLIER_READ,
    EARLIER_STRONG,
    FLOOR,
    GROUP,
    INSIDE,
    LANES,
    MIXED,
    NUMBER,
    OWN,
    READ,
    SEEN,
    SITE_SHIFT,
    STAMP,
    STRONG,
    STRONG_WRITE,
    WRITE,
    Shadow,
    ShadowArrays,
    head_line,
    line_of,
    named,
    outlived,
    settled,
    unfold,
)

# rows of a matrix, the words of a row
ROWS, WORDS = 8, 4
_ROW_BYTES = np.uint64(16)
_WATCHED = np.uint32((WRITTEN | TRACKED) * 0x0101_0101)
# the bytes of a word, and of its halves
_WHOLE, _LOW, _HIGH = 15, 3, 12
# the address of each position's row, the origin of each lane's memory, its size, and each position's lane
Located = tuple[UInt64s, UInt64s, np.uint64, Int64s]


@kernel
def load_rows(memory: UInt32s, located: Located, bank: UInt32s, targets: Int64s, transposed: Flag) -> Flag:
    """Load matrices into registers, if all rows are inside memory and aligned; returns whether they are."""
    addresses, origins, size, lanes = located
    last = size - _ROW_BYTES
    for first in range(0, lanes.size, WARP):
        for i in range(ROWS * targets.size):
            start = addresses[first + i]
            if start & (_ROW_BYTES - np.uint64(1)) or size < _ROW_BYTES or start > last:
                return False
    for first in range(0, lanes.size, WARP):
        lane = np.uint64(lanes[first])
        origin = origins[lane]
        for matrix in range(targets.size):
            row, rows = np.uint64(targets[matrix]), np.uint64(first + ROWS * matrix)
            for t in range(np.uint64(WARP)):
                if transposed:
                    across, shift = t >> np.uint64(2), np.uint32((t >> np.uint64(2) & np.uint64(1)) << np.uint64(4))
                    down = rows + np.uint64(2) * (t & np.uint64(3))
                    one = memory[((addresses[down] + origin) >> np.uint64(2)) + (across >> np.uint64(1))]
                    other = memory[
                        ((addresses[down + np.uint64(1)] + origin) >> np.uint64(2)) + (across >> np.uint64(1))
                    ]
                    found = (one >> shift & np.uint32(0xFFFF)) | (other >> shift) << np.uint32(16)
                    bank[row, lane + t] = np.uint32(found)
                else:
                    start = addresses[rows + (t >> np.uint64(2))] + origin
                    bank[row, lane + t] = memory[(start >> np.uint64(2)) + (t & np.uint64(3))]
    return True


@part
def _repeats(addresses: UInt64s, first: Int, count: Int) -> Flag:
    """Whether two even or two odd rows of a matrix are the same row."""
    for matrix in range(count):
        for i in range(ROWS - 2):
            for other in range(i + 2, ROWS, 2):
                if addresses[first + ROWS * matrix + i] == addresses[first + ROWS * matrix + other]:
                    return True
    return False


@kernel
def are_plain(
    state: UInt32s, filled_by: Int32s, located: Located, count: Int, transposed: Flag, shadow: Shadow
) -> Flag:
    """Whether all rows are written, not the target of a copy in flight, and without a write that races with reading."""
    addresses, origins, size, lane_numbers = located
    arrays = named(shadow)
    cells, lanes, table = arrays.cells, arrays.lanes, arrays.table
    begin, warps = np.int64(cells[cells.shape[0] - 1, 0]), table[table.shape[0] - 1, 0]
    for first in range(0, lane_numbers.size, WARP):
        if transposed and _repeats(addresses, first, count):
            return False
        warp = lane_numbers[first] // WARP
        floor, number, inside = table[warp, FLOOR], table[warp, NUMBER], table[warp, INSIDE]
        known = arrays.clocks[table[warp, CTA], inside]
        for i in range(ROWS * count):
            start = addresses[first + i]
            if start & (_ROW_BYTES - np.uint64(1)) or size < _ROW_BYTES or start > size - _ROW_BYTES:
                return False
            offset = np.int64(start + origins[lane_numbers[first]])
            word = offset >> 2
            for k in range(WORDS):
                if state[word + k] != _WATCHED or (filled_by.size > 0 and filled_by[word + k] >= 0):
                    return False
            word = (offset - begin) >> 2
            head = head_line(word, lanes)
            for k in range(1 if lanes[head, APART] == 0 else WORDS):
                line = line_of(word + k, head, lanes)
                if cells[line, STRONG_WRITE] | cells[line, EARLIER_STRONG]:
                    return False
                write = np.int64(cells[line, WRITE])
                if write and not settled(
                    write, np.int64(-1), number, np.int64(0), floor, number - inside, warps, known
                ):
                    return False
    return True


@inlined
def _enter(
    line: Int, mine: Int, touched: Int, lane: Int, warp: Int, shadow: ShadowArrays, known: Int32s, report: Int64s
) -> None:
    """Enter a read of a word whose writes are all ordered, as `note_read` does."""
    cells, lanes, table = shadow.cells, shadow.lanes, shadow.table
    last, bit = np.int64(cells[line, READ]), np.int64(1) << lane
    if (last ^ mine) & (STAMP | STRONG) == 0 and last & (15 | MIXED) == touched:
        lanes[line, LANES + READ] |= np.uint32(bit)
    elif last == 0 or (
        last & STRONG == 0
        and not last & 15 & ~touched
        and outlived(last, np.int64(lanes[line, LANES + READ]), warp, bit, table, known)
    ):
        cells[line, READ] = np.uint64(mine | touched)
        lanes[line, LANES + READ] = np.uint32(bit)
    elif last & 15 == touched:
        take_turns(line, mine | touched, bit, cells, lanes)
    else:
        read_slowly(line, mine, touched, np.int64(0), lane, warp, shadow, report)


@part
def _enter_halves(
    line: Int, mine: Int, lane: Int, warp: Int, shadow: ShadowArrays, known: Int32s, report: Int64s
) -> None:
    """Enter that a lane has read the first half of a word, and the lane four after it the other half."""
    cells, lanes = shadow.cells, shadow.lanes
    last, earlier = np.int64(cells[line, READ]), np.int64(cells[line, EARLIER_READ])
    # the word is unread, or the last read of another epoch covers more than the first half, and is kept as the earlier
    # one
    kept = (
        (last ^ mine) & STAMP != 0
        and last & (STRONG | SEEN) == 0
        and last & _HIGH != 0
        and (earlier == 0 or (earlier ^ mine) & (STAMP | STRONG) != 0)
    )
    if last == 0 or kept:
        if last:
            cells[line, EARLIER_READ] = np.uint64(last)
            lanes[line, LANES + EARLIER_READ] = lanes[line, LANES + READ]
        cells[line, READ] = np.uint64(mine | MIXED | _WHOLE)
        lanes[line, LANES + READ] = np.uint32(lane * 0x0101 + (lane + WORDS) * 0x0101_0000)
    else:
        _enter(line, mine, _LOW, lane, warp, shadow, known, report)
        _enter(line, mine, _HIGH, lane + WORDS, warp, shadow, known, report)


@kernel
def note_rows(located: Located, count: Int, transposed: Flag, shadow: Shadow, site: Int, report: Int64s) -> None:
    """Enter reads of rows without faults."""
    addresses, origins, _, lane_numbers = located
    arrays = named(shadow)
    cells, lanes, table = arrays.cells, arrays.lanes, arrays.table
    begin, step = np.int64(cells[cells.shape[0] - 1, 0]), 2 if transposed else 1
    for move in range(count * step):
        matrix, half = move // step, move % step
        for first in range(0, lane_numbers.size, WARP):
            warp = lane_numbers[first] // WARP
            origin = origins[lane_numbers[first]]
            known = arrays.clocks[table[warp, CTA], table[warp, INSIDE]]
            mine = table[warp, OWN] | (site << SITE_SHIFT)
            for i in range(half, ROWS, step):
                word = (np.int64(addresses[first + ROWS * matrix + i] + origin) - begin) >> 2
                head = head_line(word, lanes)
                if lanes[head, APART] == 0:
                    unfold(head, cells, lanes)
                for k in range(GROUP):
                    line = line_of(word + k, head, lanes)
                    if transposed:
                        _enter_halves(line, mine, ROWS * k + (i >> 1), warp, arrays, known, report)
                    else:
                        _enter(line, mine, _WHOLE, WORDS * i + k, warp, arrays, known, report)
