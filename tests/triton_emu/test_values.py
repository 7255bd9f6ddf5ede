"""Values: in a launch every operation gives what NumPy gives in float64, rounded; and what recording promised."""

import operator
from functools import lru_cache
from math import inf, prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from kernbench import mesh
from kernbench.common.dtypes import DTYPES, FLOATS, cast, dtype_name, promote
from kernbench.triton_emu import TLContext, run_kernel
from kernbench.triton_emu.tl_context import ELEMENTWISE

NARROW = ("f16", "bf16", "f8e4m3", "f8e5m2")
F32_ERROR = 2.0**-24
SMALL = mesh.Host("small", ranks=1).machine


def evaluate(body, *arrays):
    """What `body(tl, *handles)` gives for `arrays`, stored and gathered; recorded, it must promise the same.

    A list or tuple of results comes back as a list of arrays.
    """

    def results(tl, pointers):
        handles = [tl.load(p, shape=a.shape, dtype=dtype_name(a.dtype)) for p, a in zip(pointers, arrays, strict=True)]
        made = body(tl, *handles)
        return list(made) if isinstance(made, (list, tuple)) else [made]

    def kernel(*pointers, tl):
        made = results(tl, pointers[: len(arrays)])
        for pointer, handle in zip(pointers[len(arrays) :], made, strict=True):
            tl.store(pointer, handle)

    host = mesh.Host(SMALL, ranks=1)
    tensors = [host.replicate(a) for a in arrays]
    tl = TLContext()
    promised = run_kernel(lambda *, tl: results(tl, [t.address for t in tensors]), tl)
    outputs = [host.empty(h.shape, h.dtype) for h in promised]
    run = host.launch(kernel, *tensors, *outputs)
    assert run.safe, [str(f) for f in run.findings]
    stream = run.recording.streams[0]
    assert [c.op for c in stream] == [c.op for c in tl.commands] + ["store"] * len(outputs)
    gathered = [host.gather(o) for o in outputs]
    return gathered if len(gathered) > 1 else gathered[0]


def exact(array):
    """As float64; signalling NaNs stay silent."""
    with np.errstate(all="ignore"):
        return np.asarray(array).astype(np.float64)


@lru_cache
def magnitudes(dtype):
    """The finite values of a narrow float from 0 up, and the step past the end; an even index is an even number."""
    size = DTYPES[dtype].itemsize
    table = exact(np.arange(1 << (8 * size - 1), dtype=f"u{size}").view(DTYPES[dtype].numpy))
    table = table[np.isfinite(table)]
    return np.append(table, 2 * table[-1] - table[-2])


def rounded(array, dtype):
    """A float64 reference brought to the float `dtype` once: to nearest, ties to even, by looking at the neighbours."""
    array = np.asarray(array, np.float64)
    if dtype == "f32":
        with np.errstate(all="ignore"):
            return exact(array.astype(np.float32))
    table = magnitudes(dtype)
    size = np.minimum(np.abs(array), table[-1])
    above = np.clip(np.searchsorted(table, size), 1, len(table) - 1)
    below = above - 1
    middle = (table[below] + table[above]) / 2
    index = np.where(size < middle, below, np.where(size > middle, above, below + below % 2))
    past = np.nan if dtype == "f8e4m3" else inf
    result = np.where(index == len(table) - 1, past, table[index])
    return np.where(np.isnan(array), np.nan, np.copysign(result, array))


def same(got, wanted):
    """Equal, NaN where NaN is wanted."""
    np.testing.assert_array_equal(exact(got), exact(wanted))


def close(got, wanted, dtype, steps=1.0, slack=0.0):
    """Within `steps` of the type's own spacing, or `slack` outright; f32 results get a few roundings."""
    row = DTYPES[dtype]
    epsilon = max(row.epsilon, 8 * F32_ERROR)
    got, wanted = exact(got), exact(wanted)
    finite = np.isfinite(wanted)
    allowed = steps * epsilon * np.maximum(np.abs(wanted), row.smallest_normal) + slack
    np.testing.assert_array_equal(got[~finite], wanted[~finite])
    assert np.all(np.abs(got - wanted)[finite] <= (allowed + np.zeros(got.shape))[finite])


def every_value(dtype):
    row = DTYPES[dtype]
    return np.arange(1 << (8 * row.itemsize), dtype=f"u{row.itemsize}").view(row.numpy)


def normal(seed, shape, dtype, scale=1.0):
    """Random numbers in `dtype`; whole numbers for the integers, fair coins for masks."""
    draw = np.random.default_rng(seed).standard_normal(shape) * scale
    if dtype == "i1":
        return draw > 0
    return cast((draw * 4 if dtype in ("i8", "i32") else draw).astype(np.float32), dtype)


shapes = hnp.array_shapes(min_dims=1, max_dims=3, max_side=5)
float_types = st.sampled_from(sorted(FLOATS))
seeds = st.integers(0, 10_000)

ARITHMETIC = {"add": operator.add, "sub": operator.sub, "mul": operator.mul, "div": operator.truediv}


# Arithmetic on narrow floats rounds the exact result once


@pytest.mark.parametrize("op", ARITHMETIC)
@pytest.mark.parametrize("dtype", ["f8e4m3", "f8e5m2"])
def test_arithmetic_on_every_pair_of_8_bit_floats_rounds_the_exact_result(op, dtype):
    values = every_value(dtype)
    got = evaluate(lambda tl, x, y: ARITHMETIC[op](x, y), values[:, None], values[None, :])
    with np.errstate(all="ignore"):
        same(got, rounded(ARITHMETIC[op](exact(values)[:, None], exact(values)[None, :]), dtype))


@pytest.mark.parametrize("op", ARITHMETIC)
@pytest.mark.parametrize("dtype", ["f16", "bf16"])
@settings(max_examples=25, deadline=None)
@given(hnp.arrays(np.uint16, 60), hnp.arrays(np.uint16, 60))
def test_arithmetic_on_16_bit_floats_rounds_the_exact_result(op, dtype, left, right):
    x, y = left.view(DTYPES[dtype].numpy)[:, None], right.view(DTYPES[dtype].numpy)[None, :]
    got = evaluate(lambda tl, x, y: ARITHMETIC[op](x, y), x, y)
    with np.errstate(all="ignore"):
        same(got, rounded(ARITHMETIC[op](exact(x), exact(y)), dtype))


@pytest.mark.parametrize("op", ARITHMETIC)
@settings(max_examples=25, deadline=None)
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


# Elementwise operations against float64

REFERENCES = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "tanh": np.tanh,
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
@settings(max_examples=8, deadline=None)
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


@settings(max_examples=40, deadline=None)
@given(st.data(), float_types, float_types, seeds)
def test_operands_broadcast_as_in_numpy(data, left, right, seed):
    both = data.draw(hnp.mutually_broadcastable_shapes(num_shapes=2, max_dims=3, max_side=4))
    x, y = (normal(seed + i, s, d) for i, (s, d) in enumerate(zip(both.input_shapes, (left, right), strict=True)))
    got = evaluate(lambda tl, x, y: x + y, x, y)
    assert got.shape == both.result_shape
    same(got, rounded(exact(x) + exact(y), promote(left, right)))


@pytest.mark.parametrize("op", ["lt", "le", "gt", "ge", "eq", "ne"])
@settings(max_examples=10, deadline=None)
@given(st.sampled_from(["f16", "bf16", "f32", "i8", "i32"]), st.sampled_from(["f16", "f8e5m2", "i8"]), seeds)
def test_comparisons_are_exact(op, left, right, seed):
    apply = getattr(operator, op)
    x, y = normal(seed, (4, 3), left), normal(seed + 1, (4, 3), right)
    y[0] = cast(x[0], right)
    got, number = evaluate(lambda tl, x, y: [apply(x, y), apply(x, 1)], x, y)
    assert got.dtype == np.bool_
    np.testing.assert_array_equal(got, apply(exact(x), exact(y)))
    np.testing.assert_array_equal(number, apply(exact(x), 1))


# Integers

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
@settings(max_examples=12, deadline=None)
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


# Casts, choices, sums


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


@settings(max_examples=30, deadline=None)
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


reducible = st.tuples(hnp.array_shapes(min_dims=1, max_dims=3, min_side=1, max_side=6), st.integers(0, 2))


@pytest.mark.parametrize("op", ["max", "min", "sum"])
@pytest.mark.parametrize("dtype", [*NARROW, "f32", "i8", "i32", "i1"])
@settings(max_examples=6, deadline=None)
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


@pytest.mark.parametrize("op", ["argmax", "argmin"])
@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32", "i8", "i32"])
@settings(max_examples=6, deadline=None)
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
@settings(max_examples=10, deadline=None)
@given(reducible, seeds)
def test_softmax_follows_float64_and_survives_large_numbers(dtype, where, seed):
    shape, axis = where
    axis = axis % len(shape)
    x = normal(seed, shape, dtype, 20.0)
    got = evaluate(lambda tl, x: tl.softmax(x, axis), x)
    powers = np.exp(exact(x) - exact(x).max(axis=axis, keepdims=True))
    result = dtype if dtype in FLOATS else "f32"
    close(got, rounded(powers / powers.sum(axis=axis, keepdims=True), result), result, slack=1e-6)


@settings(max_examples=20, deadline=None)
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


# Making values


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


@settings(max_examples=15, deadline=None)
@given(st.integers(-100, 100), st.integers(0, 50))
def test_arange_counts_from_start_to_end(start, length):
    counted, from_zero = evaluate(lambda tl: [tl.arange(start, start + length), tl.arange(length)])
    assert counted.dtype == np.int32
    assert counted.tolist() == list(range(start, start + length))
    assert from_zero.tolist() == list(range(length))


@settings(max_examples=25, deadline=None)
@given(shapes, st.integers(0, 2), st.integers(1, 4), float_types, float_types, seeds)
def test_cat_joins_along_any_axis(shape, axis, extra, left, right, seed):
    axis = axis % len(shape)
    other = tuple(extra if i == axis else n for i, n in enumerate(shape))
    x, y = normal(seed, shape, left), normal(seed + 1, other, right)
    got, from_end = evaluate(lambda tl, x, y: [tl.cat(x, y, axis), tl.cat(x, y, axis - len(shape))], x, y)
    same(got, np.concatenate([exact(x), exact(y)], axis))
    same(from_end, got)
    assert got.dtype == DTYPES[promote(left, right)].numpy


# Dot

sizes = st.integers(1, 7)
batches = st.sampled_from([(), (1,), (3,)])


@settings(max_examples=40, deadline=None)
@given(batches, sizes, sizes, sizes, float_types, float_types, seeds)
def test_a_dot_of_small_whole_numbers_is_exact(batch, m, k, n, left, right, seed):
    draw = np.random.default_rng(seed)
    a = cast(draw.integers(-4, 5, (*batch, m, k)).astype(np.float32), left)
    b = cast(draw.integers(-4, 5, (*batch, k, n)).astype(np.float32), right)
    got = evaluate(lambda tl, a, b: tl.dot(a, b), a, b)
    assert got.dtype == np.float32
    same(got, exact(a) @ exact(b))


@settings(max_examples=30, deadline=None)
@given(batches, sizes, st.integers(1, 60), sizes, float_types, float_types, seeds)
def test_a_dot_accumulates_in_f32(batch, m, k, n, left, right, seed):
    a, b = normal(seed, (*batch, m, k), left), normal(seed + 1, (*batch, k, n), right)
    acc = normal(seed + 2, (*batch, m, n), "f32")
    got, added = evaluate(lambda tl, a, b, c: [tl.dot(a, b), tl.dot(a, b, acc=c)], a, b, acc)
    bound = (k + 2) * F32_ERROR * (np.abs(exact(a)) @ np.abs(exact(b)) + np.abs(exact(acc))) + 1e-30
    assert np.all(np.abs(exact(got) - exact(a) @ exact(b)) <= bound)
    assert np.all(np.abs(exact(added) - exact(a) @ exact(b) - exact(acc)) <= bound)


@settings(max_examples=20, deadline=None)
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


# Views


@settings(max_examples=60, deadline=None)
@given(st.data(), st.sampled_from(["f16", "f8e4m3", "f32", "i32"]), seeds)
def test_chains_of_views_see_what_numpy_sees(data, dtype, seed):
    x = normal(seed, data.draw(hnp.array_shapes(min_dims=1, max_dims=3, max_side=5)), dtype)
    steps, mirror = [], x
    for _ in range(data.draw(st.integers(1, 4))):
        kind = data.draw(st.sampled_from(["index", "trans", "reshape", "expand"]))
        if kind == "index" and mirror.ndim:
            step = data.draw(hnp.basic_indices(mirror.shape, allow_newaxis=True, allow_ellipsis=True))
            mirror = mirror[step]
        elif kind == "trans" and mirror.ndim:
            step = data.draw(st.permutations(range(mirror.ndim)))
            mirror = mirror.transpose(step)
        elif kind == "expand":
            step = data.draw(st.integers(-mirror.ndim - 1, mirror.ndim))
            mirror = np.expand_dims(mirror, step)
        else:
            kind, step = "reshape", data.draw(st.sampled_from([(-1,), (1, mirror.size), (mirror.size, 1)]))
            if mirror.size == 0 and -1 in step:
                step = (0,)
            mirror = mirror.reshape(step)
        mirror = np.asarray(mirror)
        steps.append((kind, step))

    def body(tl, handle):
        for kind, step in steps:
            if kind == "index":
                handle = handle[step]
            elif kind == "trans":
                handle = tl.trans(handle, *step)
            elif kind == "expand":
                handle = tl.expand_dims(handle, step)
            else:
                handle = handle.reshape(step)
        return [handle, -handle]

    seen, computed = evaluate(body, x)
    assert seen.shape == mirror.shape
    same(seen, mirror)
    same(computed, -exact(mirror))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_address_of_a_view_is_that_of_its_first_element(data):
    shape = data.draw(hnp.array_shapes(min_dims=1, max_dims=3, max_side=5))
    array = np.zeros(shape, np.float16)
    index = data.draw(hnp.basic_indices(shape, allow_newaxis=True))
    mirror = array[index]

    def kernel(*, tl):
        x = tl.load(0, shape=shape, dtype="f16")
        view = x[index]
        return view.addr - x.addr, view.shape

    offset, seen = run_kernel(kernel, TLContext())
    assert seen == mirror.shape
    if isinstance(mirror, np.ndarray) and mirror.size:
        assert offset == mirror.__array_interface__["data"][0] - array.__array_interface__["data"][0]


def test_broadcast_views_repeat():
    x = normal(0, (3, 1), "f16")
    got = evaluate(lambda tl, x: [tl.broadcast_to(x, (2, 3, 4)), tl.broadcast_to(x, 3, 4) + 1.0], x)
    same(got[0], np.broadcast_to(x, (2, 3, 4)))
    same(got[1], rounded(exact(np.broadcast_to(x, (3, 4))) + 1, "f16"))


def test_indexing_by_a_value_the_kernel_read():
    x = normal(0, (4, 3), "f32")
    picked = evaluate_with_reads(lambda tl, x: x[tl.argmax(x[:, 0], 0)], x)
    same(picked, x[np.argmax(x[:, 0])])


def evaluate_with_reads(body, x):
    """Like `evaluate`, for a body that reads values back, which recording cannot."""

    def kernel(x_ptr, o, *, tl):
        tl.store(o, body(tl, tl.load(x_ptr, shape=x.shape)))

    host = mesh.Host(SMALL, ranks=1)
    out = host.empty(x.shape[1:], dtype_name(x.dtype))
    run = host.launch(kernel, host.replicate(x), out)
    assert run.safe, [str(f) for f in run.findings]
    return host.gather(out)


# Values keep what they were


def test_a_loaded_value_stays_when_its_memory_is_overwritten():
    x = normal(0, (4,), "f32")

    def kernel(x_ptr, o, *, tl):
        before = tl.load(x_ptr, shape=(4,))
        tl.store(x_ptr, before * 2.0)
        tl.store(o, before)

    host = mesh.Host(SMALL, ranks=1)
    tensor, out = host.replicate(x), host.empty((4,))
    assert host.launch(kernel, tensor, out).safe
    same(host.gather(out), x)
    same(host.gather(tensor), x * 2)


def test_strided_tiles_of_a_larger_tensor():
    x = normal(0, (6, 8), "f16")

    def kernel(x_ptr, o, *, tl):
        tile = tl.load(x_ptr + 2 * (8 * 1 + 2), shape=(3, 4), strides=(8, 1))
        tl.store(o + 2 * (8 * 2 + 1), tile, strides=(8, 1))
        tl.store(o, tl.load(x_ptr, shape=(2, 8)))

    host = mesh.Host(SMALL, ranks=1)
    out = host.replicate(np.zeros((6, 8), np.float16))
    assert host.launch(kernel, host.replicate(x), out).safe
    wanted = np.zeros((6, 8), np.float16)
    wanted[2:5, 1:5] = x[1:4, 2:6]
    wanted[:2] = x[:2]
    same(host.gather(out), wanted)


def test_a_load_without_a_type_has_the_tensors_own():
    kinds = []

    def kernel(*pointers, tl):
        kinds.extend(tl.load(p, shape=(1,)).dtype for p in pointers)
        kinds.extend(tl.element_type(p) for p in pointers)

    host = mesh.Host(SMALL, ranks=1)
    tensors = [host.replicate(np.ones(1, np.float32), dtype=name) for name in DTYPES]
    assert host.launch(kernel, *tensors).safe
    assert kinds == list(DTYPES) * 2
