"""cvt between scalar types: integers, f16, bf16, f32, f64, tf32, in every rounding, saturating and flushing mode."""

from collections.abc import Callable
from functools import cache

import numpy as np

from kernbench.common.errors import MisuseError, unknown
from kernbench.ptx.numerics.floats.arithmetic import QUIET, finisher, is_nan64, loader
from kernbench.ptx.numerics.floats.half import float32_to_half, float64_to_half, half_to_float32
from kernbench.ptx.numerics.integers.arithmetic import UNSIGNED, number, split
from kernbench.ptx.numerics.rows.loops import Operation, row_kernel
from kernbench.ptx.numerics.rows.scalar import (
    FORMATS,
    Bits,
    Integer,
    Real,
    Value,
    compiled,
    float64_of,
    integral,
    narrower,
    saturating_integer,
)

Scalar = Callable[[Bits], Value]
FLOATS = ("f16", "bf16", "f32", "f64", "tf32")
INTEGRAL = ("rni", "rzi", "rmi", "rpi")
INTEGERS = tuple(f"{letter}{bits}" for letter in "usb" for bits in (8, 16, 32, 64))


@cache
def read_as_float64(kind: str, ftz: bool = False) -> Callable[[Bits], np.float64]:
    """Compiled: bits of a scalar float type -> float64; `ftz` flushes subnormals."""
    load = _load(kind, ftz)
    return compiled(lambda bits: np.float64(load(bits)))


@cache
def _load(kind: str, ftz: bool) -> Callable[[Bits], Real]:
    """Compiled: bits -> float32, or float64 for f64."""
    if kind in ("f16", "bf16"):
        return half_to_float32(kind, ftz)
    return loader("f64" if kind == "f64" else "f32", ftz and kind != "f64")


@cache
def _integer_to_integer(to: str, source: str, sat: bool) -> Scalar:
    wide, result = number(source), number(to)
    low = max(int(np.iinfo(result).min), int(np.iinfo(wide).min))
    high = min(int(np.iinfo(result).max), int(np.iinfo(wide).max))
    least, most = wide(low), wide(high)

    @compiled
    def convert(a: Bits) -> Integer:
        value = wide(a)
        if sat and value > most:
            return result(high)
        if sat and value < least:
            return result(low)
        return result(value)

    return convert


@cache
def _float_to_integer(to: str, source: str, rnd: str, ftz: bool) -> Scalar:
    """Clamps to the range; NaN gives 0, or only the top bit if the source is f64 or the result has 64 bits."""
    kind = "f64" if source == "f64" else "f32"
    load, to_integral, clamp = _load(source, ftz and source == "f32"), integral(kind, rnd), saturating_integer(to, kind)
    bits, truncates = split(to)[1], rnd == "rzi"
    if source != "f64" and bits != 64:
        if truncates:
            return compiled(lambda a: clamp(load(a)))
        return compiled(lambda a: clamp(to_integral(load(a))))
    nan, result = UNSIGNED[bits](1 << (bits - 1)), number(to)

    @compiled
    def convert(a: Bits) -> Integer:
        value = load(a)
        return clamp(to_integral(value)) if value == value else result(nan)

    return convert


@cache
def _integer_to_float(to: str, source: str, rnd: str) -> Scalar:
    """One rounding: by way of float64 if that is exact for the integer, else of float64 rounded to odd."""
    typed = number(source)
    if to == "f32" and rnd == "rn" and split(source)[1] == 32:
        return compiled(lambda a: np.float32(typed(a)))
    if to == "f64":
        return _integer_to_f64(source, rnd)
    narrow = narrower(to, rnd)
    odd = _integer_to_odd(source)
    return compiled(lambda a: narrow(odd(a)))


@cache
def _integer_to_odd(source: str) -> Callable[[Bits], np.float64]:
    """Compiled: integer -> float64, rounded to odd if it has more than 53 bits."""
    typed, wide = number(source), split(source)[1] == 64
    signed = source[0] == "s"

    @compiled
    def convert(a: Bits) -> np.float64:
        value = typed(a)
        if not wide:
            return np.float64(value)
        negative = signed and value < typed(0)
        magnitude = np.uint64(0) - np.uint64(value) if negative else np.uint64(value)
        # drop 11 bits, or none, and keep whether any was set (round to odd)
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
def _integer_to_f64(source: str, rnd: str) -> Callable[[Bits], np.float64]:
    typed, wide = number(source), split(source)[1] == 64
    if rnd == "rn" or not wide:
        return compiled(lambda a: np.float64(typed(a)))
    signed = source[0] == "s"
    up_positive, up_negative = rnd == "rp", rnd == "rm"

    @compiled
    def convert(a: Bits) -> np.float64:
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
def _pack(to: str, rnd: str, ftz: bool, sat: bool, satfinite: bool, relu: bool) -> Callable[[Real], Bits]:
    """Compiled: float64 -> bits of a float type below it, rounded once, then `ftz`, `sat`, `relu` applied."""
    form, narrow = FORMATS[to], _narrow(to, rnd, satfinite)
    up = np.uint32(13 if to == "tf32" else 0)
    least_normal, sign = np.uint32(1 << form.mantissa), np.uint32(1 << (form.bits - 1))
    body = np.uint32((1 << (form.bits - 1)) - 1)
    one = np.uint32(form.bias << form.mantissa)

    @compiled
    def pack(value: Real) -> np.uint32:
        code = np.uint32(narrow(value))
        if ftz and (code & body) < least_normal:
            code &= sign
        if sat:
            return np.uint32(0) if not value > 0.0 else min(code, one)
        if relu and value <= 0.0:
            return np.uint32(0)
        return np.uint32(code << up)

    return pack


def _narrow(to: str, rnd: str, satfinite: bool) -> Callable[[Real], Bits]:
    """Compiled: float64 -> code; fast paths for rounding to nearest, where they exist."""
    if rnd == "rn" and not satfinite and to in ("f16", "bf16"):
        return float64_to_half(to)
    if rnd == "rn" and to == "f32":
        finish = finisher("f32", False, False)
        return compiled(lambda value: finish(np.float32(value)))
    return narrower(to, rnd, satfinite)


def _float_to_float(to: str, source: str, rnd: str, ftz: bool, sat: bool, satfinite: bool, relu: bool) -> Scalar:
    if rnd in INTEGRAL:
        return _round_to_integral(to, source, rnd, ftz, sat)
    if to == "f64":
        return _widen_to_f64(source, ftz, sat)
    if to == "tf32":
        return _to_tf32(rnd, satfinite, relu)
    if to == source and not sat:
        return _same(to, ftz)
    # only f32 flushes: as a source if the result is f32, too, and as a result always
    flushes = ftz and to == "f32"
    if to == "f32" and source in ("f16", "bf16") and not sat:
        return _widen_to_f32(source, flushes)
    if source != "f64" and to in ("f16", "bf16") and rnd in ("rn", "") and not (sat or satfinite or relu):
        narrow, single = float32_to_half(to), _load(source, False)
        return compiled(lambda a: narrow(single(a)))
    load, pack = read_as_float64(source), _pack(to, rnd or "rn", flushes, sat, satfinite, relu)
    if source == "f64" and not sat:
        return _narrow_from_f64(to, pack)
    return compiled(lambda a: pack(load(a)))


def _same(kind: str, ftz: bool) -> Scalar:
    """A type to itself: the same bits, or flushed with the canonical NaN."""
    if not (ftz and kind == "f32"):
        return compiled(lambda a: a)
    load, finish = loader("f32", True), finisher("f32", True, False)
    return compiled(lambda a: finish(load(a)))


def _widen_to_f32(source: str, ftz: bool) -> Scalar:
    """bf16 is only shifted, NaN included, unless it flushes."""
    widen, finish = half_to_float32(source), finisher("f32", ftz, False)
    if source == "bf16" and not ftz:
        return compiled(lambda a: np.uint32(np.uint32(a) << np.uint32(16)))
    return compiled(lambda a: finish(widen(a)))


@cache
def _widen_to_f64(source: str, ftz: bool, sat: bool) -> Scalar:
    """A NaN keeps sign and payload, quieted; with flushing of f32 it becomes canonical first."""
    if source == "f64" and not sat:
        return compiled(lambda a: a)
    form, load = FORMATS[source], read_as_float64(source, ftz and source == "f32")
    up, sign_up = np.uint64(52 - form.mantissa), np.uint64(64 - form.bits)
    sign, payload = np.uint64(1 << 63), np.uint64((1 << form.mantissa) - 1)
    quiet, canonical = np.uint64(0x7FF8_0000_0000_0000), ftz and source == "f32"
    finish = finisher("f64", False, sat)

    @compiled
    def widen(a: Bits) -> Bits:
        value = load(a)
        if sat or value == value:
            return finish(value)
        if canonical:
            return np.uint64(0x7FFF_FFFF_E000_0000)
        bits = np.uint64(a)
        return ((bits << sign_up) & sign) | quiet | ((bits & payload) << up)

    return widen


def _narrow_from_f64(to: str, pack: Callable[[Real], Bits]) -> Scalar:
    """A NaN keeps sign and the upper bits of its payload, quieted."""
    form = FORMATS[to]
    down, sign_down = np.uint64(52 - form.mantissa), np.uint64(64 - form.bits)
    sign, payload = np.uint64(1 << (form.bits - 1)), np.uint64((1 << form.mantissa) - 1)
    quiet = np.uint64((form.infinity or 0) | 1 << (form.mantissa - 1))

    @compiled
    def narrow(a: Bits) -> Bits:
        value = float64_of(a)
        if value == value:
            return np.uint32(pack(value))
        return np.uint32(((a >> sign_down) & sign) | quiet | ((a >> down) & payload))

    return narrow


def _to_tf32(rnd: str, satfinite: bool, relu: bool) -> Scalar:
    """rna works on the bits alone: a NaN is truncated; with satfinite it and infinity become the next lower code."""
    pack, load = _pack("tf32", rnd, False, False, satfinite, relu), read_as_float64("f32")
    if rnd != "rna":
        return compiled(lambda a: pack(load(a)))
    cut, step = np.uint32(0xFFFF_E000), np.uint32(0x2000 if satfinite else 0)
    infinity, body = np.uint32(0x7F80_0000), np.uint32(0x7FFF_FFFF)

    @compiled
    def round_away(a: Bits) -> Bits:
        bits = np.uint32(a)
        special = (bits & infinity) == infinity
        rounded = np.uint32((bits if special else np.uint32(bits + np.uint32(0x1000))) & cut)
        return np.uint32(rounded - step) if (rounded & body) >= infinity else rounded

    return round_away


def _round_to_integral(to: str, source: str, rnd: str, ftz: bool, sat: bool) -> Scalar:
    kind = "f64" if source == "f64" else "f32"
    load, to_integral = _load(source, ftz and source == "f32"), integral(kind, rnd)
    if to == "f64":
        finish = finisher("f64", False, sat)

        @compiled
        def double(a: Bits) -> Bits:
            if not sat and is_nan64(a):
                return a | QUIET
            return finish(np.float64(to_integral(load(a))))

        return double
    if to == "f32" and source != "f64":
        finish = finisher("f32", ftz, sat)
        return compiled(lambda a: finish(to_integral(load(a))))
    # an integral value may not fit a narrower type: it is then rounded as any value
    pack = _pack(to, "rn", False, sat, False, False)
    return compiled(lambda a: pack(np.float64(to_integral(load(a)))))


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
def _clamp_bits(bits: Bits, one: Bits) -> Bits:
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
    """cvt.to.source: `operation(a, out)`; `rnd` as written, "" if nothing is rounded."""
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
