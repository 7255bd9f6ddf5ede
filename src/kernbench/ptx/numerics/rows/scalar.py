"""Scalar building blocks for compiled kernels: bit casts, fused multiply-add, exact sums, rounding to a format."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from kernbench.common.compiled import part

_LLVM = {32: ir.FloatType(), 64: ir.DoubleType()}


def _cast(result: Any, argument: Any, llvm: Any) -> Callable[..., Any]:
    def typed(typing_context: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.bitcast(arguments[0], llvm)

        return result(argument), generate

    function: Callable[..., Any] = intrinsic(typed)
    return function


def _fused(kind: Any) -> Callable[..., Any]:
    def typed(typing_context: Any, a: Any, b: Any, c: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            return builder.fma(*arguments)

        return kind(kind, kind, kind), generate

    function: Callable[..., Any] = intrinsic(typed)
    return function


def _llvm_call(name: str, result: Any, argument: Any, llvm_result: Any, llvm_argument: Any) -> Callable[..., Any]:
    """An LLVM intrinsic of one argument, overloaded on both types where they differ."""
    overloads = [llvm_argument] if llvm_result is llvm_argument else [llvm_result, llvm_argument]

    def typed(typing_context: Any, value: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = ir.FunctionType(llvm_result, [llvm_argument])
            return builder.call(builder.module.declare_intrinsic(f"llvm.{name}", overloads, kind), arguments)

        return result(argument), generate

    function: Callable[..., Any] = intrinsic(typed)
    return function


_FLOAT_TYPES: dict[str, tuple[Any, Any]] = {
    "f32": (types.float32, _LLVM[32]),
    "f64": (types.float64, _LLVM[64]),
}


@cache
def integral(kind: str, rnd: str) -> Callable[..., Any]:
    """Compiled: f32 or f64 to an integral value of its own type: rni, rzi, rmi or rpi."""
    name = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}[rnd]
    typed, llvm = _FLOAT_TYPES[kind]
    return _llvm_call(name, typed, typed, llvm, llvm)


@cache
def saturating_integer(to: str, kind: str) -> Callable[..., Any]:
    """Compiled: f32 or f64, truncated, to an integer type; beyond its range the nearest end, NaN to 0."""
    letter, bits = to[0], int(to[1:])
    result = getattr(types, f"{'int' if letter == 's' else 'uint'}{bits}")
    typed, llvm = _FLOAT_TYPES[kind]
    return _llvm_call(f"fpto{'s' if letter == 's' else 'u'}i.sat", result, typed, ir.IntType(bits), llvm)


float32_of = _cast(types.float32, types.uint32, _LLVM[32])
bits_of_float32 = _cast(types.uint32, types.float32, ir.IntType(32))
float64_of = _cast(types.float64, types.uint64, _LLVM[64])
bits_of_float64 = _cast(types.uint64, types.float64, ir.IntType(64))
fma32 = _fused(types.float32)
fma64 = _fused(types.float64)


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """A scalar helper to be inlined into row kernels."""
    return part(function, error_model="numpy")


@dataclass(frozen=True, slots=True)
class Format:
    """A binary floating format: exponent and mantissa bits, the largest finite code, and what its specials are.

    `infinity` and `nan` are codes without sign, or None where the format has none.
    """

    name: str
    exponent: int
    mantissa: int
    largest: int
    infinity: int | None
    nan: int | None

    @property
    def bits(self) -> int:
        """Width with the sign."""
        return 1 + self.exponent + self.mantissa

    @property
    def bias(self) -> int:
        """What is added to an exponent."""
        return (1 << (self.exponent - 1)) - 1


def _ieee(name: str, exponent: int, mantissa: int, nan: int) -> Format:
    infinity = ((1 << exponent) - 1) << mantissa
    return Format(name, exponent, mantissa, infinity - 1, infinity, nan)


# The NaN that arithmetic and conversions give, per format, as an H200 gives it. f64 arithmetic passes a NaN operand on,
# quieted (see `floats`); its entry is the NaN that an invalid operation makes.
FORMATS = {
    "f64": _ieee("f64", 11, 52, 0xFFF8_0000_0000_0000),
    "f32": _ieee("f32", 8, 23, 0x7FFF_FFFF),
    "f16": _ieee("f16", 5, 10, 0x7FFF),
    "bf16": _ieee("bf16", 8, 7, 0x7FFF),
    # A tf32 is kept in the upper 19 bits of 32: codes here are those 19 bits.
    "tf32": _ieee("tf32", 8, 10, 0x7FFF_E000 >> 13),
    "e5m2": _ieee("e5m2", 5, 2, 0x7F),
    "e4m3": Format("e4m3", 4, 3, 0x7E, None, 0x7F),
    "e3m2": Format("e3m2", 3, 2, 0x1F, None, None),
    "e2m3": Format("e2m3", 2, 3, 0x1F, None, None),
    "e2m1": Format("e2m1", 2, 1, 0x07, None, None),
}

ROUNDINGS = ("rn", "rz", "rm", "rp", "rna")


@cache
def widener(source: str) -> Callable[..., Any]:
    """Compiled: code of a format below f64 -> the same value as a float64; NaN stays NaN (payload lost)."""
    form = FORMATS[source]
    shift = np.uint64(52 - form.mantissa)
    body = np.uint64((1 << (form.bits - 1)) - 1)
    special = np.uint64((form.infinity if form.infinity is not None else form.largest + 1) << (52 - form.mantissa))
    has_special = form.nan is not None
    is_ieee = form.infinity is not None
    sign_shift = np.uint64(64 - form.bits)
    sign_bit = np.uint64(1 << 63)
    # Moves the exponent by the difference of the biases; exact, subnormals included.
    scale = np.float64(2.0) ** (1023 - form.bias)
    infinite = np.uint64(0x7FF0_0000_0000_0000)

    @compiled
    def widen(code: Any) -> Any:
        wide = np.uint64(code)
        magnitude = (wide & body) << shift
        value = bits_of_float64(float64_of(magnitude) * scale)
        if has_special and magnitude >= special:
            value = (magnitude | infinite) if is_ieee else np.uint64(0x7FF8_0000_0000_0000)
        return float64_of(value | ((wide << sign_shift) & sign_bit))

    return widen


@cache
def rounder(target: str, mode: str) -> Callable[..., Any]:
    """Compiled: (float64 magnitude bits, negative) -> code without sign, rounded once; beyond the largest on overflow.

    Infinity gives a code beyond the largest too; a NaN must be dealt with by the caller.
    """
    form = FORMATS[target]
    mantissa, bias = form.mantissa, form.bias
    mantissa_shift = np.uint64(form.mantissa)
    nearest, away = mode == "rn", mode == "rna"
    up_positive, up_negative = mode == "rp", mode == "rm"
    fraction = np.uint64((1 << 52) - 1)
    hidden, one, zero, wide = np.uint64(1 << 52), np.uint64(1), np.uint64(0), np.uint64(52)

    @compiled
    def code_of(magnitude: Any, negative: Any) -> Any:
        exponent: Any = np.int64(magnitude >> wide) - 1023 + bias
        significand = (magnitude & fraction) | hidden
        down = np.uint64(min(52 - mantissa + max(0, 1 - exponent), 55))
        kept = significand >> down
        rest = significand & ((one << down) - one)
        half = (one << down) >> one
        if nearest:
            up = (rest > half) | ((rest == half) & ((kept & one) == one))
        elif away:
            up = rest >= half
        elif up_positive:
            up = (rest > zero) & (not negative)
        elif up_negative:
            up = (rest > zero) & negative
        else:
            up = False
        code = kept + np.uint64(up) + (np.uint64(max(exponent - 1, 0)) << mantissa_shift)
        # A float64 subnormal or zero: too small for any format but its own sign of inexactness.
        if magnitude < hidden:
            inexact = magnitude > zero
            code = np.uint64(inexact & ((up_positive & (not negative)) | (up_negative & negative)))
        return code

    return code_of


@cache
def overflow_code(target: str, mode: str, satfinite: bool) -> tuple[int, int]:
    """What overflow gives without its sign: for positive and for negative values."""
    form = FORMATS[target]
    if satfinite or form.infinity is None or mode == "rz":
        return form.largest, form.largest
    return (
        form.largest if mode == "rm" else form.infinity,
        form.largest if mode == "rp" else form.infinity,
    )


@cache
def narrower(target: str, mode: str = "rn", satfinite: bool = False) -> Callable[..., Any]:
    """Compiled: float64 -> code of a narrower format with sign, rounded once; NaN gives the format's NaN.

    With `satfinite` values beyond the largest, infinities too, become the largest. A format without NaN turns it into
    its largest positive value.
    """
    form = FORMATS[target]
    round_magnitude = rounder(target, mode)
    largest = np.uint64(form.largest)
    over_positive, over_negative = (np.uint64(code) for code in overflow_code(target, mode, satfinite))
    infinity = over_positive if satfinite or form.infinity is None else np.uint64(form.infinity)
    nan = np.uint64(form.nan if form.nan is not None else form.largest)
    sign_shift = np.uint64(form.bits - 1)
    body = np.uint64((1 << 63) - 1)
    infinite, top = np.uint64(0x7FF0_0000_0000_0000), np.uint64(63)

    @compiled
    def narrow(value: Any) -> Any:
        bits = bits_of_float64(value)
        magnitude = bits & body
        sign = bits >> top
        negative = sign != np.uint64(0)
        code = round_magnitude(magnitude, negative)
        if code > largest:
            code = over_negative if negative else over_positive
        if magnitude == infinite:
            code = infinity
        code |= sign << sign_shift
        if magnitude > infinite:
            code = nan
        return code

    return narrow


@compiled
def odd_sum(a: Any, b: Any) -> Any:
    """a + b in float64, rounded to odd: one more rounding to at most 51 bits is then the rounding of the exact sum."""
    total = a + b
    back = total - a
    error = (a - (total - back)) + (b - back)
    bits = bits_of_float64(total)
    one = np.uint64(1)
    # Inexact and even: step to the odd neighbour on the error's side. Infinities and NaN have a NaN error or none.
    even = (bits & one) ^ one
    step = even if (error > 0.0) | (error < 0.0) else np.uint64(0)
    stepped = bits + step if (error > 0.0) == (total > 0.0) else bits - step
    return float64_of(stepped)
