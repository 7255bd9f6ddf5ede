"""f16 and bf16 arithmetic with one rounding, and packed types by way of views of their rows."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np

from kernbench.common.errors import MisuseError, unknown
from kernbench.ptx.numerics.rows.loops import Operation, Row, row_kernel
from kernbench.ptx.numerics.rows.scalar import (
    FORMATS,
    Bits,
    Real,
    bits_of_float32,
    bits_of_float64,
    compiled,
    float32_of,
    float64_of,
    odd_sum,
)


@cache
def half_to_float32(kind: str, ftz: bool = False) -> Callable[[Bits], np.float32]:
    """Compiled: bits of f16 or bf16 -> the same value as float32; `ftz` flushes subnormals."""
    if kind == "bf16":

        @compiled
        def widen_bf16(bits: Bits) -> np.float32:
            wide = np.uint32(np.uint32(bits) << np.uint32(16))
            if ftz and (wide & np.uint32(0x7F80_0000)) == np.uint32(0):
                wide &= np.uint32(0x8000_0000)
            return float32_of(wide)

        return widen_bf16
    scale = np.float32(2.0**112)

    @compiled
    def widen_f16(bits: Bits) -> np.float32:
        wide = np.uint32(bits)
        magnitude = np.uint32((wide & np.uint32(0x7FFF)) << np.uint32(13))
        value = bits_of_float32(float32_of(magnitude) * scale)
        if ftz and magnitude < np.uint32(0x0080_0000):
            value = np.uint32(0)
        if magnitude >= np.uint32(0x0F80_0000):
            value = magnitude | np.uint32(0x7F80_0000)
        return float32_of(value | np.uint32((wide & np.uint32(0x8000)) << np.uint32(16)))

    return widen_f16


@cache
def float32_to_half(kind: str) -> Callable[[Real], np.uint32]:
    """Compiled: float32 -> bits of f16 or bf16 as uint32, to nearest even, NaN canonical.

    Only 32-bit operations, so that it can be vectorised well.
    """
    nan = np.uint32(FORMATS[kind].nan or 0)
    if kind == "bf16":

        @compiled
        def to_bf16(value: Real) -> np.uint32:
            bits = bits_of_float32(value)
            rounded = np.uint32(bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
            return rounded if value == value else nan

        return to_bf16
    # adding this leaves the bits of a subnormal f16, rounded to nearest even, in the low bits of the sum
    magic = np.float32(0.5)

    @compiled
    def to_f16(value: Real) -> np.uint32:
        bits = bits_of_float32(value)
        magnitude = bits & np.uint32(0x7FFF_FFFF)
        odd = (magnitude >> np.uint32(13)) & np.uint32(1)
        normal = np.uint32(magnitude - np.uint32(0x3800_0000) + np.uint32(0xFFF) + odd) >> np.uint32(13)
        small = bits_of_float32(float32_of(magnitude) + magic) - np.uint32(0x3F00_0000)
        code = np.uint32(small) if magnitude < np.uint32(0x3880_0000) else np.uint32(normal)
        # from 65520 on the nearest is infinity
        if magnitude >= np.uint32(0x477F_F000):
            code = np.uint32(0x7C00)
        code = np.uint32(code | ((bits >> np.uint32(16)) & np.uint32(0x8000)))
        return code if value == value else nan

    return to_f16


@cache
def float64_to_half(kind: str) -> Callable[[Real], np.uint32]:
    """Compiled: float64 -> bits of f16 or bf16 as uint32, to nearest even with one rounding, NaN canonical."""
    narrow, is_brain = float32_to_half(kind), kind == "bf16"
    # adding and subtracting this rounds to a multiple of the least bf16
    grid, least = np.float64(1.5 * 2.0 ** (52 - 133)), np.float64(2.0**-126)
    low, step, zero = np.uint64((1 << 29) - 1), np.uint64(1 << 29), np.uint64(0)

    @compiled
    def convert(value: np.floating) -> np.uint32:
        if is_brain:
            snapped = np.float64(math.copysign((value + grid) - grid, value))
            value = snapped if abs(value) < least else value
        # rounded to odd at float32's 24 bits, so that the next rounding is that of the value itself
        bits = bits_of_float64(value)
        odd = (bits & ~low) | (step if (bits & low) != zero else zero)
        return narrow(np.float32(float64_of(odd)))

    return convert


@cache
def _result(kind: str, ftz: bool, sat: bool, relu: bool) -> Callable[[Bits], np.uint32]:
    """Compiled: bits (NaN already canonical) -> bits after flushing, clamping to [0, 1] or clearing negatives."""
    form = FORMATS[kind]
    body, sign = np.uint32(0x7FFF), np.uint32(0x8000)
    infinity, normal = np.uint32(form.infinity or 0), np.uint32(1 << form.mantissa)
    one, zero = np.uint32(form.bias << form.mantissa), np.uint32(0)

    @compiled
    def finish(code: Bits) -> np.uint32:
        bits = np.uint32(code)
        if ftz and (bits & body) < normal:
            bits &= sign
        if sat:
            if (bits & sign) != zero or bits > infinity:
                return zero
            return min(bits, one)
        if relu and (bits & sign) != zero and (bits & body) <= infinity:
            return zero
        return bits

    return finish


# in float32 sums and products of f16, and sums of bf16, are exact, or far enough from a rounding boundary
_IN_FLOAT32: dict[str, Callable[..., Real]] = {
    "add": compiled(lambda a, b: a + b),
    "sub": compiled(lambda a, b: a - b),
    "mul": compiled(lambda a, b: a * b),
}
_IN_FLOAT64: dict[str, Callable[..., Real]] = {
    "mul": compiled(lambda a, b: np.float64(a) * np.float64(b)),
    "fma": compiled(lambda a, b, c: odd_sum(np.float64(a) * np.float64(b), np.float64(c))),
    # the float64 sum is exact wherever an f16 rounding boundary is near
    "fma_f16": compiled(lambda a, b, c: np.float64(a) * np.float64(b) + np.float64(c)),
}
ARITY = {"add": 2, "sub": 2, "mul": 2, "fma": 3}


def _core(name: str, kind: str) -> tuple[Callable[..., Real], Callable[[Real], np.uint32]]:
    """The operation, and the function that rounds its result to the type."""
    if name in ("add", "sub") or (name == "mul" and kind == "f16"):
        return _IN_FLOAT32[name], float32_to_half(kind)
    return _IN_FLOAT64["fma_f16" if (name, kind) == ("fma", "f16") else name], float64_to_half(kind)


@cache
def _flush_early(narrow: Callable[[Real], np.uint32]) -> Callable[[Real], np.uint32]:
    """f16 results that are subnormal before rounding are flushed, even if they round up to a normal number."""
    least = 2.0**-14
    return compiled(lambda value: np.uint32(narrow(value * np.float32(0.0) if abs(value) < least else value)))


@cache
def arithmetic(name: str, kind: str, ftz: bool = False, sat: bool = False, relu: bool = False) -> Operation:
    """add, sub, mul or fma of f16 or bf16 over rows of 16 bits: `operation(*inputs, out)`."""
    if name not in ARITY:
        raise MisuseError(unknown(f"{kind} operation", name, ARITY))
    (core, narrow), load, finish = _core(name, kind), half_to_float32(kind, ftz), _result(kind, ftz, sat, relu)
    if ftz:
        narrow = _flush_early(narrow)
    shapes: dict[int, Callable[..., np.uint32]] = {
        2: lambda a, b: finish(narrow(core(load(a), load(b)))),
        3: lambda a, b, c: finish(narrow(core(load(a), load(b), load(c)))),
    }
    key = "_".join([name, kind] + ["ftz"] * ftz + ["sat"] * sat + ["relu"] * relu)
    return row_kernel(key, compiled(shapes[ARITY[name]]), ARITY[name])


@dataclass(frozen=True, slots=True)
class Packed:
    """An operation over rows of elements, applied to rows of registers that hold several elements each."""

    operation: Operation
    lane_bits: int

    def __call__(self, *rows: Row) -> None:
        """Rows of registers, the result last."""
        lane, shape = np.dtype(f"uint{self.lane_bits}"), rows[-1].shape
        self.operation(*(_lanes(row, lane, shape) for row in rows))


def packed(operation: Operation, lane_bits: int) -> Operation:
    """The operation over rows of elements, applied to rows of registers that hold several elements each."""
    return Packed(operation, lane_bits)


def _lanes(row: Row, lane: np.dtype[np.generic], shape: tuple[int, ...]) -> Row:
    if row.ndim == 0:
        row = np.full(shape, row)
    return row.view(lane)
