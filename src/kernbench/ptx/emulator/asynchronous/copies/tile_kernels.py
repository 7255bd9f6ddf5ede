"""Compiled moves of boxes between global and shared memory, and of plain byte ranges.

Boxes lie in shared memory row after row, in pieces of 16 bytes whose places the swizzle exchanges by address bits; rows
that are shorter than the swizzle's span leave the rest of it as it is. `swizzle` holds the mask and shift of the
exchanged bits, whether halves of pieces are exchanged too, the bytes from row to row, and the bytes of each piece that
hold elements (the rest are gaps, which are left as they are). Of a box only what lies
inside the tensor is read or written; a load fills the rest. `report` counts, for global and for shared memory, places
outside what is allocated and places nobody wrote, with the first operation and place.
"""

from typing import Any

import numpy as np

from kernbench.ptx.emulator.lanes.compiled import kernel, part
from kernbench.ptx.emulator.memory.arena import TRACKED, UNWRITTEN, WRITTEN

PIECE = 16
_PAGE = 8
GLOBAL_OUTSIDE, GLOBAL_UNWRITTEN, SHARED_OUTSIDE, SHARED_UNWRITTEN = range(4)
_WRITTEN8 = np.uint64(WRITTEN * 0x0101_0101_0101_0101)
_TRACKED8 = np.uint64(TRACKED * 0x0101_0101_0101_0101)


def new_report() -> Any:
    """An empty report: per code how often, the first operation, its place."""
    return np.zeros((4, 3), np.int64)


@part
def _count(report: Any, code: Any, operation: Any, place: Any) -> None:
    if report[code, 0] == 0:
        report[code, 1] = operation
        report[code, 2] = place
    report[code, 0] += 1


@part
def _swizzled(offset: Any, mask: Any, shift: Any, flip: Any) -> Any:
    place = offset ^ (((offset >> 7) & mask) << shift)
    if flip:
        place ^= ((offset >> 7) & 1) << 3
    return place


@part
def _readable(state: Any, checked: Any, place: Any, operation: Any, code: Any, report: Any) -> Any:
    """Whether a byte may be read; unwritten ones may, with a complaint."""
    if place < 0 or place >= state.size:
        _count(report, code, operation, place)
        return False
    if not checked:
        return True
    found = state[place] & ~np.uint8(TRACKED)
    if found == WRITTEN:
        return True
    if (found & UNWRITTEN) == UNWRITTEN:
        _count(report, code + 1, operation, place)
        return True
    _count(report, code, operation, place)
    return False


@part
def _row(row: Any, operation: Any, coordinates: Any, shape: Any) -> Any:
    """Byte place of a box row's first element relative to the tensor's start, and whether it lies inside."""
    place, inside = 0, True
    rest = row
    for d in range(1, shape.shape[1]):
        at = coordinates[operation, d] + (rest % shape[2, d]) * shape[3, d]
        rest //= shape[2, d]
        inside &= 0 <= at < shape[0, d]
        place += at * shape[1, d]
    return place, inside


@kernel
def load_boxes(
    memory: Any,
    memory8: Any,
    state: Any,
    state8: Any,
    checked: Any,
    shared: Any,
    shared8: Any,
    shared_state: Any,
    offsets: Any,
    origins: Any,
    size: Any,
    coordinates: Any,
    base: Any,
    shape: Any,
    element: Any,
    swizzle: Any,
    fill: Any,
    report: Any,
) -> None:
    """Boxes from global to shared memory. `shape` rows: sizes, byte strides, elements copied, element strides."""
    inner, filled = shape[2, 0] * element, swizzle[4]
    rows = 1
    for d in range(1, shape.shape[1]):
        rows *= shape[2, d]
    for op in range(offsets.size):
        start = coordinates[op, 0] * element
        low, high = max(0, -start), min(inner, shape[0, 0] * element - start)
        for row in range(rows):
            place, inside = _row(row, op, coordinates, shape)
            source = base + place + start
            for piece in range(0, inner, filled):
                offset = offsets[op] + row * swizzle[3] + piece // filled * PIECE
                target = _swizzled(offset, swizzle[0], swizzle[1], 0)
                if target < 0 or target + PIECE > size:
                    _count(report, SHARED_OUTSIDE, op, target)
                    continue
                target += origins[op]
                whole = inside and low <= piece and piece + PIECE <= high and not swizzle[2] and filled == PIECE
                at = source + piece
                if whole and at & 7 == 0 and at >= 0 and at + PIECE <= memory.size:
                    word, to = at >> 3, target >> 3
                    good = (state8[word] & ~_TRACKED8) == _WRITTEN8 and (state8[word + 1] & ~_TRACKED8) == _WRITTEN8
                    if good or not checked:
                        shared8[to] = memory8[word]
                        shared8[to + 1] = memory8[word + 1]
                        for k in range(PIECE):
                            shared_state[target + k] |= WRITTEN
                        continue
                for k in range(filled):
                    byte = piece + k
                    value = fill[byte % element]
                    if inside and low <= byte < high and _readable(state, checked, at + k, op, GLOBAL_OUTSIDE, report):
                        value = memory[at + k]
                    to = target + k
                    if swizzle[2]:
                        to ^= ((offset >> 7) & 1) << 3
                    shared[to] = value
                    shared_state[to] |= WRITTEN


@part
def _whole_pieces(nbytes: Any) -> Any:
    """Stores write whole pieces: what lies beyond a row's end in the last one is written too."""
    return (nbytes + PIECE - 1) & ~(PIECE - 1)


@kernel
def take_boxes(
    shared: Any,
    shared_state: Any,
    checked: Any,
    offsets: Any,
    origins: Any,
    size: Any,
    coordinates: Any,
    shape: Any,
    element: Any,
    swizzle: Any,
    chosen: Any,
    staged: Any,
    report: Any,
) -> None:
    """What boxes in shared memory hold, row after row without swizzle, as far as a store writes it."""
    inner, filled = shape[2, 0] * element, swizzle[4]
    rows = staged.shape[1] // inner
    for op in chosen:
        start = coordinates[op, 0] * element
        low, high = max(0, -start), min(inner, _whole_pieces(shape[0, 0] * element - start))
        for row in range(rows):
            _, inside = _row(row, op, coordinates, shape)
            if not inside:
                continue
            for byte in range(low, high):
                offset = offsets[op] + row * swizzle[3] + byte // filled * PIECE + byte % filled
                place = _swizzled(offset, swizzle[0], swizzle[1], swizzle[2])
                if place < 0 or place >= size:
                    _count(report, SHARED_OUTSIDE, op, place)
                    continue
                place += origins[op]
                if checked and shared_state[place] & WRITTEN != WRITTEN:
                    _count(report, SHARED_UNWRITTEN, op, place - origins[op])
                staged[op, row * inner + byte] = shared[place]


@kernel
def put_boxes(
    memory: Any,
    state: Any,
    dirty: Any,
    checked: Any,
    coordinates: Any,
    base: Any,
    shape: Any,
    element: Any,
    chosen: Any,
    staged: Any,
    report: Any,
) -> None:
    """Boxes to global memory, as far as they lie inside the tensor."""
    inner = shape[2, 0] * element
    rows = staged.shape[1] // inner
    for op in chosen:
        start = coordinates[op, 0] * element
        low, high = max(0, -start), min(inner, _whole_pieces(shape[0, 0] * element - start))
        for row in range(rows):
            place, inside = _row(row, op, coordinates, shape)
            if not inside:
                continue
            target = base + place + start
            for byte in range(low, high):
                at = target + byte
                if at < 0 or at >= memory.size or (checked and state[at] & UNWRITTEN != UNWRITTEN):
                    _count(report, GLOBAL_OUTSIDE, op, at)
                    continue
                memory[at] = staged[op, row * inner + byte]
                state[at] |= WRITTEN
                dirty[at >> _PAGE] = True


@kernel
def take_ranges(
    memory: Any,
    state: Any,
    checked: Any,
    starts: Any,
    limits: Any,
    lengths: Any,
    places: Any,
    chosen: Any,
    staged: Any,
    code: Any,
    report: Any,
) -> None:
    """Byte ranges of a space, one after the other at `places` of `staged`; they end before `limits`."""
    for op in chosen:
        for k in range(lengths[op]):
            at = starts[op] + k
            if at >= limits[op]:
                _count(report, code, op, at)
            elif _readable(state, checked, at, op, code, report):
                staged[places[op] + k] = memory[at]


@kernel
def put_ranges(
    memory: Any,
    state: Any,
    dirty: Any,
    checked: Any,
    starts: Any,
    limits: Any,
    lengths: Any,
    places: Any,
    chosen: Any,
    staged: Any,
    kept: Any,
    code: Any,
    report: Any,
) -> None:
    """Byte ranges to a space; `kept` has one bit for each byte of 16, all set for ordinary copies."""
    for op in chosen:
        for k in range(lengths[op]):
            if not (kept[op] >> (k & 15)) & 1:
                continue
            at = starts[op] + k
            if at < 0 or at >= limits[op] or (checked and state[at] & UNWRITTEN != UNWRITTEN):
                _count(report, code, op, at)
                continue
            memory[at] = staged[places[op] + k]
            state[at] |= WRITTEN
            if dirty.size > 1:
                dirty[at >> _PAGE] = True
