"""PTX's approximate functions, computed to well within half an ulp and rounded to nearest.

Hardware's results differ in the last places; `BOUNDS` says by how much the PTX ISA lets them. Special values (zeros,
subnormals, infinities, NaN) are those of the ISA's tables.
"""

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from kernbench.common.errors import MisuseError, unknown
from kernbench.ptx.numerics.conversion.convert import read_as_float64
from kernbench.ptx.numerics.floats.arithmetic import QUIET, finisher, flusher, is_nan64, loader
from kernbench.ptx.numerics.floats.half import float32_to_half
from kernbench.ptx.numerics.rows.loops import Operation, row_kernel
from kernbench.ptx.numerics.rows.scalar import FORMATS, Bits, Real, bits_of_float64, compiled, float64_of, fma64

# What the PTX ISA promises of the real thing; ours is within 0.501 ulp wherever the result is not special.
BOUNDS: dict[str, str] = {
    "ex2.approx.f32": "relative error 2^-22",
    "ex2.approx.f16": "relative error 2^-9.9",
    "ex2.approx.bf16": "relative error 2^-7",
    "lg2.approx.f32": "absolute error 2^-22 for inputs in (0.5, 2), relative error 2^-22 elsewhere",
    "sin.approx.f32": "absolute error 2^-20.5 in [-2pi, 2pi], 2^-14.7 in [-100pi, 100pi]",
    "cos.approx.f32": "absolute error 2^-20.5 in [-2pi, 2pi], 2^-14.7 in [-100pi, 100pi]",
    "tanh.approx.f32": "relative error 2^-11",
    "tanh.approx.f16": "absolute error 2^-10.987",
    "tanh.approx.bf16": "relative error 2^-8",
    "rcp.approx.f32": "1 ulp (relative error 2^-23)",
    "rcp.approx.ftz.f64": "relative error 2^-20; only the upper 32 bits are set",
    "rsqrt.approx.f32": "relative error 2^-22.9",
    "rsqrt.approx.f64": "relative error 2^-51",
    "rsqrt.approx.ftz.f64": "relative error 2^-20; only the upper 32 bits are set",
    "sqrt.approx.f32": "relative error 2^-23",
    "div.approx.f32": "2 ulp for divisors within 2^-126 to 2^126; beyond, 0, or NaN for an infinite dividend",
    "div.full.f32": "2 ulp",
}

_MANTISSA = np.uint64(52)


def _polynomial(coefficients: list[float]) -> Callable[[Real], Real]:
    """Compiled: a polynomial of twelve coefficients, lowest power first, in a tree of fused steps (short chains)."""
    c0, c1, c2, c3, c4, c5, c6, c7, c8, c9, c10, c11 = coefficients

    @compiled
    def value(x: Real) -> Real:
        x2 = x * x
        x4 = x2 * x2
        low = fma64(fma64(c3, x, c2), x2, fma64(c1, x, c0))
        middle = fma64(fma64(c7, x, c6), x2, fma64(c5, x, c4))
        high = fma64(fma64(c11, x, c10), x2, fma64(c9, x, c8))
        return fma64(fma64(high, x4, middle), x4, low)

    return value


_exp2_part = _polynomial([math.log(2.0) ** k / math.factorial(k) for k in range(12)])
_atanh_part = _polynomial([2.0 / math.log(2.0) / (2 * k + 1) for k in range(12)])
_sin_part = _polynomial([(-1.0) ** k / math.factorial(2 * k + 1) for k in range(12)])
_cos_part = _polynomial([(-1.0) ** k / math.factorial(2 * k) for k in range(12)])
# Adding this to a small number leaves its nearest integer in the low bits of the sum.
_ROUNDER = np.float64(1.5 * 2.0**52)


@compiled
def exp2(x: Real) -> Real:
    """2**x in float64 for results in the range of float32; NaN stays."""
    clamped = x if x > -300.0 else -300.0
    clamped = clamped if clamped < 300.0 else 300.0
    shifted = clamped + _ROUNDER
    rest = clamped - (shifted - _ROUNDER)
    power = float64_of((bits_of_float64(shifted) + np.uint64(1023)) << _MANTISSA)
    result = _exp2_part(rest) * power
    return result if x == x else x


@compiled
def log2(x: np.floating) -> Real:
    """log2 in float64 of a float32's value, specials included."""
    bits = bits_of_float64(x)
    # The mantissa in [sqrt(1/2), sqrt(2)), so that the logarithm near 1 loses nothing.
    raised = bits + np.uint64(0x3FF0_0000_0000_0000 - 0x3FE6_A09E_667F_3BCD)
    exponent = np.int64(raised >> _MANTISSA) - 1023
    mantissa = float64_of((raised & np.uint64((1 << 52) - 1)) + np.uint64(0x3FE6_A09E_667F_3BCD))
    s = (mantissa - 1.0) / (mantissa + 1.0)
    result: Real = np.float64(exponent) + s * _atanh_part(s * s)
    if x == 0.0:
        result = -np.inf
    if x == np.inf:
        result = np.inf
    return result if x >= 0.0 else np.nan


@compiled
def tanh(x: np.floating) -> Real:
    """tanh in float64."""
    size = abs(x)
    power = exp2((size if size < 30.0 else 30.0) * (2.0 / 0.693147180559945309417))
    large = (power - 1.0) / (power + 1.0)
    square = x * x
    small = size * (1.0 - square * (1.0 / 3.0) + square * square * (2.0 / 15.0))
    result = small if size < 2.0**-10 else large
    return math.copysign(result if x == x else x, x)


_PER_TURN = np.float64(np.float32(1.0 / (2.0 * math.pi)))
_LOW = np.uint64((1 << 29) - 1)


def _wave(offset: int) -> Callable[[Real], Real]:
    """Compiled: sine (offset 0) or cosine (offset 1), the argument reduced as hardware does it.

    Turns are the argument times float32(1 / 2pi), truncated to float32: large arguments are as wrong as on the GPU.
    """

    @compiled
    def wave(x: np.floating) -> Real:
        turns: np.floating = float64_of(bits_of_float64(x * _PER_TURN) & ~_LOW)
        if abs(turns) < 2.0**-126:
            turns = 0.0 * x
        rest = turns - np.rint(turns)
        quarter = np.rint(rest * 4.0)
        angle = (rest - quarter * 0.25) * 6.283185307179586476925
        turn = (np.int64(quarter) + offset) & 3
        square = angle * angle
        # Both are computed: without a branch the lanes go side by side.
        cosine, sine = _cos_part(square), angle * _sin_part(square)
        value = cosine if turn & 1 else sine
        return -value if turn & 2 else value

    return wave


_UNARY: dict[str, Callable[[Real], Real]] = {
    "ex2": exp2,
    "lg2": log2,
    "tanh": tanh,
    "sin": _wave(0),
    "cos": _wave(1),
    "rcp": compiled(lambda x: 1.0 / x),
    "sqrt": compiled(lambda x: np.sqrt(x)),
    "rsqrt": compiled(lambda x: 1.0 / np.sqrt(x)),
}


@cache
def approximate(name: str, kind: str = "f32", ftz: bool = False) -> Operation:
    """ex2, lg2, sin, cos, tanh, rcp, sqrt, rsqrt of f32, rcp and rsqrt of f64, ex2 and tanh of halves."""
    if name not in _UNARY:
        raise MisuseError(unknown("approximate function", name, _UNARY))
    scalar = _UNARY[name]
    key = f"{name}_approx_{kind}{'_ftz' * ftz}"
    if kind == "f64":
        return row_kernel(key, _double(scalar, ftz), 1)
    load = read_as_float64(kind, ftz)
    if kind == "f32":
        finish = finisher("f32", ftz, False)
        return row_kernel(key, compiled(lambda a: finish(np.float32(scalar(load(a))))), 1)
    narrow, flush = float32_to_half(kind), np.uint32(0x7F80 if kind == "bf16" else 0x7C00)

    @compiled
    def half(a: Bits) -> Bits:
        code = np.uint32(narrow(np.float32(scalar(load(a)))))
        return code & np.uint32(0x8000) if ftz and (code & flush) == np.uint32(0) else code

    return row_kernel(key, half, 1)


def _double(scalar: Callable[[Real], Real], ftz: bool) -> Callable[[Bits], Bits]:
    """f64 forms; with ftz only the upper halves of input and result count."""
    load, nan = loader("f64", ftz), np.uint64(0x7FFF_FFFF_0000_0000)
    upper, invalid = np.uint64(0xFFFF_FFFF_0000_0000), np.uint64(FORMATS["f64"].nan or 0)
    flush = flusher("f64", True)

    @compiled
    def whole(a: Bits) -> Bits:
        if is_nan64(a):
            return a | QUIET
        result = scalar(load(a))
        return bits_of_float64(result) if result == result else invalid

    @compiled
    def gross(a: Bits) -> Bits:
        result = scalar(load(a & upper))
        return flush(bits_of_float64(result) & upper) if result == result else nan

    return gross if ftz else whole


@cache
def divide(form: str, ftz: bool = False) -> Operation:
    """div.approx.f32 and div.full.f32: `operation(a, b, out)`."""
    load, finish = loader("f32", ftz), finisher("f32", ftz, False)
    approx, huge = form == "approx", np.float32(2.0**126)

    @compiled
    def scalar(a: Bits, b: Bits) -> Bits:
        x, y = load(a), load(b)
        result = x / y
        if approx and abs(y) > huge and abs(y) < np.inf:
            result = x * np.float32(0.0) if y > np.float32(0.0) else x * np.float32(-0.0)
        return finish(result)

    return row_kernel(f"div_{form}_f32{'_ftz' * ftz}", scalar, 2)
