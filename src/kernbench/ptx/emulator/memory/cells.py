"""Shadow cells: who last wrote and read each word of memory, and whether a new access is ordered after them.

A cell is one 64-bit word: bytes touched (4 bits), strong access (1), several lanes (2), lane (5), clock of the warp
(20), number of the warp in the grid plus one (20), site of the instruction (12). `cells` has three columns a 4-byte
word: the last write, the last read, and an earlier read of another warp that nothing orders before the last one.

Order: `clocks[cta, w, u]` is the last clock of warp u that warp w of the same CTA has seen, and its own clock where
u = w; a warp's clock advances whenever it releases. Accesses of one warp by different lanes are ordered if the clock
advanced between them. Between CTAs `known[known_rows[cta], warp]` is what the CTA has acquired of other warps' clocks.
`identity` holds for each warp of the batch: its CTA in the batch, its number in the CTA, its number in the grid; the
last row holds the number of warps in a CTA and the byte at which the cells begin.
"""

from typing import Any

import numpy as np
from numba import njit

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
WARP_LIMIT = (1 << 20) - 2
SITE_LIMIT = (1 << 12) - 1


def decode(cell: int) -> tuple[int, int, int]:
    """Site, number of the warp in the grid, and lane of a cell's access."""
    return cell >> _SITE, ((cell >> _WARP_NUMBER) & 0xFFFFF) - 1, (cell >> _LANE) & 31


@njit(cache=True, nogil=True)
def _pack(touched: Any, strong: Any, many: Any, lane: Any, clock: Any, number: Any, site: Any) -> Any:
    return np.uint64(
        touched
        | (strong << 4)
        | (many << _MANY)
        | (lane << _LANE)
        | (clock << _CLOCK)
        | ((number + 1) << _WARP_NUMBER)
        | (site << _SITE)
    )


@njit(cache=True, nogil=True)
def _ordered(cell: Any, lane: Any, warp: Any, clocks: Any, known: Any, known_rows: Any, identity: Any) -> Any:
    """Whether the access of `cell` happens before what `lane` of `warp` does now."""
    value = np.int64(cell)
    number = ((value >> _WARP_NUMBER) & 0xFFFFF) - 1
    clock = (value >> _CLOCK) & CLOCK_LIMIT
    cta = identity[warp, 0]
    inside = identity[warp, 1]
    if number == identity[warp, 2]:
        many = (value >> _MANY) & 3
        same = many == _SINGLE and ((value >> _LANE) & 31) == lane
        return same or many == _MIXED or clock < clocks[cta, inside, inside]
    warps = identity[identity.shape[0] - 1, 0]
    first = identity[warp, 2] - inside
    if first <= number < first + warps:
        return clock <= clocks[cta, inside, number - first]
    row = known_rows[cta]
    return row >= 0 and clock <= known[row, number]


@njit(cache=True, nogil=True)
def _touched(place: Any, span: Any, word: Any) -> Any:
    """Mask of the bytes of 4-byte word `word` that an access touches."""
    if span >= 4:
        return 15
    return ((1 << span) - 1) << (place & 3)


@njit(cache=True, nogil=True)
def note_read(
    start: Any,
    length: Any,
    lane_number: Any,
    position: Any,
    cells: Any,
    clocks: Any,
    known: Any,
    known_rows: Any,
    identity: Any,
    site: Any,
    strong: Any,
    report: Any,
) -> None:
    """Enter a read and count a race with the last write."""
    place, span = np.int64(start) - identity[identity.shape[0] - 1, 1], np.int64(length)
    warp, lane = lane_number // WARP, lane_number % WARP
    number = identity[warp, 2]
    inside = identity[warp, 1]
    clock = np.int64(clocks[identity[warp, 0], inside, inside])
    for word in range(place >> 2, (place + span + 3) >> 2):
        touched = _touched(place, span, word)
        write = np.int64(cells[word, 0])
        open_write = (write & touched) and not (strong and write & STRONG)
        if open_write and not _ordered(write, lane, warp, clocks, known, known_rows, identity):
            _race(report, position, write)
        last = np.int64(cells[word, 1])
        many = _SINGLE
        if last:
            if ((last >> _WARP_NUMBER) & 0xFFFFF) - 1 != number:
                if not _ordered(last, lane, warp, clocks, known, known_rows, identity):
                    cells[word, 2] = np.uint64(last)
            elif ((last >> _CLOCK) & CLOCK_LIMIT) == clock:
                many, touched = _joined(last, lane, touched)
        cells[word, 1] = _pack(touched, strong, many, lane, clock, number, site)


@njit(cache=True, nogil=True)
def _joined(last: Any, lane: Any, touched: Any) -> Any:
    """How lanes share a cell whose last access was of the same warp at the same clock, and the bytes of both."""
    many = (last >> _MANY) & 3
    if ((last >> _LANE) & 31) != lane:
        many = max(many, _SHARED if (last & touched & 15) else _MIXED)
    return many, (last & 15) | touched


@njit(cache=True, nogil=True)
def note_write(
    start: Any,
    length: Any,
    lane_number: Any,
    position: Any,
    same: Any,
    cells: Any,
    clocks: Any,
    known: Any,
    known_rows: Any,
    identity: Any,
    site: Any,
    strong: Any,
    report: Any,
) -> None:
    """Enter a write and count a race with earlier accesses; writing what is there already races with no write."""
    place, span = np.int64(start) - identity[identity.shape[0] - 1, 1], np.int64(length)
    warp, lane = lane_number // WARP, lane_number % WARP
    number = identity[warp, 2]
    inside = identity[warp, 1]
    clock = np.int64(clocks[identity[warp, 0], inside, inside])
    for word in range(place >> 2, (place + span + 3) >> 2):
        touched = _touched(place, span, word)
        for column in range(3):
            other = np.int64(cells[word, column])
            if not (other & touched) or (strong and other & STRONG) or (column == 0 and same):
                continue
            if not _ordered(other, lane, warp, clocks, known, known_rows, identity):
                _race(report, position, other)
        last = np.int64(cells[word, 0])
        many = _SINGLE
        if last and ((last >> _WARP_NUMBER) & 0xFFFFF) - 1 == number and ((last >> _CLOCK) & CLOCK_LIMIT) == clock:
            many, touched = _joined(last, lane, touched)
        cells[word, 0] = _pack(touched, strong, many, lane, clock, number, site)


@njit(cache=True, nogil=True)
def _race(report: Any, position: Any, other: Any) -> None:
    if report[_RACE, 0] == 0:
        report[_RACE, 1] = position
        report[_OTHER, 0] = other
    report[_RACE, 0] += 1
