"""Scatters: elements or rows of a tile to positions in device memory that a tile of indices gives."""

from itertools import pairwise
from sys import _getframe

import numpy as np

from kernbench.common.dtypes import ITEMSIZE, Array, cast
from kernbench.npu.core.scalars import Scalars
from kernbench.npu.core.tiles import Tile
from kernbench.npu.isa.mistakes import refusing
from kernbench.npu.isa.operations import OPERATIONS
from kernbench.npu.isa.units import PIPE_NUMBER, UB, V
from kernbench.npu.recording.record import HEAD, NONE, TAIL
from kernbench.npu.tasks.shadow import runs_of
from kernbench.npu.tasks.tensors import Tensor

__kernbench_internal__ = True
_SCATTER = OPERATIONS["mscatter"]
_V = PIPE_NUMBER[V]
# what happens to an index outside the tensor
OUTSIDE = ("refuse", "skip", "clamp", "wrap")


class Scattering(Scalars):
    """Stores to positions that are known only when the program runs."""

    def mscatter(self, dst: Tensor, src: Tile, indices: Tile, outside: str = "refuse", add: bool = False) -> None:
        """Elements of `src` to elements of `dst` (one axis, indices of the tile's shape), or its rows to rows of `dst`
        (two axes, one index for each row); of several to one position the last one stays, or (`add`) all are added.
        `outside` says what happens to an index outside the tensor: it is refused, skipped, clamped or wrapped.
        """
        frame = _getframe(1)
        if frame is not self._frame:
            self._entered(frame)
        self._new(_SCATTER, frame, (src, indices))
        self._check_scatter(dst, src, indices, outside)
        site = self.sites.here()
        if src.data is None or indices.data is None:
            self.context.fail("value-needed", "mscatter: where it writes is not known; this run carries no data")
        positions, kept = self._positions(dst, indices, outside)
        width = 1 if len(dst.shape) == 1 else dst.shape[1]
        operands = (src.number, indices.number)
        for first, last in _stretches(np.unique(positions)):
            part = Tensor(dst.buffer, dst.offset + first * width, ((last - first) * width,), (1,), dst.binding)
            runs, item = runs_of(part.shape, part.strides), ITEMSIZE[part.dtype]
            head = HEAD.pack(_SCATTER.code, self.lane, _V, site, NONE, *operands)
            pattern = self.tables.pattern(part.shape, part.strides, item)
            self._append(head + TAIL.pack(part.buffer.number, part.offset * item, pattern))
            # the tiles are read once, however many positions are written
            operands = (NONE, NONE)
            if not self._may_write(part, runs, site, add):
                return
        values = src.data.reshape(-1) if width == 1 else src.data
        target = dst.data()
        if add:
            self.context.recording.observers.add(_SCATTER.name)
            # as the memory adds: one after the other, each sum rounded to the type
            for position, value in zip(positions, values[kept], strict=True):
                target[position] = cast(np.asarray(target[position] + value), dst.dtype)
        else:
            target[positions] = values[kept]

    @refusing
    def _check_scatter(self, dst: Tensor, src: Tile, indices: Tile, outside: str) -> None:
        context = self.context
        if self.context.chip.isa.cross_core != "single":
            context.fail("misuse", f"mscatter: chip {context.chip.name} has no such store", "launch on a5")
        if not isinstance(dst, Tensor) or outside not in OUTSIDE:
            context.fail("misuse", f"mscatter: a tensor is wanted, and outside= one of {', '.join(OUTSIDE)}")
        given = f"{dst!r}, {src.describe()}, {indices.describe()}"
        if src.space != UB or indices.space != UB:
            context.fail("misuse", f"mscatter: both tiles lie in UB; got {given}")
        if src.dtype != dst.dtype or indices.dtype != "i32":
            context.fail("dtype", f"mscatter: tile and tensor of one type, indices of i32; got {given}")
        rows, columns = src.valid
        by_element = len(dst.shape) == 1 and dst.strides == (1,) and indices.valid == (rows, columns)
        by_row = len(dst.shape) == 2 and dst.shape[1] == columns and dst.strides == (columns, 1)
        if not by_element and not (by_row and indices.valid in ((1, rows), (rows, 1))):
            rule = "a tensor of one axis and indices of the tile's shape, or rows as the tile's and one index for each"
            context.fail("shape", f"mscatter: {rule}; got {given}")

    def _positions(self, dst: Tensor, indices: Tile, outside: str) -> tuple[Array, Array]:
        """The position of each element or row, and which of them are stored."""
        given = np.asarray(indices.data).reshape(-1).astype(np.int64)
        inside = (given >= 0) & (given < dst.shape[0])
        everything = np.arange(given.size)
        if outside == "skip":
            return given[inside], everything[inside]
        if outside == "wrap":
            return given % dst.shape[0], everything
        if outside == "refuse" and not inside.all():
            first = int(given[~inside][0])
            self.report(
                "out-of-bounds",
                f"mscatter: {int((~inside).sum())} of {given.size} indices lie outside {dst.buffer.describe()}, the "
                f"first is {first}; there are {dst.shape[0]} positions",
                "check the indices, or say what becomes of those outside: skip, clamp or wrap",
                dst.buffer.name,
            )
            return given[inside], everything[inside]
        return np.clip(given, 0, dst.shape[0] - 1), everything


def _stretches(positions: Array) -> list[tuple[int, int]]:
    """Runs of consecutive positions, each with its end."""
    cuts = [0, *(np.flatnonzero(np.diff(positions) != 1) + 1).tolist(), len(positions)]
    return [(int(positions[a]), int(positions[b - 1]) + 1) for a, b in pairwise(cuts) if b > a]
