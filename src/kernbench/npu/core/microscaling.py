"""Products of scaled blocks (MX): operands of 8 or 4 bits, and a scale for each 32 elements along k.

A scale is a byte, the exponent of a power of two (e8m0: 2 ** (byte - 127), 255 is NaN), in a tile of i8: [m, k / 32]
for the left operand, in L0A_MX, and [k / 32, n] for the right one, in L0B_MX. Operands of 8 bits are tiles of f8e4m3 or
f8e5m2. Those of 4 bits are tiles of i8 that hold two of them, the first in the low half, of the type that is named:
f4e2m1 or f4e1m2. Two are next to each other along k, or, of the right operand, along n: its shape says which.
"""

from sys import _getframe
from typing import Any

import numpy as np

from kernbench.common.dtypes import F32, Array
from kernbench.npu.core.rearranging import Rearranging
from kernbench.npu.core.tiles import Tile
from kernbench.npu.isa.mistakes import refusing
from kernbench.npu.isa.operations import OPERATIONS, Operation
from kernbench.npu.isa.units import L0A, L0A_MX, L0B, L0B_MX, L0C, L1, PIPE_NUMBER, M
from kernbench.npu.recording.record import NONE, ROW

__kernbench_internal__ = True
GROUP, STEP = 32, 64
EIGHT = ("f8e4m3", "f8e5m2")
FOUR: dict[str, Array] = {
    "f4e2m1": np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], F32),
    "f4e1m2": np.array([0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5], F32) / 2,
}
_M = PIPE_NUMBER[M]


class Scaled(Rearranging):
    """The three products of scaled blocks."""

    def tmatmul_mx(
        self,
        dst: Tile,
        a: Tile,
        a_scale: Tile,
        b: Tile,
        b_scale: Tile,
        a_type: str | None = None,
        b_type: str | None = None,
    ) -> None:
        """dst = a @ b of scaled blocks."""
        self._mx(OPERATIONS["tmatmul_mx"], (dst, a, a_scale, b, b_scale), (a_type, b_type))

    def tmatmul_mx_acc(
        self,
        dst: Tile,
        a: Tile,
        a_scale: Tile,
        b: Tile,
        b_scale: Tile,
        a_type: str | None = None,
        b_type: str | None = None,
    ) -> None:
        """dst += a @ b of scaled blocks."""
        self._mx(OPERATIONS["tmatmul_mx_acc"], (dst, a, a_scale, b, b_scale, dst), (a_type, b_type))

    def tmatmul_mx_bias(
        self,
        dst: Tile,
        a: Tile,
        a_scale: Tile,
        b: Tile,
        b_scale: Tile,
        bias: Tile,
        a_type: str | None = None,
        b_type: str | None = None,
    ) -> None:
        """dst = a @ b of scaled blocks + bias, a row vector in L1."""
        self._mx(OPERATIONS["tmatmul_mx_bias"], (dst, a, a_scale, b, b_scale, bias), (a_type, b_type))

    def _mx(self, op: Operation, tiles: tuple[Tile, ...], types: tuple[str | None, str | None]) -> None:
        frame = _getframe(2)
        if frame is not self._frame:
            self._entered(frame)
        self._check_mx(op.name, tiles, types)
        dst, a, a_scale, b, b_scale, *more = tiles
        site = self.sites.here(2)
        # a row has columns for three source tiles: the others are recorded in a row before it that takes no time
        others = (b_scale.number, *(t.number for t in more), NONE)[:2]
        self._append(ROW.pack(op.code, self.lane, _M, site, NONE, *others, NONE, 0, 0))
        rest = (dst.number, a.number, b.number, a_scale.number)
        self._append(ROW.pack(op.code, self.lane, _M, site, *rest, 0, 0))
        if dst.data is not None:
            left = _values(a.data, types[0], 1) * _scales(a_scale.data, 1)
            along = 0 if b.valid[1] == dst.valid[1] else 1
            right = _values(b.data, types[1], along)[:, : dst.valid[1]] * _scales(b_scale.data, 0)
            product = np.matmul(left, right)
            dst.data[...] = product + more[0].data if more else product

    @refusing
    def _check_mx(self, name: str, tiles: tuple[Tile, ...], types: tuple[str | None, str | None]) -> None:
        chip, context = self.context.chip, self.context
        if not chip.spaces.l0a_mx or not chip.spaces.l0b_mx:
            context.fail("misuse", f"{name}: chip {chip.name} has no products of scaled blocks", "launch on a5")
        for tile in tiles:
            if not isinstance(tile, Tile) or tile.core is not self:
                context.fail("misuse", f"{name}: a tile of this core is wanted, got {tile!r}")
        dst, a, a_scale, b, b_scale, *more = tiles
        given = ", ".join(t.describe() for t in tiles)
        if [t.space for t in tiles[:5]] != [L0C, L0A, L0A_MX, L0B, L0B_MX]:
            where = "dst in L0C, a in L0A, its scales in L0A_MX, b in L0B, its scales in L0B_MX"
            context.fail("misuse", f"{name}: {where}; got {given}")
        widths = [_per_byte(name, tile, kind, context) for tile, kind in ((a, types[0]), (b, types[1]))]
        if widths[0] != widths[1] or dst.dtype != "f32" or {a_scale.dtype, b_scale.dtype} != {"i8"}:
            rule = "operands both of 8 or both of 4 bits, scales of i8, dst of f32"
            context.fail("dtype", f"{name}: {rule}; got {given}")
        m, k, n = a.valid[0], a.valid[1] * widths[0], dst.valid[1]
        scales = a_scale.valid == (m, k // GROUP) and b_scale.valid == (k // GROUP, n)
        fits = b.valid in ((k // widths[1], n), (k, -(-n // widths[1])))
        if not fits or dst.valid[0] != m or not scales or k % STEP or not k:
            rule = f"[m, k] @ [k, n] gives [m, n], scales [m, k / {GROUP}] and [k / {GROUP}, n], k a multiple of {STEP}"
            context.fail("shape", f"{name}: {rule}; got {given}")
        if more and more[0] is not dst and (more[0].valid, more[0].dtype, more[0].space) != ((1, n), "f32", L1):
            context.fail("shape", f"{name}: bias is a row of f32 in L1; got {given}")


def _per_byte(name: str, tile: Tile, kind: str | None, context: Any) -> int:
    """Elements in one element of the tile: 1 or 2."""
    if tile.dtype == "i8" and kind in FOUR:
        return 2
    if tile.dtype in EIGHT and kind is None:
        return 1
    operand = f"{tile.describe()} as {kind or tile.dtype}"
    context.fail(
        "dtype",
        f"{name}: an operand is f8e4m3 or f8e5m2, or i8 with a_type= and b_type= of {' or '.join(FOUR)}; got {operand}",
    )
    return 0


def _values(data: Array, kind: str | None, axis: int) -> Array:
    """Elements of an operand as f32; two of 4 bits in each byte along `axis`."""
    if kind is None:
        return data.astype(F32)
    table = np.concatenate([FOUR[kind], -FOUR[kind]])
    byte = data.view(np.uint8)
    both = np.stack([table[byte & 15], table[byte >> 4]], axis=axis + 1)
    shape = list(data.shape)
    shape[axis] *= 2
    return both.reshape(shape)


def _scales(data: Array, axis: int) -> Array:
    """A power of two for each element along `axis`."""
    exponent = np.ascontiguousarray(data).view(np.uint8).astype(np.int32)
    scale = np.where(exponent == 255, np.float32(np.nan), np.ldexp(np.float32(1), exponent - 127))
    return np.repeat(scale.astype(F32), GROUP, axis=axis)
