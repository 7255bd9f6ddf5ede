"""What a verdict says: numbers, places, ranks and reasons."""

import json
import math

import ml_dtypes
import numpy as np
import pytest

from kernbench.common.dtypes import DTYPES
from kernbench.common.errors import MisuseError
from kernbench.golden import attention, compare
from kernbench.golden.tolerance import elementwise


def draw(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


@pytest.fixture(scope="module")
def reference():
    return attention(draw(1, 64, 4, 16), draw(2, 64, 2, 16), draw(3, 64, 2, 16))


@pytest.fixture
def right(reference):
    return reference.expected.astype(np.float16)


def test_a_right_output(reference, right):
    verdict = compare(right, reference, name="o")
    assert (verdict.passed, verdict.reason, verdict.wrong, verdict.elements) == (True, "", 0, 4096)
    assert (verdict.name, verdict.dtype, verdict.ranks, verdict.worst_rank) == ("o", "f16", (), None)
    assert 0.4 < verdict.max_ulps <= 0.5
    assert verdict.max_abs == np.abs(right - reference.expected).max()
    assert 0 < verdict.relative_l2 < 2**-11
    assert 2**-12 < verdict.max_rel <= 2**-11
    assert str(verdict).startswith("o: right; max error")
    json.dumps(verdict.to_dict())


def test_one_wrong_element_is_found_with_its_rank_and_row(reference, right):
    right[41, 2, 7] += np.float16(0.5)
    verdict = compare(right, reference, name="o", rank_axis=0, ranks=4)
    assert not verdict.passed
    assert (verdict.wrong, verdict.worst_index, verdict.worst_rank, verdict.worst_row) == (1, (41, 2, 7), 2, 9)
    assert [part.wrong for part in verdict.ranks] == [0, 0, 1, 0]
    assert verdict.ranks[2].worst_index == (41, 2, 7)
    assert verdict.actual == right[41, 2, 7]
    assert verdict.expected == reference.expected[41, 2, 7]
    assert verdict.max_abs == abs(verdict.actual - verdict.expected)
    assert verdict.reason == (
        "1 of 4096 elements of o are out of tolerance; worst at (41, 2, 7), rank 2, row 9 (global row 41): "
        f"got {verdict.actual:.6g}, expected {verdict.expected:.6g}, error {verdict.max_abs:.3g}, "
        f"tolerance {verdict.tolerance:.3g}; rank 2 wrong, 0-1, 3 right"
    )


def test_ranks_can_be_ragged_empty_or_given(reference, right):
    ragged = compare(right, reference, rank_axis=0, ranks=5)
    assert [part.elements // 64 for part in ragged.ranks] == [13, 13, 13, 13, 12]
    many = compare(right[:3], reference.expected[:3], rank_axis=-3, ranks=5)
    assert [part.elements for part in many.ranks] == [64, 64, 64, 0, 0]
    assert many.ranks[4].worst_index == ()
    right[:, 3] = 0
    given = compare(right, reference, rank_axis=1, rank_bounds=[(0, 1), (1, 3), (3, 4)])
    assert (given.worst_rank, given.worst_row) == (2, 0)
    assert given.reason.endswith("rank 2 wrong, 0-1 right")
    uncovered = compare(right, reference, rank_axis=1, rank_bounds=[(0, 2)])
    assert uncovered.worst_rank is None
    assert "rank" not in uncovered.reason


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks": 2}, "need rank_axis"),
        ({"rank_axis": 3, "ranks": 2}, r"rank_axis 3 is no axis of an output of shape \(64, 4, 16\)"),
        ({"rank_axis": 0}, "either ranks"),
        ({"rank_axis": 0, "ranks": 2, "rank_bounds": [(0, 64)]}, "either ranks"),
        ({"rank_axis": 0, "ranks": 0}, "at least 1, got 0"),
        ({"rank_axis": 0, "rank_bounds": [(0, 65)]}, r"\(0, 65\) do not lie within the 64 indices"),
        ({"rank_axis": 0, "rank_bounds": [(32, 64), (0, 33)]}, "overlap: index 32 belongs to two ranks"),
        ({"reduction": 3}, "a Reference knows its own"),
        ({"dtype": "f17"}, "unknown element type 'f17'"),
    ],
)
def test_misuse_is_refused(reference, right, options, message):
    with pytest.raises(MisuseError, match=message):
        compare(right, reference, **options)


def test_not_a_number(reference, right):
    right[3, 1, 2:5] = np.nan
    right[50, 0, 0] = np.inf
    right[51, 0, 0] += 1
    verdict = compare(right, reference, name="o", rank_axis=0, ranks=2)
    assert (verdict.wrong, verdict.worst_index, verdict.max_abs) == (5, (3, 1, 2), math.inf)
    assert verdict.reason == (
        "3 NaN and 1 inf among 4096 elements of o; first at (3, 1, 2), rank 0, row 3 (global row 3): got nan, "
        f"expected {verdict.expected:.6g}; 1 others are out of tolerance"
    )


def test_nothing_was_stored(reference, right):
    reason = compare(np.full_like(right, np.nan), reference).reason
    assert reason.endswith("every element is NaN, which is what fresh memory holds and what a bad read gives")


def test_nan_where_no_key_is_visible():
    x = draw(1, 8, 2, 4)
    reference = attention(x, x, x, causal=True, query_offset=-2)
    actual = reference.expected.astype(np.float32)
    assert compare(actual, reference).passed
    actual[:2] = np.nan
    reason = compare(actual, reference).reason
    assert "16 NaN among 64 elements" in reason
    assert reason.endswith("every NaN is in a row that sees no key: such rows must give zeros, not 0/0")


def test_all_zeros_and_constants(reference, right):
    assert compare(0 * right, reference).reason.endswith("; relative L2 error 1; every element is 0")
    assert compare(0 * right + np.float16(0.25), reference).reason.endswith("; every element is 0.25")


def test_a_constant_factor(reference, right):
    reason = compare(right * np.float16(0.125), reference).reason
    assert reason.endswith("every element is 0.125 x the expected one: divided twice, or a factor missing?")


def test_rows_of_zeros(reference, right):
    right[5] = 0
    assert "4 of 256 rows are zeros, the others are right" in compare(right, reference).reason
    right[6, 0, 0] += 1
    assert "rows are zeros" not in compare(right, reference).reason


def test_operands_rounded_to_a_narrower_type(reference):
    for dtype in ("f16", "bf16"):
        allowed = elementwise(reference, DTYPES["f32"], DTYPES[dtype])
        signs = np.sign(draw(4, *reference.shape))
        rounded = (reference.expected + 0.9 * signs * allowed).astype(np.float32)
        reason = compare(rounded, reference).reason
        assert reason.endswith(f'say Expected(..., compute_dtype="{dtype}")')
        assert compare(rounded, reference, compute_dtype=dtype).passed
    assert "compute_dtype" not in compare((1.1 * reference.expected).astype(np.float32), reference).reason


def test_a_factor_for_each_row(reference):
    divided = (reference.expected / reference.denominator).astype(np.float16)
    assert "every row is the expected one times a factor of its own, 0.0" in compare(divided, reference).reason
    undivided = (reference.expected * reference.denominator).astype(np.float16)
    assert (
        "not divided by what its row is divided by (the sum of a softmax, a norm), or divided twice?"
        in compare(undivided, reference).reason
    )


def test_no_pattern_is_claimed_that_one_element_breaks(reference, right):
    scaled = right * np.float16(0.125)
    scaled[5, 1, 3] += 1
    reason = compare(scaled, reference).reason
    assert "every" not in reason


def test_some_ranks_wrong(reference, right):
    right[32:] = right[32:][::-1]
    verdict = compare(right, reference, rank_axis=0, ranks=4)
    assert verdict.reason.endswith("; ranks 2-3 wrong, 0-1 right")
    assert [part.passed for part in verdict.ranks] == [True, True, False, False]


def test_zeros_within_every_tolerance_are_wrong():
    # so many keys in so coarse a type: each element alone could be rounding, all together cannot
    reference = attention(draw(1, 16, 1, 8), draw(2, 16384, 1, 8), draw(3, 16384, 1, 8))
    verdict = compare(np.zeros((16, 1, 8), np.float16), reference, compute_dtype="f8e5m2", rank_axis=0, ranks=2)
    assert not verdict.passed
    assert verdict.wrong == verdict.elements == 128
    assert verdict.reason == (
        "output is within the tolerance of each element, but its relative L2 error is 1 (at most 0.677 is allowed, "
        "zeros give 1): rounding does not explain it; every element is 0"
    )


def test_a_wrong_shape_is_a_failed_comparison(reference, right):
    verdict = compare(right.reshape(64, 64), reference, name="o")
    assert not verdict.passed
    assert verdict.reason == (
        "o has shape (64, 64), expected (64, 4, 16); the number of elements agrees: reshape it first"
    )
    assert verdict.wrong == verdict.elements == 4096
    assert compare(right[:3], reference).reason == "output has shape (3, 4, 16), expected (64, 4, 16)"


def test_nothing_to_compare():
    empty = np.zeros((0, 4), np.float16)
    verdict = compare(empty, np.zeros((0, 4)), rank_axis=0, ranks=2)
    assert verdict.passed
    assert (verdict.elements, verdict.worst_index, verdict.max_abs) == (0, (), 0.0)
    assert not compare(empty, np.zeros((0, 5))).passed


def test_zeros_are_right_where_zeros_are_expected():
    assert compare(np.zeros((3, 4), np.float16), np.zeros((3, 4))).passed
    assert not compare(np.full((3, 4), 1e-3, np.float16), np.zeros((3, 4))).passed


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_reference_must_be_finite(value):
    with pytest.raises(MisuseError, match="the reference of o holds 1 values that are not finite"):
        compare(np.ones(3, np.float32), np.array([1.0, value, 1.0]), name="o")


@pytest.mark.parametrize(("dtype", "value"), [("f16", 65520.0), ("f8e4m3", 470.0), ("i8", 200.0), ("bf16", 3.44e38)])
def test_a_reference_must_be_in_range(dtype, value):
    with pytest.raises(MisuseError, match=f"beyond the range of {dtype}"):
        compare(np.ones(3), np.array([1.0, -value, 1.0]), dtype=dtype)


def test_a_plain_array_is_judged_by_the_size_of_its_rows():
    expected = np.array([[1.0, 1e-6], [1e-6, 1e-6]])
    actual = expected.copy()
    actual[0, 1] += 1e-7
    assert compare(actual, expected).passed
    actual[1, 1] += 1e-7
    assert compare(actual, expected).worst_index == (1, 1)
    sums = np.ones((2, 2)) * (1 + 1e-4)
    assert not compare(sums, np.ones((2, 2))).passed
    assert compare(sums, np.ones((2, 2)), reduction=4096).passed
    with pytest.raises(MisuseError, match="at least 1; got 0"):
        compare(sums, sums, reduction=0)


@pytest.mark.parametrize("mask", [-1e9, -1e30, float(np.finfo(np.float32).min)])
def test_what_a_mask_wrote_lends_its_size_to_nobody(mask):
    scores = np.random.default_rng(0).standard_normal((16, 16))
    # the first row has one score, by chance near 0: its terms were as large as those of the others
    scores[0, 0] = 1e-9
    expected = np.where(np.tri(16) > 0, scores, mask)
    rounded = expected.astype(np.float32)
    rounded[0, 0] += 1e-8
    assert compare(rounded, expected, reduction=64).passed
    rounded[9, 4] *= 1.001
    assert compare(rounded, expected, reduction=64).worst_index == (9, 4)
    rounded[9, 4], rounded[3, 4] = scores[9, 4], scores[3, 4]
    assert compare(rounded, expected, reduction=64).worst_index == (3, 4)


def test_terms_as_large_as_a_mask_are_no_mask():
    expected = np.array([[-2e9, 1e6, 3.0]])
    assert compare(expected + np.array([0.0, 0.0, 100.0]), expected).passed


def test_ranks_count_what_is_out_of_tolerance():
    expected = np.random.default_rng(0).standard_normal((8, 4))
    actual = expected.copy()
    actual[4:6] += 5.0
    verdict = compare(actual, expected, rank_axis=0, ranks=2)
    assert "8 of 32 elements of output are out of tolerance" in verdict.reason
    assert (verdict.wrong, [rank.wrong for rank in verdict.ranks]) == (8, [0, 8])


@pytest.mark.parametrize("dtype", ["int16", "int64", "uint8", "uint16", "uint32", "uint64"])
def test_integers_of_every_width_are_compared_exactly(dtype):
    values = np.arange(6, dtype=dtype)
    assert compare(values, np.arange(6.0)).passed
    values[4] += 1
    verdict = compare(values, np.arange(6.0))
    assert (verdict.worst_index, verdict.wrong) == ((4,), 1)
    assert verdict.dtype == f"{dtype[0]}{dtype[-2:].strip('t')}"


def test_integers_that_float64_does_not_hold_are_refused():
    with pytest.raises(MisuseError, match="integers of 2\\*\\*53 and more, which float64 does not distinguish"):
        compare(np.array([2**53 + 1]), np.array([2.0**53]), name="o")


def test_scalars_and_vectors_compare_too():
    assert compare(np.float32(2), 2.0).passed
    verdict = compare(np.array([1, 2, 4], np.float32), [1.0, 2.0, 3.0])
    assert verdict.worst_index == (2,)


def test_float64_is_judged_as_f32_unless_told(reference):
    off = reference.expected * (1 + 2**-12)
    assert compare(reference.expected, reference).dtype == "f32"
    assert not compare(off, reference).passed
    assert compare(off, reference, dtype=np.float16).passed
    assert compare(off, reference, compute_dtype="bf16").passed


def test_ulps_count_the_spacing_of_the_output_type():
    verdict = compare(np.array([1.0 + 2**-10], np.float16), np.array([1.0]))
    assert verdict.max_ulps == 1.0
    subnormal = compare(np.array([2**-23], np.float16), np.array([2.0**-24]))
    assert subnormal.max_ulps == 1.0
    below_power = compare(np.array([1.0], ml_dtypes.bfloat16), np.array([1 - 2.0**-8]))
    assert below_power.max_ulps == 1.0


class Dlpack:
    def __init__(self, array):
        self.array = array

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()


class Arraylike:
    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return self.array


@pytest.mark.parametrize("wrap", [Dlpack, Arraylike])
def test_anything_that_is_an_array_can_be_compared(reference, right, wrap):
    verdict = compare(wrap(right), reference)
    assert verdict.passed
    assert verdict.dtype == "f16"


def test_what_is_no_array_is_refused(reference):
    with pytest.raises(MisuseError, match="o: object is no array"):
        compare(object(), reference, name="o")
    with pytest.raises(MisuseError, match="o: elements of type complex64 are no real numbers"):
        compare(np.zeros(3, np.complex64), np.zeros(3), name="o", dtype="f32")


def test_numbers_beyond_all_range_are_wrong_without_a_warning(reference):
    for value in (np.inf, -np.inf, 1e300, -1e300):
        verdict = compare(np.where(np.arange(16) < 8, value, 0.0) + 0 * reference.expected, reference)
        assert not verdict.passed
    x = draw(1, 4, 1, 4)
    nothing = attention(x, x, x, key_lengths=0)
    assert not compare(np.full(nothing.shape, np.inf), nothing).passed


def test_a_tolerance_of_the_callers_own_is_the_only_one():
    expected = np.array([[1.0, 100.0, 0.0]])
    actual = (expected + np.array([0.05, 5.0, 0.01])).astype(np.float32)
    assert compare(actual, expected, allowed=(0.1, 0.02)).passed
    tight = compare(actual, expected, allowed=(0.01, 0.02))
    assert tight.wrong == 2
    assert tight.tolerance == pytest.approx(1.02)
    assert tight.worst_index == (0, 1)
    assert not compare(np.full((1, 3), np.nan, np.float32), expected, allowed=(1.0, 1.0)).passed
    assert compare(np.zeros((1, 3), np.float32), expected, allowed=(0.0, 100.0)).passed
