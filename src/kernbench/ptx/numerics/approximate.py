"""PTX's approximate functions, computed to well within half an ulp and rounded to nearest.

Hardware's results differ in the last places; `BOUNDS` says by how much the PTX ISA lets them. Special values (zeros,
subnormals, infinities, NaN) are those of the ISA's tables.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from kernbench.common.errors import MisuseError, unknown
from kernbench.ptx.numerics.convert import read_as_float64
from kernbench.ptx.numerics.floats import finisher, loader
from kernbench.ptx.numerics.half import float32_to_half
from kernbench.ptx.numerics.loops import Operation, Row, row_kernel
from kernbench.ptx.numerics.scalar import bits_of_float64, compiled, float64_of, fma64

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


def _horner(coefficients: list[float]) -> Callable[..., Any]:
    """Compiled: a polynomial, coefficients from the lowest power up, unrolled into fused steps."""
    chain = compiled(_constant(coefficients[-1]))
    for coefficient in reversed(coefficients[:-1]):
        chain = compiled(_step(chain, coefficient))
    return chain


def _constant(value: float) -> Callable[..., Any]:
    return lambda x: value


def _step(inner: Callable[..., Any], coefficient: float) -> Callable[..., Any]:
    return lambda x: fma64(inner(x), x, coefficient)


_exp2_part = _horner([math.log(2.0) ** k / math.factorial(k) for k in range(12)])
_atanh_part = _horner([2.0 / math.log(2.0) / (2 * k + 1) for k in range(10)])
_sin_part = _horner([(-1.0) ** k / math.factorial(2 * k + 1) for k in range(9)])
_cos_part = _horner([(-1.0) ** k / math.factorial(2 * k) for k in range(10)])


@compiled
def exp2(x: Any) -> Any:
    """2**x in float64 for results in the range of float32; NaN stays."""
    clamped = min(max(x, -300.0), 300.0)
    whole = np.rint(clamped)
    power = float64_of(np.uint64(np.int64(whole) + 1023) << _MANTISSA)
    return _exp2_part(clamped - whole) * power if x == x else x


@compiled
def log2(x: Any) -> Any:
    """log2 in float64 of a float32's value, specials included."""
    bits = bits_of_float64(x)
    # The mantissa in [sqrt(1/2), sqrt(2)), so that the logarithm near 1 loses nothing.
    raised = bits + np.uint64(0x3FF0_0000_0000_0000 - 0x3FE6_A09E_667F_3BCD)
    exponent = np.int64(raised >> _MANTISSA) - 1023
    mantissa = float64_of((raised & np.uint64((1 << 52) - 1)) + np.uint64(0x3FE6_A09E_667F_3BCD))
    s = (mantissa - 1.0) / (mantissa + 1.0)
    result = np.float64(exponent) + s * _atanh_part(s * s)
    if x == 0.0:
        result = -np.inf
    if x == np.inf:
        result = np.inf
    return result if x >= 0.0 else np.nan


@compiled
def tanh(x: Any) -> Any:
    """tanh in float64."""
    size = abs(x)
    power = exp2(min(size, 30.0) * (2.0 / 0.693147180559945309417))
    result = (power - 1.0) / (power + 1.0)
    if size < 2.0**-10:
        square = x * x
        result = size * (1.0 - square * (1.0 / 3.0) + square * square * (2.0 / 15.0))
    return math.copysign(result, x) if x == x else x


_REDUCIBLE = 2.0**20


def _quarter_wave(offset: int) -> Callable[..., Any]:
    """Compiled: sine (offset 0) or cosine (offset 1) for magnitudes up to 2**20."""
    first, second, third = _parts_of_half_pi()

    @compiled
    def wave(x: Any) -> Any:
        quarter = np.rint(x * 0.63661977236758134308)
        rest = fma64(-quarter, third, fma64(-quarter, second, fma64(-quarter, first, x)))
        turn = (np.int64(quarter) + offset) & 3
        square = rest * rest
        value = _cos_part(square) if turn & 1 else rest * _sin_part(square)
        return -value if turn & 2 else value

    return wave


def _parts_of_half_pi() -> tuple[float, float, float]:
    """pi / 2 as a sum of three float64, the first two with 33 bits."""
    # 2**119 * pi / 2, rounded.
    scaled = 0xC90FDAA22168C234C4C6628B80DC1C
    first = scaled >> 87 << 87
    second = (scaled - first) >> 54 << 54
    return math.ldexp(first, -119), math.ldexp(second, -119), math.ldexp(scaled - first - second, -119)


_WAVES: dict[str, tuple[Callable[..., Any], np.ufunc]] = {
    "sin": (_quarter_wave(0), np.sin),
    "cos": (_quarter_wave(1), np.cos),
}


@cache
def wave(name: str, ftz: bool = False) -> Operation:
    """sin or cos of f32: `operation(a, out)`."""
    scalar, exact = _WAVES[name]
    load, finish = loader("f32", ftz), finisher("f32", ftz, False)
    kernel = row_kernel(
        f"{name}_approx_f32{'_ftz' * ftz}", compiled(lambda a: finish(np.float32(scalar(np.float64(load(a)))))), 1
    )

    def operation(a: Row, out: Row) -> None:
        value = a.view(np.float32)
        far = np.abs(value) > _REDUCIBLE
        if not far.any():
            kernel(a, out)
            return
        with np.errstate(all="ignore"):
            wide = exact(value.astype(np.float64)).astype(np.float32).view(np.uint32)
        kernel(a, out)
        np.copyto(out, np.where(np.isfinite(value), wide, np.uint32(0x7FFF_FFFF)), where=far)

    return operation


_UNARY: dict[str, Callable[..., Any]] = {
    "ex2": exp2,
    "lg2": log2,
    "tanh": tanh,
    "rcp": compiled(lambda x: 1.0 / x),
    "sqrt": compiled(lambda x: np.sqrt(x)),
    "rsqrt": compiled(lambda x: 1.0 / np.sqrt(x)),
}


@cache
def approximate(name: str, kind: str = "f32", ftz: bool = False) -> Operation:
    """ex2, lg2, sin, cos, tanh, rcp, sqrt, rsqrt of f32, rcp and rsqrt of f64, ex2 and tanh of halves."""
    if name in _WAVES:
        return wave(name, ftz)
    if name not in _UNARY:
        raise MisuseError(unknown("approximate function", name, (*_UNARY, *_WAVES)))
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
    def half(a: Any) -> Any:
        code = np.uint32(narrow(np.float32(scalar(load(a)))))
        return code & np.uint32(0x8000) if ftz and (code & flush) == np.uint32(0) else code

    return row_kernel(key, half, 1)


def _double(scalar: Callable[..., Any], ftz: bool) -> Callable[..., Any]:
    """f64 forms; with ftz only the upper halves of input and result count."""
    load, finish = loader("f64", ftz), finisher("f64", ftz, False)
    upper = np.uint64(0xFFFF_FFFF_0000_0000)
    if not ftz:
        return compiled(lambda a: finish(scalar(load(a))))
    return compiled(lambda a: finish(scalar(load(a & upper))) & upper)


@cache
def divide(form: str, ftz: bool = False) -> Operation:
    """div.approx.f32 and div.full.f32: `operation(a, b, out)`."""
    load, finish = loader("f32", ftz), finisher("f32", ftz, False)
    approx, huge = form == "approx", np.float32(2.0**126)

    @compiled
    def scalar(a: Any, b: Any) -> Any:
        x, y = load(a), load(b)
        result = x / y
        if approx and abs(y) > huge and abs(y) < np.inf:
            result = x * np.float32(0.0) if y > np.float32(0.0) else x * np.float32(-0.0)
        return finish(result)

    return row_kernel(f"div_{form}_f32{'_ftz' * ftz}", scalar, 2)
