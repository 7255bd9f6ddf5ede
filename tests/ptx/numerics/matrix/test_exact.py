"""wgmma to the bit: terms cut below the largest exponent, against whole numbers without bounds."""

from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from kernbench.ptx.numerics.matrix.exact import exact_sums

DTYPES = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
}
LEAST = {"f16": -14, "bf16": -126, "tf32": -126, "e4m3": -6, "e5m2": -14, "f32": -126}


def exponent(value, kind):
    return max(int(np.frexp(float(value))[1]) - 1, LEAST[kind])


def cut(value, unit):
    """Toward zero, to a multiple of a power of two."""
    steps = abs(value) / unit
    whole = steps.numerator // steps.denominator
    return whole * unit if value > 0 else -whole * unit


def expected(a, b, c, kinds):
    """One element, the slow and obvious way."""
    pairs = [(x, y) for x, y in zip(a, b, strict=True) if x and y]
    terms = [(Fraction(float(x)) * Fraction(float(y)), exponent(x, kinds[1]) + exponent(y, kinds[2])) for x, y in pairs]
    if c:
        terms.append((Fraction(float(c)), exponent(c, "f32")))
    if not terms:
        return 0.0
    small = kinds[1] in ("e4m3", "e5m2")
    unit = Fraction(2) ** (max(e for _, e in terms) - (13 if small else 25))
    total = sum(cut(value, unit) for value, _ in terms)
    if not total:
        return 0.0
    leading = int(np.frexp(float(total))[1]) - 1
    return float(cut(total, Fraction(2) ** (leading - (13 if small else 23))))


@pytest.mark.sampled(8)
@pytest.mark.parametrize("spread", [0, 4, 12])
@pytest.mark.parametrize("kinds", [("f32", kind, kind) for kind in DTYPES] + [("f32", "e4m3", "e5m2")])
def test_sums_are_cut_as_they_were_seen(kinds, spread):
    rng = np.random.default_rng(spread)
    spread = min(spread, 5) if kinds[1][0] == "e" else spread
    k = {"tf32": 8, "e4m3": 32, "e5m2": 32}.get(kinds[1], 16)

    def made(rows, kind):
        values = rng.integers(-1000, 1001, (1, rows, k)) / 512 * 2.0 ** rng.integers(-spread, spread + 1, (1, rows, k))
        return values.astype(DTYPES[kind]).astype(np.float32)

    a, b = made(6, kinds[1]), made(8, kinds[2])
    c = (rng.standard_normal((1, 6, 8)) * 2.0 ** rng.integers(-6, 7, (1, 6, 8))).astype(np.float32)
    for addend in (None, c):
        bits = exact_sums(a, b, None if addend is None else addend.view(np.uint32), kinds)
        before = np.zeros((6, 8)) if addend is None else addend[0]
        wanted = [[expected(a[0, i], b[0, j], before[i, j], kinds) for j in range(8)] for i in range(6)]
        np.testing.assert_array_equal(bits.view(np.float32)[0], np.array(wanted, np.float32))


def test_f16_is_rounded_and_not_finite_values_stay():
    a, b = np.ones((1, 1, 16), np.float32), np.ones((1, 1, 16), np.float32)
    a[0, 0, 0] = 2049.0
    assert exact_sums(a, b, None, ("f16", "f16", "f16")).view(np.float16).item() == 2064.0
    a[0, 0, 0] = np.inf
    assert exact_sums(a, b, None, ("f32", "f16", "f16")).view(np.float32).item() == np.inf
    b[0, 0, 0] = 0.0
    assert exact_sums(a, b, None, ("f32", "f16", "f16")).item() == 0x7FFFFFFF
