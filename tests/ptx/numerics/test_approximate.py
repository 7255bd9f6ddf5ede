"""Approximate functions: an H200's own outputs, a second implementation in whole numbers, and the ISA's bounds."""

import math
import zlib
from fractions import Fraction

import numpy as np
import pytest

from kernbench.ptx.numerics import BOUNDS, operation
from kernbench.ptx.numerics.approximate import approximate, divide
from kernbench.ptx.numerics.special import tables

NAN, INFINITE, MINUS, ONE = 0x7FFFFFFF, 0x7F800000, 0xFF800000, 0x3F800000

# checksums of an H200's outputs for every 4099th mantissa, by the upper nine bits of the argument
H200 = {
    "ex2": {
        116: 0x7D051D7D,
        118: 0x5CA54FDD,
        120: 0x23119418,
        122: 0xCF2766E8,
        123: 0xFD839F33,
        124: 0x5AEC4C67,
        125: 0xDEE820FC,
        126: 0xFC8AE655,
        127: 0xE4F34231,
        128: 0xC4A16F63,
        130: 0x2F4F80FE,
        133: 0x68E23BB0,
        381: 0x152F5471,
        382: 0x2B6CF70A,
        383: 0xA9332E33,
        384: 0x210562A7,
        386: 0xF1E7805E,
    },
    "lg2": {125: 0xB546E64E, 126: 0x637A0F13, 127: 0x48407F6C, 128: 0x9829EDDB, 130: 0x9389E5F0, 200: 0x6028187A},
    "rcp": {1: 0xCDC1C815, 126: 0xA6310B0A, 127: 0x92F79598, 252: 0x63D30C04},
    "rsqrt": {1: 0x5A1C5ED0, 127: 0xDC2B3211, 128: 0x1990FDF8},
    "sqrt": {1: 0x547ADB32, 127: 0x159BBF90, 128: 0x3A51D094},
    "sin": {
        122: 0xFD662590,
        124: 0x92B20DBE,
        125: 0x884CEA30,
        126: 0xE2C310E3,
        127: 0x17205CF1,
        128: 0xEB03A9DA,
        130: 0xC6BD7363,
        133: 0x164AC19B,
        383: 0xD52ED062,
    },
    "cos": {
        122: 0x2B0D0774,
        124: 0x79284CC0,
        125: 0x3CE6A0F0,
        126: 0x9AD7634B,
        127: 0x51C7D9D0,
        128: 0x886AF5F6,
        130: 0x48FBAD73,
        133: 0x5FD74492,
        383: 0x51C7D9D0,
    },
    "tanh": {
        116: 0xB664503A,
        118: 0x65EDC8DE,
        119: 0xB5E0DE40,
        120: 0x7AE7ACDD,
        121: 0x79E8F45F,
        122: 0x799E0DD8,
        123: 0x91EE7CAD,
        124: 0xBBCD83BE,
        125: 0x8A9ABF42,
        126: 0x21072A4A,
        127: 0xF77DF5FC,
        128: 0xBF38F04A,
        129: 0xEBA17337,
        130: 0x40C781CF,
        382: 0xE309A6D9,
    },
}


def apply(name, a, ftz=True, kind="f32"):
    out = np.empty_like(a)
    approximate(name, kind, ftz and name != "tanh")(a, out)
    return out


@pytest.mark.parametrize("name", H200)
def test_the_bits_are_an_h200s(name):
    for upper, checksum in H200[name].items():
        a = np.arange(0, 1 << 23, 4099, dtype=np.uint32) | np.uint32(upper << 23)
        assert zlib.crc32(apply(name, a).astype("<u4").tobytes()) == checksum, (name, upper)


def square(x):
    """The squarer as it is described: each set bit adds the number, shifted, and what falls out is not added."""
    return sum(x >> (18 - bit) for bit in range(17) if x >> bit & 1) >> 1


def total(rows, position, width, bits=17):
    """c0 + c1 x + c2 S(x) with the three already scaled by `width`."""
    row, x = divmod(position, 1 << bits)
    c0, c1, c2 = (int(c) for c in rows[row])
    return (c0 << width[0]) + c1 * x + c2 * square(x << (17 - bits)) * width[1] + width[2]


def bits_of(numerator, digits, negative=0):
    """A number of units of 2**-digits as f32, cut."""
    if numerator == 0:
        return negative << 31
    power = numerator.bit_length() - 1
    mantissa = numerator << 23 >> power if power > 23 else numerator << (23 - power)
    return negative << 31 | (power - digits + 126 << 23) + mantissa


def slow_ex2(a):
    sign, size = a >> 31, Fraction(float(np.uint32(a & 0x7FFFFFFF).view(np.float32)))
    whole, position = divmod(math.floor(size * 2**23), 1 << 23)
    if sign:
        whole, position = (-whole - 1, 0x7FFFFF - position) if position else (-whole, 0)
    value = total(tables.EX2, position, (13, 1, 0x77E2)) >> 15
    if whole >= 128:
        return INFINITE
    return (whole + 126 << 23) + value if whole >= -126 else 0


def slow_rcp(a):
    exponent = a >> 23 & 255
    value = total(tables.RCP, a & 0x7FFFFF, (13, 1, 0x47E7), 16) >> 15
    result = (252 - exponent << 23) + value
    return a & 0x80000000 | (result if result >= 1 << 23 else 0)


def slow_lg2(a):
    value = total(tables.LG2, a & 0x7FFFFF, (12, 2, 0x3345)) >> 2 if a != ONE else 0
    value += (a >> 23) - 127 << 36
    return bits_of(~value if value < 0 else value, 36, int(value < 0))


def slow_sin(a, quarter=0):
    turns = Fraction(float(np.uint32(a & 0x7FFFFFFF).view(np.float32))) * Fraction(float(np.float32(0.5 / math.pi)))
    power = math.floor(math.log2(turns))
    turns = Fraction(math.floor(turns / Fraction(2) ** (power - 23))) * Fraction(2) ** (power - 23)
    turn, position = divmod(math.floor(turns * 2**25), 1 << 23)
    turn += quarter
    position = 0x7FFFFF - position if turn & 1 else position
    negative = (turn >> 1 & 1) ^ (0 if quarter else a >> 31)
    return bits_of(total(tables.SIN, position, (11, 1, 0)), 37, negative)


SLOW = {"ex2": slow_ex2, "rcp": slow_rcp, "lg2": slow_lg2, "sin": slow_sin, "cos": lambda a: slow_sin(a, 1)}


@pytest.mark.parametrize("name", SLOW)
def test_a_second_implementation_gives_the_same_bits(name):
    a = np.random.default_rng(5).integers(1 << 23, 0x7F800000, 700, dtype=np.uint32)
    if name in ("ex2", "sin", "cos"):
        a = np.concatenate([a, np.random.default_rng(6).uniform(-140, 140, 700).astype(np.float32).view(np.uint32)])
    if name in ("ex2", "rcp"):
        a = np.concatenate([a, a | np.uint32(1 << 31)])
    assert apply(name, a).tolist() == [SLOW[name](int(one)) for one in a]


REFERENCES = {
    "ex2": (np.exp2, -126, 128, 2.0**-22, 0),
    "lg2": (np.log2, 1e-30, 1e30, 2.0**-22, 2.0**-22),
    "tanh": (np.tanh, -9, 9, 2.0**-11, 0),
    "rcp": (lambda x: 1 / x, -1e20, 1e20, 2.0**-23, 0),
    "rsqrt": (lambda x: 1 / np.sqrt(x), 1e-30, 1e30, 2.0**-22.9, 0),
    "sqrt": (np.sqrt, 1e-30, 1e30, 2.0**-23, 0),
}


@pytest.mark.parametrize("name", REFERENCES)
def test_errors_are_within_the_bounds_of_the_isa(name):
    function, low, high, relative, absolute = REFERENCES[name]
    a = np.random.default_rng(0).uniform(low, high, 20_000).astype(np.float32)
    if low > 0:
        a = np.exp(np.random.default_rng(0).uniform(np.log(low), np.log(high), 20_000)).astype(np.float32)
    got = apply(name, a.view(np.uint32), ftz=False).view(np.float32).astype(np.float64)
    want = function(a.astype(np.float64))
    assert (np.abs(got - want) <= np.maximum(np.abs(want) * relative, absolute)).all()
    assert f"{name}.approx.f32" in BOUNDS


def test_special_values_of_approximations():
    a = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, -1.0, 1e-40], np.float32).view(np.uint32)
    table = {
        ("ex2", True): [ONE, ONE, INFINITE, 0, NAN, 0x3F000000, ONE],
        ("lg2", True): [MINUS, MINUS, INFINITE, NAN, NAN, NAN, MINUS],
        ("rcp", True): [INFINITE, MINUS, 0, 0x80000000, NAN, 0xBF800000, INFINITE],
        ("rsqrt", True): [INFINITE, MINUS, 0, NAN, NAN, NAN, INFINITE],
        ("sqrt", True): [0, 0x80000000, INFINITE, NAN, NAN, NAN, 0],
        ("sin", True): [0, 0x80000000, NAN, NAN, NAN, 0xBF576AA3, 0],
        ("cos", True): [ONE, ONE, NAN, NAN, NAN, 0x3F0A5141, ONE],
        # an H200's tanh(-1), 114 units of the last position from the true one
        ("tanh", False): [0, 0x80000000, ONE, 0xBF800000, NAN, 0xBF42F848, 0x000116C2],
    }
    for (name, ftz), want in table.items():
        assert [hex(x) for x in apply(name, a, ftz)] == [hex(x) for x in want], name


def test_sine_reduces_its_argument_as_hardware_does():
    near = np.linspace(-6.2, 6.2, 5001, dtype=np.float32)
    assert (
        np.abs(apply("sin", near.view(np.uint32)).view(np.float32) - np.sin(near.astype(np.float64))).max() < 2**-20.5
    )
    assert (
        np.abs(apply("cos", near.view(np.uint32)).view(np.float32) - np.cos(near.astype(np.float64))).max() < 2**-20.5
    )
    # An H200's answer, far from sin(23,587,512) = 0.729.
    assert apply("sin", np.array([0x4BB3F55C], np.uint32))[0] == 0xBF800000


def test_subnormal_numbers_without_ftz():
    a = np.array([1e-40, 1e-45, 2.0**-126, 3e38, 2.0**126, -1e-40], np.float32)
    x = a.astype(np.float64)
    got = {name: apply(name, a.view(np.uint32), ftz=False).view(np.float32) for name in ("rcp", "sqrt", "rsqrt", "lg2")}
    with np.errstate(all="ignore"):
        assert np.allclose(got["rcp"], (1 / x).astype(np.float32), rtol=2**-22, atol=2.0**-149)
        assert np.allclose(got["sqrt"], np.sqrt(x), rtol=2**-22, atol=0, equal_nan=True)
        assert np.allclose(got["rsqrt"], 1 / np.sqrt(x), rtol=2**-22, atol=0, equal_nan=True)
        assert np.allclose(got["lg2"], np.log2(x), rtol=2**-22, atol=0, equal_nan=True)
    low = np.linspace(-151, -125, 999, dtype=np.float32)
    powers = apply("ex2", low.view(np.uint32), ftz=False).view(np.float32)
    assert np.allclose(powers, np.exp2(low.astype(np.float64)), rtol=2**-21, atol=2.0**-149)


@pytest.mark.parametrize("form", ["approx", "full"])
@pytest.mark.parametrize("ftz", [False, True])
def test_division_is_multiplication_by_the_reciprocal(form, ftz):
    rng = np.random.default_rng(1)
    a, b = (rng.normal(size=1000).astype(np.float32).view(np.uint32) for _ in range(2))
    out = np.empty_like(a)
    divide(form, ftz)(a, b, out)
    product = a.view(np.float32) * apply("rcp", b).view(np.float32)
    assert out.tolist() == product.view(np.uint32).tolist()


def test_division_by_the_largest_and_the_smallest():
    a = np.array([2.0**127, 1.0, np.inf, 2.0**-120], np.float32).view(np.uint32)
    b = np.array([2.0**127, 3e38, 3e38, 2.0**-140], np.float32).view(np.uint32)
    want = {"approx": [0, 0, NAN, 0x49800000], "full": [ONE, 0x00244BFA, INFINITE, 0x49800000]}
    for form, bits in want.items():
        out = np.empty_like(a)
        divide(form)(a, b, out)
        assert [hex(x) for x in out] == [hex(x) for x in bits], form
    divide("full", True)(a, b, out)
    assert [hex(x) for x in out] == [hex(x) for x in [ONE, 0, INFINITE, INFINITE]]


def test_rows_of_any_length_and_in_place():
    for count in (1, 255, 256, 257, 700):
        a = np.linspace(0.1, 9, count, dtype=np.float32).view(np.uint32)
        want = np.concatenate([apply("rcp", a[i : i + 1], ftz=False) for i in range(count)])
        approximate("rcp")(a, a)
        assert a.tolist() == want.tolist()
    out = np.empty(300, np.uint32)
    divide("full")(np.uint32(ONE), np.uint32(0x40000000), out)
    assert set(out.tolist()) == {0x3F000000}


def finite_halves(kind):
    codes = np.arange(1 << 15, dtype=np.uint16)
    values = codes.view(np.float16) if kind == "f16" else (codes.astype(np.uint32) << 16).view(np.float32)
    finite = np.isfinite(values)
    return codes[finite], values[finite].astype(np.float64)


def test_tanh_of_f16_has_the_largest_error_that_the_isa_says():
    codes, values = finite_halves("f16")
    error = np.abs(apply("tanh", codes, kind="f16").view(np.float16) - np.tanh(values)).max()
    assert f"{np.log2(error):.3f}" == "-10.987"


@pytest.mark.parametrize(
    ("name", "kind", "bound"), [("ex2", "f16", -9.9), ("ex2", "bf16", -7), ("tanh", "bf16", -7.01)]
)
def test_errors_of_halves(name, kind, bound):
    codes, values = finite_halves(kind)
    got = apply(name, codes, kind == "bf16", kind)
    got = got.view(np.float16) if kind == "f16" else (got.astype(np.uint32) << 16).view(np.float32)
    with np.errstate(all="ignore"):
        want = getattr(np, "exp2" if name == "ex2" else "tanh")(values)
        least, largest = (2.0**-14, 65504) if kind == "f16" else (2.0**-126, 3.39e38)
        normal = (want >= least) & (want < largest) & (got >= least)
        relative = np.abs(got.astype(np.float64) - want)[normal] / want[normal]
    assert normal.sum() > 5000
    assert np.log2(relative.max()) <= bound
    assert np.isinf(got[values >= 128]).all() if name == "ex2" else (got[values > 9] == 1).all()


@pytest.mark.parametrize(
    ("name", "kind", "checksum"),
    [
        ("tanh", "f16", 0x4FDBEBF7),
        ("tanh", "bf16", 0xA1373044),
        ("ex2", "f16", 0xD5350E3B),
        ("ex2", "bf16", 0xEAB02565),
    ],
)
def test_every_half_has_an_h200s_bits(name, kind, checksum):
    codes = np.arange(1 << 16, dtype=np.uint16)
    assert zlib.crc32(apply(name, codes, kind == "bf16", kind).astype("<u2").tobytes()) == checksum


# upper words of an H200's results for every 1021st upper word of [1, 2) and [2, 4)
DOUBLES = {
    ("rcp", 1023): 0xE094D1F3,
    ("rcp", 1024): 0xC9D03CFD,
    ("rsqrt", 1023): 0xE56FD1FC,
    ("rsqrt", 1024): 0x8839A101,
}


@pytest.mark.parametrize(("name", "exponent"), DOUBLES)
def test_upper_words_of_doubles_have_an_h200s_bits(name, exponent):
    upper = (np.uint64(exponent) << np.uint64(20)) | np.arange(0, 1 << 20, 1021, dtype=np.uint64)
    got = apply(name, upper << np.uint64(32), kind="f64")
    assert not (got & np.uint64(0xFFFF_FFFF)).any()
    words = (got >> np.uint64(32)).astype("<u4")
    assert zlib.crc32(words.tobytes()) == DOUBLES[name, exponent]


@pytest.mark.parametrize(
    ("name", "ftz", "checksum"),
    [("rcp", True, 0x1C47D317), ("rsqrt", True, 0xD6CF41E9), ("rsqrt", False, 0xD9A68075)],
)
def test_doubles_all_over_the_range(name, ftz, checksum):
    """What an H200 was held to: 65,792 arguments of each, of which none differs."""
    arguments = np.arange(1, 5001, dtype=np.uint64) * np.uint64(0x9E37_79B9_7F4A_7C15)
    assert zlib.crc32(apply(name, arguments, ftz, "f64").astype("<u8").tobytes()) == checksum


def test_special_doubles_are_an_h200s():
    cases = {
        ("rcp", True): {
            0x0000000000000001: 0x7FF0000000000000,
            0x800FFFFFFFFFFFFF: 0xFFF0000000000000,
            0x7FD0000000000001: 0x0010000000000000,
            0x7FD0000100000000: 0x0000000000000000,
            0xFFF0000000000001: 0x8000000000000000,
            0x7FF0000200000000: 0x7FFFFFFF00000000,
        },
        ("rsqrt", True): {
            0x8000000000000001: 0xFFF0000000000000,
            0x8010000000000000: 0x7FFFFFFF00000000,
            0x7FD0000200000000: 0x1FFFFFFD00000000,
            0x7FF0000000000002: 0x0000000000000000,
            0xFFF0000000000000: 0x7FFFFFFF00000000,
        },
        ("rsqrt", False): {
            0x0000000080000000: 0x6086A09E667F3BCD,
            0x000FFFFFFFE00000: 0x5FE0000000100000,
            0x8000000000000000: 0xFFF0000000000000,
            0x8000000000000001: 0xFFF8000000000000,
            0x7FD0000000000002: 0x1FFFFFFFFFFFFFFE,
            0x7FF0000000000001: 0x7FF8000000000001,
            0xFFF00000FFFFFFFF: 0xFFF80000FFFFFFFF,
        },
    }
    for (name, ftz), pairs in cases.items():
        arguments, wanted = (np.array(list(part), np.uint64) for part in (pairs, pairs.values()))
        assert [hex(bits) for bits in apply(name, arguments, ftz, "f64")] == [hex(bits) for bits in wanted]


def test_packed_halves_are_two():
    a = np.array([0xBC003C00], np.uint32)
    out = np.empty(1, np.uint32)
    operation("ex2", {"type": "f16x2", "mode": "approx"})(a, out)
    assert hex(out[0]) == "0x38004000"
