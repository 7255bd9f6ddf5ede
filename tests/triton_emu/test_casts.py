"""Casts and choices: rounded once, to the type asked for, and broadcast."""

from math import inf

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests import sampled
from tests.triton_emu.values import NARROW, SMALL, evaluate, exact, normal, rounded, same, seeds

from kernbench import mesh
from kernbench.common.dtypes import DTYPES, FLOATS, cast, promote


@pytest.mark.sampled(24)
@pytest.mark.parametrize("source", [*NARROW, "f32", "i8", "i32", "i1"])
@pytest.mark.parametrize("target", [*NARROW, "f32", "i8", "i32", "i1"])
def test_casts_round_once(source, target):
    x = normal(3, (40,), source, 30.0)
    got = evaluate(lambda tl, x: x.to(target) if source != target else tl.cast(x, target), x)
    assert got.dtype == DTYPES[target].numpy
    if target in FLOATS:
        same(got, rounded(exact(x), target))
    elif source in FLOATS or target == "i1":
        same(got, cast(exact(x), target))
    else:
        # integers keep their low bits
        same(got, x.astype(np.int64).astype(got.dtype))


def test_store_rounds_to_the_tensors_own_type():
    x = np.array([1 + 2.0**-11, 1 + 3 * 2.0**-11, 70000.0, -3.7], np.float32)

    def kernel(x_ptr, half, whole, *, tl):
        handle = tl.load(x_ptr, shape=(4,))
        tl.store(half, handle)
        tl.store(whole, handle)

    host = mesh.Host(SMALL, ranks=1)
    half, whole = host.empty((4,), "f16"), host.empty((4,), "i8")
    assert host.launch(kernel, host.replicate(x), half, whole).safe
    same(host.gather(half), [1.0, 1 + 2.0**-9, inf, rounded([-3.7], "f16")[0]])
    assert host.gather(whole).tolist() == [1, 1, 127, -3]


@settings(max_examples=sampled.examples(15, 30))
@given(st.data(), st.sampled_from(["f16", "bf16", "f32", "i8"]), st.sampled_from(["f16", "f8e4m3", "i32"]), seeds)
def test_where_chooses_and_broadcasts(data, left, right, seed):
    three = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=3, max_dims=3, max_side=4))
    mask, x, y = (
        normal(seed + i, s, d) for i, (s, d) in enumerate(zip(three.input_shapes, ("i1", left, right), strict=True))
    )
    got = evaluate(lambda tl, m, x, y: tl.where(m, x, y), mask, x, y)
    assert got.dtype == DTYPES[promote(left, right)].numpy
    same(got, np.where(mask, exact(cast(x, promote(left, right))), exact(cast(y, promote(left, right)))))


def test_where_takes_numbers_and_any_integer_as_a_mask():
    count, x = np.array([0, 1, -2, 0], np.int32), np.array([1.5, 2.5, 3.5, 4.5], np.float16)

    def body(tl, i, x):
        return [tl.where(i, x, -inf), tl.where(i == 0, 0.1, x), tl.where(i, 1, 0), tl.where(i, i, 0.5)]

    masked, mixed, whole, wide = evaluate(body, count, x)
    assert masked.tolist() == [-inf, 2.5, 3.5, -inf]
    assert mixed.tolist() == [float(np.float16(0.1)), 2.5, 3.5, float(np.float16(0.1))]
    assert whole.tolist() == [0, 1, 1, 0]
    assert wide.tolist() == [0.5, 1.0, -2.0, 0.5]
