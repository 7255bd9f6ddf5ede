"""Compiled surveys of accesses: the sectors, lines and passes over the banks of each warp's access.

A survey writes a row for each warp of a window, in the columns below, and returns whether all rows are the same; then
only the first row is used. Warps without active lanes do not count.
"""

import numpy as np

from kernbench.ptx.emulator.lanes.arrays import Bools, Flag, Int, Int64s, UInt64s
from kernbench.ptx.emulator.lanes.compiled import kernel, part
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.recording.recording import BANKS, Int32s
from kernbench.ptx.recording.reuse import GivenTouching, Touching, touch, touching_of

SECTORS, LINES, WAVEFRONTS, BYTES, OBJECT, PHASE = range(6)
COLUMNS = 6
# columns of reuse: sectors touched before by this CTA, and by others; the sums of log2 of their distances; sectors of
# stores that were stored to before
OWN, OTHER, OWN_SUM, OTHER_SUM, STORED = range(5)
REUSE = 5
# how shared-memory accesses are served: see `survey_shared`
APART, PAIRED, SERIAL = range(3)
# kinds of global accesses; atomics of several lanes on one word are serialised
LOADS, STORES, ADDS = range(3)
# the lanes' addresses, a constant offset, and the base of the space
Accessed = tuple[UInt64s, np.uint64, np.uint64]
# most distinct items in one access: 32 lanes with 32 bytes each, unaligned
_MOST = 512


def new_scratch() -> Int64s:
    """Work space of surveys: two lists, and counts of banks."""
    return np.zeros((3, _MOST), np.int64)


@part
def _found(values: Int64s, count: Int, value: Int) -> bool:
    for i in range(count - 1, -1, -1):  # noqa: SIM110 - compiled
        if values[i] == value:
            return True
    return False


@part
def _fill(row: Int32s, sectors: Int, lines: Int, wavefronts: Int, nbytes: Int) -> None:
    row[SECTORS], row[LINES], row[WAVEFRONTS], row[BYTES], row[OBJECT], row[PHASE] = (
        sectors,
        lines,
        wavefronts,
        nbytes,
        -1,
        -1,
    )


@part
def _agrees(rows: Int32s, first: Int, row: Int) -> bool:
    """Whether a row equals the first one."""
    for column in range(rows.shape[1]):  # noqa: SIM110 - compiled
        if rows[row, column] != rows[first, column]:
            return False
    return True


@part
def _to_front(rows: Int32s, first: Int) -> None:
    if first > 0:
        for column in range(rows.shape[1]):
            rows[0, column] = rows[first, column]


@part
def _sectors(accessed: Accessed, mask: Bools, warp: Int, nbytes: Int, scratch: Int64s) -> tuple[int, int, int]:
    """Numbers of a warp's distinct sectors (listed in `scratch`), distinct lines, and active lanes."""
    addresses, offset, base = accessed
    lanes, found, highest, lines, highest_line = 0, 0, -1, 0, -1
    for lane in range(warp * WARP, (warp + 1) * WARP):
        if mask.size and not mask[lane]:
            continue
        lanes += 1
        start = np.int64(addresses[lane] + offset - base)
        for sector in range(start >> 5, ((start + nbytes - 1) >> 5) + 1):
            if sector <= highest and _found(scratch[0], found, sector):
                continue
            highest = max(highest, sector)
            scratch[0, found] = sector
            found += 1
            line = sector >> 2
            if line <= highest_line and _found(scratch[1], lines, line):
                continue
            highest_line = max(highest_line, line)
            scratch[1, lines] = line
            lines += 1
    return found, lines, lanes


@part
def _rounds(accessed: Accessed, mask: Bools, warp: Int, nbytes: Int, sectors: Int, scratch: Int64s) -> int:
    """The rounds of an atomic: the most lanes on one word of a sector, summed over the listed sectors."""
    addresses, offset, base = accessed
    rounds = 0
    for i in range(sectors):
        for word in range(8):
            scratch[2, word] = 0
        most = 0
        for lane in range(warp * WARP, (warp + 1) * WARP):
            if mask.size and not mask[lane]:
                continue
            start = np.int64(addresses[lane] + offset - base)
            for word in range(start >> 2, ((start + nbytes - 1) >> 2) + 1):
                if word >> 3 == scratch[0, i]:
                    scratch[2, word & 7] += 1
                    most = max(most, scratch[2, word & 7])
        rounds += most
    return rounds


@kernel
def survey_global(
    accessed: Accessed,
    mask: Bools,
    nbytes: int,
    cached: bool,
    act: int,
    ctas: Int64s,
    given: GivenTouching,
    rows: Int32s,
    reuse: Int32s,
    scratch: Int64s,
) -> tuple[bool, bool]:
    """Survey global accesses by warps of `ctas`; returns whether all rows are equal, and all rows of reuse.

    For atomics (`act` is ADDS) the wavefronts are the rounds in which lanes of one word are serialised.
    """
    touching, serial, stores = touching_of(given), act == ADDS, act != LOADS
    first, same, alike = -1, True, True
    for warp in range(len(ctas)):
        sectors, lines, lanes = _sectors(accessed, mask, warp, nbytes, scratch)
        if not lanes:
            continue
        rounds = _rounds(accessed, mask, warp, nbytes, sectors, scratch) if serial else 0
        _fill(rows[warp], sectors, lines, rounds, lanes * nbytes)
        touch(touching, scratch[0], sectors, ctas[warp], cached, stores, reuse[warp])
        if first < 0:
            first = warp
        else:
            same = same and _agrees(rows, first, warp)
            alike = alike and _agrees(reuse, first, warp)
    if same:
        _to_front(rows, first)
    if alike:
        _to_front(reuse, first)
    return same, alike


@part
def _passes(
    accessed: Accessed, mask: Bools, lane: Int, count: Int, nbytes: Int, serial: Flag, scratch: Int64s
) -> tuple[int, int]:
    """The passes over the banks for `count` lanes from `lane` on, and the number of active lanes among them."""
    addresses, offset, base = accessed
    lanes, found, highest, most = 0, 0, -1, 0
    for bank in range(BANKS):
        scratch[2, bank] = 0
    for position in range(lane, lane + count):
        if mask.size and not mask[position]:
            continue
        lanes += 1
        start = np.int64(addresses[position] + offset - base)
        for word in range(start >> 2, ((start + nbytes - 1) >> 2) + 1):
            if not serial:
                if word <= highest and _found(scratch[0], found, word):
                    continue
                highest = max(highest, word)
                scratch[0, found] = word
                found += 1
            scratch[2, word % BANKS] += 1
            most = max(most, scratch[2, word % BANKS])
    return most, lanes


@part
def _in_pairs(accessed: Accessed, mask: Bools, lane: Int, count: Int) -> bool:
    """Whether each of `count` lanes accesses the same address as its neighbour, or as the next but one."""
    addresses = accessed[0]
    for apart in (1, 2):
        equal = True
        for position in range(lane, lane + count):
            other = position ^ apart
            if mask.size and not (mask[position] and mask[other]):
                continue
            if addresses[position] != addresses[other]:
                equal = False
                break
        if equal:
            return True
    return False


@kernel
def survey_shared(
    accessed: Accessed, mask: Bools, nbytes: int, most_lanes: int, act: int, rows: Int32s, scratch: Int64s
) -> bool:
    """Survey shared accesses: passes over the banks, each for as many lanes as 128 bytes serve.

    Lanes that access the same word share it. For atomics (`act` is SERIAL) they do not; the passes as if they did are
    stored as lines. For loads (PAIRED) twice as many lanes are served at once if lanes access the same address in
    pairs, as measured. The first `most_lanes` lanes of each warp supply addresses.
    """
    together = min(WARP, max(1, 4 * WARP // nbytes))
    serial = act == SERIAL
    first, same = -1, True
    for warp in range(len(rows)):
        lanes, passes, shared, lane = 0, 0, 0, 0
        while lane < most_lanes:
            count = together
            at_once = 2 * together
            if act == PAIRED and at_once <= WARP and _in_pairs(accessed, mask, warp * WARP + lane, at_once):
                count = at_once
            more, active = _passes(accessed, mask, warp * WARP + lane, count, nbytes, serial, scratch)
            passes += more
            lanes += active
            if serial:
                shared += _passes(accessed, mask, warp * WARP + lane, together, nbytes, False, scratch)[0]
            lane += count
        if not lanes:
            continue
        _fill(rows[warp], 0, shared, passes, lanes * nbytes)
        if first < 0:
            first = warp
        else:
            same = same and _agrees(rows, first, warp)
    if same:
        _to_front(rows, first)
    return same


@kernel
def survey_local(accessed: Accessed, mask: Bools, nbytes: int, rows: Int32s, scratch: Int64s) -> bool:
    """Survey local accesses. Local memory interleaves the lanes of a warp word by word.

    A line has a word of each lane.
    """
    addresses, offset, base = accessed
    first, same = -1, True
    for warp in range(len(rows)):
        lanes, found, lines = 0, 0, 0
        for inside in range(WARP):
            lane = warp * WARP + inside
            if mask.size and not mask[lane]:
                continue
            lanes += 1
            start = np.int64(addresses[lane] + offset - base)
            for word in range(start >> 2, ((start + nbytes - 1) >> 2) + 1):
                piece = word * 4 + inside // 8
                if not _found(scratch[0], found, piece):
                    scratch[0, found] = piece
                    found += 1
                if not _found(scratch[1], lines, word):
                    scratch[1, lines] = word
                    lines += 1
        if not lanes:
            continue
        _fill(rows[warp], found, lines, 0, lanes * nbytes)
        if first < 0:
            first = warp
        else:
            same = same and _agrees(rows, first, warp)
    if same:
        _to_front(rows, first)
    return same


@part
def _add_range(
    start: Int, length: Int, before: Int, cta: Int, stores: Flag, touching: Touching, row: Int32s, reuse: Int32s,
    scratch: Int64s,
) -> Int:  # fmt: skip
    """Add the sectors of a range, after sector `before`, to a row; returns the last sector."""
    first, last = start >> 5, (start + length - 1) >> 5
    first += first == before
    if length <= 0 or last < first:
        return before
    row[SECTORS] += last - first + 1
    row[LINES] += (last >> 2) - (first >> 2) + (before < 0 or first >> 2 != before >> 2)
    count = 0
    for sector in range(first, last + 1):
        scratch[0, count] = sector
        count += 1
        if count == _MOST:
            touch(touching, scratch[0], count, cta, False, stores, reuse)
            count = 0
    touch(touching, scratch[0], count, cta, False, stores, reuse)
    return last


@kernel
def survey_ranges(
    starts: Int64s, lengths: Int64s, ctas: Int64s, stores: bool, given: GivenTouching, rows: Int32s, reuse: Int32s,
    scratch: Int64s,
) -> None:  # fmt: skip
    """Survey bulk copies: add the sectors and lines of each range of bytes to its row."""
    touching = touching_of(given)
    for op in range(len(starts)):
        _add_range(starts[op], lengths[op], -1, ctas[op], stores, touching, rows[op], reuse[op], scratch)


@kernel
def survey_boxes(
    base: int,
    shape: Int64s,
    element: int,
    corners: Int64s,
    ctas: Int64s,
    stores: bool,
    given: GivenTouching,
    rows: Int32s,
    reuse: Int32s,
    scratch: Int64s,
) -> None:
    """Survey copies of tensor boxes: the rows of each box that are inside the tensor, in order.

    `shape` has size, byte stride, copied elements and element stride of each dimension, innermost first.
    """
    touching, rank = touching_of(given), shape.shape[1]
    outer, index = 1, scratch[1]
    for dimension in range(1, rank):
        outer *= shape[2, dimension]
    for op in range(len(corners)):
        low = max(0, corners[op, 0])
        high = min(shape[0, 0], corners[op, 0] + (shape[2, 0] - 1) * shape[3, 0] + 1)
        before: Int = -1
        for dimension in range(rank):
            index[dimension] = 0
        for _ in range(outer):
            start, inside = base + low * element, high > low
            for dimension in range(1, rank):
                at = corners[op, dimension] + index[dimension] * shape[3, dimension]
                inside = inside and 0 <= at < shape[0, dimension]
                start += at * shape[1, dimension]
            if inside:
                length = (high - low) * element
                before = _add_range(start, length, before, ctas[op], stores, touching, rows[op], reuse[op], scratch)
            _advance(index, shape)


@part
def _advance(index: Int64s, shape: Int64s) -> None:
    """Advance to the next row of a box."""
    for dimension in range(1, shape.shape[1]):
        index[dimension] += 1
        if index[dimension] < shape[2, dimension]:
            return
        index[dimension] = 0
