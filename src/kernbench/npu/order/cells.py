"""Cells: the pieces into which the edges of all tiles cut each memory of a cluster. Every tile consists of whole cells.

A tile whose valid part is narrower than its lines touches a piece of each line; one without gaps is one piece.
"""

from collections.abc import Collection

import numpy as np

from kernbench.common.dtypes import ITEMSIZE, Array
from kernbench.npu.core.tiles import ROW
from kernbench.npu.isa.units import LANES, REACHED, SPACES_OF, memory_of
from kernbench.npu.order.clocks import Tiles
from kernbench.npu.recording.record import TileShape

_MEMORIES = sorted({space for spaces in SPACES_OF.values() for space in spaces})
_SPACES = [*_MEMORIES, *sorted({space for spaces in REACHED.values() for space in spaces})]
Pieces = tuple[Array, Array]


def lay_out(tiles: list[TileShape], sizes: dict[str, int], nesting: Collection[int] = ()) -> tuple[Tiles, int]:
    """The tiles as input of `stretches.check`, and the number of cells."""
    pieces = [_pieces(tile, sizes) for tile in tiles]
    edges = {memory: _edges(memory, tiles, pieces) for memory in _MEMORIES}
    cells = [_cells(edges[memory_of(tile.space)], *piece) for tile, piece in zip(tiles, pieces, strict=True)]
    starts = np.concatenate([[0], np.cumsum([len(c) for c in cells], dtype=np.int64)]).astype(np.int64)
    together = np.concatenate(cells) if cells else np.empty(0, np.int64)
    space = np.array([_SPACES.index(t.space) for t in tiles] or [0], np.int64)
    roots = np.array([t.root for t in tiles] or [0], np.int64)
    bases, owners, total = _bases({s: len(e) for s, e in edges.items()})
    first = np.array([t.offset for t in tiles] or [0], np.int64)
    last = np.array([t.offset + t.shape[0] * t.shape[1] * ITEMSIZE[t.dtype] for t in tiles] or [0], np.int64)
    nests = np.array([t.root in nesting for t in tiles] or [False], np.bool_)
    return Tiles(starts, together, bases, owners, space, roots, first, last, nests), total


def _pieces(tile: TileShape, sizes: dict[str, int]) -> Pieces:
    """First and one past the last byte of each piece of the valid part."""
    size = ITEMSIZE[tile.dtype]
    lines, columns = tile.shape if tile.layout == ROW else tile.shape[::-1]
    valid_lines, valid_columns = tile.valid if tile.layout == ROW else tile.valid[::-1]
    inside = tile.offset >= 0 and tile.offset + lines * columns * size <= sizes[memory_of(tile.space)]
    if not inside or not valid_lines or not valid_columns:
        # a tile outside its memory was reported when it was created
        return np.empty(0, np.int64), np.empty(0, np.int64)
    if valid_columns == columns:
        return np.array([tile.offset]), np.array([tile.offset + valid_lines * columns * size])
    first = tile.offset + np.arange(valid_lines) * columns * size
    return first, first + valid_columns * size


def _edges(memory: str, tiles: list[TileShape], pieces: list[Pieces]) -> Array:
    here = [p for tile, piece in zip(tiles, pieces, strict=True) if memory_of(tile.space) == memory for p in piece]
    return np.unique(np.concatenate(here)) if here else np.empty(0, np.int64)


def _cells(edges: Array, first: Array, last: Array) -> Array:
    """The cells between the edges of each piece."""
    low, high = np.searchsorted(edges, first), np.searchsorted(edges, last)
    if len(low) == 1:
        return np.arange(low[0], high[0])
    return np.concatenate([np.arange(a, b) for a, b in zip(low, high, strict=True)] or [np.empty(0, np.int64)])


def _bases(counts: dict[str, int]) -> tuple[Array, Array, int]:
    """For each memory of each lane the index of its first cell in one array of all cells, and its owner; and the number
    of cells.
    """
    bases, at = np.zeros((len(LANES), len(_SPACES)), np.int64), 0
    owners = np.repeat(np.arange(len(LANES), dtype=np.int64)[:, None], len(_SPACES), axis=1)
    for lane, spaces in SPACES_OF.items():
        for space in spaces:
            bases[lane, _SPACES.index(space)] = at
            at += counts[space]
    for lane, reached in REACHED.items():
        for space, (owner, memory) in reached.items():
            bases[lane, _SPACES.index(space)] = bases[owner, _SPACES.index(memory)]
            owners[lane, _SPACES.index(space)] = owner
    return bases, owners, max(1, at)
