"""Compiled moves of boxes between global and shared memory, and of plain byte ranges.

Boxes are stored in shared memory row by row, in 16-byte pieces that the swizzle permutes by XOR of address bits; rows
shorter than the swizzle's span leave the rest of it unchanged. Only the part of a box inside the tensor is read or
written; a load fills the rest. Groups of arguments are plain tuples, named in the loops (see `memory.access`). `report`
counts, for global and for shared memory, bytes outside allocations and unwritten bytes, with the first operation and
offset.
"""

from typing import NamedTuple

import numpy as np

from kernbench.ptx.emulator.lanes.arrays import Bools, Bytes, Int, Int64s, UInt64s
from kernbench.ptx.emulator.lanes.compiled import kernel, part
from kernbench.ptx.emulator.memory.arena import TRACKED, UNWRITTEN, WRITTEN
from kernbench.ptx.numerics.matrix.descriptors import PIECE

# address bits that a swizzle may change, and those below
_LINE = 127
_PAGE = 8
GLOBAL_OUTSIDE, GLOBAL_UNWRITTEN, SHARED_OUTSIDE, SHARED_UNWRITTEN = range(4)
_WRITTEN8 = np.uint64(WRITTEN * 0x0101_0101_0101_0101)
_UNWRITTEN8 = np.uint64(UNWRITTEN * 0x0101_0101_0101_0101)
_TRACKED8 = np.uint64(TRACKED * 0x0101_0101_0101_0101)


class Box(NamedTuple):
    """A box of a tensor: the base of the tensor, and the layout of the box in it and in shared memory.

    Rows of `shape`: sizes, byte strides, elements copied, element strides. `element` is the size of an element in
    bytes. `swizzle` has the mask and shift of the XORed bits, whether halves of pieces are swapped, too, the row
    stride, the bytes of each piece that hold elements (the rest are gaps, which stay unchanged), and whether whole rows
    may be moved as such. `fill` is the value of elements outside the tensor.
    """

    base: int
    shape: Int64s
    element: int
    swizzle: Int64s
    fill: Bytes


class Tensor(NamedTuple):
    """The memory of a tensor: bytes and 8-byte words, and their states."""

    memory: Bytes
    memory8: UInt64s
    state: Bytes
    state8: UInt64s


class Tiles(NamedTuple):
    """The shared memory of boxes: bytes and 8-byte words, their states; each box's offset, and its CTA's origin."""

    memory: Bytes
    memory8: UInt64s
    state: Bytes
    state8: UInt64s
    offsets: Int64s
    origins: Int64s
    size: int


# the same three as plain tuples
GivenBox = tuple[int, Int64s, int, Int64s, Bytes]
GivenTensor = tuple[Bytes, UInt64s, Bytes, UInt64s]
GivenTiles = tuple[Bytes, UInt64s, Bytes, UInt64s, Int64s, Int64s, int]


@part
def _box_of(given: GivenBox) -> Box:
    return Box(given[0], given[1], given[2], given[3], given[4])


@part
def _tiles_of(given: GivenTiles) -> Tiles:
    return Tiles(given[0], given[1], given[2], given[3], given[4], given[5], given[6])


def new_report() -> Int64s:
    """An empty report: per code the count, the first operation, and its offset."""
    return np.zeros((4, 3), np.int64)


@part
def _count(report: Int64s, code: Int, operation: Int, offset: Int) -> None:
    if report[code, 0] == 0:
        report[code, 1] = operation
        report[code, 2] = offset
    report[code, 0] += 1


@part
def _swizzled(offset: Int, mask: Int, shift: Int, flip: Int) -> Int:
    swizzled = offset ^ (((offset >> 7) & mask) << shift)
    if flip:
        swizzled ^= ((offset >> 7) & 1) << 3
    return swizzled


@part
def _readable(state: Bytes, checked: bool, offset: Int, operation: Int, code: Int, report: Int64s) -> bool:
    """Whether a byte may be read; unwritten bytes may, with a report."""
    if offset < 0 or offset >= state.size:
        _count(report, code, operation, offset)
        return False
    if not checked:
        return True
    found = state[offset] & ~np.uint8(TRACKED)
    if found == WRITTEN:
        return True
    if (found & UNWRITTEN) == UNWRITTEN:
        _count(report, code + 1, operation, offset)
        return True
    _count(report, code, operation, offset)
    return False


@part
def _rows_of(shape: Int64s) -> Int:
    """The number of rows of a box."""
    rows = 1
    for d in range(1, shape.shape[1]):
        rows *= shape[2, d]
    return rows


@part
def _row(row: Int, operation: Int, coordinates: Int64s, shape: Int64s) -> tuple[Int, bool]:
    """Offset in bytes of a box row's first element from the tensor's base, and whether it is inside."""
    offset, inside = 0, True
    rest = row
    for d in range(1, shape.shape[1]):
        # most rows differ in the second dimension only
        step, rest = (rest, 0) if rest < shape[2, d] else (rest % shape[2, d], rest // shape[2, d])
        at = coordinates[operation, d] + step * shape[3, d]
        inside &= 0 <= at < shape[0, d]
        offset += at * shape[1, d]
    return offset, inside


@kernel
def find_rows(boxes: GivenBox, coordinates: Int64s, chosen: Int64s, unit: Int, found: Int64s) -> int:
    """The rows of boxes inside the tensor, extended to a `unit`: starts, lengths, operations; returns their number."""
    box = _box_of(boxes)
    shape, element = box.shape, box.element
    inner = shape[2, 0] * element
    rows = _rows_of(shape)
    count = 0
    for op in chosen:
        start = coordinates[op, 0] * element
        low, high = max(0, -start), min(inner, (shape[0, 0] * element - start + unit - 1) // unit * unit)
        for row in range(rows):
            offset, inside = _row(row, op, coordinates, shape)
            if inside and high > low:
                found[0, count], found[1, count], found[2, count] = box.base + offset + start + low, high - low, op
                count += 1
    return count


@kernel
def load_boxes(
    tensor: GivenTensor, tiles: GivenTiles, boxes: GivenBox, coordinates: Int64s, checked: bool, report: Int64s
) -> None:
    """Load boxes from global to shared memory; arguments are the parts of `Tensor`, `Tiles` and `Box`."""
    source, target, box = Tensor(tensor[0], tensor[1], tensor[2], tensor[3]), _tiles_of(tiles), _box_of(boxes)
    shape, element, swizzle = box.shape, box.element, box.swizzle
    inner, filled = shape[2, 0] * element, swizzle[4]
    rows = _rows_of(shape)
    # whether pieces lie as wholes in both
    plain = swizzle[5] != 0 and filled == PIECE and not swizzle[2] and inner % PIECE == 0
    for op in range(target.offsets.size):
        start = coordinates[op, 0] * element
        low, high = max(0, -start), min(inner, shape[0, 0] * element - start)
        for row in range(rows):
            row_offset, inside = _row(row, op, coordinates, shape)
            at, first = box.base + row_offset + start, target.offsets[op] + row * swizzle[3]
            done: Int = 0
            if plain and inside and low == 0 and high == inner and first >= 0 and first + inner <= target.size & ~_LINE:
                done = _copy_row(at, first, target.origins[op], inner, swizzle, source, target, checked)
            for piece in range(done, inner, filled):
                offset = first + piece // filled * PIECE
                to = _swizzled(offset, swizzle[0], swizzle[1], 0)
                if to < 0 or to + PIECE > target.size:
                    _count(report, SHARED_OUTSIDE, op, to)
                    continue
                to += target.origins[op]
                whole = inside and low <= piece and piece + PIECE <= high and not swizzle[2] and filled == PIECE
                if whole and _copy_piece(at + piece, to, source, target, checked):
                    continue
                for k in range(filled):
                    byte = piece + k
                    value = box.fill[byte % element]
                    within = inside and low <= byte < high
                    if within and _readable(source.state, checked, at + byte, op, GLOBAL_OUTSIDE, report):
                        value = source.memory[at + byte]
                    into = to + k
                    if swizzle[2]:
                        into ^= ((offset >> 7) & 1) << 3
                    target.memory[into] = value
                    target.state[into] |= WRITTEN


@part
def _copy_row(
    at: Int, first: Int, origin: Int, inner: Int, swizzle: Int64s, source: Tensor, target: Tiles, checked: bool
) -> Int:
    """Copy the pieces of a row inside both memories by 8-byte words, up to an unwritten one.

    Returns the number of bytes copied. A swizzle permutes pieces of 128 bytes.
    """
    done = 0
    if at & 7 or first & (PIECE - 1) or origin & 7 or at < 0 or at + inner > source.memory.size:
        return done
    mask, shift = swizzle[0], swizzle[1]
    while done < inner:
        word, offset = (at + done) >> 3, first + done
        other = (source.state8[word] ^ _WRITTEN8) | (source.state8[word + 1] ^ _WRITTEN8)
        if checked and other & ~_TRACKED8:
            break
        there = (origin + (offset ^ (((offset >> 7) & mask) << shift))) >> 3
        target.memory8[there], target.memory8[there + 1] = source.memory8[word], source.memory8[word + 1]
        target.state8[there] |= _WRITTEN8
        target.state8[there + 1] |= _WRITTEN8
        done += PIECE
    return done


@part
def _copy_piece(at: Int, to: Int, source: Tensor, target: Tiles, checked: bool) -> bool:
    """Copy a whole piece by 8-byte words, if aligned and written; returns whether it did."""
    if at & 7 or at < 0 or at + PIECE > source.memory.size:
        return False
    word, there = at >> 3, to >> 3
    if checked:
        for k in range(2):
            if (source.state8[word + k] & ~_TRACKED8) != _WRITTEN8:
                return False
    for k in range(2):
        target.memory8[there + k] = source.memory8[word + k]
        target.state8[there + k] |= _WRITTEN8
    return True


@part
def _whole_pieces(nbytes: Int) -> Int:
    """Stores write whole pieces: bytes after a row's end in its last piece are written, too."""
    return (nbytes + PIECE - 1) & ~(PIECE - 1)


@part
def _take_piece(
    offset: Int, op: Int, into: Int, source: Tiles, swizzle: Int64s, staged8: UInt64s, checked: bool
) -> bool:
    """Stage a whole piece by 8-byte words, if aligned and written; returns whether it did."""
    at = _swizzled(offset, swizzle[0], swizzle[1], 0)
    if offset & (PIECE - 1) or into & (PIECE - 1) or at < 0 or at + PIECE > source.size:
        return False
    at += source.origins[op]
    if at & 7:
        return False
    word, there = at >> 3, into >> 3
    if checked:
        for k in range(2):
            if (source.state8[word + k] & _WRITTEN8) != _WRITTEN8:
                return False
    for k in range(2):
        staged8[op, there + k] = source.memory8[word + k]
    return True


@part
def _take_row(
    first: Int, op: Int, into: Int, inner: Int, source: Tiles, swizzle: Int64s, staged8: UInt64s, checked: bool
) -> Int:
    """Stage the pieces of a row inside shared memory by words, up to an unwritten one.

    Returns the number of bytes staged.
    """
    origin, done = source.origins[op], 0
    if first & (PIECE - 1) or origin & 7:
        return done
    mask, shift, there = swizzle[0], swizzle[1], into >> 3
    while done < inner:
        offset = first + done
        word = (origin + (offset ^ (((offset >> 7) & mask) << shift))) >> 3
        if checked and (source.state8[word] & source.state8[word + 1] & _WRITTEN8) != _WRITTEN8:
            break
        staged8[op, there], staged8[op, there + 1] = source.memory8[word], source.memory8[word + 1]
        there += 2
        done += PIECE
    return done


@part
def _take_byte(
    byte: Int,
    op: Int,
    row: Int,
    source: Tiles,
    swizzle: Int64s,
    inner: Int,
    staged: Bytes,
    checked: bool,
    report: Int64s,
) -> None:
    filled = swizzle[4]
    offset = source.offsets[op] + row * swizzle[3] + byte // filled * PIECE + byte % filled
    swizzled = _swizzled(offset, swizzle[0], swizzle[1], swizzle[2])
    if swizzled < 0 or swizzled >= source.size:
        _count(report, SHARED_OUTSIDE, op, swizzled)
        return
    swizzled += source.origins[op]
    if checked and source.state[swizzled] & WRITTEN != WRITTEN:
        _count(report, SHARED_UNWRITTEN, op, swizzled - source.origins[op])
    staged[op, row * inner + byte] = source.memory[swizzled]


@kernel
def take_boxes(
    tiles: GivenTiles,
    boxes: GivenBox,
    coordinates: Int64s,
    chosen: Int64s,
    staged: Bytes,
    staged8: UInt64s,
    checked: bool,
    report: Int64s,
) -> None:
    """Read boxes in shared memory, row by row and unswizzled, as far as a store writes them."""
    source, box = _tiles_of(tiles), _box_of(boxes)
    shape, element, swizzle = box.shape, box.element, box.swizzle
    inner, filled = shape[2, 0] * element, swizzle[4]
    rows = _rows_of(shape)
    # whether pieces lie as wholes in both
    plain = swizzle[5] != 0 and filled == PIECE and not swizzle[2] and inner % PIECE == 0
    for op in chosen:
        start = coordinates[op, 0] * element
        low, high = max(0, -start), min(inner, _whole_pieces(shape[0, 0] * element - start))
        for row in range(rows):
            _, inside = _row(row, op, coordinates, shape)
            if not inside:
                continue
            first, done = source.offsets[op] + row * swizzle[3], low
            if plain and low == 0 and high == inner and first >= 0 and first + inner <= source.size & ~_LINE:
                done = _take_row(first, op, row * inner, inner, source, swizzle, staged8, checked)
            for piece in range(done, high, PIECE):
                offset = first + piece
                whole = plain and piece + PIECE <= high
                if whole and _take_piece(offset, op, row * inner + piece, source, swizzle, staged8, checked):
                    continue
                for byte in range(piece, min(piece + PIECE, high)):
                    _take_byte(byte, op, row, source, swizzle, inner, staged, checked, report)


@part
def _put_piece(
    at: Int, op: Int, first: Int, tensor: GivenTensor, dirty: Bools, staged8: UInt64s, checked: bool
) -> bool:
    """Write a whole piece by 8-byte words, if aligned and allocated; returns whether it did."""
    memory8, state8 = tensor[1], tensor[3]
    if at & (PIECE - 1) or first & (PIECE - 1) or at < 0 or at + PIECE > tensor[0].size:
        return False
    word, there = at >> 3, first >> 3
    if checked:
        for k in range(2):
            if (state8[word + k] & _UNWRITTEN8) != _UNWRITTEN8:
                return False
    for k in range(2):
        memory8[word + k] = staged8[op, there + k]
        state8[word + k] |= _WRITTEN8
    dirty[at >> _PAGE] = True
    return True


@part
def _put_row(
    at: Int, op: Int, into: Int, inner: Int, tensor: GivenTensor, dirty: Bools, staged8: UInt64s, checked: bool
) -> Int:
    """Write the pieces of a row inside memory by words, up to one that is not allocated.

    Returns the number of bytes written.
    """
    memory8, state8, done = tensor[1], tensor[3], 0
    if at & (PIECE - 1) or at < 0 or at + inner > tensor[0].size:
        return done
    there = into >> 3
    while done < inner:
        word = (at + done) >> 3
        if checked and (state8[word] & state8[word + 1] & _UNWRITTEN8) != _UNWRITTEN8:
            break
        memory8[word], memory8[word + 1] = staged8[op, there], staged8[op, there + 1]
        state8[word] |= _WRITTEN8
        state8[word + 1] |= _WRITTEN8
        dirty[(at + done) >> _PAGE] = True
        there += 2
        done += PIECE
    return done


@kernel
def put_boxes(
    tensor: GivenTensor,
    dirty: Bools,
    boxes: GivenBox,
    coordinates: Int64s,
    chosen: Int64s,
    staged: Bytes,
    staged8: UInt64s,
    checked: bool,
    report: Int64s,
) -> None:
    """Write boxes to global memory, as far as they are inside the tensor."""
    memory, state, box = tensor[0], tensor[2], _box_of(boxes)
    shape, element = box.shape, box.element
    inner = shape[2, 0] * element
    rows = _rows_of(shape)
    for op in chosen:
        start = coordinates[op, 0] * element
        low, high = max(0, -start), min(inner, _whole_pieces(shape[0, 0] * element - start))
        for row in range(rows):
            row_offset, inside = _row(row, op, coordinates, shape)
            if not inside:
                continue
            target = box.base + row_offset + start
            done = low
            if low == 0 and high == inner and inner % PIECE == 0:
                done = _put_row(target, op, row * inner, inner, tensor, dirty, staged8, checked)
            for piece in range(done, high, PIECE):
                whole = piece + PIECE <= high
                if whole and _put_piece(target + piece, op, row * inner + piece, tensor, dirty, staged8, checked):
                    continue
                for byte in range(piece, min(piece + PIECE, high)):
                    at = target + byte
                    if at < 0 or at >= memory.size or (checked and state[at] & UNWRITTEN != UNWRITTEN):
                        _count(report, GLOBAL_OUTSIDE, op, at)
                        continue
                    memory[at] = staged[op, row * inner + byte]
                    state[at] |= WRITTEN
                    dirty[at >> _PAGE] = True


@kernel
def take_ranges(
    memory: Bytes,
    state: Bytes,
    checked: bool,
    starts: Int64s,
    limits: Int64s,
    lengths: Int64s,
    firsts: Int64s,
    chosen: Int64s,
    staged: Bytes,
    code: Int,
    report: Int64s,
) -> None:
    """Read byte ranges of a space to offsets `firsts` of `staged`; they end before `limits`."""
    for op in chosen:
        for k in range(lengths[op]):
            at = starts[op] + k
            if at >= limits[op]:
                _count(report, code, op, at)
            elif _readable(state, checked, at, op, code, report):
                staged[firsts[op] + k] = memory[at]


@kernel
def put_ranges(
    memory: Bytes,
    state: Bytes,
    dirty: Bools,
    checked: bool,
    starts: Int64s,
    limits: Int64s,
    lengths: Int64s,
    firsts: Int64s,
    chosen: Int64s,
    staged: Bytes,
    kept: Int64s,
    code: Int,
    report: Int64s,
) -> None:
    """Write byte ranges to a space; `kept` has a bit for each byte of 16, all set for ordinary copies."""
    for op in chosen:
        for k in range(lengths[op]):
            if not (kept[op] >> (k & 15)) & 1:
                continue
            at = starts[op] + k
            if at < 0 or at >= limits[op] or (checked and state[at] & UNWRITTEN != UNWRITTEN):
                _count(report, code, op, at)
                continue
            memory[at] = staged[firsts[op] + k]
            state[at] |= WRITTEN
            if dirty.size > 1:
                dirty[at >> _PAGE] = True
