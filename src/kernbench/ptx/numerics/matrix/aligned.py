"""Products of f16, bf16 or tf32 added to f32, from registers to registers: as `products`, warp by warp.

A warp's operands are transposed so that the innermost loops run over the rows of the result. Most launches have few
warps, so that a single loop from the registers of an instruction to its result is fastest.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.native_loops import RowLoop
from kernbench.ptx.numerics.matrix.layout import LANES, Layout
from kernbench.ptx.numerics.matrix.products import LEAST_TOP, exponent_of, least_exponents
from kernbench.ptx.numerics.rows.scalar import (
    Bits,
    Real,
    bits_of_float32,
    bits_of_float64,
    compiled,
    float32_of,
    float64_of,
)

Rows = Sequence[Array]
Kinds = tuple[str, str, str, str]
_F16, _BF16, _TF32, _F32 = range(4)
_NUMBERS = {"f16": _F16, "bf16": _BF16, "tf32": _TF32}
# work arrays: values and exponents, each of A column by column, then B and C; and where they end
Room = tuple[Array, Array, int]


@compiled
def _half(bits: Bits) -> Real:
    """The value of an f16."""
    body = np.uint32(bits & np.uint32(0x7FFF))
    sign = np.uint32(bits & np.uint32(0x8000)) << np.uint32(16)
    value = float32_of(np.uint32(body << np.uint32(13))) * np.float32(2.0**112)
    special = np.uint32(0x7F80_0000) if body >= np.uint32(0x7C00) else np.uint32(0)
    return float32_of(np.uint32(bits_of_float32(value) | special | sign))


@compiled
def _widen(row: Array, first: int, half: int, kind: int, least: int, found: Array, exponents: Array) -> None:
    """The values in a register of a warp, or in half of it, and their exponents."""
    for lane in range(np.uint64(LANES)):
        word = np.uint32(row[first + lane])
        if kind == _F16:
            value = np.float64(_half((word >> np.uint32(16 * half)) & np.uint32(0xFFFF)))
        elif kind == _BF16:
            value = np.float64(float32_of(np.uint32((word >> np.uint32(16 * half)) << np.uint32(16))))
        elif kind == _TF32:
            value = np.float64(float32_of(np.uint32(word & np.uint32(0xFFFF_E000))))
        else:
            value = np.float64(float32_of(word))
        found[lane] = value
        exponents[lane] = exponent_of(value, least)


@compiled
def _take(rows: Rows, first: int, indices: Array, kind: int, least: int, room: Room) -> None:
    """The elements in a warp's registers, and their exponents, each at its index."""
    values, exponents, behind = room
    found, those = values[behind:], exponents[behind:]
    per = 1 if kind >= _TF32 else 2
    for number in range(len(rows)):
        row = rows[number]
        for half in range(per):
            _widen(row, np.uint64(first), half, kind, least, found, those)
            for lane in range(LANES):
                index = np.uint64(indices[number * per + half, lane])
                values[index] = found[lane]
                exponents[index] = those[lane]


@compiled
def _raise(top: Array, exponents: Array, by: int) -> None:
    for i in range(np.uint64(top.size)):
        exponent = np.int32(exponents[i] + by)
        top[i] = exponent if exponent > top[i] else top[i]


@compiled
def _accumulate(total: Array, column: Array, factor: Real, unit: Array) -> None:
    for i in range(np.uint64(total.size)):
        total[i] += np.trunc(column[i] * factor * unit[i])


@compiled
def _column(b: int, c: int, k: int, room: Room, top: Array, unit: Array, total: Array) -> None:
    """Write the result's column at `c` over that of C, from the column of B at `b`.

    These are exact sums of terms truncated to multiples of 2**(e - 25).
    """
    values, exponents, _ = room
    m = top.size
    for i in range(np.uint64(m)):
        top[i] = exponents[c + i]
    for step in range(k):
        _raise(top, exponents[step * m :], exponents[b + step])
    for i in range(np.uint64(m)):
        kept = 25 - max(top[i], LEAST_TOP)
        unit[i] = float64_of(np.uint64(max(kept, -1000) + 1023) << np.uint64(52))
        total[i] = np.trunc(values[c + i] * unit[i])
    for step in range(k):
        _accumulate(total, values[step * m :], values[b + step], unit)
    for i in range(np.uint64(m)):
        # divide by a power of two
        values[c + i] = total[i] * float64_of(np.uint64(2046 << 52) - bits_of_float64(unit[i]))


@compiled
def _cut(value: np.float64) -> Bits:
    """A float64 truncated to the bits of an f32; a zero is +0, a NaN the canonical one."""
    low = np.uint64((1 << 29) - 1)
    found = np.uint32(0x7FFF_FFFF)
    if value == value:
        if abs(value) < 2.0**-126:
            kept = np.trunc(value * 2.0**149)
            sign = np.uint32(0x8000_0000) if kept < 0.0 else np.uint32(0)
            found = np.uint32(np.uint32(np.int64(abs(kept))) | sign)
        else:
            found = bits_of_float32(np.float32(float64_of(bits_of_float64(value) & ~low)))
    return found


def _multiply_words(
    rows: tuple[Rows, Rows, Rows, Rows],
    indices: tuple[Array, Array, Array, Array],
    sizes: tuple[int, int, int],
    kind: int,
    least: tuple[int, int],
    room: Room,
) -> None:
    """D = A B + C of all warps, whose registers are `rows`: [m, n] of sums over k."""
    of_a, of_b, of_c, results = rows
    in_a, in_b, in_c, in_d = indices
    (m, n, k), (values, exponents, _) = sizes, room
    # work space after the matrices: one number for each row
    top, unit, total = exponents[exponents.size - m :], values[values.size - 2 * m :], values[values.size - m :]
    b, c = m * k, m * k + k * n
    for warp in range(of_c[0].size >> 5):
        first = warp * LANES
        _take(of_a, first, in_a, kind, least[0], room)
        _take(of_b, first, in_b, kind, least[0], room)
        _take(of_c, first, in_c, _F32, least[1], room)
        for j in range(n):
            _column(b + j * k, c + j * m, k, room, top, unit, total)
        for number in range(len(results)):
            row = results[number]
            for lane in range(LANES):
                row[first + lane] = _cut(values[in_d[number, lane]])


multiply_words = RowLoop(_multiply_words, {"error_model": "numpy"})


class Layouts(NamedTuple):
    """How registers hold A, B, C and D."""

    a: Layout
    b: Layout
    c: Layout
    d: Layout


class _Plan(NamedTuple):
    """Indices of elements by element and lane, and the total number of elements."""

    indices: tuple[Array, Array, Array, Array]
    sizes: tuple[int, int, int]
    numbers: int


@cache
def _plan(of: Callable[[str, Kinds], Layouts], shape: str, kinds: Kinds) -> _Plan:
    layouts = of(shape, kinds)
    (m, k), n = layouts.a.shape, layouts.b.shape[1]
    b, c, rest = m * k, m * k + k * n, m * k + k * n + m * n

    def indices(layout: Layout, begin: int, pitch: int) -> Array:
        found = begin + layout.columns * pitch + layout.rows
        return np.ascontiguousarray(found.T)

    def counted(layout: Layout, begin: int, pitch: int) -> Array:
        """The index of each copy of an element: the first copy's position, and an unused one for others."""
        found = indices(layout, begin, pitch).T.ravel()
        spare = np.ones(found.size, bool)
        spare[layout.gather] = False
        found[spare] = rest
        return np.ascontiguousarray(found.reshape(LANES, -1).T)

    taken = counted(layouts.a, 0, m), counted(layouts.b, b, k), counted(layouts.c, c, m)
    return _Plan((*taken, indices(layouts.d, c, m)), (m, n, k), rest + 1)


def is_aligned(kinds: Kinds) -> bool:
    """Whether this module computes products of these types, of D, A, B and C."""
    return kinds[1] == kinds[2] and kinds[1] in _NUMBERS and kinds[0] == kinds[3] == "f32"


def multiply_rows(of: Callable[[str, Kinds], Layouts], shape: str, kinds: Kinds, rows: Sequence[Rows]) -> None:
    """D = A B + C in registers with the layouts that `of` gives for a shape; `rows` are of A, B, C and D."""
    plan = _plan(of, shape, kinds)
    # after the elements: a register of a warp, and two numbers for each row of the result
    size = plan.numbers + LANES + 2 * plan.sizes[0]
    room = np.empty(size), np.empty(size, np.int32), plan.numbers
    given = tuple(
        tuple(row if row.flags.c_contiguous else np.ascontiguousarray(row) for row in some) for some in rows[:3]
    )
    multiply_words(
        (*given, tuple(rows[3])),
        plan.indices,
        plan.sizes,
        _NUMBERS[kinds[1]],
        least_exponents(kinds[1], kinds[3]),
        room,
    )
