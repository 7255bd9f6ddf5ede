"""Shadow cells: who last wrote and read each word of memory, and whether a new access is ordered after them.

A cell is one 64-bit word: bytes touched (4 bits), strong access (1), several lanes (2), lane (5), clock of the warp
(20), number of the warp in the grid plus one (20), site of the instruction (12). `cells` has three columns a 4-byte
word: the last write, the last read, and an earlier read of another warp that nothing orders before the last one.

Order: `clocks[cta, w, u]` is the last clock of warp u that warp w of the same CTA has seen, and its own clock where
u = w; a warp's clock advances whenever it releases. Accesses of one warp by different lanes are ordered if the clock
advanced between them. Between CTAs `known[known_rows[cta], warp]` is what the CTA has acquired of other warps' clocks.
`identity` holds for each warp of the batch: its CTA in the batch, its number in the CTA, its number in the grid; the
last row holds the number of warps in a CTA, the byte at which the cells begin, the number of actors in a CTA, and where
among these what is known of single lanes begins (-1: nowhere). `stamps` holds for each warp its
clock and number as a cell has them, and `floors` a clock up to which it is ordered after all warps of its CTA, its own
lanes included: with it nearly every access is settled by one comparison. Kernels are given all of these together, as
`shadow`.
"""

from typing import Any

import numpy as np

from kernbench.ptx.emulator.compiled import inlined, kernel
from kernbench.ptx.emulator.lanes import WARP

# as in access.CODES
_RACE = 3
_OTHER = 5

STRONG = 1 << 4
_SINGLE, _SHARED, _MIXED = 0, 1, 2
_MANY = 5
_LANE = 7
_CLOCK = 12
_WARP_NUMBER = 32
_SITE = 52
CLOCK_LIMIT = (1 << 20) - 1
# clock and warp of a cell; and with its lane, if it is the only one
_STAMP = ((1 << 40) - 1) << _CLOCK
_WHO = _STAMP | (31 << _LANE) | (3 << _MANY)
WARP_LIMIT = (1 << 20) - 2
SITE_LIMIT = (1 << 12) - 1


def decode(cell: int) -> tuple[int, int, int]:
    """Site, number of the warp in the grid, and lane of a cell's access."""
    return cell >> _SITE, ((cell >> _WARP_NUMBER) & 0xFFFFF) - 1, (cell >> _LANE) & 31


def stamp(clock: Any, number: Any) -> Any:
    """Clock and number of a warp as cells hold them."""
    return (clock.astype(np.int64) << _CLOCK) | ((number.astype(np.int64) + 1) << _WARP_NUMBER)


@kernel
def knows_lane(cell: Any, known: Any) -> Any:
    """Whether `known` of a single lane (its clock times 32, plus the lane) covers the access of `cell`."""
    single = (cell >> _MANY) & 3 == _SINGLE
    return single and (cell >> _LANE) & 31 == known & 31 and ((cell >> _CLOCK) & CLOCK_LIMIT) <= known >> 5


@kernel
def _by_thread(cell: Any, identity: Any) -> Any:
    """Whether a thread made the access of `cell`, and not an operation beside the threads."""
    last_row = identity.shape[0] - 1
    return (((cell >> _WARP_NUMBER) & 0xFFFFF) - 1) % identity[last_row, 2] < identity[last_row, 0]


@kernel
def _ordered(cell: Any, lane: Any, warp: Any, clocks: Any, known: Any, known_rows: Any, identity: Any) -> Any:
    """Whether the access of `cell` happens before what `lane` of `warp` does now."""
    value = np.int64(cell)
    number = ((value >> _WARP_NUMBER) & 0xFFFFF) - 1
    clock = (value >> _CLOCK) & CLOCK_LIMIT
    cta = identity[warp, 0]
    inside = identity[warp, 1]
    lanes = identity[identity.shape[0] - 1, 3]
    if number == identity[warp, 2]:
        many = (value >> _MANY) & 3
        same = many == _SINGLE and ((value >> _LANE) & 31) == lane
        if lanes >= 0:
            return same or many == _MIXED or clock <= clocks[cta, inside, lanes + inside]
        return same or many == _MIXED or clock < clocks[cta, inside, inside]
    first = identity[warp, 2] - inside
    if first <= number < first + identity[identity.shape[0] - 1, 2]:
        column = number - first
        if clock <= clocks[cta, inside, column]:
            return True
        return (
            lanes >= 0
            and column < identity[identity.shape[0] - 1, 0]
            and knows_lane(value, clocks[cta, inside, lanes + column])
        )
    row = known_rows[cta]
    if row < 0:
        return False
    thread = lanes >= 0 and _by_thread(value, identity)
    return clock <= known[row, number] or (thread and knows_lane(value, known[row, number + lanes]))


@inlined
def _settled(cell: Any, mine: Any, floor: Any, first: Any, warps: Any) -> Any:
    """Whether an access is plainly ordered before one of `mine`: long ago in the same CTA, or by the same lane."""
    number = ((cell >> _WARP_NUMBER) & 0xFFFFF) - 1
    long_ago = ((cell >> _CLOCK) & CLOCK_LIMIT) <= floor and first <= number < first + warps
    return long_ago or (cell & _WHO) == mine


@inlined
def note_read(
    start: Any,
    length: Any,
    lane_number: Any,
    position: Any,
    shadow: Any,
    site: Any,
    strong: Any,
    report: Any,
) -> None:
    """Enter a read and count a race with the last write."""
    cells, stamps, floors, clocks, known, known_rows, identity = shadow
    last_row = identity.shape[0] - 1
    place, span = np.int64(start) - identity[last_row, 1], np.int64(length)
    warp, lane = lane_number // WARP, lane_number % WARP
    mine = stamps[warp] | (lane << _LANE)
    floor, warps = floors[warp], identity[last_row, 0]
    first = identity[warp, 2] - identity[warp, 1]
    bytes_touched = 15 if span >= 4 else ((1 << span) - 1) << (place & 3)
    label = (strong << 4) | (site << _SITE)
    for word in range(place >> 2, (place + span + 3) >> 2):
        write = np.int64(cells[word, 0])
        touched = bytes_touched
        if (
            write & touched
            and not _settled(write, mine, floor, first, warps)
            and not (strong and write & STRONG)
            and not _ordered(write, lane, warp, clocks, known, known_rows, identity)
        ):
            _race(report, position, write)
        last = np.int64(cells[word, 1])
        many = np.int64(0)
        if last and (last ^ mine) & _STAMP == 0:
            many = (last >> _MANY) & 3
            if ((last >> _LANE) & 31) != lane:
                many = max(many, np.int64(_SHARED if last & touched else _MIXED))
            touched |= last & 15
        elif last and not _settled(last, mine, floor, first, warps):
            cells[word, 2] = np.uint64(last)
        cells[word, 1] = np.uint64(mine | label | (many << _MANY) | touched)


@inlined
def note_write(
    start: Any,
    length: Any,
    lane_number: Any,
    position: Any,
    same: Any,
    shadow: Any,
    site: Any,
    strong: Any,
    report: Any,
) -> None:
    """Enter a write and count a race with earlier accesses.

    Writing what is there already races with no write of a thread; what a copy has brought by now is luck.
    """
    cells, stamps, floors, clocks, known, known_rows, identity = shadow
    last_row = identity.shape[0] - 1
    place, span = np.int64(start) - identity[last_row, 1], np.int64(length)
    warp, lane = lane_number // WARP, lane_number % WARP
    mine = stamps[warp] | (lane << _LANE)
    floor, warps = floors[warp], identity[last_row, 0]
    first = identity[warp, 2] - identity[warp, 1]
    bytes_touched = 15 if span >= 4 else ((1 << span) - 1) << (place & 3)
    label = (strong << 4) | (site << _SITE)
    for word in range(place >> 2, (place + span + 3) >> 2):
        touched = bytes_touched
        for column in range(3):
            other = np.int64(cells[word, column])
            if (
                other & touched
                and not _settled(other, mine, floor, first, warps)
                and not (strong and other & STRONG)
                and not (column == 0 and same and _by_thread(other, identity))
                and not _ordered(other, lane, warp, clocks, known, known_rows, identity)
            ):
                _race(report, position, other)
        last = np.int64(cells[word, 0])
        many = np.int64(0)
        if last and (last ^ mine) & _STAMP == 0:
            many = (last >> _MANY) & 3
            if ((last >> _LANE) & 31) != lane:
                many = max(many, np.int64(_SHARED if last & touched else _MIXED))
            touched |= last & 15
        cells[word, 0] = np.uint64(mine | label | (many << _MANY) | touched)


@kernel
def _race(report: Any, position: Any, other: Any) -> None:
    if report[_RACE, 0] == 0:
        report[_RACE, 1] = position
        report[_OTHER, 0] = other
    report[_RACE, 0] += 1
