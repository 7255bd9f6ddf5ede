"""Numbers of tensor cores: what the bits of each type mean, and values whose products and sums are exact."""

from functools import cache

import numpy as np

# bits, bits of the exponent, bits of the fraction, bias
_FLOATS = {
    "f16": (16, 5, 10, 15),
    "bf16": (16, 8, 7, 127),
    "e4m3": (8, 4, 3, 7),
    "e5m2": (8, 5, 2, 15),
    "e2m3": (6, 2, 3, 1),
    "e3m2": (6, 3, 2, 3),
    "e2m1": (4, 2, 1, 1),
}
BITS = {"tf32": 32, "s8": 8, "u8": 8, **{name: bits for name, (bits, *_) in _FLOATS.items()}}
# types of A and B in the instruction descriptor
CODES = {"f16": 0, "bf16": 1, "tf32": 2, "e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5, "u8": 0, "s8": 1}
RESULTS = {"f16": 0, "f32": 1, "s32": 2}


def value(code, kind):
    """What one element's bits mean."""
    if kind == "tf32":
        return float(np.uint32(code).view(np.float32))
    if kind in ("s8", "u8"):
        return float(code - 256 if kind == "s8" and code > 127 else code)
    bits, exponents, fractions, bias = _FLOATS[kind]
    sign = -1.0 if code >> (bits - 1) & 1 else 1.0
    exponent, fraction = code >> fractions & (1 << exponents) - 1, code & (1 << fractions) - 1
    if exponent == 0:
        return sign * fraction * 2.0 ** (1 - bias - fractions)
    return sign * (1 + fraction / (1 << fractions)) * 2.0 ** (exponent - bias)


@cache
def _exact(kind, small):
    """Codes of numbers of few bits, so that sums of their products need no rounding: of float16, if `small`."""
    unit, limit = (1.0, 2.0) if small else (0.125, 4.0)
    if kind in ("s8", "u8"):
        return np.arange(256, dtype=np.uint32)
    if kind in ("tf32", "f16", "bf16"):
        numbers = np.arange(-limit, limit + unit, unit).astype(np.float32)
        if kind == "f16":
            return numbers.astype(np.float16).view(np.uint16).astype(np.uint32)
        return numbers.view(np.uint32) >> np.uint32(0 if kind == "tf32" else 16)
    codes = range(1 << _FLOATS[kind][0])
    found = [code for code in codes if abs(value(code, kind)) <= limit and value(code, kind) % unit == 0]
    return np.array(found, np.uint32)


def draw(random, shape, kind, small=False):
    """Codes of random elements, and their values."""
    codes = random.choice(_exact(kind, small), shape)
    return codes, values(codes, kind)


def values(codes, kind):
    known = {int(code): value(int(code), kind) for code in np.unique(codes)}
    return np.array([known[int(code)] for code in np.asarray(codes).ravel()]).reshape(np.shape(codes))


def packed(codes, kind, container=None):
    """Rows of elements as bytes, the first in the lowest bits.

    `container` is how elements narrower than a byte lie: 16 together and then padding ("sixteen"), in a byte each
    ("byte"), or without any padding.
    """
    bits = BITS[kind]
    rows = (codes[..., None] >> np.arange(bits, dtype=np.uint32) & 1).astype(np.uint8)
    if bits < 8 and container == "byte":
        rows = np.pad(rows, [(0, 0)] * codes.ndim + [(0, 8 - bits)])
    if bits < 8 and container == "sixteen":
        rows = rows.reshape(*codes.shape[:-1], codes.shape[-1] // 16, 16 * bits)
        rows = np.pad(rows, [(0, 0)] * codes.ndim + [(0, 128 - 16 * bits)])
    return np.packbits(rows.reshape(*codes.shape[:-1], -1), axis=-1, bitorder="little")
