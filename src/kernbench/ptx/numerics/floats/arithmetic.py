"""f32 and f64 arithmetic, rounded once as in IEEE, in PTX's rounding modes, with flushing and saturation."""

from collections.abc import Callable
from functools import cache

import numpy as np

from kernbench.common.errors import MisuseError, unknown
from kernbench.ptx.numerics.floats.directed import directed
from kernbench.ptx.numerics.rows.loops import Operation, row_kernel
from kernbench.ptx.numerics.rows.scalar import (
    FORMATS,
    Bits,
    Flag,
    Real,
    bits_of_float32,
    bits_of_float64,
    compiled,
    float32_of,
    float64_of,
    fma32,
    fma64,
    narrower,
    odd_sum,
)

Core = Callable[..., Real]
Scalar = Callable[..., Bits]


@cache
def flusher(kind: str, ftz: bool) -> Scalar:
    """Compiled: bits of f32 or f64 -> the same, with `ftz` subnormals as zeros of the same sign."""
    form = FORMATS[kind]
    unsigned = np.uint32 if kind == "f32" else np.uint64
    exponent = unsigned(((1 << form.exponent) - 1) << form.mantissa)
    sign = unsigned(1 << (form.bits - 1))

    @compiled
    def flush(bits: Bits) -> Bits:
        if ftz and (bits & exponent) == unsigned(0):
            return bits & sign
        return bits

    return flush


@cache
def loader(kind: str, ftz: bool) -> Callable[[Bits], np.floating]:
    """Compiled: bits -> float, with `ftz` subnormals flushed."""
    flush = flusher(kind, ftz)
    if kind == "f32":

        @compiled
        def load32(bits: Bits) -> np.floating:
            return float32_of(flush(bits))

        return load32

    @compiled
    def load64(bits: Bits) -> np.floating:
        return float64_of(flush(bits))

    return load64


@cache
def finisher(kind: str, ftz: bool, sat: bool) -> Scalar:
    """Compiled: float result -> bits, with the canonical NaN; `ftz` flushes, `sat` clamps to [0, 1] and NaN to 0."""
    unsigned = np.uint32 if kind == "f32" else np.uint64
    to_bits = bits_of_float32 if kind == "f32" else bits_of_float64
    nan = unsigned(FORMATS[kind].nan or 0)
    one = unsigned(FORMATS[kind].bias << FORMATS[kind].mantissa)
    flush = flusher(kind, ftz)

    @compiled
    def finish(value: Real) -> Bits:
        bits = flush(to_bits(value))
        if sat:
            if not value > 0.0:
                return unsigned(0)
            return one if value > 1.0 else bits
        return bits if value == value else nan

    return finish


_NEAREST: dict[str, dict[str, Core]] = {
    "f32": {
        "add": compiled(lambda a, b: a + b),
        "sub": compiled(lambda a, b: a - b),
        "mul": compiled(lambda a, b: a * b),
        "div": compiled(lambda a, b: a / b),
        "fma": compiled(lambda a, b, c: fma32(a, b, c)),
        "rcp": compiled(lambda a: np.float32(1.0) / a),
        "sqrt": compiled(lambda a: np.sqrt(a)),
    },
    "f64": {
        "add": compiled(lambda a, b: a + b),
        "sub": compiled(lambda a, b: a - b),
        "mul": compiled(lambda a, b: a * b),
        "div": compiled(lambda a, b: a / b),
        "fma": compiled(lambda a, b, c: fma64(a, b, c)),
        "rcp": compiled(lambda a: 1.0 / a),
        "sqrt": compiled(lambda a: np.sqrt(a)),
    },
}

# in float64 these are exact, or rounded to odd, or (f32 quotients and roots) at least a float64 rounding away from
# every f32 rounding boundary unless exactly on it: so rounding them to f32, in any mode, rounds the exact result
_EXTENDED: dict[str, Core] = {
    "add": compiled(lambda a, b: odd_sum(np.float64(a), np.float64(b))),
    "sub": compiled(lambda a, b: odd_sum(np.float64(a), -np.float64(b))),
    "mul": compiled(lambda a, b: np.float64(a) * np.float64(b)),
    "div": compiled(lambda a, b: np.float64(a) / np.float64(b)),
    "fma": compiled(lambda a, b, c: odd_sum(np.float64(a) * np.float64(b), np.float64(c))),
    "rcp": compiled(lambda a: 1.0 / np.float64(a)),
    "sqrt": compiled(lambda a: np.sqrt(np.float64(a))),
}

ARITY = {"add": 2, "sub": 2, "mul": 2, "div": 2, "fma": 3, "rcp": 1, "sqrt": 1}


def _directed_f32(name: str, mode: str) -> Core:
    extended, narrow = _EXTENDED[name], narrower("f32", mode)
    is_sum, down, arity = name in ("add", "sub", "fma"), mode == "rm", ARITY[name]

    round_once = compiled(lambda value: float32_of(np.uint32(narrow(value))))
    if arity == 1:
        return compiled(lambda a: round_once(extended(a)))
    if arity == 2 and not (is_sum and down):
        return compiled(lambda a, b: round_once(extended(a, b)))
    if arity == 3 and not down:
        return compiled(lambda a, b, c: round_once(extended(a, b, c)))
    return _downward_sum(name, round_once)


def _downward_sum(name: str, round_once: Core) -> Core:
    """Sums rounded down: an exact zero is negative unless both terms are positive."""
    extended = _EXTENDED[name]
    zero, minus_zero = np.float32(0.0), np.float32(-0.0)

    @compiled
    def finish(total: Real, first_negative: Flag, second_negative: Flag) -> Real:
        if total == 0.0:
            return minus_zero if first_negative or second_negative else zero
        return round_once(total)

    negative = compiled(lambda a: (bits_of_float32(a) >> np.uint32(31)) != np.uint32(0))
    if name == "fma":
        return compiled(lambda a, b, c: finish(extended(a, b, c), negative(a) != negative(b), negative(c)))
    flip = name == "sub"
    return compiled(lambda a, b: finish(extended(a, b), negative(a), negative(b) != flip))


def _directed_f64(name: str, mode: str) -> Core:
    fused, product = directed("fma", mode), directed("mul", mode)
    quotient, root = directed("div", mode), directed("sqrt", mode)
    table: dict[str, Core] = {
        "add": lambda a, b: fused(a, 1.0, b),
        "sub": lambda a, b: fused(a, 1.0, -b),
        "mul": lambda a, b: product(a, b, 1.0),
        "div": lambda a, b: quotient(a, b, 1.0),
        "fma": lambda a, b, c: fused(a, b, c),
        "rcp": lambda a: quotient(1.0, a, 1.0),
        "sqrt": lambda a: root(a, 1.0, 1.0),
    }
    return compiled(table[name])


def _core(name: str, kind: str, rnd: str) -> Core:
    if rnd == "rn":
        return _NEAREST[kind][name]
    return (_directed_f32 if kind == "f32" else _directed_f64)(name, rnd)


QUIET = np.uint64(1 << 51)


@compiled
def is_nan64(bits: Bits) -> Flag:
    """Whether f64 bits are a NaN."""
    return (bits & np.uint64((1 << 63) - 1)) > np.uint64(0x7FF0_0000_0000_0000)


@compiled
def _passed_on(bits: Bits, first: Bits, second: Bits, third: Bits) -> Bits:
    """f64 results: a NaN result is the first NaN of three operands, quieted; else that of an invalid operation."""
    if not is_nan64(bits):
        return bits
    if is_nan64(first):
        return first | QUIET
    if is_nan64(second):
        return second | QUIET
    if is_nan64(third):
        return third | QUIET
    return _INVALID


_INVALID = np.uint64(FORMATS["f64"].nan or 0)


def _double_arithmetic(name: str, rnd: str) -> Scalar:
    """Of several NaN operands the second takes precedence over the third over the first; in a quotient the first."""
    core = _core(name, "f64", rnd)
    result = compiled(lambda value: bits_of_float64(value))
    if ARITY[name] == 1:
        return compiled(lambda a: _passed_on(result(core(float64_of(a))), a, a, a))
    if ARITY[name] == 3:
        return compiled(lambda a, b, c: _passed_on(result(core(float64_of(a), float64_of(b), float64_of(c))), b, c, a))
    first = name == "div"
    return compiled(
        lambda a, b: _passed_on(result(core(float64_of(a), float64_of(b))), a if first else b, b if first else a, a)
    )


def _flushed_quotient(core: Core) -> Core:
    """With .ftz an f32 quotient that is subnormal before rounding is flushed."""
    least, zero = np.float64(2.0**-126), np.float32(0.0)

    @compiled
    def quotient(a: Real, b: Real) -> Real:
        exact = np.float64(a) / np.float64(b)
        result = core(a, b)
        return result * zero if abs(exact) < least else result

    return quotient


def scalar_arithmetic(name: str, kind: str, rnd: str, ftz: bool, sat: bool) -> Scalar:
    """Compiled: bits of the operands -> bits of the result."""
    if kind == "f64":
        return _double_arithmetic(name, rnd)
    core, load, finish = _core(name, kind, rnd), loader(kind, ftz), finisher(kind, ftz, sat)
    if name == "div" and ftz:
        core = _flushed_quotient(core)
    shapes: dict[int, Scalar] = {
        1: lambda a: finish(core(load(a))),
        2: lambda a, b: finish(core(load(a), load(b))),
        3: lambda a, b, c: finish(core(load(a), load(b), load(c))),
    }
    return compiled(shapes[ARITY[name]])


@cache
def arithmetic(name: str, kind: str, rnd: str = "rn", ftz: bool = False, sat: bool = False) -> Operation:
    """add, sub, mul, div, fma, rcp or sqrt of f32 or f64 over rows of bits: `operation(*inputs, out)`."""
    if name not in ARITY:
        raise MisuseError(unknown("arithmetic operation", name, ARITY))
    key = "_".join([name, kind, rnd] + ["ftz"] * ftz + ["sat"] * sat)
    return row_kernel(key, scalar_arithmetic(name, kind, rnd, ftz, sat), ARITY[name])


# NumPy functions that give the same results on views of the rows, except for which NaN
NUMPY_EQUIVALENT: dict[tuple[str, str], tuple[np.ufunc, type]] = {
    (name, kind): (ufunc, view)
    for kind, view in (("f32", np.float32), ("f64", np.float64))
    for name, ufunc in (("add", np.add), ("sub", np.subtract), ("mul", np.multiply), ("div", np.divide))
}
