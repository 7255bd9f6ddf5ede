"""Matrix tiles in shared memory: gathered as float32 through their descriptors, for many CTAs at once."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import NamedTuple, Protocol

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.arrays import Flag, Float32s, Int, Int64s, UInt64s
from kernbench.ptx.emulator.lanes.compiled import kernel
from kernbench.ptx.emulator.memory.arena import UNWRITTEN, WRITTEN
from kernbench.ptx.emulator.memory.pages.allocation import POOL
from kernbench.ptx.emulator.memory.port import Port
from kernbench.ptx.emulator.program.hub import BatchHub
from kernbench.ptx.numerics.matrix.descriptors import PIECE, MatrixDescriptor, TileMap, anchor, leaves_pattern, tile_map
from kernbench.ptx.numerics.matrix.wide import float32_of, float32_table

# bytes of 96 4-bit elements along K
_DEEP_ROW = 48
# types of 16-bit elements
HALVES = ("f16", "bf16")
Decoder = Callable[[int], MatrixDescriptor]


@dataclass(frozen=True, slots=True)
class Operand:
    """The tile that an instruction needs from a descriptor: `rows` by `depth` elements of a type."""

    rows: int
    depth: int
    kind: str
    transposed: bool = False

    @property
    def bits(self) -> int:
        """Bits of an element in shared memory; narrow floats are padded to bytes, 16 in each 16 bytes."""
        return {"f16": 16, "bf16": 16, "tf32": 32, "b1": 1, "b4": 4}.get(self.kind, 8)

    @property
    def filled(self) -> int:
        """Bytes of each 16 in shared memory that hold elements; the rest is padding."""
        return {"e2m1": 8, "e2m3": 12, "e3m2": 12}.get(self.kind, PIECE)


@dataclass(frozen=True, slots=True, eq=False)
class Tiles:
    """One descriptor's tile in some CTAs: positions in the list of operations, and the base of its map."""

    positions: Array
    descriptor: MatrixDescriptor
    base: int
    map: TileMap
    # bytes of each 16 that hold elements
    filled: int = PIECE


def tiles_of(descriptors: Array, operand: Operand, decode: Decoder, begin: int = 0) -> list[Tiles]:
    """The tiles of descriptors (one for each operation), grouped by equal descriptors.

    Positions count from `begin` on.
    """
    if are_equal(np.ascontiguousarray(descriptors).view(np.int64)):
        return [_same_tiles(int(descriptors[0]), operand, decode, begin, len(descriptors))]
    found = []
    for bits in np.unique(descriptors).tolist():
        positions = np.flatnonzero(descriptors == np.uint64(bits)) + begin
        found.append(Tiles(positions, *_tile(bits, operand, decode), operand.filled))
    return found


@kernel
def are_equal(values: Int64s) -> Flag:
    """Whether all numbers are equal."""
    same = True
    for i in range(1, values.size):
        same &= values[i] == values[0]
    return same


@lru_cache(1 << 10)
def _same_tiles(bits: int, operand: Operand, decode: Decoder, begin: int, count: int) -> Tiles:
    """The tiles of `count` operations with the same descriptor; their positions are read-only."""
    return Tiles(np.arange(begin, begin + count), *_tile(bits, operand, decode), operand.filled)


@lru_cache(1 << 12)
def _tile(bits: int, operand: Operand, decode: Decoder) -> tuple[MatrixDescriptor, int, TileMap]:
    """Decode a descriptor: its fields, the base of its tile, and the tile's map."""
    descriptor = _checked(decode(bits), operand)
    tile = tile_map(descriptor, operand.rows, operand.depth, operand.bits, operand.transposed)
    return descriptor, anchor(descriptor), tile


def _checked(descriptor: MatrixDescriptor, operand: Operand) -> MatrixDescriptor:
    """The descriptor, with a problem if rows of 48 bytes leave the swizzle's pattern without a defined continuation."""
    row_bytes = operand.depth * operand.bits // 8
    if row_bytes != _DEEP_ROW or descriptor.absolute or not leaves_pattern(descriptor, row_bytes):
        return descriptor
    problem = (
        "its rows of 48 bytes leave the swizzle's pattern: bit 52 and an absolute leading address say where they go on"
    )
    return replace(descriptor, problem=descriptor.problem or problem)


class TileBatch(BatchHub, Protocol):
    """What tiles need from their batch."""

    port: Port


def gather(batch: TileBatch, ctas: Array, tiles: list[Tiles], operand: Operand) -> Array:
    """The elements of each operation's tile as float32: [operations, rows, depth]; those outside memory are zero."""
    if operand.kind in HALVES and batch.launch.fast.half_tiles:
        return gather_halves(batch, ctas, _layout(tiles, len(ctas)), operand)
    return _elements(gather_pieces(batch, ctas, tiles), operand)


class Layout(NamedTuple):
    """Addresses of the tiles of operations: the base of each, which map it has, and the pieces of the maps."""

    bases: Int64s
    which: Int64s
    pieces: Int64s


def _layout(tiles: list[Tiles], count: int) -> Layout:
    """The layout of the tiles of `count` operations."""
    if len(tiles) == 1:
        return Layout(np.full(count, tiles[0].base, np.int64), np.zeros(count, np.int64), tiles[0].map.pieces[None])
    bases, which = np.empty((2, count), np.int64)
    maps = list({one.map: None for one in tiles})
    for one in tiles:
        bases[one.positions], which[one.positions] = one.base, maps.index(one.map)
    return Layout(bases, which, np.stack([one.pieces for one in maps]))


@lru_cache(1 << 8)
def layout_of(descriptors: bytes, operand: Operand, decode: Decoder) -> Layout:
    """The layout of the tiles of descriptors, given as bytes, one for each operation."""
    numbers = np.frombuffer(descriptors, np.uint64).copy()
    return _layout(tiles_of(numbers, operand, decode), len(numbers))


def joined_layout(tiles: list[Tiles], operand: Operand, count: int) -> Layout | None:
    """The layout of 16-bit tiles that follow each other in depth, each the same in `count` CTAs, as one deep tile.

    None if their rows do not end at a piece boundary.
    """
    if operand.transposed and operand.rows % (PIECE // 2):
        return None
    offsets = [one.map.pieces + one.base for one in tiles]
    pieces = np.concatenate(offsets, axis=0 if operand.transposed else 1)
    return Layout(np.zeros(count, np.int64), np.zeros(count, np.int64), np.ascontiguousarray(pieces, np.int64)[None])


def gather_halves(batch: TileBatch, ctas: Array, layout: Layout, operand: Operand) -> Array:
    """As `gather`, for 16-bit elements."""
    size, memory = batch.shared_stride, batch.port.space("shared").words[8]
    _, rows, pieces = layout.pieces.shape
    found = POOL.empty((len(ctas), rows, pieces * PIECE // 2), np.float32)
    take_halves(memory, np.asarray(ctas, np.int64), layout, size, float32_table(operand.kind), found)
    return found[:, :, : operand.rows].swapaxes(1, 2) if operand.transposed else found


@kernel
def take_halves(
    memory: UInt64s,
    ctas: Int64s,
    layout: tuple[Int64s, Int64s, Int64s],
    size: Int,
    table: Float32s,
    found: Float32s,
) -> None:
    """Gather 16-byte pieces for operations, from a base on in the memory of each one's CTA, which has `size` bytes.

    A piece beyond `size` reads as zero. A word of memory has four elements.
    """
    bases, which, pieces = layout
    low = np.uint64(0xFFFF)
    for operation in range(bases.size):
        base, one = bases[operation], which[operation]
        start = ctas[operation] * size + base
        for row in range(pieces.shape[1]):
            for column in range(pieces.shape[2]):
                offset = pieces[one, row, column]
                outside = base + offset > size - PIECE
                for half in range(2):
                    word = np.uint64(0) if outside else memory[((start + offset) >> 3) + half]
                    at = column * (PIECE // 2) + 4 * half
                    first, second = table[word & low], table[(word >> np.uint64(16)) & low]
                    third, fourth = table[(word >> np.uint64(32)) & low], table[word >> np.uint64(48)]
                    found[operation, row, at] = first
                    found[operation, row, at + 1] = second
                    found[operation, row, at + 2] = third
                    found[operation, row, at + 3] = fourth


def gather_pieces(batch: TileBatch, ctas: Array, tiles: list[Tiles]) -> Array:
    """The 16-byte pieces of each operation's tile, in the order of its map."""
    size = batch.shared_stride
    pieces = batch.port.space("shared").words[1].view(np.complex128)
    out: list[Array] = []
    for one in tiles:
        offsets = one.map.pieces + one.base
        outside = one.base + one.map.last > size
        safe = np.minimum(offsets, size - PIECE) if outside else offsets
        starts = ctas[one.positions].astype(np.int64) * (size // PIECE)
        data = np.take(pieces, starts[:, None, None] + (safe // PIECE)[None])
        if outside:
            data[:, offsets > size - PIECE] = 0
        out.append(data)
    if len(out) == 1:
        return out[0]
    joined = np.empty((len(ctas), *out[0].shape[1:]), np.complex128)
    for one, part in zip(tiles, out, strict=True):
        joined[one.positions] = part
    return joined


def unwritten_pieces(batch: TileBatch, ctas: Array, one: Tiles) -> tuple[Array, Array]:
    """Which bytes of a tile that lies in memory nobody wrote, and the offset of each piece.

    The first is [positions, rows, pieces, bytes] ([positions, depth, pieces, bytes] if transposed).
    """
    size = batch.shared_stride
    starts = ctas[one.positions].astype(np.int64) * size + one.base
    offsets: Array = starts[:, None, None] + one.map.pieces[None]
    state: Array = batch.port.space("shared").state[1]
    return state[offsets[..., None] + np.arange(PIECE)] & WRITTEN == UNWRITTEN, offsets


def rows_of(lost: Array, operand: Operand) -> Array:
    """The rows of tiles with any of some bytes: [positions, rows]."""
    if not operand.transposed:
        return np.asarray(lost.any(axis=(2, 3)))
    by_element = lost.reshape(*lost.shape[:2], -1, operand.bits // 8)
    return np.asarray(by_element.any(axis=(1, 3)))[:, : operand.rows]


def _elements(data: Array, operand: Operand) -> Array:
    """Convert 16-byte pieces to elements [operations, rows, depth]."""
    kind = operand.kind
    if kind in ("b1", "b4"):
        bits = _narrow(data, 1 if kind == "b1" else 4)
    elif kind in ("e2m1", "e2m3", "e3m2"):
        bits = unpacked(data, 4 if kind == "e2m1" else 6)
    else:
        bits = data.view(f"uint{operand.bits}")
    values: Array = float32_of(bits, "e2m1" if kind == "b4" else kind)
    if operand.transposed:
        return values[:, :, : operand.rows].swapaxes(1, 2)
    return values


def _narrow(data: Array, bits: int) -> Array:
    octets = data.view(np.uint8)
    shifts = (np.arange(8 // bits) * bits).astype(np.uint8)
    apart: Array = (octets[..., None] >> shifts) & np.uint8((1 << bits) - 1)
    return apart.reshape(*octets.shape[:-1], -1)


def unpacked(data: Array, bits: int) -> Array:
    """Unpack sixteen 4- or 6-bit elements from the low end of each 16 bytes, one to a byte."""
    words = data.view(np.uint64).reshape(*data.shape, 2)
    shifts = np.arange(16) * bits
    low, high = words[..., 0, None], words[..., 1, None]
    right = (shifts % 64).astype(np.uint64)
    first = np.where(shifts < 64, low, high) >> right
    # a 6-bit element may span both words
    spill = (shifts < 64) & (shifts + bits > 64)
    rest = np.where(spill, high << ((64 - shifts) % 64).astype(np.uint64), np.uint64(0))
    apart: Array = ((first | rest) & np.uint64((1 << bits) - 1)).astype(np.uint8)
    return apart.reshape(*data.shape[:-1], -1)


def ranges_of(ctas: Array, tiles: list[Tiles], size: int) -> tuple[Array, Array, Array]:
    """Byte ranges of tiles in shared memory: begins, lengths, and the operation of each."""
    most = sum(len(one.positions) * len(one.map.firsts) for one in tiles)
    found = np.empty((3, most), np.int64)
    count, homes = 0, np.asarray(ctas, np.int64)
    for one in tiles:
        count = spread(homes, one.positions, one.base, one.map.firsts, one.map.spans, size, count, found)
    return found[0, :count], found[1, :count], found[2, :count]


@kernel
def spread(
    ctas: Int64s, positions: Int64s, base: Int, firsts: Int64s, spans: Int64s, size: Int, count: int, found: Int64s
) -> int:
    """Append the ranges of a tile in some CTAs after `count` others; returns the new count."""
    for i in range(positions.size):
        start = ctas[positions[i]] * size
        for k in range(firsts.size):
            offset = base + firsts[k]
            if offset + spans[k] <= size:
                found[0, count], found[1, count], found[2, count] = start + offset, spans[k], positions[i]
                count += 1
    return count
