"""Arithmetic in a launch is float64 rounded once, in every type; elementwise functions follow float64."""

import math
import operator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tests import sampled
from tests.triton_emu.values import (
    F32_ERROR,
    NARROW,
    close,
    evaluate,
    every_value,
    exact,
    float_types,
    normal,
    rounded,
    same,
    seeds,
    shapes,
)

from kernbench.common.dtypes import DTYPES, cast, promote
from kernbench.triton_emu.tl_context import ELEMENTWISE

ARITHMETIC = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv}


@pytest.mark.parametrize("op", ARITHMETIC)
@pytest.mark.parametrize("dtype", ["f8e4m3", "f8e5m2"])
def test_arithmetic_on_every_pair_of_8_bit_floats_rounds_the_exact_result(op, dtype):
    values = every_value(dtype)
    got = evaluate(lambda tl, x, y: ARITHMETIC[op](x, y), values[:, None], values[None, :])
    with np.errstate(all="ignore"):
        same(got, rounded(ARITHMETIC[op](exact(values)[:, None], exact(values)[None, :]), dtype))


@pytest.mark.parametrize("op", ARITHMETIC)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@settings(max_examples=sampled.examples(8, 25))
@given(hnp.arrays(np.uint16, 60), hnp.arrays(np.uint16, 60))
def test_arithmetic_on_16_bit_floats_rounds_the_exact_result(op, dtype, left, right):
    x, y = left.view(DTYPES[dtype].numpy)[:, None], right.view(DTYPES[dtype].numpy)[None, :]
    got = evaluate(lambda tl, x, y: ARITHMETIC[op](x, y), x, y)
    with np.errstate(all="ignore"):
        same(got, rounded(ARITHMETIC[op](exact(x), exact(y)), dtype))


@pytest.mark.parametrize("op", ARITHMETIC)
@settings(max_examples=sampled.examples(8, 25))
@given(hnp.arrays(np.float32, 8), hnp.arrays(np.float32, 8))
def test_arithmetic_on_f32_is_ieee(op, x, y):
    got = evaluate(lambda tl, x, y: ARITHMETIC[op](x, y), x, y)
    with np.errstate(all="ignore"):
        same(got, ARITHMETIC[op](x, y))


@pytest.mark.parametrize("dtype", NARROW)
def test_a_number_meets_a_narrow_float_in_f32(dtype):
    x = normal(0, (50,), dtype)
    got = evaluate(lambda tl, x: [x * 0.1, 0.1 * x, 1 - x, x / 3], x)
    tenth = float(np.float32(0.1))
    for result, wanted in zip(got, (exact(x) * tenth, exact(x) * tenth, 1 - exact(x), exact(x) / 3), strict=True):
        same(result, rounded(wanted, dtype))


REFERENCES = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
    "erf": np.vectorize(math.erf, otypes=[np.float64]),
    "abs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "neg": np.negative,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "maximum": np.maximum,
    "minimum": np.minimum,
}


@pytest.mark.parametrize("name", ELEMENTWISE)
@settings(max_examples=sampled.examples(3, 8))
@given(shapes, float_types, float_types, seeds)
def test_elementwise_operations_follow_float64(name, shape, left, right, seed):
    op, operands, _ = ELEMENTWISE[name]
    arrays = [normal(seed, shape, left), normal(seed + 1, shape, right)][:operands]
    if op in ("log", "log2", "sqrt", "rsqrt"):
        arrays = [cast(np.abs(a.astype(np.float32)) + np.float32(0.5), left) for a in arrays]
    got = evaluate(lambda tl, *handles: getattr(tl, name)(*handles), *arrays)
    result = left if operands == 1 else promote(left, right)
    with np.errstate(all="ignore"):
        wanted = REFERENCES[op](*map(exact, arrays))
    # near one a logarithm is as small as the rounding of its argument is large: allow for it outright
    slack = 8 * F32_ERROR if op in ("log", "log2") else 0.0
    close(got, rounded(wanted, result), result, slack=slack)


@pytest.mark.parametrize("dtype", ["i8", "i32"])
@pytest.mark.parametrize("name", ["exp", "sqrt", "abs", "neg", "floor", "ceil", "sigmoid"])
def test_elementwise_operations_on_integers(name, dtype):
    x = np.array([0, 1, 2, 5, 9], DTYPES[dtype].numpy)
    got = evaluate(lambda tl, x: getattr(tl, name)(x), x)
    if got.dtype == DTYPES[dtype].numpy:
        same(got, REFERENCES[name](x.astype(np.int64)))
    else:
        close(got, REFERENCES[name](exact(x)), "f32")


@pytest.mark.parametrize("dtype", ["i8", "f16", "bf16"])
def test_an_element_taken_out_computes_like_the_array_it_came_from(dtype):
    x = cast(np.array([1, 2, 5], np.float32), dtype)
    whole, one = evaluate(lambda tl, x: [tl.exp(x) * 0.1, tl.exp(x[2]) * 0.1], x)
    assert whole.dtype == one.dtype
    assert whole[2] == one


@settings(max_examples=sampled.examples(20, 40))
@given(st.data(), float_types, float_types, seeds)
def test_operands_broadcast_as_in_numpy(data, left, right, seed):
    both = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=4))
    x, y = (normal(seed + i, s, d) for i, (s, d) in enumerate(zip(both.input_shapes, (left, right), strict=True)))
    got = evaluate(lambda tl, x, y: x + y, x, y)
    assert got.shape == both.result_shape
    same(got, rounded(exact(x) + exact(y), promote(left, right)))


@pytest.mark.parametrize("op", ["lt", "le", "gt", "ge", "eq", "ne"])
@settings(max_examples=sampled.examples(5, 10))
@given(st.sampled_from(["f16", "bf16", "f32", "i8", "i32"]), st.sampled_from(["f16", "f8e5m2", "i8"]), seeds)
def test_comparisons_are_exact(op, left, right, seed):
    apply = getattr(operator, op)
    x, y = normal(seed, (4, 3), left), normal(seed + 1, (4, 3), right)
    y[0] = cast(x[0], right)
    got, number = evaluate(lambda tl, x, y: [apply(x, y), apply(x, 1)], x, y)
    assert got.dtype == np.bool_
    np.testing.assert_array_equal(got, apply(exact(x), exact(y)))
    np.testing.assert_array_equal(number, apply(exact(x), 1))


@settings(max_examples=sampled.examples(10, 20))
@given(shapes, float_types, float_types, seeds)
def test_fma_rounds_once(shape, left, right, seed):
    x, y, z = normal(seed, shape, left), normal(seed + 1, shape, right), normal(seed + 2, shape, left)
    got = evaluate(lambda tl, x, y, z: tl.fma(x, y, z), x, y, z)
    result = promote(left, right)
    same(got, rounded(exact(x) * exact(y) + exact(z), result))


def test_fma_in_a_narrow_float_rounds_once_beside_a_tie():
    """7 * 37 lies halfway between two numbers of bf16; the last operand decides."""
    x, y = (np.full(3, n, np.float32).astype(DTYPES["bf16"].numpy) for n in (7, 37))
    z = np.array([-(2.0**-30), 0, 2.0**-30], np.float32).astype(DTYPES["bf16"].numpy)
    assert exact(evaluate(lambda tl, x, y, z: tl.fma(x, y, z), x, y, z)).tolist() == [258.0, 260.0, 260.0]


def test_fma_of_integers():
    x = np.array([1, 2, 3], np.int32)
    assert evaluate(lambda tl, x: tl.fma(x, x, x), x).tolist() == [2, 6, 12]
