"""Concatenation and sorting: tconcat, tsort32, tmrgsort.

Sorted elements are stored as pairs of eight bytes, a value and its 32-bit index: two elements of an f32 tile, or four
of an f16 tile (value, padding, index). Indices are tiles of i32, whose bits count as unsigned.
"""

from sys import _getframe
from types import FrameType
from typing import Any

import numpy as np

from kernbench.common.dtypes import DTYPES, ITEMSIZE, Array
from kernbench.npu.core.debugging import Debugging
from kernbench.npu.core.tiles import ROW as BY_ROW
from kernbench.npu.core.tiles import Tile
from kernbench.npu.isa.mistakes import refusing
from kernbench.npu.isa.operations import OPERATIONS
from kernbench.npu.isa.units import PIPE_NUMBER, V
from kernbench.npu.recording.record import NONE, ROW

__kernbench_internal__ = True
GROUP, PAIR_BYTES, MOST_REPEATS = 32, 8, 255
_CONCAT, _SORT32, _MERGE = (OPERATIONS[name] for name in ("tconcat", "tsort32", "tmrgsort"))
_V = PIPE_NUMBER[V]


class Rearranging(Debugging):
    """Concatenation and sorting."""

    # the type of the values of the merged lists
    _value_type: np.dtype[np.generic]

    def tconcat(self, dst: Tile, a: Tile, b: Tile, *indices: Tile) -> None:
        """Rows of `a`, then those of `b`. With (a_idx, b_idx) or (dst_idx, a_idx, b_idx) only the number of elements of
        each row that these give, in bytes of the index type; dst_idx is written.
        """
        frame = _getframe(1)
        if frame is not self._frame:
            self._entered(frame)
        self._check_concat(dst, a, b, indices)
        counts = indices[-2:]
        written = dst if indices else dst.view(valid=(dst.valid[0], a.valid[1] + b.valid[1]))
        self._row(_CONCAT, frame, written, (a, b, *counts[:1]))
        if indices:
            self._row(_CONCAT, frame, indices[0] if len(indices) == 3 else None, counts)
        if dst.data is None:
            return
        if not indices:
            written.data[...] = np.concatenate([a.data, b.data], axis=1)
            return
        self._concat_counted(dst, a, b, indices)

    def _concat_counted(self, dst: Tile, a: Tile, b: Tile, indices: tuple[Tile, ...]) -> None:
        size, width = ITEMSIZE[indices[-1].dtype], dst.valid[1]
        for row in range(dst.valid[0]):
            left, right = (max(0, int(t.data[row, 0])) // size for t in indices[-2:])
            one = min(left, width, a.valid[1])
            two = min(right, width - one, b.valid[1])
            dst.data[row, :one] = a.data[row, :one]
            dst.data[row, one : one + two] = b.data[row, :two]
            if len(indices) == 3:
                indices[0].data[row, 0] = min(left + right, width) * size

    @refusing
    def _check_concat(self, dst: Tile, a: Tile, b: Tile, indices: tuple[Tile, ...]) -> None:
        tiles = (dst, a, b, *indices)
        self._check_tiles("tconcat", tiles)
        given = ", ".join(t.describe() for t in tiles)
        if len(indices) not in (0, 2, 3):
            self.context.fail("misuse", f"tconcat takes no index tiles, two or three; got {len(indices)}")
        if len({t.dtype for t in tiles[:3]}) > 1 or any(DTYPES[t.dtype].kind != "int" for t in indices):
            self.context.fail("dtype", f"tconcat: dst, a and b of one type, indices of integers; got {given}")
        if any(t.valid[0] != dst.valid[0] for t in tiles):
            self.context.fail("shape", f"tconcat: all tiles have as many valid rows as dst; got {given}")
        total, exact = a.valid[1] + b.valid[1], self.context.chip.isa.concat == "exact"
        fits = total == dst.valid[1] if exact else total <= dst.shape[1]
        if not indices and not fits:
            rule = "as many valid columns as a and b together" if exact else "room for the columns of a and b"
            self.context.fail("shape", f"tconcat: dst has {rule} on chip {self.context.chip.name}; got {given}")

    # Sorting

    def tsort32(self, dst: Tile, src: Tile, idx: Tile, tmp: Tile | None = None) -> None:
        """Each 32 elements of a row in descending order, as pairs with their indices; equal ones by index. With `tmp`
        the last group of a row may be smaller.
        """
        frame = _getframe(1)
        if frame is not self._frame:
            self._entered(frame)
        self._check_sort(dst, src, idx, tmp)
        if tmp is not None:
            self._row(_SORT32, frame, tmp, (src,))
        self._row(_SORT32, frame, dst, (src, idx))
        if dst.data is not None:
            _store_pairs(dst.data, *_sorted_groups(src.data, np.broadcast_to(idx.data, src.data.shape)))
            if tmp is not None:
                tmp.data[...] = DTYPES[tmp.dtype].poison

    @refusing
    def _check_sort(self, dst: Tile, src: Tile, idx: Tile, tmp: Tile | None) -> None:
        tiles = (dst, src, idx) if tmp is None else (dst, src, idx, tmp)
        self._check_tiles("tsort32", tiles)
        self._check_pairs("tsort32", *tiles[:2], *tiles[3:])
        rows, columns = src.valid
        given = ", ".join(t.describe() for t in tiles)
        if idx.dtype != "i32" or idx.valid not in ((rows, columns), (1, columns)):
            self.context.fail("dtype", f"tsort32: an i32 index for each element, or for each column; got {given}")
        if dst.valid != (rows, columns * _per_pair(src)):
            needed = f"{rows}x{columns * _per_pair(src)}"
            self.context.fail(
                "shape", f"tsort32: dst holds pairs of {PAIR_BYTES} bytes, {needed} elements; got {given}"
            )
        if columns % GROUP and tmp is None:
            self.context.fail(
                "shape",
                f"tsort32: {columns} columns are no multiple of {GROUP}; got {given}",
                "narrow the valid part, or give tmp, as wide as src and rounded up to 32",
            )
        if tmp is not None and tmp.valid[0] * tmp.valid[1] < -(-columns // GROUP) * GROUP:
            self.context.fail("shape", f"tsort32: tmp holds a row of src, rounded up to {GROUP} elements; got {given}")

    def tmrgsort(self, dst: Tile, *operands: Any, exhausted: bool = False) -> tuple[int, ...] | None:
        """Merge sorted lists of pairs: `tmrgsort(dst, src, block_len)` merges each four blocks of src; `tmrgsort(dst,
        tmp, a, b[, c[, d]])` merges two to four lists. With `exhausted` it stops where a list ends, and returns how
        many pairs of each were consumed.
        """
        frame = _getframe(1)
        if frame is not self._frame:
            self._entered(frame)
        if len(operands) == 2 and not isinstance(operands[1], Tile):
            self._merge_blocks(frame, dst, *operands)
            return None
        return self._merge_lists(frame, dst, operands, exhausted)

    def _merge_blocks(self, frame: FrameType, dst: Tile, src: Tile, block_len: int) -> None:
        self._check_merge(dst, src)
        columns = src.valid[1]
        blocks = 4 * block_len if isinstance(block_len, int) and block_len > 0 and block_len % 64 == 0 else 0
        if not blocks or columns % blocks or not 1 <= columns // blocks <= MOST_REPEATS or dst.valid != src.valid:
            self.context.fail(
                "shape",
                f"tmrgsort: block_len {block_len!r} is a multiple of 64, and dst and src are 1 to {MOST_REPEATS} times "
                f"four such blocks; got {dst.describe()}, {src.describe()}",
            )
        self._row(_MERGE, frame, dst, (src,))
        if dst.data is None:
            return
        per, found = _per_pair(src), []
        for first in range(0, columns, blocks):
            starts = range(first, first + blocks, block_len)
            found.append(self._merged([_pairs(src.data[0, s : s + block_len], per) for s in starts], False)[0])
        dst.data[0] = np.concatenate(found).view(dst.data.dtype)

    def _merge_lists(
        self, frame: FrameType, dst: Tile, operands: tuple[Tile, ...], exhausted: bool
    ) -> tuple[int, ...] | None:
        self._check_merge(dst, *operands)
        tmp, lists = operands[0], operands[1:]
        if not 2 <= len(lists) <= 4:
            self.context.fail("misuse", f"tmrgsort merges two to four lists; got {len(lists)}")
        if tmp.valid[1] < sum(t.shape[1] for t in lists):
            self.context.fail("shape", f"tmrgsort: tmp holds all lists, and {tmp.describe()} does not")
        self._row(_MERGE, frame, tmp, lists[:3])
        self._row(_MERGE, frame, dst, lists[3:])
        if exhausted:
            # the program reads these counts as soon as the vector unit is done
            self.emit_flags(frame, "V", "S")
        if dst.data is None:
            if exhausted:
                self.context.fail("value-needed", "tmrgsort with exhausted: how far it comes depends on the values")
            return None
        per = _per_pair(dst)
        merged, taken = self._merged([_pairs(t.data[0], per) for t in lists], exhausted)
        room = dst.valid[1] // per
        whole = np.frombuffer(np.full(room * PAIR_BYTES, 0xFF, np.uint8), np.uint64).copy()
        whole[: len(merged)] = merged[:room]
        tmp.data[...] = DTYPES[tmp.dtype].poison
        dst.data[0] = whole.view(dst.data.dtype)
        return taken if exhausted else None

    def _merged(self, lists: list[Array], exhausted: bool) -> tuple[Array, tuple[int, ...]]:
        """Pairs of all lists in descending order, and how many of each; equal values in the order of the lists."""
        kind = self._value_type
        values = [pairs.view(kind)[:: PAIR_BYTES // kind.itemsize].astype(np.float64) for pairs in lists]
        for number, value in enumerate(values):
            if (np.diff(value) > 0).any():
                message = f"tmrgsort merges lists in descending order, and list {number} is in no such order"
                self.report("misuse", message, "sort it first: tsort32, or tmrgsort with smaller blocks", "tmrgsort")
        source = np.repeat(np.arange(len(lists)), [len(v) for v in values])
        order = np.lexsort((source, -np.concatenate(values)))
        if exhausted:
            counts = np.stack([np.cumsum(source[order] == k) for k in range(len(lists))])
            ends = [int(np.searchsorted(counts[k], len(values[k]))) for k in range(len(lists))]
            order = order[: min(ends) + 1]
        taken = tuple(int((source[order] == k).sum()) for k in range(len(lists)))
        return np.concatenate(lists)[order], taken

    @refusing
    def _check_merge(self, *tiles: Tile) -> None:
        self._check_tiles("tmrgsort", tiles)
        self._check_pairs("tmrgsort", *tiles)
        self._value_type = DTYPES[tiles[0].dtype].numpy
        if any(t.shape[0] != 1 or t.layout != BY_ROW or t.valid[1] % _per_pair(t) for t in tiles):
            given = ", ".join(t.describe() for t in tiles)
            self.context.fail("shape", f"tmrgsort: tiles of one row of whole pairs; got {given}")

    def _check_pairs(self, name: str, *tiles: Tile) -> None:
        if len({t.dtype for t in tiles}) > 1 or tiles[0].dtype not in ("f32", "f16"):
            given = ", ".join(t.describe() for t in tiles)
            self.context.fail("dtype", f"{name}: values of f32, or of f16, in all tiles; got {given}")

    def _check_tiles(self, name: str, tiles: tuple[Tile, ...]) -> None:
        """All are tiles of this core in UB, row-major or a single line."""
        for tile in tiles:
            if not isinstance(tile, Tile) or tile.core is not self or tile.space != "UB":
                given = tile.describe() if isinstance(tile, Tile) else repr(tile)
                self.context.fail("misuse", f"{name}: a tile in UB of this core is wanted, got {given}")

    def _row(self, op: Any, frame: FrameType, written: Tile | None, read: tuple[Tile, ...]) -> None:
        """Record one row on the vector pipe, made once for each call and set of tiles."""
        numbers = (*(t.number for t in read), NONE, NONE, NONE)[:3]
        target = NONE if written is None else written.number
        key = (op.code, self._code + frame.f_lasti, target, *numbers, len(read))
        row = self._memo.get(key)
        if row is None:
            self._codes.append(frame.f_code)
            row = ROW.pack(op.code, self.lane, _V, self.sites.here(), target, *numbers, 0, 0)
            self._memo[key] = row
        self._append(row)


def _per_pair(tile: Tile) -> int:
    """Elements of a tile that make a pair."""
    return PAIR_BYTES // ITEMSIZE[tile.dtype]


def _pairs(elements: Array, per: int) -> Array:
    """A row of elements as pairs of eight bytes."""
    return np.ascontiguousarray(elements[: len(elements) // per * per]).view(np.uint64)


def _sorted_groups(values: Array, indices: Array) -> tuple[Array, Array]:
    """Each 32 values of a row in descending order, and their indices."""
    value, index = values.copy(), np.ascontiguousarray(indices).view(np.uint32).copy()
    for first in range(0, values.shape[1], GROUP):
        here = slice(first, first + GROUP)
        of_group, at = value[:, here], index[:, here]
        order = np.lexsort((at, -of_group.astype(np.float64)), axis=1)
        value[:, here] = np.take_along_axis(of_group, order, axis=1)
        index[:, here] = np.take_along_axis(at, order, axis=1)
    return value, index


def _store_pairs(target: Array, values: Array, indices: Array) -> None:
    """Values and indices as pairs into the elements of a tile."""
    pairs = np.zeros((*values.shape, PAIR_BYTES), np.uint8)
    size = values.dtype.itemsize
    pairs[..., :size] = np.ascontiguousarray(values)[..., None].view(np.uint8)
    pairs[..., 4:] = indices[..., None].view(np.uint8)
    target[...] = pairs.reshape(len(values), -1).view(values.dtype)
