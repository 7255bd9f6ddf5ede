"""Values made in a kernel: full, zeros, arange, cat."""

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled
from tests.triton_emu.values import evaluate, exact, float_types, normal, rounded, same, seeds, shapes

from kernbench.common.dtypes import DTYPES, FLOATS, promote


@pytest.mark.parametrize("dtype", DTYPES)
def test_full_and_zeros(dtype):
    value = True if dtype == "i1" else 3

    def body(tl):
        made = tl.full((2, 3), value, dtype)
        return [made, tl.zeros((4,), dtype), tl.zeros_like(made)]

    full, zeros, like = evaluate(body)
    assert full.dtype == zeros.dtype == like.dtype == DTYPES[dtype].numpy
    same(full, np.full((2, 3), value))
    same(zeros, np.zeros(4))
    same(like, np.zeros((2, 3)))


@pytest.mark.parametrize("dtype", sorted(FLOATS))
def test_full_rounds(dtype):
    same(evaluate(lambda tl: tl.full((3,), 0.3, dtype)), np.full(3, rounded([0.3], dtype)[0]))


def test_full_of_infinity_and_of_no_elements():
    low, none = evaluate(lambda tl: [tl.full((2,), -inf), tl.full((0, 3), 1.0)])
    assert low.tolist() == [-inf, -inf]
    assert none.shape == (0, 3)


@settings(max_examples=15)
@given(st.integers(-100, 100), st.integers(0, 50))
def test_arange_counts_from_start_to_end(start, length):
    counted, from_zero = evaluate(lambda tl: [tl.arange(start, start + length), tl.arange(length)])
    assert counted.dtype == np.int32
    assert counted.tolist() == list(range(start, start + length))
    assert from_zero.tolist() == list(range(length))


@settings(max_examples=sampled.examples(12, 25))
@given(shapes, st.integers(0, 2), st.integers(1, 4), float_types, float_types, seeds)
def test_cat_joins_along_any_axis(shape, axis, extra, left, right, seed):
    axis = axis % len(shape)
    other = tuple(extra if i == axis else n for i, n in enumerate(shape))
    x, y = normal(seed, shape, left), normal(seed + 1, other, right)
    got, from_end = evaluate(lambda tl, x, y: [tl.cat(x, y, axis), tl.cat(x, y, axis - len(shape))], x, y)
    same(got, np.concatenate([exact(x), exact(y)], axis))
    same(from_end, got)
    assert got.dtype == DTYPES[promote(left, right)].numpy
