"""rcp and rsqrt of f64 with an H200's bits.

The unit reads the upper word of a double: 20 bits of the mantissa, used as those of an f32, and returns 20 bits of the
result. The forms with `.ftz` are just that. Without, ptxas appends one step of a third-order iteration, and scales
subnormal arguments.
"""

import numpy as np

from kernbench.ptx.numerics.rows.loops import Stages
from kernbench.ptx.numerics.rows.scalar import (
    Bits,
    Real,
    bits_of_float64,
    compiled,
    float64_of,
    fma64,
)
from kernbench.ptx.numerics.special.unit import UNITS

_SIGN, _QUIET = np.uint64(1 << 63), np.uint64(1 << 51)
_BODY, _INFINITY = np.uint64((1 << 63) - 1), np.uint64(0x7FF0_0000_0000_0000)
_UPPER, _UNIT_NAN = np.uint64(0xFFFF_FFFF_0000_0000), np.uint64(0x7FFF_FFFF_0000_0000)
_INVALID = np.uint64(0xFFF8_0000_0000_0000)
_LEAST_NORMAL = np.uint64(1 << 52)
_UP, _BACK = 2.0**54, 2.0**27
_rcp_whole, _rsqrt_whole = UNITS["rcp"].after, UNITS["rsqrt"].after


@compiled
def _leading(a: Bits) -> Bits:
    """The leading 20 bits of the mantissa, as the leading bits of an f32's."""
    return np.uint32((a >> np.uint64(29)) & np.uint64(0x7F_FFF8))


@compiled
def _in_one(a: Bits) -> Bits:
    """The f32 in [1, 2) with that mantissa."""
    return _leading(a) | np.uint32(0x3F80_0000)


@compiled
def _in_two(a: Bits) -> Bits:
    """The f32 in [1, 2), or in [2, 4) if the exponent of the double is odd."""
    odd = np.uint32(~(a >> np.uint64(52)) & np.uint64(1))
    return _leading(a) | np.uint32((np.uint32(127) + odd) << np.uint32(23))


@compiled
def _widened(result: Bits, down: np.int64) -> Bits:
    """The unit's f32 as the upper word of a double, divided by 2**down; zero if it would be subnormal."""
    exponent = np.int64(result >> np.uint32(23)) + np.int64(1023 - 127) - down
    mantissa = np.uint64(result & np.uint32(0x7F_FFF8)) << np.uint64(29)
    return np.uint64(np.uint64(exponent) << np.uint64(52)) | mantissa if exponent > 0 else np.uint64(0)


@compiled
def _reciprocal(a: Bits, value: Bits) -> Bits:
    sign, body = a & _SIGN, a & _BODY & _UPPER
    result = _widened(_rcp_whole(_in_one(a), value), np.int64(body >> np.uint64(52)) - np.int64(1023))
    result = result if body >= _LEAST_NORMAL else _INFINITY
    result = result if body < _INFINITY else np.uint64(0)
    return sign | result if body <= _INFINITY else _UNIT_NAN


@compiled
def _root_of_normal(a: Bits, value: Bits) -> Bits:
    down = (np.int64((a & _BODY) >> np.uint64(52)) - np.int64(1023)) >> np.int64(1)
    return _widened(_rsqrt_whole(_in_two(a), value), down)


@compiled
def _root(a: Bits, value: Bits) -> Bits:
    upper = a & _UPPER
    result = _root_of_normal(a, value)
    result = result if upper < _INFINITY else np.uint64(0)
    result = result if upper <= _INFINITY else _UNIT_NAN
    return result if (upper & _BODY) >= _LEAST_NORMAL else (a & _SIGN) | _INFINITY


@compiled
def _raised(a: Bits) -> Bits:
    """Subnormal numbers multiplied by 2**54."""
    return bits_of_float64(float64_of(a) * _UP) if (a & _BODY) < _LEAST_NORMAL else a


@compiled
def _refined(x: Real, y: Real) -> Real:
    error = fma64(x, -(y * y), 1.0)
    return fma64(fma64(error, 0.375, 0.5), y * error, y)


@compiled
def _whole_root(a: Bits, value: Bits) -> Bits:
    raised, body = _raised(a), a & _BODY
    result = _refined(float64_of(raised), float64_of(_root_of_normal(raised, value)))
    bits = bits_of_float64(result * _BACK if body < _LEAST_NORMAL else result)
    bits = bits if body != _INFINITY else np.uint64(0)
    bits = bits if a < _SIGN else _INVALID
    bits = bits if body else a | _INFINITY
    return bits if body <= _INFINITY else a | _QUIET


_RCP, _RSQRT = (UNITS[name]._replace(wide=True) for name in ("rcp", "rsqrt"))
_rcp_position, _rsqrt_position = _RCP.before, _RSQRT.before
# by name, and whether there is .ftz
DOUBLES: dict[tuple[str, bool], Stages] = {
    ("rcp", True): _RCP._replace(before=compiled(lambda a: _rcp_position(_in_one(a))), after=_reciprocal),
    ("rsqrt", True): _RSQRT._replace(before=compiled(lambda a: _rsqrt_position(_in_two(a))), after=_root),
    ("rsqrt", False): _RSQRT._replace(
        before=compiled(lambda a: _rsqrt_position(_in_two(_raised(a)))), after=_whole_root
    ),
}
