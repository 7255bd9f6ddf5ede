"""wgmma with an H200's bits, for which `wide` uses float32 sums of a matrix library.

All products of an instruction and the accumulator are added at once. Each term is truncated to a multiple of
2**(e - 25), where e is the largest exponent among the terms, and the sum is truncated to f32 (rounded to f16). With
8-bit floats terms are truncated at 2**(e - 13), and the sum to 13 bits after the leading one. The exponent of a product
is the sum of its factors' exponents; subnormals have the least exponent of their type; e is never below -133. Verified
with 960 tiles on an H200 designed to show it: one large among small terms, cancellation, exponents far apart.
"""

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.numerics.matrix.products import LEAST_TOP, Room, exponent_of, finish, quick_loop
from kernbench.ptx.numerics.rows.scalar import bits_of_float64, compiled, float64_of

# bits that terms keep below the largest exponent
_KEPT, _KEPT_OF_SMALL = 25, 13
_SMALL = ("e4m3", "e5m2")
_LEAST = {"f16": -14, "bf16": -126, "tf32": -126, "e4m3": -6, "e5m2": -14, "f32": -126}


def exact_sums(a: Array, b: Array, c: Array | None, kinds: tuple[str, str, str]) -> Array:
    """Bits of the accumulators [tiles, m, n] after an instruction: float32 a [tiles, m, k], b [tiles, n, k].

    `c` are their bits before it, None for zeros. `kinds` are the types of D, A and B.
    """
    to = kinds[0]
    addend = np.zeros((len(a), a.shape[1], b.shape[1])) if c is None else _values(c, to)
    small = kinds[1] in _SMALL
    out = np.empty(addend.shape)
    kept = _KEPT_OF_SMALL if small else _KEPT
    k, n = a.shape[2], b.shape[1]
    room = (np.empty((k, n)), np.empty((k, n), np.int32), np.empty(n, np.int32), np.empty(n), np.empty(n))
    least = (_LEAST[kinds[1]], _LEAST[kinds[2]], _LEAST[to])
    _aligned(np.ascontiguousarray(a, np.float32), np.ascontiguousarray(b, np.float32), addend, kept, least, room, out)
    if small and to == "f32":
        _cut(out.reshape(-1))
    return finish(out, to)


def _values(bits: Array, kind: str) -> Array:
    held: Array = bits.astype(np.uint16).view(np.float16) if kind == "f16" else bits.view(np.float32)
    return held.astype(np.float64)


@compiled
def _raise(top: Array, exponent: int, others: Array) -> None:
    for j in range(top.size):
        sum_ = np.int32(exponent + others[j])
        top[j] = sum_ if sum_ > top[j] else top[j]


@compiled
def _accumulate(total: Array, x: np.float64, y: Array, unit: Array) -> None:
    for j in range(total.size):
        total[j] += np.trunc(x * y[j] * unit[j])


@quick_loop
def _aligned(a: Array, b: Array, c: Array, kept: int, least: tuple[int, int, int], room: Room, out: Array) -> None:
    """The exact sums of terms truncated to 2**(e - kept), row by row of the result."""
    least_a, least_b, least_c = least
    y, ey, top, unit, total = room
    tiles, m, k = a.shape
    n = b.shape[1]
    for tile in range(tiles):
        for step in range(k):
            for j in range(n):
                y[step, j] = b[tile, j, step]
                ey[step, j] = exponent_of(y[step, j], np.int32(least_b))
        for i in range(m):
            for j in range(n):
                top[j] = exponent_of(c[tile, i, j], np.int32(least_c))
            for step in range(k):
                _raise(top, exponent_of(np.float64(a[tile, i, step]), np.int32(least_a)), ey[step])
            for j in range(n):
                bits = kept - max(top[j], LEAST_TOP)
                unit[j] = float64_of(np.uint64(max(bits, -1000) + 1023) << np.uint64(52))
                total[j] = np.trunc(c[tile, i, j] * unit[j])
            for step in range(k):
                _accumulate(total, np.float64(a[tile, i, step]), y[step], unit)
            for j in range(n):
                out[tile, i, j] = total[j] / unit[j]


@quick_loop
def _cut(sums: Array) -> None:
    """Truncate values to 13 bits after the leading one."""
    low = np.uint64((1 << (52 - 13)) - 1)
    for i in range(sums.size):
        if sums[i] == sums[i]:
            sums[i] = float64_of(bits_of_float64(sums[i]) & ~low)
