"""Reductions and softmax: axes kept, sums wide enough, the first of equals."""

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests import sampled
from tests.triton_emu.values import F32_ERROR, NARROW, close, evaluate, exact, normal, rounded, same, seeds

from kernbench.common.dtypes import FLOATS

reducible = st.tuples(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=6), st.integers(0, 2))


@pytest.mark.sampled(12)
@pytest.mark.parametrize("op", ["max", "min", "sum"])
@pytest.mark.parametrize("dtype", [*NARROW, "f32", "i8", "i32", "i1"])
@settings(max_examples=sampled.examples(3, 6))
@given(reducible, seeds)
def test_reductions_keep_their_axis_and_follow_float64(op, dtype, where, seed):
    shape, axis = where
    axis = axis % len(shape)
    x = normal(seed, shape, dtype)
    along, every = evaluate(lambda tl, x: [getattr(tl, op)(x, axis), getattr(tl, op)(x)], x)
    for got, over in ((along, axis), (every, None)):
        wanted = getattr(np, op)(exact(x), axis=over, keepdims=True)
        assert got.shape == wanted.shape
        if op != "sum" or dtype not in FLOATS:
            same(got, wanted)
        else:
            slack = prod(shape) * F32_ERROR * np.abs(exact(x)).sum()
            close(got, rounded(wanted, dtype), dtype, slack=slack)


def test_sums_of_small_integers_do_not_wrap_and_narrow_floats_accumulate_in_f32():
    i, x = np.full((1, 1000), 100, np.int8), np.full((1, 4096), 1.0, np.float16)
    total, wide = evaluate(lambda tl, i, x: [tl.sum(i, 1), tl.sum(x, 1)], i, x)
    assert total.tolist() == [[100_000]]
    assert wide.tolist() == [[4096.0]]


def test_a_sum_in_another_type():
    x = np.full((2, 4096), 1 + 2.0**-10, np.float16)
    wide, narrow = evaluate(lambda tl, x: [tl.sum(x, 1, dtype="f32"), tl.sum(x, 1, keep_dims=False)], x)
    assert wide.tolist() == [[4100.0], [4100.0]]
    assert (narrow.shape, narrow.dtype) == ((2,), np.float16)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("op", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "i8", "i32"])
@settings(max_examples=6)
@given(reducible, seeds)
def test_the_place_of_the_extreme_is_the_first_of_equals(op, dtype, where, seed):
    shape, axis = where
    axis = axis % len(shape)
    x = normal(seed, shape, dtype)
    got = evaluate(lambda tl, x: getattr(tl, op)(x, axis), x)
    np.testing.assert_array_equal(got, getattr(np, op)(exact(x), axis=axis, keepdims=True))


@pytest.mark.parametrize("op", ["argmax", "argmin"])
def test_large_integers_are_told_apart(op):
    x = np.array([2**24, 2**24 + 1, 2**24], np.int32)
    x = x if op == "argmax" else -x
    assert evaluate(lambda tl, x: getattr(tl, op)(x, 0), x).tolist() == [1]


@pytest.mark.parametrize("dtype", [*NARROW, "f32", "i8"])
@settings(max_examples=10)
@given(reducible, seeds)
def test_softmax_follows_float64_and_survives_large_numbers(dtype, where, seed):
    shape, axis = where
    axis = axis % len(shape)
    x = normal(seed, shape, dtype, 20.0)
    got = evaluate(lambda tl, x: tl.softmax(x, axis), x)
    powers = np.exp(exact(x) - exact(x).max(axis=axis, keepdims=True))
    result = dtype if dtype in FLOATS else "f32"
    close(got, rounded(powers / powers.sum(axis=axis, keepdims=True), result), result, slack=1e-6)
