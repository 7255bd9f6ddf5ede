"""What operations known from Triton compute, by numbers of Triton's own interpreter, and where tl departs from it."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled

from kernbench import mesh
from kernbench.common.pe_commands import OPERATIONS, MathCmd
from kernbench.mesh.time import retime
from kernbench.triton_emu import TLContext, run_kernel

NAN, INF = math.nan, math.inf
BF16 = ml_dtypes.bfloat16


def launched(body, *arrays):
    """The results of `body(tl, *handles)` on one PE as (array, type) pairs, and the run, which must be clean."""
    results = []

    def kernel(*pointers, tl):
        handles = [tl.load(p, a.shape) for p, a in zip(pointers, arrays, strict=True)]
        given = body(tl, *handles)
        for handle in given if isinstance(given, (list, tuple)) else [given]:
            results.append((handle.data.copy(), handle.dtype))

    host = mesh.Host("small", ranks=1)
    run = host.launch(kernel, *(host.replicate(a) for a in arrays))
    assert run.findings == []
    return results, run


def values(body, *arrays):
    return [array for array, _ in launched(body, *arrays)[0]]


def i32(*numbers):
    return np.array(numbers, np.int32)


LEFT = i32(7, -7, 7, -7, 2**31 - 1, -(2**31), 123456789, -5)
RIGHT = i32(2, 2, -2, -2, 3, 7, 987654321, 5)
INTEGERS = {
    "quotient": (lambda tl, x, y: x // y, (3, -3, -3, 3, 715827882, -306783378, 0, -1)),
    "remainder": (lambda tl, x, y: x % y, (1, -1, 1, -1, 1, -2, 123456789, 0)),
    "right shift": (lambda tl, x, y: x >> (y & 3), (1, -2, 1, -2, 268435455, -268435456, 61728394, -3)),
    "left shift": (lambda tl, x, y: x << (y & 3), (28, -28, 28, -28, -8, 0, 246913578, -10)),
    "upper product": (lambda tl, x, y: tl.umulhi(x, y), (0, 1, 6, -9, 1, 3, 28389652, 4)),
    "wrapping product": (lambda tl, x, y: x * y, (14, -14, -14, 14, 2147483645, -(2**31), -67153019, -25)),
    "rounding up": (lambda tl, x, y: tl.cdiv(x, y), (4, -3, -2, 5, -715827882, -306783377, 1, 0)),
}


@pytest.mark.parametrize("case", INTEGERS)
def test_integers_follow_triton(case):
    body, wanted = INTEGERS[case]
    (got,) = values(body, LEFT, RIGHT)
    np.testing.assert_array_equal(got, i32(*wanted))


FLOATS = np.array([NAN, 1.5, -2.7, 1e10, -1e10, 449.0, 1e5, 3.14159265], np.float32)
CASTS = {
    "i32 truncates and saturates": ("i32", (0, 1, -2, 2**31 - 1, -(2**31), 449, 100000, 3)),
    "i8 saturates": ("i8", (0, 1, -2, 127, -128, 127, 127, 3)),
    "bf16 rounds": ("bf16", (NAN, 1.5, -2.703125, 9999220736.0, -9999220736.0, 448, 99840, 3.140625)),
    "f16 rounds": ("f16", (NAN, 1.5, -2.69921875, INF, -INF, 449, INF, 3.140625)),
    "f8e4m3 has no infinity": ("f8e4m3", (NAN, 1.5, -2.75, NAN, NAN, 448, NAN, 3.25)),
    "f8e5m2 rounds": ("f8e5m2", (NAN, 1.5, -2.5, INF, -INF, 448, INF, 3.0)),
}


@pytest.mark.parametrize("case", CASTS)
def test_casts(case):
    dtype, wanted = CASTS[case]
    (got,) = values(lambda tl, x: x.to(dtype), FLOATS)
    np.testing.assert_array_equal(got.astype(np.float64), np.array(wanted, np.float64))


def test_nan_comes_through_maximum_unless_told_otherwise():
    def body(tl, x):
        number = tl.PropagateNan.NONE
        return [
            tl.maximum(x, 0.0),
            tl.maximum(x, 0.0, number),
            tl.minimum(x, 0.0, propagate_nan=number),
            tl.clamp(x, -1.0, 1.0),
        ]

    through, larger, smaller, clamped = values(body, FLOATS)
    assert np.isnan([through[0], clamped[0]]).all()
    np.testing.assert_array_equal(larger, np.fmax(FLOATS, 0))
    np.testing.assert_array_equal(smaller, np.fmin(FLOATS, 0))
    np.testing.assert_array_equal(clamped[1:], np.clip(FLOATS[1:], -1, 1))


# operand types, what Triton makes of them, what tl does; they differ where a narrow result would lose digits or room
TYPES = {
    "f16 * i32": (lambda tl, a, b, c, d: a * c, "f16"),
    "i32 / i32": (lambda tl, a, b, c, d: c / c, "f32"),
    "i32 * number": (lambda tl, a, b, c, d: c * 1.5, "f32"),
    "i8 + i32": (lambda tl, a, b, c, d: d + c, "i32"),
    "i8 + number": (lambda tl, a, b, c, d: d + 1, "i8"),
    "i8 * i8": (lambda tl, a, b, c, d: d * d, "i8"),
    "f16 + number": (lambda tl, a, b, c, d: a + 1.5, "f16"),
    "mask + number": (lambda tl, a, b, c, d: (a > 0) + 1, "i32"),
    "sum of i8": (lambda tl, a, b, c, d: tl.sum(d), "i32"),
    "sum of a mask": (lambda tl, a, b, c, d: tl.sum(a > 0), "i32"),
    "sum of f16": (lambda tl, a, b, c, d: tl.sum(a), "f16"),
    "sum of bf16": (lambda tl, a, b, c, d: tl.sum(b), "bf16"),
    "cumsum of i8": (lambda tl, a, b, c, d: tl.cumsum(d), "i32"),
    "cumsum of bf16": (lambda tl, a, b, c, d: tl.cumsum(b), "bf16"),
    "where": (lambda tl, a, b, c, d: tl.where(a > 0, a, 1.0), "f16"),
    "where of i8": (lambda tl, a, b, c, d: tl.where(a > 0, d, 1), "i8"),
    "not": (lambda tl, a, b, c, d: ~(a > 0), "i1"),
    "dot": (lambda tl, a, b, c, d: tl.dot(a[None, :], a[:, None]), "f32"),
    "f16 + bf16, f16 in Triton": (lambda tl, a, b, c, d: a + b, "f32"),
    "f16 / f16, f32 in Triton": (lambda tl, a, b, c, d: a / a, "f16"),
    "max of bf16, f32 in Triton": (lambda tl, a, b, c, d: tl.max(b), "bf16"),
    "max of i8, i32 in Triton": (lambda tl, a, b, c, d: tl.max(d), "i8"),
}


@pytest.mark.parametrize("case", TYPES)
def test_types_of_results(case):
    body, wanted = TYPES[case]
    a, b, c, d = (np.ones(4, t) for t in (np.float16, BF16, np.int32, np.int8))
    (((_, dtype),), _) = launched(body, a, b, c, d)
    assert dtype == wanted


def test_reductions_find_the_first_of_equals():
    x = np.array([1, 5, 5, 2, 0, 0, -1, 3], np.float32)

    def body(tl, x):
        return [tl.argmax(x, 0), tl.argmin(x, 0), *tl.max(x, 0, True), *tl.min(x, 0, return_indices=True)]

    assert [int(v[0]) for v in values(body, x)] == [1, 6, 5, 1, -1, 6]
    assert [v.item() for v in values(lambda tl, x: [tl.xor_sum(x, 0), tl.reduce_or(x, 0)], i32(1, 6, 3))] == [4, 7]


def test_random_numbers_are_those_of_triton():
    seed, offsets = 12345678901, np.arange(8, dtype=np.int32)
    whole, uniform, normal, *_ = values(
        lambda tl, i: [tl.randint(seed, i), tl.rand(seed, i), tl.randn(seed, i), *tl.rand4x(seed, i)], offsets
    )
    bits = i32(-992855932, -1933226228, -2025608996, 1168636806, 2106862084, -1603042684, 24123084, -1007307387)
    np.testing.assert_array_equal(whole, bits)
    np.testing.assert_allclose(uniform, np.where(bits < 0, ~bits, bits) / 2**31, atol=1e-7)
    expected = [-0.7334, 0.4231, -0.2880, 0.0702, -0.0454, -0.2460, -1.8134, -0.7147]
    np.testing.assert_allclose(normal, expected, atol=1e-4)


def test_philox_gives_the_published_words():
    # the known answers of Random123 for philox4x32-10, counters and key all zero and all ones
    def words(number, seed):
        return lambda tl, x: tl.philox(seed, x, number, number, number)

    zero = [int(v[0]) & 0xFFFFFFFF for v in values(words(0, 0), i32(0))]
    ones = [int(v[0]) & 0xFFFFFFFF for v in values(words(-1, 2**64 - 1), i32(-1))]
    assert zero == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert ones == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


def test_tiles_are_walked_in_groups():
    tl = TLContext()
    walk = [tl.swizzle2d(i, j, 3, 4, 2) for i in range(3) for j in range(4)]
    assert walk == [(0, 0), (1, 0), (0, 1), (1, 1), (0, 2), (1, 2), (0, 3), (1, 3), (2, 0), (2, 1), (2, 2), (2, 3)]


@settings(max_examples=sampled.examples(12, 25))
@given(st.integers(1, 20), st.integers(1, 3), st.integers(0, 1), st.booleans(), st.integers(0, 2**32 - 1))
def test_folds_follow_a_loop_in_order(count, other, axis, reverse, seed):
    """Composition of x -> a x + b is associative and does not commute: order shows."""
    rng = np.random.default_rng(seed)
    shape = (count, other) if axis == 0 else (other, count)
    a, b = (rng.uniform(-1, 1, shape).astype(np.float32) for _ in range(2))

    def then(a1, b1, a2, b2):
        return a1 * a2, b1 * a2 + b2

    def body(tl, a, b):
        whole = tl.reduce((a, b), axis, then)
        return [*tl.associative_scan((a, b), axis, then, reverse=reverse), *whole]

    scan_a, scan_b, all_a, all_b = values(body, a, b)
    wanted = _loop(np.moveaxis(a, axis, 0), np.moveaxis(b, axis, 0), reverse)
    for got, want in zip((scan_a, scan_b), wanted, strict=True):
        np.testing.assert_allclose(np.moveaxis(got, axis, 0), want, atol=1e-5)
    last = [w[-1] for w in _loop(np.moveaxis(a, axis, 0), np.moveaxis(b, axis, 0), False)]
    for got, want in zip((all_a, all_b), last, strict=True):
        np.testing.assert_allclose(got.reshape(-1), want, atol=1e-5)


def _loop(a, b, reverse):
    a, b = (a[::-1], b[::-1]) if reverse else (a, b)
    results = [(a[0].astype(np.float64), b[0].astype(np.float64))]
    for i in range(1, len(a)):
        before_a, before_b = results[-1]
        results.append((before_a * a[i], before_b * a[i] + b[i]))
    together = [np.array(column) for column in zip(*results, strict=True)]
    return [column[::-1] for column in together] if reverse else together


def test_running_sums_sorting_and_picking():
    rng = np.random.default_rng(1)
    x, i = rng.standard_normal((3, 13)).astype(np.float16), rng.integers(0, 13, (3, 5)).astype(np.int32)

    def body(tl, x, i):
        return [
            tl.cumsum(x, 1), tl.cumsum(x, 0, reverse=True), tl.cumprod(i, axis=1), tl.sort(x),
            x.sort(0, descending=True), tl.topk(x, 4), tl.gather(x, i, 1), tl.histogram(i, 13), tl.flip(x),
            tl.flip(x, 0), x.ravel(), x[:, None].squeeze(1),
        ]  # fmt: skip

    got = values(body, x, i)
    wide = x.astype(np.float32)
    wanted = [
        np.cumsum(wide, 1).astype(np.float16), np.cumsum(wide[::-1], 0)[::-1].astype(np.float16),
        np.cumprod(i, axis=1, dtype=np.int32), np.sort(x, 1), np.sort(x, 0)[::-1], np.sort(x, 1)[:, ::-1][:, :4],
        np.take_along_axis(x, i, 1), np.bincount(i.ravel(), minlength=13), x[:, ::-1], x[::-1], x.ravel(), x,
    ]  # fmt: skip
    for a, b in zip(got, wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def test_joining_and_taking_apart():
    x, y = np.arange(6, dtype=np.float32).reshape(2, 3), np.full((1, 3), 9, np.float32)

    def body(tl, x, y):
        first, second = tl.split(tl.join(x, y))
        return [
            tl.join(x, y),
            tl.interleave(x, y),
            first,
            second,
            tl.cat([x, y, x]),
            tl.cat(x, x, dim=1),
            *tl.broadcast(x, y),
        ]

    wide = np.broadcast_to(y, x.shape)
    both = np.stack([x, wide], -1)
    wanted = [both, both.reshape(2, 6), x, wide, np.concatenate([x, y, x]), np.concatenate([x, x], 1), x, wide]
    for a, b in zip(values(body, x, y), wanted, strict=True):
        np.testing.assert_array_equal(a, b)


def test_bits_of_another_type_are_a_view():
    x = np.array([1.0, -2.0, 0.5, 0.0], np.float32)
    results, run = launched(
        lambda tl, x: [x.to("i32", bitcast=True), x.to("i32", bitcast=True).to("f32", bitcast=True)], x
    )
    np.testing.assert_array_equal(results[0][0], x.view(np.int32))
    np.testing.assert_array_equal(results[1][0], x)
    assert run.metrics["commands"] == 1


@pytest.mark.parametrize(("pad", "fill"), [("zero", 0.0), ("nan", NAN)])
def test_tiles_are_filled_past_the_edge_and_move_only_what_exists(pad, fill):
    x = np.arange(35, dtype=np.float32).reshape(5, 7) + 1
    results = []

    def kernel(x_ptr, o_ptr, *, tl):
        corner = tl.make_block_ptr(x_ptr, (5, 7), (7, 1), (3, 4), (4, 4), (1, 0))
        loaded = [
            tl.load(corner, boundary_check=(0, 1), padding_option=pad),
            tl.load(tl.advance(corner, (-5, -5)), boundary_check=(0, 1)),
            tl.make_tensor_descriptor(x_ptr, [5, 7], [7, 1], [2, 4], padding_option=pad).load([4, 6]),
            tl.load(tl.advance(corner, (9, 0)), boundary_check=(0, 1)),
        ]
        results.extend(h.data.copy() for h in loaded)
        d = tl.make_tensor_descriptor(o_ptr, [5, 7], [7, 1], [4, 4])
        for i in range(0, 5, 4):
            for j in range(0, 7, 4):
                d.store([i, j], tl.full((4, 4), 10.0 * i + j, "f32"))
        assert d.dtype == "f32"
        assert (d.shape, d.strides, d.block_shape) == ((5, 7), (7, 1), (4, 4))

    host = mesh.Host("small", ranks=1)
    o = host.empty((5, 7), "f32")
    run = host.launch(kernel, host.replicate(x), o)
    assert run.findings == []
    wide = np.pad(x, 8, constant_values=fill)
    np.testing.assert_array_equal(results[0], wide[11:15, 12:16])
    np.testing.assert_array_equal(results[1], np.pad(x, 8)[6:10, 7:11])
    np.testing.assert_array_equal(results[2], wide[12:14, 14:18])
    np.testing.assert_array_equal(results[3], np.zeros((4, 4)))
    rows, columns = np.arange(5) // 4 * 4, np.arange(7) // 4 * 4
    np.testing.assert_array_equal(host.gather(o), 10 * rows[:, None] + columns[None])
    # 2x3, 2x3, 1x1 and no elements that exist
    assert run.metrics["load_bytes"] == 4 * (6 + 6 + 1)
    assert run.metrics["store_bytes"] == 4 * 35


def test_passes_of_a_sort_a_scan_and_a_random_number_take_time():
    def kernel(x_ptr, *, tl):
        x = tl.load(x_ptr, (1024,))
        tl.sort(x)
        tl.cumsum(x, 0)
        tl.randint(1, tl.arange(0, 256))

    host = mesh.Host("small", ranks=1)
    run = host.launch(kernel, host.replicate(np.zeros(1024, np.float32)))
    ops = [c.op for c in run.recording.of_rank(0)]
    assert (ops.count("sort_pass"), ops.count("cumsum"), ops.count("philox")) == (55, 1, 10)
    timed = retime(run, host.machine)
    busy = timed.metrics["busy_ps"]["math"]
    # 128 results a cycle of 1 ns: 2 passes of 1024 for each of 56, 8 of 4 x 256 for each of 10, and 256 numbers
    assert busy == 1000 * (56 * 2 * 1024 + 10 * 8 * 1024 + 256) // 128


def test_recorded_without_data_they_keep_shapes():
    def kernel(*, tl):
        x, i = tl.full((4, 8), 1.0, "f16"), tl.arange(0, 8)
        shapes = [
            tl.sort(x), tl.topk(x, 2), tl.histogram(i, 5), tl.rand(1, i), tl.reduce(x, 1, lambda a, b: a + b),
            tl.reduce(x, None, lambda a, b: a * b, keep_dims=False), tl.associative_scan(x, 0, lambda a, b: a + b),
            tl.load(tl.make_block_ptr(4096, (4, 4), (4, 1), (2, 2), (4, 4)), boundary_check=(0, 1)), tl.cumsum(x, 1),
        ]  # fmt: skip
        tl.device_assert(x > 0)
        return [h.shape for h in shapes]

    tl = TLContext()
    assert run_kernel(kernel, tl) == [(4, 8), (4, 2), (5,), (8,), (4, 1), (), (4, 8), (4, 4), (4, 8)]
    folded = [c for c in tl.commands if isinstance(c, MathCmd) and c.op == "cumsum"]
    assert [c.axis for c in folded] == [1]
    assert OPERATIONS["sort_pass"].engine == "math"


def test_a_function_that_combines_may_take_tl():
    def larger(a, b, *, tl):
        return tl.maximum(a, b)

    (got,) = values(lambda tl, x: tl.reduce(x, 0, larger), i32(3, 9, 2, 4, 1))
    assert got.item() == 9


def test_conditions_ranges_and_hints_change_nothing():
    def body(tl, x):
        tl.debug_barrier()
        total = tl.zeros_like(x)
        for i in tl.range(0, 6, 2, num_stages=3, loop_unroll_factor=2):
            total = total + i
        for _ in tl.static_range(2):
            total = tl.max_contiguous(tl.multiple_of(total, 4), 4)
        return [tl.where(True, total, x), tl.where(x.numel() > 100, 1.0, x), tl.full((2, 2), tl.math.max(x), "f32")]

    chosen, kept, filled = values(body, np.array([1, 2, 3, 4], np.float32))
    np.testing.assert_array_equal(chosen, [6, 6, 6, 6])
    np.testing.assert_array_equal(kept, [1, 2, 3, 4])
    np.testing.assert_array_equal(filled, np.full((2, 2), 4))
