"""mma.sync of 8-, 6- and 4-bit floats, plain or with a scale for each block of a row of A and a column of B.

Elements of m16n8k32 take a byte each: 6-bit ones in its lower bits, e2m1 in bits 2 to 5; m16n8k64 packs them. Scales of
A are in one pair of each four lanes, the first for row lane / 4, the second for the row eight below; those of B in one
lane of four, for column lane / 4. Sums are made in float64 and rounded once; this was not compared with a GPU.
"""

from collections.abc import Sequence

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.numerics.matrix.fragments import from_fragments, to_fragments
from kernbench.ptx.numerics.matrix.layout import LANES, accumulator, operand_a, operand_b
from kernbench.ptx.numerics.matrix.products import values

Kinds = tuple[str, str, str, str]


def scale_values(bits: Array, kind: str) -> Array:
    """Scales as float32: powers of two, or unsigned e4m3."""
    if kind == "ue8m0":
        exponents = bits.astype(np.int32) - 127
        return np.where(bits == 255, np.float32(np.nan), np.ldexp(np.float32(1), exponents)).astype(np.float32)
    return values(bits & np.uint8(0x7F), "e4m3").astype(np.float32)


def _operands(shape: str, kinds: Kinds, a: Sequence[Array], b: Sequence[Array]) -> tuple[Array, Array]:
    """A [warps, m, k] and B [warps, k, n] as float64."""
    if shape.endswith("k64"):
        left, right = from_fragments(a, operand_a(shape, "u4"), "u4"), from_fragments(b, operand_b(shape, "u4"), "u4")
        return values(left, "e2m1"), values(right, "e2m1")
    left = from_fragments(a, operand_a(shape, kinds[1]), kinds[1])
    right = from_fragments(b, operand_b(shape, kinds[2]), kinds[2])
    return _narrow(left, kinds[1]), _narrow(right, kinds[2])


def _narrow(octets: Array, kind: str) -> Array:
    return values(octets >> np.uint8(2) if kind == "e2m1" else octets, kind)


def _finish(total: Array, shape: str, kind: str, out: Sequence[Array]) -> None:
    with np.errstate(over="ignore"):
        result = total.astype(np.float16).view(np.uint16) if kind == "f16" else total.astype(np.float32).view(np.uint32)
    to_fragments(result, accumulator(shape), out)


def mma_narrow(
    shape: str, kinds: Kinds, a: Sequence[Array], b: Sequence[Array], c: Sequence[Array], out: Sequence[Array]
) -> None:
    """mma.kind::f8f6f4."""
    left, right = _operands(shape, kinds, a, b)
    addend = values(from_fragments(c, accumulator(shape), kinds[3]), kinds[3])
    _finish(np.matmul(left, right) + addend, shape, kinds[0], out)


def _scales(words: Array, byte: Array, lanes: Array, count: int, kind: str) -> Array:
    """Scales [warps, rows, count]: bytes from `byte` on of the words in chosen lanes [warps, rows]."""
    chosen = np.take_along_axis(np.asarray(words).reshape(-1, LANES), lanes, axis=1).astype(np.uint32)
    shifts: Array = 8 * (byte[:, None].astype(np.uint32) + np.arange(count, dtype=np.uint32))
    octets = (chosen[:, :, None] >> shifts[:, None, :]) & np.uint32(0xFF)
    return scale_values(octets.astype(np.uint8), kind).astype(np.float64)


def _of_warp(row: Array) -> Array:
    """A warp-uniform value, from the first lane of each warp."""
    return np.asarray(row).reshape(-1, LANES)[:, 0].astype(np.int64)


def mma_scaled(
    shape: str,
    kinds: Kinds,
    count: int,
    scale_kind: str,
    a: Sequence[Array],
    b: Sequence[Array],
    c: Sequence[Array],
    scales_a: tuple[Array, Array, Array],
    scales_b: tuple[Array, Array, Array],
    out: Sequence[Array],
) -> None:
    """mma.block_scale: `count` scales for each row of A and column of B, given as (words, byte, lane in four) rows."""
    left, right = _operands(shape, kinds, a, b)
    group = 4 * np.arange(8)
    pair, single = 2 * (_of_warp(scales_a[2]) & 1), _of_warp(scales_b[2]) & 3
    first = group[None, :] + pair[:, None]
    rows = np.concatenate([first, first + 1], axis=1)
    of_a = _scales(scales_a[0], _of_warp(scales_a[1]) & 3, rows, count, scale_kind)
    of_b = _scales(scales_b[0], _of_warp(scales_b[1]) & 3, group[None, :] + single[:, None], count, scale_kind)
    block = left.shape[2] // count
    left = left * np.repeat(of_a, block, axis=2)
    right = right * np.repeat(of_b, block, axis=2).swapaxes(1, 2)
    addend = values(from_fragments(c, accumulator(shape), kinds[3]), kinds[3])
    _finish(np.matmul(left, right) + addend, shape, kinds[0], out)
