"""cvt between scalar types: integers, f16, bf16, f32, f64, tf32, in every rounding, saturating and flushing mode."""

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from kernbench.common.errors import MisuseError, unknown
from kernbench.ptx.numerics.floats import finisher, flusher, loader
from kernbench.ptx.numerics.half import float32_to_half, half_to_float32
from kernbench.ptx.numerics.integer import number, split
from kernbench.ptx.numerics.loops import Operation, row_kernel
from kernbench.ptx.numerics.scalar import (
    FORMATS,
    compiled,
    narrower,
)

Scalar = Callable[..., Any]
FLOATS = ("f16", "bf16", "f32", "f64", "tf32")
INTEGERS = tuple(f"{letter}{bits}" for letter in "usb" for bits in (8, 16, 32, 64))


@cache
def read_as_float64(kind: str, ftz: bool = False) -> Scalar:
    """Compiled: bits of a scalar float type -> float64."""
    if kind in ("f16", "bf16"):
        load = half_to_float32(kind, ftz)
        return compiled(lambda bits: np.float64(load(bits)))
    load = loader("f64" if kind == "f64" else "f32", ftz and kind != "f64")
    return compiled(lambda bits: np.float64(load(bits)))


_TO_INTEGRAL: dict[str, Scalar] = {
    "rni": compiled(lambda value: np.rint(value)),
    "rzi": compiled(lambda value: np.trunc(value)),
    "rmi": compiled(lambda value: np.floor(value)),
    "rpi": compiled(lambda value: np.ceil(value)),
}


@cache
def _integer_to_integer(to: str, source: str, sat: bool) -> Scalar:
    wide, result = number(source), number(to)
    low, high = int(np.iinfo(result).min), int(np.iinfo(result).max)
    low = max(low, int(np.iinfo(wide).min))
    high = min(high, int(np.iinfo(wide).max))
    least, most = wide(low), wide(high)
    if sat:
        return compiled(lambda a: result(min(max(wide(a), least), most)))
    return compiled(lambda a: result(wide(a)))


@cache
def _float_to_integer(to: str, source: str, rnd: str, ftz: bool) -> Scalar:
    """Clamps to the range; NaN gives 0, or the top bit alone where the source is f64 or the result has 64 bits."""
    load, integral, result = read_as_float64(source, ftz), _TO_INTEGRAL[rnd], number(to)
    bits, signed = split(to)[1], to[0] == "s"
    least, most = int(np.iinfo(result).min), int(np.iinfo(result).max)
    low, high = float(least), float(most + 1)
    lowest, highest = result(least), result(most)
    top_bit = source == "f64" or bits == 64
    nan = lowest if top_bit and signed else result(1 << (bits - 1)) if top_bit else result(0)

    @compiled
    def convert(a: Any) -> Any:
        value = integral(load(a))
        if value != value:
            return nan
        if value >= high:
            return highest
        if value <= low:
            return lowest
        return result(value)

    return convert


@cache
def _integer_to_float(to: str, source: str, rnd: str) -> Scalar:
    """One rounding: through float64 where it holds the integer exactly, else rounded to odd into it first."""
    typed = number(source)
    if to == "f32" and rnd == "rn" and split(source)[1] == 32:
        return compiled(lambda a: np.float32(typed(a)))
    if to == "f64":
        return _integer_to_f64(source, rnd)
    narrow = narrower(to, rnd)
    odd = _integer_to_odd(source)
    return compiled(lambda a: narrow(odd(a)))


@cache
def _integer_to_odd(source: str) -> Scalar:
    """Compiled: integer -> float64, rounded to odd where it has more than 53 bits."""
    typed, wide = number(source), split(source)[1] == 64
    signed = source[0] == "s"

    @compiled
    def convert(a: Any) -> Any:
        value = typed(a)
        if not wide:
            return np.float64(value)
        negative = signed and value < typed(0)
        magnitude = np.uint64(0) - np.uint64(value) if negative else np.uint64(value)
        # Drop 11 bits, or none, leaving a trace of what was dropped.
        if magnitude >= np.uint64(1 << 53):
            kept = magnitude >> np.uint64(11)
            if (magnitude & np.uint64(0x7FF)) != np.uint64(0):
                kept |= np.uint64(1)
            result = np.float64(kept) * 2048.0
        else:
            result = np.float64(magnitude)
        return -result if negative else result

    return convert


@cache
def _integer_to_f64(source: str, rnd: str) -> Scalar:
    typed, wide = number(source), split(source)[1] == 64
    if rnd == "rn" or not wide:
        return compiled(lambda a: np.float64(typed(a)))
    signed = source[0] == "s"
    up_positive, up_negative = rnd == "rp", rnd == "rm"

    @compiled
    def convert(a: Any) -> Any:
        value = typed(a)
        negative = signed and value < typed(0)
        left = np.uint64(0) - np.uint64(value) if negative else np.uint64(value)
        result, shift = left, np.uint64(0)
        while result >= np.uint64(1 << 53):
            result >>= np.uint64(1)
            shift += np.uint64(1)
        if (result << shift) != left and ((up_positive and not negative) or (up_negative and negative)):
            result += np.uint64(1)
        magnitude = np.float64(result) * np.float64(np.uint64(1) << shift)
        return -magnitude if negative else magnitude

    return convert


@cache
def _pack(to: str, rnd: str, ftz: bool, sat: bool, satfinite: bool, relu: bool) -> Scalar:
    """Compiled: float64 -> bits of a float type below it, rounded once, then `ftz`, `sat`, `relu` applied."""
    narrow = narrower(to, rnd, satfinite)
    form = FORMATS[to]
    up = np.uint32(13 if to == "tf32" else 0)
    nan, low13 = np.uint32(FORMATS["f32"].nan or 0), to == "tf32"
    least_normal, sign = np.uint32(1 << form.mantissa), np.uint32(1 << (form.bits - 1))
    body = np.uint32((1 << (form.bits - 1)) - 1)
    one = np.uint32(form.bias << form.mantissa)

    @compiled
    def pack(value: Any) -> Any:
        code = np.uint32(narrow(value))
        if ftz and (code & body) < least_normal:
            code &= sign
        if sat:
            return np.uint32(0) if not value > 0.0 else min(code, one)
        if relu and value <= 0.0:
            return np.uint32(0)
        if low13 and value != value:
            return nan
        return np.uint32(code << up)

    return pack


@cache
def _float_to_float(to: str, source: str, rnd: str, ftz: bool, sat: bool, satfinite: bool, relu: bool) -> Scalar:
    if rnd in _TO_INTEGRAL:
        return _round_to_integral(to, source, rnd, ftz, sat)
    flushes = ftz and "f32" in (to, source)
    load = read_as_float64(source, flushes)
    if to == "f64":
        finish = finisher("f64", False, sat)
        return compiled(lambda a: finish(load(a)))
    if (
        source in ("f32", "f16", "bf16")
        and to in ("f16", "bf16")
        and rnd in ("rn", "")
        and not (sat or satfinite or relu)
    ):
        narrow = float32_to_half(to)
        single = loader("f32", flushes) if source == "f32" else half_to_float32(source)
        return compiled(lambda a: narrow(single(a)))
    pack = _pack(to, rnd or "rn", flushes and to == "f32", sat, satfinite, relu)
    if to == "f32" and source in ("f16", "bf16") and not (sat or flushes):
        widen, finish = half_to_float32(source), finisher("f32", False, False)
        return compiled(lambda a: finish(widen(a)))
    if to == source == "f32" and not (sat or relu or satfinite):
        flush = flusher("f32", flushes)
        return compiled(lambda a: flush(a))
    return compiled(lambda a: pack(load(a)))


def _round_to_integral(to: str, source: str, rnd: str, ftz: bool, sat: bool) -> Scalar:
    load, integral = read_as_float64(source, ftz), _TO_INTEGRAL[rnd]
    if to == "f64":
        finish = finisher("f64", False, sat)
        return compiled(lambda a: finish(integral(load(a))))
    # The nearest integer of a value may not fit a narrower type: it is then rounded as values are.
    pack = _pack(to, "rn", ftz and to == "f32", sat, False, False)
    return compiled(lambda a: pack(integral(load(a))))


def _to_bits(to: str, rnd: str, source: str, sat: bool) -> Scalar:
    """An integer converted to a float type, as bits."""
    convert = _integer_to_float(to, source, rnd)
    if to in ("f32", "f64"):
        finish = finisher(to, False, sat)
        if to == "f32" and not (rnd == "rn" and split(source)[1] == 32):
            one = np.uint32(0x3F80_0000)
            if not sat:
                return compiled(lambda a: np.uint32(convert(a)))
            return compiled(lambda a: _clamp_bits(np.uint32(convert(a)), one))
        return compiled(lambda a: finish(convert(a)))
    one = np.uint32(FORMATS[to].bias << FORMATS[to].mantissa)
    sign_shift = np.uint32(32 - FORMATS[to].bits)
    if not sat:
        return compiled(lambda a: np.uint32(convert(a)))
    return compiled(
        lambda a: _clamp_bits(np.uint32(np.uint32(convert(a)) << sign_shift), one << sign_shift) >> sign_shift
    )


@compiled
def _clamp_bits(bits: Any, one: Any) -> Any:
    return np.uint32(0) if bits >= np.uint32(0x8000_0000) else min(bits, one)


def _check(to: str, source: str) -> None:
    known = FLOATS + INTEGERS
    for kind in (to, source):
        if kind not in known:
            raise MisuseError(unknown("scalar type of cvt", kind, known))


@cache
def convert(
    to: str,
    source: str,
    rnd: str = "",
    ftz: bool = False,
    sat: bool = False,
    satfinite: bool = False,
    relu: bool = False,
) -> Operation:
    """cvt.to.source: `operation(a, out)`; `rnd` as written, "" where nothing is rounded."""
    _check(to, source)
    from_float, to_float = source in FLOATS, to in FLOATS
    if from_float and to_float:
        scalar = _float_to_float(to, source, rnd, ftz, sat, satfinite, relu)
    elif from_float:
        scalar = _float_to_integer(to, source, rnd or "rzi", ftz)
    elif to_float:
        scalar = _to_bits(to, rnd or "rn", source, sat)
    else:
        scalar = _integer_to_integer(to, source, sat)
    flags = "_ftz" * ftz + "_sat" * sat + "_satfinite" * satfinite + "_relu" * relu
    return row_kernel(f"cvt_{to}_{source}{'_' * bool(rnd)}{rnd}{flags}", scalar, 1)
