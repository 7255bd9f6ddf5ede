"""An oracle in exact rational arithmetic, and bit patterns that matter."""

import math
from fractions import Fraction

import numpy as np
import pytest

from kernbench.ptx.numerics.rows.scalar import FORMATS

NAN, INFINITE = "nan", "infinite"


class Exact:
    """Values and rounding of one binary format, with Python's integers only."""

    def __init__(self, name):
        self.form = FORMATS[name]
        self.dtype = np.min_scalar_type((1 << self.form.bits) - 1)

    def decode(self, bits):
        """(sign, Fraction | "nan" | "infinite")."""
        form, bits = self.form, int(bits)
        sign, body = bits >> (form.bits - 1), bits & ((1 << (form.bits - 1)) - 1)
        if form.infinity is not None and body >= form.infinity:
            return sign, INFINITE if body == form.infinity else NAN
        if form.nan is not None and form.infinity is None and body > form.largest:
            return sign, NAN
        exponent, fraction = body >> form.mantissa, body & ((1 << form.mantissa) - 1)
        if exponent:
            fraction |= 1 << form.mantissa
        power = max(exponent, 1) - form.bias - form.mantissa
        return sign, Fraction(fraction) * Fraction(2) ** power * (-1 if sign else 1)

    def encode(self, value, mode="rn", zero_sign=0, satfinite=False):
        """Bits of a Fraction rounded once; `zero_sign` for an exact zero."""
        form = self.form
        if value == 0:
            return zero_sign << (form.bits - 1)
        sign, size = int(value < 0), abs(value)
        exponent = size.numerator.bit_length() - size.denominator.bit_length()
        exponent -= Fraction(2) ** exponent > size
        quantum = Fraction(2) ** (max(exponent, 1 - form.bias) - form.mantissa)
        units, rest = divmod(size, quantum)
        rest /= quantum
        half = Fraction(1, 2)
        up = {
            "rn": rest > half or (rest == half and units % 2 == 1),
            "rna": rest >= half,
            "rz": False,
            "rp": rest > 0 and not sign,
            "rm": rest > 0 and bool(sign),
        }[mode]
        code = int(units + up) + (max(exponent + form.bias, 1) - 1 << form.mantissa)
        if code > form.largest:
            outward = mode in ("rn", "rna") or (mode == "rp" and not sign) or (mode == "rm" and sign)
            code = form.infinity if outward and not satfinite and form.infinity is not None else form.largest
        return code | sign << (form.bits - 1)

    def edges(self):
        """Bit patterns where something changes, of both signs."""
        form = self.form
        normal, one = 1 << form.mantissa, form.bias << form.mantissa
        half = (form.bias - 1) << form.mantissa
        found = {0, 1, 2, normal - 1, normal, normal + 1, half, half + 1, one - 1, one, one + 1, one + normal // 2}
        found |= {one + (k << form.mantissa) for k in (1, 2, 5, form.mantissa, form.mantissa + 1)}
        found |= {form.largest - 1, form.largest, normal * 3 + 5, one + normal * 2 - 1}
        if form.infinity is not None:
            found |= {form.infinity, form.infinity + 1, form.infinity | normal >> 1, form.infinity | normal - 1}
        found = {bits for bits in found if bits < 1 << (form.bits - 1)}
        signed = sorted(found | {bits | 1 << (form.bits - 1) for bits in found})
        return np.array(signed, self.dtype)

    def samples(self, inputs, count, seed=0):
        """`inputs` rows: edges in random combinations, random bits, and numbers of nearby exponents."""
        random = np.random.default_rng(seed)
        third = count // 3
        near = self.form.bias << self.form.mantissa
        spread = 6 << self.form.mantissa
        rows = []
        for _ in range(inputs):
            close = near + random.integers(-spread, spread, count - 2 * third)
            close |= random.integers(0, 2, close.size) << (self.form.bits - 1)
            parts = [
                random.choice(self.edges(), third),
                random.integers(0, 1 << self.form.bits, third, dtype=np.uint64).astype(self.dtype),
                close.astype(np.uint64).astype(self.dtype),
            ]
            rows.append(np.concatenate(parts))
        return rows


def exact_root(value, bits=160):
    """sqrt as a Fraction, cut, with a trace of what was cut off beyond `bits` places."""
    shift = bits + (-bits) % 2
    scaled = (value.numerator << (2 * shift)) // value.denominator
    root = math.isqrt(scaled)
    inexact = root * root * value.denominator != value.numerator << (2 * shift)
    return Fraction(2 * root + inexact, 2 << shift)


@pytest.fixture(scope="session")
def exact():
    return Exact


@pytest.fixture(scope="session")
def root():
    return exact_root


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield
