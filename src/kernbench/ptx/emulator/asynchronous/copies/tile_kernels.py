"""Compiled moves of boxes between global and shared memory, and of plain byte ranges.

Boxes lie in shared memory row after row, in pieces of 16 bytes whose places the swizzle exchanges by address bits; rows
that are shorter than the swizzle's span leave the rest of it as it is. Of a box only what lies inside the tensor is
read or written; a load fills the rest. What belongs together is handed over as a plain tuple and named in the loops
(see `memory.access`). `report` counts, for global and for shared memory, places outside what is allocated and places
nobody wrote, with the first operation and place.
"""

from typing import Any, NamedTuple

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.compiled import kernel, part
from kernbench.ptx.emulator.memory.arena import TRACKED, UNWRITTEN, WRITTEN

PIECE = 16
_PAGE = 8
GLOBAL_OUTSIDE, GLOBAL_UNWRITTEN, SHARED_OUTSIDE, SHARED_UNWRITTEN = range(4)
_WRITTEN8 = np.uint64(WRITTEN * 0x0101_0101_0101_0101)
_TRACKED8 = np.uint64(TRACKED * 0x0101_0101_0101_0101)


class Box(NamedTuple):
    """A box of a tensor: where the tensor begins, and how the box lies in it and in shared memory.

    Rows of `shape`: sizes, byte strides, elements copied, element strides. `element` is the bytes of one. `swizzle`
    holds the mask and shift of the exchanged bits, whether halves of pieces are exchanged too, the bytes from row to
    row, and the bytes of each piece that hold elements (the rest are gaps, which are left as they are). `fill` is what
    an element outside the tensor reads as.
    """

    base: int
    shape: Array
    element: int
    swizzle: Array
    fill: Array


class Tensor(NamedTuple):
    """The memory that a tensor lies in: bytes and words of eight, and their states."""

    memory: Array
    memory8: Array
    state: Array
    state8: Array


class Tiles(NamedTuple):
    """The shared memory that boxes lie in: bytes, words of eight and states; each box's offset and CTA's origin."""

    memory: Array
    memory8: Array
    state: Array
    offsets: Array
    origins: Array
    size: int


@part
def _box_of(given: Any) -> Box:
    return Box(given[0], given[1], given[2], given[3], given[4])


@part
def _tiles_of(given: Any) -> Tiles:
    return Tiles(given[0], given[1], given[2], given[3], given[4], given[5])


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
def load_boxes(tensor: Any, tiles: Any, boxes: Any, coordinates: Any, checked: Any, report: Any) -> None:
    """Boxes from global to shared memory: the parts of a `Tensor`, of `Tiles` and of a `Box`."""
    source, target, box = Tensor(tensor[0], tensor[1], tensor[2], tensor[3]), _tiles_of(tiles), _box_of(boxes)
    shape, element, swizzle = box.shape, box.element, box.swizzle
    inner, filled = shape[2, 0] * element, swizzle[4]
    rows = 1
    for d in range(1, shape.shape[1]):
        rows *= shape[2, d]
    for op in range(target.offsets.size):
        start = coordinates[op, 0] * element
        low, high = max(0, -start), min(inner, shape[0, 0] * element - start)
        for row in range(rows):
            place, inside = _row(row, op, coordinates, shape)
            for piece in range(0, inner, filled):
                offset = target.offsets[op] + row * swizzle[3] + piece // filled * PIECE
                to = _swizzled(offset, swizzle[0], swizzle[1], 0)
                if to < 0 or to + PIECE > target.size:
                    _count(report, SHARED_OUTSIDE, op, to)
                    continue
                to += target.origins[op]
                at = box.base + place + start + piece
                whole = inside and low <= piece and piece + PIECE <= high and not swizzle[2] and filled == PIECE
                if whole and _copy_piece(at, to, source, target, checked):
                    continue
                for k in range(filled):
                    byte = piece + k
                    value = box.fill[byte % element]
                    within = inside and low <= byte < high
                    if within and _readable(source.state, checked, at + k, op, GLOBAL_OUTSIDE, report):
                        value = source.memory[at + k]
                    into = to + k
                    if swizzle[2]:
                        into ^= ((offset >> 7) & 1) << 3
                    target.memory[into] = value
                    target.state[into] |= WRITTEN


@part
def _copy_piece(at: Any, to: Any, source: Tensor, target: Tiles, checked: Any) -> Any:
    """Copy a whole piece by words of eight bytes, if it lies so and all of it was written; whether that was done."""
    if at & 7 or at < 0 or at + PIECE > source.memory.size:
        return False
    word, there = at >> 3, to >> 3
    if checked:
        for k in range(2):
            if (source.state8[word + k] & ~_TRACKED8) != _WRITTEN8:
                return False
    target.memory8[there] = source.memory8[word]
    target.memory8[there + 1] = source.memory8[word + 1]
    for k in range(PIECE):
        target.state[to + k] |= WRITTEN
    return True


@part
def _whole_pieces(nbytes: Any) -> Any:
    """Stores write whole pieces: what lies beyond a row's end in the last one is written too."""
    return (nbytes + PIECE - 1) & ~(PIECE - 1)


@kernel
def take_boxes(tiles: Any, boxes: Any, coordinates: Any, chosen: Any, staged: Any, checked: Any, report: Any) -> None:
    """What boxes in shared memory hold, row after row without swizzle, as far as a store writes it."""
    source, box = _tiles_of(tiles), _box_of(boxes)
    shape, element, swizzle = box.shape, box.element, box.swizzle
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
                offset = source.offsets[op] + row * swizzle[3] + byte // filled * PIECE + byte % filled
                place = _swizzled(offset, swizzle[0], swizzle[1], swizzle[2])
                if place < 0 or place >= source.size:
                    _count(report, SHARED_OUTSIDE, op, place)
                    continue
                place += source.origins[op]
                if checked and source.state[place] & WRITTEN != WRITTEN:
                    _count(report, SHARED_UNWRITTEN, op, place - source.origins[op])
                staged[op, row * inner + byte] = source.memory[place]


@kernel
def put_boxes(
    tensor: Any, dirty: Any, boxes: Any, coordinates: Any, chosen: Any, staged: Any, checked: Any, report: Any
) -> None:
    """Boxes to global memory, as far as they lie inside the tensor."""
    memory, state, box = tensor[0], tensor[2], _box_of(boxes)
    shape, element = box.shape, box.element
    inner = shape[2, 0] * element
    rows = staged.shape[1] // inner
    for op in chosen:
        start = coordinates[op, 0] * element
        low, high = max(0, -start), min(inner, _whole_pieces(shape[0, 0] * element - start))
        for row in range(rows):
            place, inside = _row(row, op, coordinates, shape)
            if not inside:
                continue
            target = box.base + place + start
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
