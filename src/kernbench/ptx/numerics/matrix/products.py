"""Matrix products with the tensor core's bits, as observed on an H200.

With an f32 or f16 accumulator all products of an instruction and C are added at once: each term is truncated to a
multiple of 2**(e - 25), where e is the largest exponent among the terms, the terms are added exactly, and the sum is
truncated to f32 (rounded to nearest for f16). Exponents of products are sums of the operands', subnormals have the
least exponent; e is never below -133. f64 is a chain of fma; integers are exact, modulo 2**32 or saturated.
"""

from collections.abc import Callable
from functools import cache

import ml_dtypes
import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.errors import MisuseError, unknown
from kernbench.common.native_loops import numba_loop
from kernbench.ptx.numerics.floats.half import float64_to_half
from kernbench.ptx.numerics.rows.loops import Operation, row_kernel
from kernbench.ptx.numerics.rows.scalar import bits_of_float32, bits_of_float64, compiled, float64_of, fma64

Kinds = tuple[str, str, str, str]
# work arrays of a loop, which allocates none
Room = tuple[Array, ...]
_SMALL = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
}
# exponent of subnormals of a type
_LEAST_EXPONENT = {"f16": -14, "bf16": -126, "tf32": -126}
# least exponent e for the truncation of terms
LEAST_TOP = -133


def values(bits: Array, kind: str) -> Array:
    """The elements as float64."""
    if kind == "f16":
        return bits.view(np.float16).astype(np.float64)
    if kind == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32).astype(np.float64)
    if kind in ("tf32", "f32"):
        kept = bits & np.uint32(0xFFFF_E000) if kind == "tf32" else bits
        return kept.view(np.float32).astype(np.float64)
    if kind == "f64":
        return bits.view(np.float64)
    if kind in _SMALL:
        mask = {"e4m3": 0xFF, "e5m2": 0xFF, "e2m1": 0x0F}.get(kind, 0x3F)
        small: Array = (bits & np.uint8(mask)).view(_SMALL[kind])
        return small.astype(np.float64)
    return _integers(bits, kind).astype(np.float64)


def _integers(bits: Array, kind: str) -> Array:
    if kind in ("u8", "u4", "b1"):
        return bits
    return bits.view(np.int8) if kind == "s8" else (((bits ^ np.uint8(8)).astype(np.int8)) - np.int8(8))


# warps per block, so that the innermost loops run over warps and stay in the cache
_BLOCK = 64


def quick_loop(function: Callable[..., None]) -> Callable[..., None]:
    """A loop compiled by numba, in which a division by zero does not raise."""
    return numba_loop(function, error_model="numpy")


@compiled
def exponent_of(value: np.float64, least: np.int32) -> np.int32:
    """Exponent of a value, at least `least`; infinities and NaN have 1024, zero has one below all others."""
    field = np.int32(bits_of_float64(value) >> np.uint64(52)) & np.int32(0x7FF)
    return np.int32(-10000) if field == 0 else np.int32(max(field - np.int32(1023), least))


@compiled
def _turn(matrices: Array, start: int, least: int, turned: Array, exponents: Array) -> None:
    """A block of [warps, rows, columns] transposed to [rows, columns, warps], padded with zeros, and the exponents."""
    count = min(_BLOCK, matrices.shape[0] - start)
    for i in range(matrices.shape[1]):
        for j in range(matrices.shape[2]):
            for w in range(_BLOCK):
                value = matrices[start + w, i, j] if w < count else 0.0
                turned[i, j, w] = value
                exponents[i, j, w] = exponent_of(value, least)


@compiled
def _raise(top: Array, x: Array, y: Array) -> None:
    for w in range(top.size):
        exponent = np.int32(x[w] + y[w])
        top[w] = exponent if exponent > top[w] else top[w]


@compiled
def _accumulate(total: Array, x: Array, y: Array, unit: Array) -> None:
    for w in range(total.size):
        total[w] += np.trunc(x[w] * y[w] * unit[w])


@quick_loop
def _aligned_sums(a: Array, b: Array, c: Array, least: int, c_least: int, room: Room, out: Array) -> None:
    """out = the exact sum of terms truncated to 2**(e - 25), as float64 [warps, m, n]."""
    x, ex, y, ey, z, ez, unit, total = room
    warps, m, k = a.shape
    n = b.shape[2]
    for start in range(0, warps, _BLOCK):
        _turn(a, start, least, x, ex)
        _turn(b, start, least, y, ey)
        _turn(c, start, c_least, z, ez)
        for i in range(m):
            for j in range(n):
                top = ez[i, j]
                for step in range(k):
                    _raise(top, ex[i, step], ey[step, j])
                for w in range(_BLOCK):
                    kept = 25 - max(top[w], LEAST_TOP)
                    unit[w] = float64_of(np.uint64(max(kept, -1000) + 1023) << np.uint64(52))
                    total[w] = np.trunc(z[i, j, w] * unit[w])
                for step in range(k):
                    _accumulate(total, x[i, step], y[step, j], unit)
                for w in range(min(_BLOCK, warps - start)):
                    out[start + w, i, j] = total[w] / unit[w]


@quick_loop
def _cut_to_f32(sums: Array, out: Array) -> None:
    """float64 truncated to f32 bits; a zero is +0, a NaN the canonical one."""
    low = np.uint64((1 << 29) - 1)
    for i in range(sums.size):
        value = sums[i]
        if value != value:
            out[i] = np.uint32(0x7FFF_FFFF)
        elif abs(value) < 2.0**-126:
            kept = np.trunc(value * 2.0**149)
            out[i] = np.uint32(np.int64(abs(kept))) | (np.uint32(0x8000_0000) if kept < 0.0 else np.uint32(0))
        else:
            out[i] = bits_of_float32(np.float32(float64_of(bits_of_float64(value) & ~low)))


@cache
def _to_f16() -> Operation:
    convert = float64_to_half("f16")
    return row_kernel("mma_to_f16", compiled(lambda value: convert(value + 0.0)), 1)


@quick_loop
def _double(a: Array, b: Array, c: Array, out: Array) -> None:
    for w in range(a.shape[0]):
        for i in range(a.shape[1]):
            for j in range(b.shape[2]):
                total = c[w, i, j]
                for step in range(a.shape[2]):
                    total = fma64(a[w, i, step], b[w, step, j], total)
                out[w, i, j] = total


def _fused(a: Array, b: Array, c: Array, least: int, c_least: int) -> Array:
    """The exact sums of truncated terms, for float64 operands and addend."""
    out = np.empty(c.shape, np.float64)
    room: list[Array] = []
    for shape in (a.shape[1:], b.shape[1:], c.shape[1:]):
        room += [np.empty((*shape, _BLOCK)), np.empty((*shape, _BLOCK), np.int32)]
    _aligned_sums(a, b, c, least, c_least, (*room, np.empty(_BLOCK), np.empty(_BLOCK)), out)
    return out


def finish(sums: Array, kind: str) -> Array:
    """The bits of float64 sums: truncated to f32, or rounded to f16."""
    out = np.empty(sums.shape, np.uint32 if kind == "f32" else np.uint16)
    (_cut_to_f32 if kind == "f32" else _to_f16())(sums.ravel(), out.ravel())
    return out


def _halves(a: Array, b: Array, c: Array, kinds: Kinds, **_: bool) -> Array:
    to, kind, _other, addend = kinds
    sums = _fused(values(a, kind), values(b, kind), values(c, addend), *least_exponents(kind, addend))
    return finish(sums, to)


def least_exponents(kind: str, addend: str) -> tuple[int, int]:
    """The exponents of subnormals of operands and of the addend."""
    return _LEAST_EXPONENT[kind], -14 if addend == "f16" else -126


def _small(a: Array, b: Array, c: Array, kinds: Kinds, **_: bool) -> Array:
    """8-bit floats as on sm_90: unpacked to f16, two halves of k one after the other, then added to C."""
    to, a_kind, b_kind, addend = kinds
    x, y = values(a, a_kind), values(b, b_kind)
    partial = np.zeros(c.shape, np.float64)
    for first in (0, 2):
        chosen = np.flatnonzero(np.arange(x.shape[2]) % 4 // 2 == first // 2)
        sums = _fused(x[:, :, chosen], y[:, chosen], partial, -14, -126)
        partial = finish(sums, "f32").view(np.float32).astype(np.float64)
    total = (values(c, addend).astype(np.float32) + partial.astype(np.float32)).astype(np.float32)
    if to == "f16":
        return finish(values(c, addend) + partial, "f16")
    bits = total.view(np.uint32)
    bits[np.isnan(total)] = np.uint32(0x7FFF_FFFF)
    return bits


def _doubles(a: Array, b: Array, c: Array, kinds: Kinds, **_: bool) -> Array:
    out = np.empty(c.shape, np.float64)
    left, right, addend = (np.ascontiguousarray(x.view(np.float64)) for x in (a, b, c))
    _double(left, right, addend, out)
    return out.view(np.uint64)


def _whole(a: Array, b: Array, c: Array, kinds: Kinds, satfinite: bool = False, xor: bool = False) -> Array:
    """Integers: every partial sum is exact in float64."""
    x, y = values(a, kinds[1]), values(b, kinds[2])
    product: Array = np.matmul(x, y)
    if xor:
        product = x.sum(axis=2)[:, :, None] + y.sum(axis=1)[:, None, :] - 2 * product
    total = product.astype(np.int64) + c.view(np.int32)
    if satfinite:
        total = np.clip(total, -(1 << 31), (1 << 31) - 1)
    return total.astype(np.int32).view(np.uint32)


_KINDS: dict[str, Callable[..., Array]] = {
    **dict.fromkeys(("f16", "bf16", "tf32"), _halves),
    **dict.fromkeys(_SMALL, _small),
    "f64": _doubles,
    **dict.fromkeys(("s8", "u8", "s4", "u4", "b1"), _whole),
}


def multiply(a: Array, b: Array, c: Array, kinds: Kinds, satfinite: bool = False, xor: bool = False) -> Array:
    """D = A B + C over [warps, m, k], [warps, k, n], [warps, m, n] of element bits; `kinds` are those of D, A, B, C.

    b1 operands: and.popc, or xor.popc with `xor`.
    """
    if kinds[1] not in _KINDS:
        raise MisuseError(unknown("type of a matrix operand", kinds[1], _KINDS))
    return _KINDS[kinds[1]](a, b, c, kinds, satfinite=satfinite, xor=xor)
