"""Matrix descriptors of wgmma and tcgen05: their fields, and the position of each element of a tile in shared memory.

A tile has `rows` rows (M of A, N of B) and a depth of K elements. In the canonical layouts of the ISA it consists of
pieces of 16 bytes, contiguous along K ("K-major") or along the rows ("MN-major"). Swizzles permute pieces of 16 (or 32)
bytes by address bits from 7 on, so that an element's offset depends on the start address modulo the swizzle's period.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
# bytes that swizzles move together
PIECE = 16
# swizzle -> mask of the bits from 7 on that are XORed, and the lowest bit they change
_SWIZZLES = {"none": (0, 4), "32B": (1, 4), "64B": (3, 4), "128B": (7, 4), "128B/32B": (3, 5)}
_WGMMA = {0: "none", 1: "128B", 2: "64B", 3: "32B"}
_TCGEN05 = {0: "none", 1: "128B/32B", 2: "128B", 4: "64B", 6: "32B"}
# number of 16-byte pieces side by side in a row of the swizzle's pattern
_WIDTHS = {"none": 1, "32B": 2, "64B": 4, "128B": 8, "128B/32B": 8}


@dataclass(frozen=True, slots=True)
class MatrixDescriptor:
    """The fields of a descriptor; addresses and offsets in bytes.

    `problem` is a message about a meaningless value; `lapse` about one that violates the ISA but works on every GPU.
    """

    start: int
    leading: int
    stride: int
    base_offset: int
    swizzle: str
    problem: str = ""
    # whether `leading` is the absolute address at which a row that leaves the swizzle's pattern continues
    absolute: bool = False
    lapse: str = ""


def _fields(bits: int) -> tuple[int, int, int, int]:
    return (bits & 0x3FFF) << 4, (bits >> 16 & 0x3FFF) << 4, (bits >> 32 & 0x3FFF) << 4, bits >> 49 & 7


# bounded, since a program that computes descriptors may have any number of them
@lru_cache(1 << 12)
def wgmma_descriptor(bits: int) -> MatrixDescriptor:
    """Decode a wgmma descriptor: swizzle in bits 62 and 63."""
    return MatrixDescriptor(*_fields(bits), _WGMMA[bits >> 62 & 3])


@lru_cache(1 << 12)
def tcgen05_descriptor(bits: int, absolute: bool = False) -> MatrixDescriptor:
    """Decode a tcgen05 descriptor: swizzle in bits 61 to 63, and 0b001 in bits 46 to 48.

    `absolute`: the target has absolute leading addresses (bit 52), as sm_103a for rows of 48 bytes.
    """
    code, version = bits >> 61 & 7, bits >> 46 & 7
    belongs = f"bits 46 to 48 hold {version:#05b} where 0b001 belongs"
    problem = ""
    if version > 1:
        problem = belongs
    elif code not in _TCGEN05:
        problem = f"bits 61 to 63 hold {code}, which is no swizzle"
    elif bits >> 52 & 1 and not absolute:
        problem = "bit 52 asks for an absolute leading address, which sm_103a has and this target has not"
    elif bits >> 52 & 1 and code == 0:
        problem = "bit 52 asks for an absolute leading address, which goes with a swizzle"
    return MatrixDescriptor(
        *_fields(bits),
        _TCGEN05.get(code, "none"),
        problem,
        bool(bits >> 52 & 1 and not problem),
        lapse="" if version else belongs,
    )


def deep_descriptor(bits: int) -> MatrixDescriptor:
    """Decode a tcgen05 descriptor for a target with absolute leading addresses."""
    return tcgen05_descriptor(bits, True)


def leaves_pattern(descriptor: MatrixDescriptor, row_bytes: int) -> bool:
    """Whether rows (along K) begin inside the swizzle's pattern and end outside of it."""
    width = _WIDTHS[descriptor.swizzle] * PIECE
    return descriptor.swizzle != "none" and row_bytes <= width < descriptor.start % width + row_bytes


@dataclass(frozen=True, slots=True, eq=False)
class TileMap:
    """Offsets of a tile's pieces from `anchor(descriptor)`, in bytes: [rows, depth in pieces], or [depth, row pieces].

    `firsts` and `spans` describe the same bytes as contiguous ranges; `last` is one past the last byte.
    """

    pieces: Ints
    transposed: bool
    last: int
    firsts: Ints
    spans: Ints


def anchor(descriptor: MatrixDescriptor) -> int:
    """The address that a tile map is relative to: the start, rounded down to the longest period."""
    return descriptor.start & ~1023


def tile_map(descriptor: MatrixDescriptor, rows: int, depth: int, bits: int, transposed: bool) -> TileMap:
    """Offsets of a tile of `rows` by `depth` elements of `bits` bits; `transposed` means MN-major."""
    return _tile_map(
        descriptor.start & 1023,
        descriptor.leading - anchor(descriptor) if descriptor.absolute else descriptor.leading,
        descriptor.stride,
        descriptor.base_offset,
        descriptor.swizzle,
        rows,
        depth,
        bits,
        transposed,
        descriptor.absolute,
    )


# a map of 256 rows takes up to 50 kB
@lru_cache(1 << 10)
def _tile_map(
    start: int,
    leading: int,
    stride: int,
    base_offset: int,
    swizzle: str,
    rows: int,
    depth: int,
    bits: int,
    transposed: bool,
    absolute: bool,
) -> TileMap:
    linear = (_along_rows if transposed else _along_depth)(leading, stride, swizzle, rows, depth, bits)
    if absolute and not transposed:
        linear = _in_next_buffer(start + linear, start, leading, swizzle) - start
    offsets = swizzled(start + linear, swizzle, base_offset)
    return TileMap(np.ascontiguousarray(offsets), transposed, int(offsets.max()) + PIECE, *_runs(offsets))


def _runs(offsets: Ints) -> tuple[Ints, Ints]:
    """Pieces as contiguous ranges: offsets and lengths."""
    found = np.unique(offsets)
    cuts = np.flatnonzero(np.diff(found) != PIECE) + 1
    firsts = found[np.r_[0, cuts]]
    return firsts, found[np.r_[cuts - 1, len(found) - 1]] + PIECE - firsts


def _along_depth(leading: int, stride: int, swizzle: str, rows: int, depth: int, bits: int) -> Ints:
    """K-major: groups of 8 rows `stride` apart; pieces along K `leading` apart, or side by side if swizzled."""
    row = np.arange(rows)[:, None]
    piece = np.arange(max(1, depth * bits // 8 // PIECE))[None, :]
    width = _WIDTHS[swizzle]
    if swizzle == "none":
        return row % 8 * PIECE + row // 8 * stride + piece * leading
    # beyond the width of the swizzle a tile continues `leading` bytes further
    return row % 8 * width * PIECE + row // 8 * stride + piece % width * PIECE + piece // width * leading


def _in_next_buffer(offsets: Ints, start: int, following: int, swizzle: str) -> Ints:
    """Pieces beyond the pattern's row in which they began continue in the same row of the buffer at `following`."""
    width = _WIDTHS[swizzle] * PIECE
    first = start % width + np.arange(offsets.shape[1]) * PIECE
    # from a row's first piece: back to the row's beginning in this buffer, then to its beginning in the next
    row = offsets[:, :1] - start
    beyond = first - width
    return np.where(beyond[None, :] < 0, offsets, following + row + beyond[None, :])


def _along_rows(leading: int, stride: int, swizzle: str, rows: int, depth: int, bits: int) -> Ints:
    """MN-major: pieces along the rows, one line of the pattern per K; without swizzle the offsets are exchanged."""
    k = np.arange(depth)[:, None]
    piece = np.arange(-(-rows * bits // 8 // PIECE))[None, :]
    width = _WIDTHS[swizzle]
    lines = 4 if swizzle == "128B/32B" else 8
    across, down = (stride, leading) if swizzle == "none" else (leading, stride)
    return piece % width * PIECE + piece // width * across + k % lines * width * PIECE + k // lines * down


def swizzled(addresses: Ints, swizzle: str, base_offset: int = 0) -> Ints:
    """Byte addresses after the swizzle."""
    mask, lowest = _SWIZZLES[swizzle]
    return addresses ^ (((addresses >> 7) - base_offset & mask) << lowest)
