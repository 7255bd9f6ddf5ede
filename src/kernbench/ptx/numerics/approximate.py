"""PTX's approximate functions with an H200's bits: ptxas's code for each form, around the special function unit.

Without `.ftz` the argument is scaled before the unit, which treats subnormals as zero, and the result after it. Special
values (zeros, subnormals, infinities, NaN) follow from that, and agree with the ISA's tables. f16 and bf16 are computed
as f32, and the result is truncated. Every argument of every form was compared with an H200.
"""

from collections.abc import Callable
from functools import cache

import numpy as np

from kernbench.common.errors import MisuseError, unknown
from kernbench.ptx.numerics.floats.arithmetic import finisher, loader
from kernbench.ptx.numerics.floats.half import float32_to_half, half_to_float32
from kernbench.ptx.numerics.rows.loops import Operation, Stages, staged_kernel
from kernbench.ptx.numerics.rows.scalar import (
    Bits,
    Real,
    bits_of_float32,
    compiled,
    float32_of,
)
from kernbench.ptx.numerics.special.doubles import DOUBLES
from kernbench.ptx.numerics.special.unit import UNITS, Unit

# error bounds in the PTX ISA
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

_LEAST_NORMAL, _UP, _DOWN = np.float32(2.0**-126), np.float32(2.0**24), np.float32(0.25)
# for larger divisors the reciprocal is subnormal
_HUGE = np.float32(2.0**126)
_BODY, _INFINITY = np.uint32(0x7FFF_FFFF), np.uint32(0x7F80_0000)
_finish = finisher("f32", False, False)


# scaling around the unit without .ftz: the unit's argument from the argument, the result from both
Around = tuple[Callable[[Bits], Bits], Callable[[Bits, Bits], Bits]]


def _ex2() -> Around:
    @compiled
    def before(a: Bits) -> Bits:
        x = float32_of(a)
        return bits_of_float32(x * (np.float32(0.5) if x < np.float32(-126.0) else np.float32(1.0)))

    @compiled
    def after(a: Bits, result: Bits) -> Bits:
        value = float32_of(result)
        return bits_of_float32(value * value) if float32_of(a) < np.float32(-126.0) else result

    return before, after


@compiled
def _raised(a: Bits) -> Bits:
    x = float32_of(a)
    return bits_of_float32(x * (_UP if abs(x) < _LEAST_NORMAL else np.float32(1.0)))


def _lg2() -> Around:
    @compiled
    def after(a: Bits, result: Bits) -> Bits:
        below = abs(float32_of(a)) < _LEAST_NORMAL
        return _finish(float32_of(result) - np.float32(24.0)) if below else result

    return _raised, after


def _root(factor: float) -> Around:
    """sqrt and rsqrt: scale by 2**24 before, by `factor` after."""
    back = np.float32(factor)

    @compiled
    def after(a: Bits, result: Bits) -> Bits:
        return _finish(float32_of(result) * back) if abs(float32_of(a)) < _LEAST_NORMAL else result

    return _raised, after


@compiled
def _reciprocal_scale(size: Real) -> Real:
    scale = _UP if size < _LEAST_NORMAL else np.float32(1.0)
    return _DOWN if size > _HUGE else scale


def _rcp() -> Around:
    @compiled
    def before(a: Bits) -> Bits:
        x = float32_of(a)
        return bits_of_float32(x * _reciprocal_scale(abs(x)))

    @compiled
    def after(a: Bits, result: Bits) -> Bits:
        return _finish(float32_of(result) * _reciprocal_scale(abs(float32_of(a))))

    return before, after


_AROUND = {"ex2": _ex2(), "lg2": _lg2(), "rcp": _rcp(), "sqrt": _root(2.0**-12), "rsqrt": _root(2.0**12)}


@cache
def approximate(name: str, kind: str = "f32", ftz: bool = False) -> Operation:
    """ex2, lg2, sin, cos, tanh, rcp, sqrt, rsqrt of f32; rcp and rsqrt of f64; ex2 and tanh of f16 and bf16."""
    if name not in UNITS:
        raise MisuseError(unknown("approximate function", name, UNITS))
    key = f"{name}_approx_{kind}{'_ftz' * ftz}"
    if kind == "f64":
        return staged_kernel(key, DOUBLES[name, ftz], 1)
    if kind != "f32":
        return staged_kernel(key, _half(name, kind, ftz), 1)
    stages = UNITS[name] if ftz or name not in _AROUND else _within(UNITS[name], *_AROUND[name])
    return staged_kernel(key, stages, 1)


def _within(unit: Stages, before: Unit, after: Callable[[Bits, Bits], Bits]) -> Stages:
    position, whole = unit.before, unit.after
    first = compiled(lambda a: position(before(a)))
    return unit._replace(before=first, after=compiled(lambda a, value: after(a, whole(before(a), value))))


def _half(name: str, kind: str, ftz: bool) -> Stages:
    unit, load, narrow = UNITS[name], half_to_float32(kind, ftz), float32_to_half(kind)
    cut = _cut(kind)
    exponent = np.uint32(0x7F80 if kind == "bf16" else 0x7C00)
    position, whole = unit.before, unit.after

    @compiled
    def after(a: Bits, value: Bits) -> Bits:
        result = whole(bits_of_float32(load(a)), value)
        code = narrow(float32_of(cut(result) if (result & _BODY) < _INFINITY else result))
        return code & np.uint32(0x8000) if ftz and (code & exponent) == np.uint32(0) else code

    return unit._replace(before=compiled(lambda a: position(bits_of_float32(load(a)))), after=after)


def _cut(kind: str) -> Unit:
    """Compiled: bits of a finite f32 -> bits of the next f32 toward zero that f16 or bf16 can represent."""
    if kind == "bf16":
        return compiled(lambda bits: bits & np.uint32(0xFFFF_0000))
    least, digits = np.uint32(0x3880_0000), np.float32(2.0**24)

    @compiled
    def cut(bits: Bits) -> Bits:
        size = bits & _BODY
        units = np.float32(np.int32(min(float32_of(size), np.float32(1.0)) * digits))
        small = bits_of_float32(units / digits)
        return (bits & ~_BODY) | (small if size < least else size & np.uint32(0xFFFF_E000))

    return cut


@cache
def divide(form: str, ftz: bool = False) -> Operation:
    """div.approx.f32 and div.full.f32: `operation(a, b, out)`: the dividend times the unit's reciprocal."""
    load, finish, unit = loader("f32", ftz), finisher("f32", ftz, False), UNITS["rcp"]
    position, whole, full = unit.before, unit.after, form == "full"

    @compiled
    def scale_of(y: np.floating) -> np.float32:
        scale = _DOWN if full and abs(y) > _HUGE else np.float32(1.0)
        return _UP if not ftz and abs(y) < _LEAST_NORMAL else scale

    @compiled
    def before(a: Bits, b: Bits) -> Bits:
        y = load(b)
        return position(bits_of_float32(y * scale_of(y)))

    @compiled
    def after(a: Bits, b: Bits, value: Bits) -> Bits:
        x, y = load(a), load(b)
        scale = scale_of(y)
        return finish(float32_of(whole(bits_of_float32(y * scale), value)) * load(bits_of_float32(x * scale)))

    return staged_kernel(f"div_{form}_f32{'_ftz' * ftz}", unit._replace(before=before, after=after), 2)
