"""Integers and masks: they wrap, divide toward zero, and meet floats."""

import operator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled
from tests.triton_emu.values import evaluate, same

from kernbench.common.dtypes import DTYPES

integers = {"i8": st.integers(-128, 127), "i32": st.integers(-(2**31), 2**31 - 1)}


def truncated(x, y):
    return 0 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def remainder(x, y):
    return 0 if y == 0 else x - y * truncated(x, y)


INTEGER_REFERENCES = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "floordiv": truncated,
    "mod": remainder,
    "and_": operator.and_,
    "or_": operator.or_,
    "xor": operator.xor,
}


@pytest.mark.parametrize("dtype", ["i8", "i32"])
@pytest.mark.parametrize("op", INTEGER_REFERENCES)
@settings(max_examples=sampled.examples(5, 12))
@given(st.data())
def test_integer_arithmetic_wraps_and_divides_toward_zero(op, dtype, data):
    values = st.lists(integers[dtype] | st.sampled_from([-128, -1, 0, 3, 127]), min_size=6, max_size=6)
    x, y = (np.array(data.draw(values), DTYPES[dtype].numpy) for _ in range(2))
    got = evaluate(lambda tl, x, y: getattr(operator, op)(x, y), x, y)
    wanted = [INTEGER_REFERENCES[op](int(a), int(b)) for a, b in zip(x, y, strict=True)]
    np.testing.assert_array_equal(got, np.array(wanted, object).astype(np.int64).astype(got.dtype))


@pytest.mark.parametrize("dtype", ["i8", "i32"])
def test_the_most_negative_integer_divides_toward_zero(dtype):
    lowest = int(np.iinfo(DTYPES[dtype].numpy).min)
    got, reverse = evaluate(lambda tl, x: [x // 3, 100 // x], np.array([lowest, lowest + 1], DTYPES[dtype].numpy))
    assert got.tolist() == [truncated(lowest, 3), truncated(lowest + 1, 3)]
    assert reverse.tolist() == [truncated(100, lowest), truncated(100, lowest + 1)]


def test_integers_divide_to_f32_and_meet_floats():
    i, x = np.array([7, -7, 1], np.int32), np.array([0.5, 2.0, 3.0], np.float16)
    divided, half, met = evaluate(lambda tl, i, x: [i / 2, i * 0.5, i + x], i, x)
    assert divided.dtype == half.dtype == np.float32
    assert met.dtype == np.float16
    same(divided, [3.5, -3.5, 0.5])
    same(half, [3.5, -3.5, 0.5])
    same(met, [7.5, -5.0, 4.0])


def test_masks_combine_by_bits_and_count_as_integers():
    x = np.array([-1.0, 0.0, 1.0, 2.0], np.float32)

    def body(tl, x):
        low, high = x >= 0, x <= 1
        return [low & high, low | high, low ^ high, ~low, low & True, low.to("i32") + high, low + 1]

    both, either, one, neither, kept, total, more = evaluate(body, x)
    assert both.tolist() == [False, True, True, False]
    assert either.tolist() == [True, True, True, True]
    assert one.tolist() == [True, False, False, True]
    assert neither.tolist() == [True, False, False, False]
    assert kept.tolist() == [False, True, True, True]
    assert total.tolist() == [1, 2, 2, 1]
    assert more.tolist() == [1, 2, 2, 2]
