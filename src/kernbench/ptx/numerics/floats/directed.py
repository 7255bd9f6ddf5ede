"""float64 results in directed rounding modes: the nearest result, adjusted by the sign of its exact error."""

from collections.abc import Callable
from functools import cache

import numpy as np

from kernbench.ptx.numerics.rows.scalar import Flag, Integer, Real, bits_of_float64, compiled, float64_of, fma64

_SIGN = np.uint64(1 << 63)
_BODY = np.uint64((1 << 63) - 1)
_INFINITY = np.uint64(0x7FF0_0000_0000_0000)
_ONE, _ZERO, _MANTISSA = np.uint64(1), np.uint64(0), np.uint64(52)


@compiled
def two_sum(a: Real, b: Real) -> tuple[Real, Real]:
    """a + b and its exact error."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


@compiled
def finite(value: Real) -> Flag:
    """Whether a float64 is neither infinite nor NaN."""
    return (bits_of_float64(value) & _BODY) < _INFINITY


@compiled
def scaled(value: Real, exponent: Integer) -> Real:
    """value * 2**exponent in up to four steps, each within range; exact if the result is normal."""
    while exponent > 1000:
        value *= 2.0**1000
        exponent -= 1000
    while exponent < -1000:
        value *= 2.0**-1000
        exponent += 1000
    return value * float64_of(np.uint64(exponent + 1023) << _MANTISSA)


@compiled
def exponent_of(value: Real) -> np.int64:
    """Exponent of a finite nonzero value; that of a subnormal as if it were normalised."""
    field = np.int64((bits_of_float64(value) & _BODY) >> _MANTISSA)
    if field > 0:
        return field - 1023
    return np.int64((bits_of_float64(value * 2.0**54) & _BODY) >> _MANTISSA) - 1023 - 54


@compiled
def _sign_of_sum(a: Real, b: Real, c: Real, d: Real) -> Real:
    """Sign of the exact sum of four values without overflow or underflow, by an exact floating-point expansion."""
    s1, e1 = two_sum(a, b)
    q, h1 = two_sum(c, e1)
    s2, h2 = two_sum(q, s1)
    q, g1 = two_sum(d, h1)
    q, g2 = two_sum(q, h2)
    s3, g3 = two_sum(q, s2)
    for part in (s3, g3, g2, g1):
        if part != 0.0:
            return 1.0 if part > 0.0 else -1.0
    return 0.0


@compiled
def product_error(a: Real, b: Real, c: Real, result: Real) -> Real:
    """Sign of a * b - result; c is unused."""
    if a == 0.0 or b == 0.0:
        return 0.0
    ea, eb = exponent_of(a), exponent_of(b)
    return fma64(scaled(a, -ea), scaled(b, -eb), -scaled(result, -ea - eb))


@compiled
def fma_error(a: Real, b: Real, c: Real, result: Real) -> Real:
    """Sign of a * b + c - result."""
    if a == 0.0 or b == 0.0:
        return 0.0
    ea, eb = exponent_of(a), exponent_of(b)
    ma, mb = scaled(a, -ea), scaled(b, -eb)
    high = ma * mb
    low: Real = fma64(ma, mb, -high)
    product = ea + eb
    top = product if c == 0.0 else max(product, exponent_of(c))
    # of a term more than 300 binary places below the other only the sign matters, so any such small value will do
    down = max(product - top, np.int64(-300))
    high, low = scaled(high, down), scaled(low, down)
    addend = 0.0 if c == 0.0 else scaled(scaled(c, -exponent_of(c)), max(exponent_of(c) - top, np.int64(-300)))
    return _sign_of_sum(high, low, addend, -scaled(result, -top))


@compiled
def quotient_error(a: Real, b: Real, c: Real, result: Real) -> Real:
    """Sign of a / b - result; c is unused."""
    if a == 0.0:
        return 0.0
    ea, eb = exponent_of(a), exponent_of(b)
    mb = scaled(b, -eb)
    rest = fma64(-scaled(result, eb - ea), mb, scaled(a, -ea))
    return rest if mb > 0.0 else -rest


@compiled
def root_error(a: Real, b: Real, c: Real, result: Real) -> Real:
    """Sign of sqrt(a) - result; b and c are unused."""
    if a == 0.0:
        return 0.0
    half = exponent_of(a) // 2
    root = scaled(result, -half)
    return fma64(-root, root, scaled(a, -2 * half))


@cache
def stepper(mode: str) -> Callable[[Real, Real], Real]:
    """Compiled: (nearest result of finite operands, sign of exact - nearest) -> the result in a directed mode."""
    to_zero, down, up = mode == "rz", mode == "rm", mode == "rp"

    @compiled
    def step(nearest: Real, error: Real) -> Real:
        bits = bits_of_float64(nearest)
        negative = (bits & _SIGN) != _ZERO
        if (bits & _BODY) == _INFINITY:
            inward = to_zero or (down and not negative) or (up and negative)
            return float64_of(bits - _ONE) if inward else nearest
        if error == 0.0 or error != error:
            return nearest
        above = error > 0.0
        if (bits & _BODY) == _ZERO:
            # rounded to zero, from a value with the error's sign
            if above:
                return float64_of(_ONE if up else _ZERO)
            return float64_of(_SIGN | (_ONE if down else _ZERO))
        if (above and up) or ((not above) and down) or (to_zero and (above == negative)):
            grows = above != negative
            bits = bits + _ONE if grows else bits - _ONE
        return float64_of(bits)

    return step


@compiled
def _fused(a: Real, b: Real, c: Real) -> Real:
    return fma64(a, b, c)


@compiled
def _product(a: Real, b: Real, c: Real) -> Real:
    return a * b


@compiled
def _quotient(a: Real, b: Real, c: Real) -> Real:
    return a / b


@compiled
def _root(a: Real, b: Real, c: Real) -> Real:
    root: Real = np.sqrt(a)
    return root


_OPERATIONS = {
    "fma": (_fused, fma_error),
    "mul": (_product, product_error),
    "div": (_quotient, quotient_error),
    "sqrt": (_root, root_error),
}


@cache
def directed(name: str, mode: str) -> Callable[[Real, Real, Real], Real]:
    """Compiled: fma, mul, div or sqrt of three float64 (unused ones given as 1.0), rounded once in a directed mode."""
    nearest, error = _OPERATIONS[name]
    step = stepper(mode)
    is_sum, is_quotient, down = name == "fma", name == "div", mode == "rm"

    @compiled
    def operation(a: Real, b: Real, c: Real) -> Real:
        result = nearest(a, b, c)
        if not (finite(a) and finite(b) and finite(c)) or result != result or (is_quotient and b == 0.0):
            return result
        if not finite(result):
            return step(result, 0.0)
        off = error(a, b, c, result)
        if is_sum and down and result == 0.0 and off == 0.0:
            # rounding down, terms of opposite sign that cancel give a negative zero
            product_sign = (bits_of_float64(a) ^ bits_of_float64(b)) & _SIGN
            return 0.0 if (product_sign | (bits_of_float64(c) & _SIGN)) == _ZERO else -0.0
        return step(result, off)

    return operation
