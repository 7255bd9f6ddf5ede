from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from kernbench.ptx.numerics import operation
from kernbench.ptx.numerics.floats.half import arithmetic

COMPUTE = {"add": lambda a, b: a + b, "mul": lambda a, b: a * b, "fma": lambda a, b, c: a * b + c}
DTYPES = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("name", ["add", "mul", "fma"])
def test_one_rounding_from_the_exact_result(exact, kind, name):
    form = exact(kind)
    rows = form.samples(3 if name == "fma" else 2, 2400)
    out = np.empty_like(rows[0])
    arithmetic(name, kind)(*rows, out)
    for lane in range(out.size):
        values = [form.decode(row[lane])[1] for row in rows]
        if all(isinstance(value, Fraction) for value in values):
            result = COMPUTE[name](*values)
            if result != 0:
                assert hex(out[lane]) == hex(form.encode(result)), [hex(row[lane]) for row in rows]


@pytest.mark.parametrize(("addend", "want"), [(0.0, 130 / 128), (2.0**-100, 131 / 128), (-(2.0**-100), 130 / 128)])
def test_a_tiny_addend_breaks_a_tie_of_bf16(addend, want):
    a, b, c = (np.array([x], ml_dtypes.bfloat16).view(np.uint16) for x in (9 / 8, 29 / 32, addend))
    out = np.empty(1, np.uint16)
    arithmetic("fma", "bf16")(a, b, c, out)
    assert float(out.view(ml_dtypes.bfloat16)[0]) == want


@pytest.mark.parametrize("kind", ["f16x2", "bf16x2"])
def test_packed_lanes_are_independent(kind):
    random = np.random.default_rng(3)
    dtype = DTYPES[kind[:-2]]
    a, b = (random.standard_normal(512).astype(np.float32).astype(dtype) for _ in range(2))
    out = np.empty(256, np.uint32)
    operation("add.float", {"type": kind})(a.view(np.uint32), b.view(np.uint32), out)
    want = (a.astype(np.float32) + b.astype(np.float32)).astype(dtype)
    assert (out.view(np.uint16) == want.view(np.uint16)).all()
    operation("add.float", {"type": kind})(a.view(np.uint32), np.array(b.view(np.uint32)[0]), out)
    want = (a.astype(np.float32).reshape(-1, 2) + b[:2].astype(np.float32)).astype(dtype)
    assert (out.view(np.uint16).reshape(-1, 2) == want.view(np.uint16)).all()


def test_relu_clears_negatives_and_keeps_nan():
    a = np.array([0xBC00, 0x3C00, 0x7E01, 0x8000], np.uint16)
    one, zero, out = np.uint16(0x3C00), np.uint16(0x8000), np.empty(4, np.uint16)
    arithmetic("fma", "f16", relu=True)(a, one, zero, out)
    assert list(out) == [0, 0x3C00, 0x7FFF, 0]


def test_f16_flushing_looks_at_the_result_before_it_is_rounded():
    out = np.empty(1, np.uint16)
    operands = np.array([0x8400], np.uint16), np.array([0x3BFF], np.uint16)
    arithmetic("mul", "f16")(*operands, out)
    assert out[0] == 0x8400
    arithmetic("mul", "f16", ftz=True)(*operands, out)
    assert out[0] == 0x8000


@pytest.mark.parametrize("kind", ["f16", "bf16", "f32", "f64"])
def test_extremes_order_zeros_and_let_numbers_win_over_nan(exact, kind):
    form = exact(kind)
    a, b = form.samples(2, 900)
    out = np.empty_like(a)
    operation("max.float", {"type": kind})(a, b, out)
    for lane in range(out.size):
        (sign, x), (_, y) = form.decode(a[lane]), form.decode(b[lane])
        if "nan" in (x, y):
            assert out[lane] == (b[lane] if x == "nan" else a[lane]) or x == y
        elif x == y and isinstance(x, Fraction):
            assert out[lane] == (b[lane] if sign else a[lane])
        elif isinstance(x, Fraction) and isinstance(y, Fraction):
            assert form.decode(out[lane])[1] == max(x, y)


def test_three_inputs_and_xorsign():
    a, b, c = (np.array([x], np.float32).view(np.uint32) for x in (-3.0, 2.0, 7.0))
    out = np.empty(1, np.uint32)
    operation("min.float", {"type": "f32"})(a, b, c, out)
    assert out.view(np.float32)[0] == -3.0
    operation("max.float", {"type": "f32", "abs": "abs"})(a, b, c, out)
    assert out.view(np.float32)[0] == 7.0
    operation("min.float", {"type": "f32", "xorsign": "xorsign", "abs": "abs"})(a, b, out)
    assert out.view(np.float32)[0] == -2.0
