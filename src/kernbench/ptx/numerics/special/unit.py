"""The functions of the special function unit (MUFU in machine code), from f32 bits to f32 bits, as on an H200.

The unit's design is published (Oberman and Siu, A high-performance area-efficient multifunction interpolator, 2005).
The leading bits of the argument's mantissa select a row of a table; with the others, x, the result is
c0 + c1 x + c2 S(x), where S is the square of x without the partial products below its last position. Sums are integers.
The final truncation, and the constant that turns it into rounding, differ by function. Subnormal arguments and results
are zeros; only tanh returns small arguments unchanged.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from kernbench.ptx.numerics.rows.loops import Address, Stages, read
from kernbench.ptx.numerics.rows.scalar import (
    Bits,
    Flag,
    Integer,
    Real,
    bits_of_float32,
    bits_of_float64,
    compiled,
    float32_of,
    float64_of,
)
from kernbench.ptx.numerics.special.tables import EX2, LG2, RCP, RSQRT, SIN, SQRT, TANH, TANH_SLICES

Unit = Callable[[Bits], Bits]
Table = NDArray[np.int64]

NAN, INFINITY, ONE = np.uint32(0x7FFF_FFFF), np.uint32(0x7F80_0000), np.uint32(0x3F80_0000)
_SIGN, _BODY = np.uint32(0x8000_0000), np.uint32(0x7FFF_FFFF)
_LEAST_NORMAL = np.uint32(0x0080_0000)
_MANTISSA = np.int64(0x7F_FFFF)
_LOW_17 = np.int64(0x1_FFFF)


def _squares() -> NDArray[np.uint16]:
    """S(x) of a 17-bit x, at index x >> 2: x * x >> 19, without products of bits below position 18.

    Bit i adds x >> (18 - i). With x = 512 h + l that is h * h, plus twice the upper bits of l for each bit of h.
    """
    high, low = np.divmod(np.arange(0, 1 << 17, 4), 512)
    total = high * high >> 1
    for bit in range(1, 8):
        total += (high >> bit & 1) * (low >> (9 - bit))
    return total.astype(np.uint16)


_SQUARES = _squares()


def _scaled(rows: Table, c0: int, bias: int, c2: int = 1, unit: int = 1) -> Table:
    """Rows scaled to a common unit, as pairs: c0 plus the rounding constant, and c1 above c2."""
    c1, c2s = rows[:, 1] * unit, rows[:, 2] * c2 * unit
    return np.stack((((rows[:, 0] << c0) + bias) * unit, (c1 << 32) | (c2s & 0xFFFF_FFFF)), axis=1)


@compiled
def _sum(rows: Address, squares: Address, row: Integer, x: Integer) -> Integer:
    """c0 + c1 x + c2 S(x) of a row and a 17-bit x, before truncation; factors have 32 bits, which multiply faster."""
    first = np.uint64(row << 1)
    factors = read(rows, first + np.uint64(1))
    linear = np.int64(factors >> 32) * np.int64(np.int32(x))
    square = np.int64(np.int32(factors)) * np.int64(read(squares, np.uint64(x >> 2)))
    total: Integer = read(rows, first) + linear + square
    return total


@compiled
def _mantissa(a: Bits) -> Bits:
    return a & np.uint32(0x7F_FFFF)


@compiled
def _pair(a: Bits) -> Bits:
    """The mantissa with the exponent's parity above it: two powers of two have the same exponent of the root."""
    return np.uint32((a & np.uint32(0x7F_FFFF)) | (~a & np.uint32(0x80_0000)))


@compiled
def _rcp_table(position: Bits, rows: Address, squares: Address) -> Bits:
    x = np.int64(position & np.uint32(0xFFFF)) << 1
    return np.uint32(_sum(rows, squares, np.int64(position >> np.uint32(16)), x) >> 16)


@compiled
def _rcp_whole(a: Bits, value: Bits) -> Bits:
    body = a & _BODY
    bits = np.int32(np.int32((np.int32(252) - np.int32(body >> np.uint32(23))) << 23) + np.int32(value))
    result = np.uint32(bits) if bits >= np.int32(0x80_0000) else np.uint32(0)
    result = result if body >= _LEAST_NORMAL else INFINITY
    result = result if body != INFINITY else np.uint32(0)
    return np.uint32((a & _SIGN) | result) if body <= INFINITY else NAN


@compiled
def _rsqrt_table(position: Bits, rows: Address, squares: Address) -> Bits:
    return np.uint32(_sum(rows, squares, np.int64(position >> np.uint32(17)), np.int64(position) & _LOW_17) >> 16)


@compiled
def _rsqrt_whole(a: Bits, value: Bits) -> Bits:
    body = a & _BODY
    power = np.uint32(np.uint32(189) - (np.uint32((body >> np.uint32(23)) + np.uint32(1)) >> np.uint32(1)))
    # a power of four has an exact root, which the table misses by one
    result = np.uint32((value if _pair(a) else np.uint32(0x100_0000)) + np.uint32(power << np.uint32(23)))
    result = result if a != INFINITY else np.uint32(0)
    result = result if a <= INFINITY else NAN
    return result if body >= _LEAST_NORMAL else np.uint32(INFINITY | (a & _SIGN))


@compiled
def _sqrt_table(position: Bits, rows: Address, squares: Address) -> Bits:
    return np.uint32(_sum(rows, squares, np.int64(position >> np.uint32(17)), np.int64(position) & _LOW_17) >> 17)


@compiled
def _sqrt_whole(a: Bits, value: Bits) -> Bits:
    power = np.uint32(np.uint32(62) + (np.uint32((a >> np.uint32(23)) + np.uint32(1)) >> np.uint32(1)))
    result = np.uint32(value + np.uint32(power << np.uint32(23)))
    result = result if a != INFINITY else INFINITY
    result = result if a <= INFINITY else NAN
    return result if (a & _BODY) >= _LEAST_NORMAL else np.uint32(a & _SIGN)


@compiled
def _ex2_position(a: Bits) -> Bits:
    """The argument in fixed point with 23 fractional bits, truncated; if negative its complement, one unit less."""
    negative = a >= _SIGN
    limit = np.float32(127.0) if negative else np.float32(128.0)
    size = float32_of(a & _BODY)
    fixed = np.int32((size if size < limit else limit) * np.float32(2.0**23))
    short = np.int32(1) if fixed & np.int32(0x7F_FFFF) else np.int32(0)
    return np.uint32(-fixed - short) if negative else np.uint32(fixed)


@compiled
def _ex2_table(position: Bits, rows: Address, squares: Address) -> Bits:
    """At 128 these are the bits of infinity; below -126 they are not those of a normal number."""
    fraction = np.int64(position) & _MANTISSA
    power = np.int64(np.int32(position) >> np.int32(23)) + 126
    return np.uint32((power << 23) + (_sum(rows, squares, fraction >> 17, fraction & _LOW_17) >> 15))


@compiled
def _ex2_whole(a: Bits, value: Bits) -> Bits:
    result = value if value >= _LEAST_NORMAL else np.uint32(0)
    return result if (a & _BODY) <= INFINITY else NAN


@compiled
def _cut(total: Integer, unit: Real, negative: Flag) -> Bits:
    """A sum of units as f32, the mantissa truncated."""
    kept = float64_of(bits_of_float64(np.float64(total)) & np.uint64(0xFFFF_FFFF_E000_0000))
    bits = bits_of_float32(np.float32(kept * unit))
    return bits | _SIGN if negative else bits


@compiled
def _lg2(a: Bits, rows: Address, squares: Address) -> Bits:
    """log2(x), with 36 fractional bits before the last truncation: exact to 2^-22, and not better near 1."""
    mantissa, exponent = np.int64(a) & _MANTISSA, np.int64(a) >> 23
    total = (_sum(rows, squares, mantissa >> 17, mantissa & _LOW_17) >> 2) + ((exponent - 127) << 36)
    total = total if a != ONE else np.int64(0)
    negative = total < 0
    result = _cut(~total if negative else total, 2.0**-36, negative)
    result = result if a != INFINITY else INFINITY
    result = result if a <= INFINITY else NAN
    return result if (a & _BODY) >= _LEAST_NORMAL else np.uint32(INFINITY | _SIGN)


_PER_TURN = np.float64(np.float32(0.15915493667125702))


def _wave(quarter: int) -> Callable[[Bits, Address, Address], Bits]:
    """Compiled: sine (0) or cosine (1) of radians.

    The number of turns is the argument times float32(1 / 2pi), truncated to f32 by a multiplication before the unit;
    the unit uses quarters of a turn with 23 fractional bits.
    """

    @compiled
    def wave(a: Bits, rows: Address, squares: Address) -> Bits:
        turns = bits_of_float64(np.float64(float32_of(a & _BODY)) * _PER_TURN) & np.uint64(0xFFFF_FFFF_E000_0000)
        shift = np.int64(turns >> np.uint64(52)) - 1023 + 2
        significand = np.int64((turns >> np.uint64(29)) & np.uint64(0x7F_FFFF)) | 0x80_0000
        left, right = min(shift, np.int64(25)), min(-shift, np.int64(24))
        fixed = significand << left if shift >= 0 else significand >> right
        turn = ((fixed >> 23) & 3) + quarter
        fraction = (~fixed if turn & 1 else fixed) & _MANTISSA
        negative = (turn & 2) != 0
        if quarter == 0:
            negative = negative != (a >= _SIGN)
        result = _cut(_sum(rows, squares, fraction >> 17, fraction & _LOW_17), 2.0**-37, negative)
        return result if (a & _BODY) < INFINITY else NAN

    return wave


_FIRST_TANH, _POWERS = 119, len(TANH_SLICES)


def _tanh_rows() -> Table:
    """The rows, followed by a pair for each power of two: number of bits that select the slice, and its first row."""
    firsts = np.cumsum([0, *TANH_SLICES[:-1]])
    bits = np.array([count.bit_length() - 1 for count in TANH_SLICES])
    return np.concatenate([_scaled(TANH, 14, 0), np.stack((bits, firsts), axis=1)])


_POWERS_FROM = 2 * len(TANH)


@compiled
def _tanh(a: Bits, rows: Address, squares: Address) -> Bits:
    """tanh(x): x itself below 2^-8, one from 8 on."""
    body = a & _BODY
    mantissa, power = np.int64(body) & _MANTISSA, (np.int64(body) >> 23) - _FIRST_TANH
    within = min(max(power, np.int64(0)), np.int64(_POWERS - 1))
    where = np.uint64(_POWERS_FROM + 2 * within)
    bits, first = read(rows, where), read(rows, where + np.uint64(1))
    total = _sum(rows, squares, first + (mantissa >> (23 - bits)), (mantissa >> (6 - bits)) & _LOW_17)
    result = _cut(total, 2.0**-40, False)
    result = body if power < 0 else result
    result = ONE if power >= _POWERS else result
    return np.uint32((a & _SIGN) | result) if body <= INFINITY else NAN


_same = compiled(lambda a: a)
_last = compiled(lambda a, value: value)
_ROOTS = np.concatenate([_scaled(SQRT[:64], 15, 0xFFFF, 2), _scaled(SQRT[64:], 14, 0x7FFF, unit=2)])
UNITS = {
    "ex2": Stages(_ex2_position, _ex2_table, _ex2_whole, _scaled(EX2, 13, 0x77E2), _SQUARES),
    "lg2": Stages(_same, _lg2, _last, _scaled(LG2, 12, 0x3345, 2), _SQUARES),
    "rcp": Stages(_mantissa, _rcp_table, _rcp_whole, _scaled(RCP * np.array([2, 1, 2]), 13, 2 * 0x47E7), _SQUARES),
    "rsqrt": Stages(_pair, _rsqrt_table, _rsqrt_whole, _scaled(RSQRT, 14, 0x7FFF, 4), _SQUARES),
    "sqrt": Stages(_pair, _sqrt_table, _sqrt_whole, _ROOTS, _SQUARES),
    "sin": Stages(_same, _wave(0), _last, _scaled(SIN, 11, 0), _SQUARES),
    "cos": Stages(_same, _wave(1), _last, _scaled(SIN, 11, 0), _SQUARES),
    "tanh": Stages(_same, _tanh, _last, _tanh_rows(), _SQUARES),
}
