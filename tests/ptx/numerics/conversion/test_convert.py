from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from kernbench.ptx.numerics import operation

SMALL = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
}


def convert(to, source, a, out, **mods):
    result = np.empty(a.size, out)
    operation("cvt", {"dtype": to, "atype": source, **mods})(a, result)
    return result


ROUNDINGS = [
    *(("f16", mode) for mode in ("rn", "rz", "rm", "rp")),
    *(("bf16", mode) for mode in ("rn", "rz")),
    ("tf32", "rna"),
    ("tf32", "rn"),
]


@pytest.mark.parametrize(("to", "mode"), ROUNDINGS)
def test_f32_is_rounded_once(exact, to, mode):
    form, target = exact("f32"), exact(to)
    (a,) = form.samples(1, 3000)
    # Ties and their neighbours, in the normal and the subnormal range of the target.
    lowest = 13 if to != "bf16" else 16
    ties = np.arange(0x33000000, 0x38900000, 0x9A1000, dtype=np.uint32) & np.uint32(0xFFFFF000)
    a = np.concatenate([a, ties, ties + 1, ties - 1, ties | np.uint32(1 << (lowest - 1))])
    out = convert(to, "f32", a, "uint32" if to == "tf32" else "uint16", rnd=mode)
    for bits, got in zip(a.tolist(), out.tolist(), strict=True):
        sign, value = form.decode(bits)
        if isinstance(value, Fraction):
            want = target.encode(value, mode, sign)
            assert hex(got) == hex(want << 13 if to == "tf32" else want), hex(bits)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_every_half_widens_exactly_and_comes_back(kind):
    codes = np.arange(1 << 16, dtype=np.uint16)
    dtype = np.float16 if kind == "f16" else ml_dtypes.bfloat16
    number = ~np.isnan(codes.view(dtype))
    wide = convert("f32", kind, codes, "uint32")
    assert (wide[number] == codes.view(dtype)[number].astype(np.float32).view(np.uint32)).all()
    double = convert("f64", kind, codes, "uint64")
    assert (double[number] == codes.view(dtype)[number].astype(np.float64).view(np.uint64)).all()
    assert (convert(kind, "f32", wide, "uint16", rnd="rn")[number] == codes[number]).all()
    back = convert(kind, "f64", double, "uint16", rnd="rn")
    assert (back[number] == codes[number]).all()


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("to", "source"), [("s32", "f32"), ("u32", "f32"), ("s64", "f64"), ("u8", "f32"), ("u64", "f32")]
)
@pytest.mark.parametrize("mode", ["rzi", "rni"])
def test_floats_to_integers_saturate(exact, to, source, mode):
    form = exact(source)
    (a,) = form.samples(1, 600)
    halves = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 300.5, 2.0**31, -(2.0**31), 2.0**63], source.replace("f", "float"))
    a = np.concatenate([a, halves.view(form.dtype)])
    bits, is_signed = int(to[1:]), to[0] == "s"
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if is_signed else (0, (1 << bits) - 1)
    out = convert(to, source, a, f"uint{max(bits, 16)}", rnd=mode)
    for pattern, got in zip(a.tolist(), out.tolist(), strict=True):
        sign, value = form.decode(pattern)
        if value == "nan":
            want = 1 << (bits - 1) if source == "f64" or bits == 64 else 0
        elif value == "infinite":
            want = low if sign else high
        else:
            want = min(max(round(value) if mode == "rni" else int(value), low), high)
        assert got == want % (1 << max(bits, 16)), hex(pattern)


@pytest.mark.parametrize(
    ("to", "source", "mode"),
    [("f32", "s64", "rn"), ("f32", "u64", "rz"), ("f32", "s32", "rm"), ("f64", "u64", "rp"), ("f16", "u32", "rn")],
)
def test_integers_to_floats_round_once(exact, to, source, mode):
    bits = int(source[1:])
    random = np.random.default_rng(0)
    powers = [(1 << p) + d for p in range(bits) for d in (-1, 0, 1)] + [(1 << bits) - 1]
    ties = (
        [(1 << 40) + (1 << 16), (1 << 40) + (3 << 16), (1 << 60) + (1 << 36) + 1]
        if bits == 64
        else [0x1000001, 0x1000003]
    )
    values = powers + ties + random.integers(0, 1 << bits, 300, dtype=np.uint64).tolist()
    a = np.array([v % (1 << bits) for v in values], f"uint{bits}")
    target = exact(to)
    out = convert(to, source, a, target.dtype, rnd=mode)
    for pattern, got in zip(a.tolist(), out.tolist(), strict=True):
        value = pattern - (1 << bits) if source[0] == "s" and pattern >> (bits - 1) else pattern
        assert hex(got) == hex(target.encode(Fraction(value), mode))


def test_integers_to_integers():
    a = np.array([0, 127, 128, 255, 256, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0xFFFFFF80], np.uint32)
    assert convert("s8", "u32", a, "uint16", sat="sat").tolist() == [0] + [127] * 8
    assert convert("u8", "s32", a, "uint16", sat="sat").tolist() == [0, 127, 128, 255, 255, 255, 0, 0, 0]
    assert convert("s8", "s32", a, "uint16").tolist() == [0, 127, 0xFF80, 0xFFFF, 0, 0xFFFF, 0, 0xFFFF, 0xFF80]
    assert convert("s64", "s32", a, "uint64")[6] == 0xFFFFFFFF80000000


@pytest.mark.parametrize(("to", "source"), [("bf16", "f16"), ("f16", "bf16")])
def test_halves_become_the_nearest_where_no_mode_is_named(to, source):
    codes = np.arange(1 << 16, dtype=np.uint16)
    assert (convert(to, source, codes, "uint16") == convert(to, source, codes, "uint16", rnd="rn")).all()


@pytest.mark.parametrize("kind", SMALL)
def test_small_floats_both_ways(exact, kind):
    form, dtype = exact(kind), SMALL[kind]
    codes = np.arange(1 << form.form.bits, dtype=np.uint8)
    values = codes.view(dtype).astype(np.float64)
    step = 4 if kind == "e2m1" else 8
    packed = codes.astype(np.uint16) << np.uint16(step) | codes[::-1]
    packed = packed.astype(np.uint8) if kind == "e2m1" else packed
    wide = np.empty(codes.size, np.uint32)
    operation("cvt.packed", {"dtype": "f16x2", "atype": f"{kind}x2", "rnd": "rn"})(packed, wide)
    number = ~np.isnan(values)
    assert (wide[number] >> np.uint32(16) == values[number].astype(np.float16).view(np.uint16)).all()
    operation("cvt.packed", {"dtype": "bf16x2", "atype": f"{kind}x2", "rnd": "rn"})(packed, wide)
    assert (wide[number] >> np.uint32(16) == values[number].astype(ml_dtypes.bfloat16).view(np.uint16)).all()
    a = np.concatenate([exact("f32").samples(1, 900)[0], np.linspace(-500, 500, 999, dtype=np.float32).view(np.uint32)])
    out = np.empty(a.size, packed.dtype)
    mods = {"dtype": f"{kind}x2", "atype": "f32", "rnd": "rn", "satfinite": "satfinite"}
    operation("cvt.packed", mods)(a, np.zeros_like(a), out)
    for pattern, got in zip(a.tolist(), (out >> out.dtype.type(step)).tolist(), strict=True):
        sign, value = exact("f32").decode(pattern)
        if isinstance(value, Fraction):
            assert got == form.encode(value, "rn", sign, satfinite=True)
        elif value == "infinite":
            assert got == form.form.largest | sign << (form.form.bits - 1)
        else:
            assert got == (form.form.nan or form.form.largest)


def test_packed_halves_put_the_first_operand_on_top():
    a, b = (np.array([x], np.float32).view(np.uint32) for x in (1.0, -2.0))
    out = np.empty(1, np.uint32)
    operation("cvt.packed", {"dtype": "f16x2", "atype": "f32", "rnd": "rn"})(a, b, out)
    assert out[0] == 0x3C00C000
    operation("cvt.packed", {"dtype": "bf16x2", "atype": "f32", "rnd": "rn", "relu": "relu"})(a, b, out)
    assert out[0] == 0x3F800000


def test_scale_factors():
    a = np.array([1.0, 3.0, 0.0, np.inf], np.float32).view(np.uint32)
    out = np.empty(4, np.uint16)
    operation("cvt.packed", {"dtype": "ue8m0x2", "atype": "f32", "rnd": "rp", "satfinite": "satfinite"})(a, a, out)
    assert (out & 0xFF).tolist() == [127, 129, 0, 254]
    back = np.empty(4, np.uint32)
    operation("cvt.packed", {"dtype": "bf16x2", "atype": "ue8m0x2", "rnd": "rn"})(out, back)
    assert (back & 0xFFFF).tolist() == [0x3F80, 0x4080, 0x0040, 0x7F00]


def test_stochastic_rounding_is_between_the_neighbours():
    a = np.full(4, np.float32(1 + 2**-12)).view(np.uint32)
    out, random = np.empty(4, np.uint32), np.array([0, 0xFFFF0000, 0x0000FFFF, 0xFFFFFFFF], np.uint32)
    operation("cvt.packed", {"dtype": "f16x2", "atype": "f32", "rnd": "rs"})(a, a, random, out)
    assert out.tolist() == [0x3C003C00, 0x3C013C00, 0x3C003C01, 0x3C013C01]
