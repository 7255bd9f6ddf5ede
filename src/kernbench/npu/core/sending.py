"""Moves into the memory of another core of the cluster: the cube's results into a vector core's UB, a vector core's
tiles into the cube's L1. Flags between cores order later reads of them there.
"""

from sys import _getframe

import numpy as np

from kernbench.common.dtypes import cast
from kernbench.npu.core.scattering import Scattering
from kernbench.npu.core.tiles import Tile
from kernbench.npu.isa.mistakes import refusing
from kernbench.npu.isa.operations import OPERATIONS
from kernbench.npu.isa.units import L0C, LANES, PIPE_NUMBER, REACHED, SENDS
from kernbench.npu.recording.record import NONE, ROW

__kernbench_internal__ = True
_SEND, _SET = OPERATIONS["tsend"], OPERATIONS["set_value"]
_S = PIPE_NUMBER["S"]


class Sending(Scattering):
    """Moves to other cores, and single elements of tiles."""

    def tsend(self, dst: Tile, src: Tile, row: int = 0, column: int = 0) -> None:
        """The part of `src` that begins at (row, column) into `dst`, a tile of another core: on the AIC of "AIV0.UB"
        or "AIV1.UB", where it is rounded to the type of `dst`; on an AIV of "AIC.L1".
        """
        frame = _getframe(1)
        if frame is not self._frame:
            self._entered(frame)
        pipe = self._check_send(dst, src, row, column)
        rows, columns = dst.valid
        site, moved = self.sites.here(), (dst.number, src.rows(row, rows).number)
        self._append(ROW.pack(_SEND.code, self.lane, PIPE_NUMBER[pipe], site, *moved, NONE, NONE, 0, 0))
        if src.data is None:
            return
        lane, memory = REACHED[self.lane][dst.space]
        there = self.mates[lane].tile(memory, dst.shape, dst.dtype, dst.offset, dst.valid, dst.layout, dst.name)
        there.data[...] = cast(src.data[row : row + rows, column : column + columns], dst.dtype)

    @refusing
    def _check_send(self, dst: Tile, src: Tile, row: int, column: int) -> str:
        context = self.context
        for tile in (dst, src):
            if not isinstance(tile, Tile) or tile.core is not self:
                context.fail("misuse", f"tsend: a tile that this core made is wanted, got {tile!r}")
        owner, memory = REACHED[self.lane].get(dst.space, (NONE, ""))
        if (src.space, memory) not in SENDS or owner not in self.mates:
            ways = "L0C to AIV0.UB or AIV1.UB, UB to AIC.L1"
            context.fail("misuse", f"tsend on {LANES[self.lane]}: {ways}; got {src.describe()} to {dst.describe()}")
        if src.space != L0C and src.dtype != dst.dtype:
            given = f"{src.describe()} and {dst.describe()}"
            context.fail("dtype", f"tsend: {given} differ in type", "convert with tcvt first")
        rows, columns = dst.valid
        if not (0 <= row <= row + rows <= src.valid[0] and 0 <= column <= column + columns <= src.valid[1]):
            part = f"{rows}x{columns} elements from ({row}, {column})"
            context.fail("out-of-bounds", f"tsend: {part} of {src.describe()}")
        return SENDS[src.space, memory][0]

    def set_value(self, tile: Tile, row: int, column: int, value: float) -> None:
        """Set one element of a tile by the scalar unit: readers need a flag from S."""
        frame = _getframe(1)
        if frame is not self._frame:
            self._entered(frame)
        self._new(_SET, frame, (tile,))
        if not (0 <= row < tile.valid[0] and 0 <= column < tile.valid[1]):
            self.context.fail("out-of-bounds", f"set_value: element ({row}, {column}) of {tile.describe()}")
        element = tile.element(row, column)
        self._append(ROW.pack(_SET.code, self.lane, _S, self.sites.here(), element.number, NONE, NONE, NONE, 0, 0))
        if element.data is not None:
            element.data[...] = cast(np.full((1, 1), value), tile.dtype)
