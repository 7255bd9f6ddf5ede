"""Dot: exact where it can be, accumulated in f32 or i32, over views and in place."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled
from tests.triton_emu.values import F32_ERROR, close, evaluate, exact, float_types, normal, rounded, same, seeds

from kernbench.common.dtypes import cast

sizes = st.integers(1, 7)
batches = st.sampled_from([(), (1,), (3,)])


@settings(max_examples=sampled.examples(20, 40))
@given(batches, sizes, sizes, sizes, float_types, float_types, seeds)
def test_a_dot_of_small_whole_numbers_is_exact(batch, m, k, n, left, right, seed):
    draw = np.random.default_rng(seed)
    a = cast(draw.integers(-4, 5, (*batch, m, k)).astype(np.float32), left)
    b = cast(draw.integers(-4, 5, (*batch, k, n)).astype(np.float32), right)
    got = evaluate(lambda tl, a, b: tl.dot(a, b), a, b)
    assert got.dtype == np.float32
    same(got, exact(a) @ exact(b))


@settings(max_examples=sampled.examples(15, 30))
@given(batches, sizes, st.integers(1, 60), sizes, float_types, float_types, seeds)
def test_a_dot_accumulates_in_f32(batch, m, k, n, left, right, seed):
    a, b = normal(seed, (*batch, m, k), left), normal(seed + 1, (*batch, k, n), right)
    acc = normal(seed + 2, (*batch, m, n), "f32")
    got, added = evaluate(lambda tl, a, b, c: [tl.dot(a, b), tl.dot(a, b, acc=c)], a, b, acc)
    bound = (k + 2) * F32_ERROR * (np.abs(exact(a)) @ np.abs(exact(b)) + np.abs(exact(acc))) + 1e-30
    assert np.all(np.abs(exact(got) - exact(a) @ exact(b)) <= bound)
    assert np.all(np.abs(exact(added) - exact(a) @ exact(b) - exact(acc)) <= bound)


@settings(max_examples=sampled.examples(10, 20))
@given(batches, sizes, st.integers(1, 300), sizes, seeds)
def test_a_dot_of_bytes_is_exact_in_i32(batch, m, k, n, seed):
    draw = np.random.default_rng(seed)
    a = draw.integers(-128, 128, (*batch, m, k), dtype=np.int8)
    b = draw.integers(-128, 128, (*batch, k, n), dtype=np.int8)
    acc = draw.integers(-(2**20), 2**20, (*batch, m, n), dtype=np.int32)
    got, added = evaluate(lambda tl, a, b, c: [tl.dot(a, b), tl.dot(a, b, c)], a, b, acc)
    wanted = a.astype(np.int64) @ b.astype(np.int64)
    assert got.dtype == np.int32
    np.testing.assert_array_equal(got, wanted)
    np.testing.assert_array_equal(added, wanted + acc)


def test_a_dot_with_views_on_either_side_and_another_result_type():
    a, b = normal(0, (5, 3), "f16"), normal(1, (5, 4), "bf16")
    got, half = evaluate(lambda tl, a, b: [tl.dot(a.T, b), tl.dot(a.T[1:], b[:, ::2], out_dtype="f16")], a, b)
    close(got, exact(a).T @ exact(b), "f32", slack=1e-6)
    assert half.dtype == np.float16
    close(half, rounded((exact(a).T @ exact(b))[1:, ::2], "f16"), "f16", slack=1e-6)


def test_a_dot_over_nothing_is_zero():
    got = evaluate(lambda tl: tl.dot(tl.zeros((2, 0)), tl.zeros((0, 3))))
    same(got, np.zeros((2, 3)))


def test_a_dot_in_place_of_its_accumulator():
    a, b = normal(0, (4, 3), "f16"), normal(1, (3, 4), "f16")

    def body(tl, a, b):
        acc = tl.full((4, 4), 1.0)
        address = acc.addr
        result = tl.dot(a, b, acc, out=acc)
        assert result is acc
        assert acc.addr == address
        return acc

    close(evaluate(body, a, b), exact(a) @ exact(b) + 1, "f32", slack=1e-6)
