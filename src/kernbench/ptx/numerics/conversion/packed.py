"""cvt of packed types: two f32 to halves or small floats and back, stochastic rounding, integer packing."""

import math
from collections.abc import Callable
from functools import cache

import numpy as np

from kernbench.common.errors import MisuseError, unknown
from kernbench.ptx.numerics.conversion import convert as plain
from kernbench.ptx.numerics.floats.half import float32_to_half
from kernbench.ptx.numerics.rows.loops import Factory, Operation, row_kernel
from kernbench.ptx.numerics.rows.scalar import (
    FORMATS,
    Bits,
    Real,
    bits_of_float32,
    compiled,
    float32_of,
    narrower,
    widener,
)
from kernbench.ptx.text.types import TYPES


@cache
def _scale_code(rnd: str, satfinite: bool) -> Callable[[Real], np.uint32]:
    """Compiled: float32 -> ue8m0, the exponent alone, without sign; NaN is 0xff."""
    up = rnd == "rp"
    beyond = np.uint32(0xFE if satfinite else 0xFF)

    @compiled
    def code(value: Real) -> np.uint32:
        bits = bits_of_float32(value) & np.uint32(0x7FFF_FFFF)
        if value != value:
            return np.uint32(0xFF)
        exponent = bits >> np.uint32(23)
        # the least code is 2**-127, half the least normal number
        halfway = np.uint32(0x0040_0000)
        rest = bits & np.uint32(0x007F_FFFF)
        if up and ((exponent > np.uint32(0) and rest > np.uint32(0)) or (exponent == np.uint32(0) and rest > halfway)):
            exponent += np.uint32(1)
        return beyond if exponent >= np.uint32(0xFF) else exponent

    return code


@cache
def encoder(to: str, rnd: str, satfinite: bool, relu: bool) -> Callable[[Real], np.uint32]:
    """Compiled: float32 -> the code of a half or small float, as uint32."""
    if to == "ue8m0":
        return _scale_code(rnd, satfinite)
    if rnd == "rn" and to in ("f16", "bf16") and not (satfinite or relu):
        return float32_to_half(to)
    narrow = narrower(to, rnd, satfinite)

    @compiled
    def encode(value: Real) -> np.uint32:
        code = np.uint32(narrow(np.float64(value)))
        return np.uint32(0) if relu and value <= np.float32(0.0) else code

    return encode


@cache
def decoder(source: str) -> Callable[[Bits], np.float32]:
    """Compiled: code of a small float -> float32."""
    if source != "ue8m0":
        widen = widener(source)
        return compiled(lambda code: np.float32(widen(code)))

    @compiled
    def decode(code: Bits) -> np.float32:
        exponent = np.uint32(code)
        if exponent == np.uint32(0xFF):
            return float32_of(np.uint32(0x7FFF_FFFF))
        return float32_of(exponent << np.uint32(23) if exponent > np.uint32(0) else np.uint32(0x0040_0000))

    return decode


def _lane_width(kind: str) -> int:
    """Bits per element of a packed register: 16 for halves, 8 for small floats (6-bit ones, too), 4 for e2m1."""
    return 16 if TYPES[kind].lane in ("f16", "bf16") else 4 if TYPES[kind].lane == "e2m1" else 8


def _key(*parts: object) -> str:
    return "_".join(str(part) for part in parts if part)


@cache
def _two_to_packed(to: str, rnd: str, satfinite: bool, relu: bool) -> Operation:
    """cvt.to.f32 d, a, b: a becomes the upper half."""
    encode, width = encoder(TYPES[to].lane, rnd, satfinite, relu), np.uint32(_lane_width(to))
    scalar = compiled(lambda a, b: np.uint32(np.uint32(encode(float32_of(a)) << width) | encode(float32_of(b))))
    return row_kernel(_key("cvt", to, "f32", rnd, "satfinite" * satfinite, "relu" * relu), scalar, 2)


@cache
def _packed_to_packed(to: str, source: str, rnd: str, satfinite: bool, relu: bool) -> Operation:
    """cvt between packed types, element by element."""
    lane = TYPES[source].lane
    load = plain.read_as_float64(lane) if lane in ("f16", "bf16") else decoder(lane)
    encode = encoder(TYPES[to].lane, rnd, satfinite, relu)
    read, written = np.uint32(_lane_width(source)), np.uint32(_lane_width(to))
    mask = np.uint32((1 << _lane_width(source)) - 1)

    @compiled
    def scalar(a: Bits) -> np.uint32:
        bits = np.uint32(a)
        low = encode(np.float32(load(bits & mask)))
        high = encode(np.float32(load((bits >> read) & mask)))
        return np.uint32(np.uint32(high << written) | low)

    return row_kernel(_key("cvt", to, source, rnd, "satfinite" * satfinite, "relu" * relu), scalar, 1)


@cache
def _stochastic(to: str, satfinite: bool, relu: bool) -> Callable[[Real, Bits], np.uint32]:
    """Compiled: (float32, random bits at the top of 32) -> code: they are added below the last place, then dropped.

    The number of random bits used is that of f32's mantissa bits beyond the target's, at most as many as there are.
    """
    name = TYPES[to].lane
    form = FORMATS[name]
    drop = 23 - form.mantissa
    narrow = narrower(name, "rz", satfinite)
    keep = np.uint32(32 - drop)
    least = np.float32(2.0 ** (1 - form.bias))
    step = float(least) * 2.0 ** -(form.mantissa + drop)

    @compiled
    def encode(value: np.floating, random: Bits) -> np.uint32:
        if relu and value <= np.float32(0.0):
            return np.uint32(0)
        bits = bits_of_float32(value)
        if (bits & np.uint32(0x7FFF_FFFF)) >= np.uint32(0x7F80_0000):
            return np.uint32(narrow(np.float64(value)))
        if abs(value) < least:
            # subnormal results: the same, at the fixed position of their last bit
            moved = np.float64(value) + math.copysign(step * np.float64(random >> keep), np.float64(value))
            return np.uint32(narrow(moved))
        return np.uint32(narrow(np.float64(float32_of(bits + np.uint32(random >> keep)))))

    return encode


@cache
def _stochastic_two(to: str, satfinite: bool, relu: bool) -> Operation:
    """cvt.rs.f16x2.f32 and bf16x2: d, a, b, rbits: a uses the upper half of rbits, b the lower."""
    encode = _stochastic(to, satfinite, relu)

    @compiled
    def scalar(a: Bits, b: Bits, random: Bits) -> np.uint32:
        high = encode(float32_of(a), np.uint32(random & np.uint32(0xFFFF_0000)))
        low = encode(float32_of(b), np.uint32(random << np.uint32(16)))
        return np.uint32(np.uint32(high << np.uint32(16)) | low)

    return row_kernel(_key("cvt", to, "rs", "satfinite" * satfinite, "relu" * relu), scalar, 3)


@cache
def _stochastic_four(to: str, satfinite: bool, relu: bool) -> Operation:
    """cvt.rs to four small floats: {a, b, e, f}, rbits: a is the highest; each pair shares 16 random bits."""
    encode, width = _stochastic(to, satfinite, relu), np.uint32(_lane_width(to))

    @compiled
    def scalar(a: Bits, b: Bits, e: Bits, f: Bits, random: Bits) -> np.uint32:
        upper, lower = np.uint32(random & np.uint32(0xFFFF_0000)), np.uint32(random << np.uint32(16))
        code = encode(float32_of(a), upper)
        code = np.uint32(np.uint32(code << width) | encode(float32_of(b), upper))
        code = np.uint32(np.uint32(code << width) | encode(float32_of(e), lower))
        return np.uint32(np.uint32(code << width) | encode(float32_of(f), lower))

    return row_kernel(_key("cvt", to, "rs", "satfinite" * satfinite, "relu" * relu), scalar, 5)


def convert(to: str, source: str, rnd: str = "rn", satfinite: bool = False, relu: bool = False) -> Operation:
    """cvt to or from a packed type: `operation(a, b, out)` from f32, `operation(a, out)` between packed types.

    Stochastic rounding: `operation(a, b, rbits, out)`, and with four values `operation(a, b, e, f, rbits, out)`.
    """
    for kind in (to, source):
        if kind not in TYPES:
            raise MisuseError(unknown("type of a packed cvt", kind, TYPES))
    if rnd == "rs":
        return (_stochastic_two if TYPES[to].lanes == 2 else _stochastic_four)(to, satfinite, relu)
    if source == "f32":
        return _two_to_packed(to, rnd, satfinite, relu)
    return _packed_to_packed(to, source, rnd, satfinite, relu)


@cache
def pack_integers(to: str, joins: bool) -> Operation:
    """cvt.pack.sat: `operation(a, b[, c], out)`: b lowest, then a, then the low bits of c above them."""
    signed, bits = to[0] == "s", int(to[1:])
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    least, most = np.int32(low), np.int32(high)
    mask, width, both = np.uint32((1 << bits) - 1), np.uint32(bits), np.uint32(2 * bits)
    clamp = compiled(lambda a: np.uint32(min(max(np.int32(a), least), most)) & mask)
    pair = compiled(lambda a, b: np.uint32(np.uint32(clamp(a) << width) | clamp(b)))
    if not joins:
        return row_kernel(f"cvt_pack_{to}", pair, 2)
    joined = compiled(lambda a, b, c: np.uint32(np.uint32(np.uint32(c) << both) | pair(a, b)))
    return row_kernel(f"cvt_pack_{to}_c", joined, 3)


# by meaning in the ISA table
FACTORIES: dict[str, Factory] = {
    "cvt.pack": lambda mods: pack_integers(mods["dtype"], "ctype" in mods),
}
