"""Cells: the pieces into which the edges of all tiles cut each memory of a cluster. Every tile is made of whole cells.

A tile whose valid part is narrower than its lines touches a piece of each line; one without gaps is one piece.
"""

from collections.abc import Collection

import numpy as np

from kernbench.common.dtypes import ITEMSIZE, Array
from kernbench.npu.core.tiles import ROW
from kernbench.npu.isa.units import LANES, SPACES_OF
from kernbench.npu.order.clocks import Tiles
from kernbench.npu.recording.record import TileShape

_SPACES = sorted({space for spaces in SPACES_OF.values() for space in spaces})
Pieces = tuple[Array, Array]


def lay_out(tiles: list[TileShape], sizes: dict[str, int], nesting: Collection[int] = ()) -> tuple[Tiles, int]:
    """What `happens_before.check` needs of tiles, and how many cells there are."""
    pieces = [_pieces(tile, sizes) for tile in tiles]
    edges = {space: _edges(space, tiles, pieces) for space in _SPACES}
    cells = [_cells(edges[tile.space], *piece) for tile, piece in zip(tiles, pieces, strict=True)]
    starts = np.concatenate([[0], np.cumsum([len(c) for c in cells], dtype=np.int64)]).astype(np.int64)
    together = np.concatenate(cells) if cells else np.empty(0, np.int64)
    space = np.array([_SPACES.index(t.space) for t in tiles] or [0], np.int64)
    roots = np.array([t.root for t in tiles] or [0], np.int64)
    bases, total = _bases({s: len(e) for s, e in edges.items()})
    first = np.array([t.offset for t in tiles] or [0], np.int64)
    last = np.array([t.offset + t.shape[0] * t.shape[1] * ITEMSIZE[t.dtype] for t in tiles] or [0], np.int64)
    nests = np.array([t.root in nesting for t in tiles] or [False], np.bool_)
    return Tiles(starts, together, bases, space, roots, first, last, nests), total


def _pieces(tile: TileShape, sizes: dict[str, int]) -> Pieces:
    """First and one past the last byte of each piece of the valid part."""
    size = ITEMSIZE[tile.dtype]
    lines, columns = tile.shape if tile.layout == ROW else tile.shape[::-1]
    valid_lines, valid_columns = tile.valid if tile.layout == ROW else tile.valid[::-1]
    inside = tile.offset >= 0 and tile.offset + lines * columns * size <= sizes[tile.space]
    if not inside or not valid_lines or not valid_columns:
        # one that lies outside was reported when it was placed
        return np.empty(0, np.int64), np.empty(0, np.int64)
    if valid_columns == columns:
        return np.array([tile.offset]), np.array([tile.offset + valid_lines * columns * size])
    first = tile.offset + np.arange(valid_lines) * columns * size
    return first, first + valid_columns * size


def _edges(space: str, tiles: list[TileShape], pieces: list[Pieces]) -> Array:
    here = [p for tile, piece in zip(tiles, pieces, strict=True) if tile.space == space for p in piece]
    return np.unique(np.concatenate(here)) if here else np.empty(0, np.int64)


def _cells(edges: Array, first: Array, last: Array) -> Array:
    """The cells between the edges of each piece."""
    low, high = np.searchsorted(edges, first), np.searchsorted(edges, last)
    if len(low) == 1:
        return np.arange(low[0], high[0])
    return np.concatenate([np.arange(a, b) for a, b in zip(low, high, strict=True)] or [np.empty(0, np.int64)])


def _bases(counts: dict[str, int]) -> tuple[Array, int]:
    """Where the cells of each memory of each lane begin, all of them end to end; and how many there are."""
    bases, at = np.zeros((len(LANES), len(_SPACES)), np.int64), 0
    for lane, spaces in SPACES_OF.items():
        for space in spaces:
            bases[lane, _SPACES.index(space)] = at
            at += counts[space]
    return bases, max(1, at)
