"""Element types: names, rounding against an exact search among the neighbours, promotion, arrays from outside."""

import sys
import types
from itertools import combinations_with_replacement, product
from math import inf, isnan, nan

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled

from kernbench.common.dtypes import (
    DTYPES,
    FLOATS,
    ITEMSIZE,
    as_array,
    cast,
    dtype_name,
    poisoned,
    promote,
)
from kernbench.common.errors import MisuseError

NARROW = ("f16", "bf16", "f8e4m3", "f8e5m2")
ORDER = ("i1", "i8", "i32", *NARROW, "f32")


def every_value(dtype):
    """All bit patterns of a type of at most 16 bits, as the type itself."""
    row = DTYPES[dtype]
    bits = np.arange(1 << (8 * row.itemsize), dtype=np.uint16 if row.itemsize == 2 else np.uint8)
    return bits.view(row.numpy)


def wide(array):
    """As float64, which holds every value of every type; signalling NaNs stay silent."""
    with np.errstate(invalid="ignore"):
        return np.asarray(array).astype(np.float64)


def magnitudes(dtype):
    """The finite values from 0 up, in float64; the index is the bit pattern, so an even index is an even number."""
    half = wide(every_value(dtype)[: 1 << (8 * ITEMSIZE[dtype] - 1)])
    return half[np.isfinite(half)]


MAGNITUDES = {name: magnitudes(name) for name in NARROW}
STEPS_PAST_THE_END = {name: 2 * table[-1] - table[-2] for name, table in MAGNITUDES.items()}


def nearest(values, dtype):
    """`values` (float64) rounded to nearest, ties to even, by looking at the two neighbours; as float64.

    Past the largest number lies a step that is infinity, or NaN in the type that has no infinity.
    """
    values = np.asarray(values, np.float64)
    table = np.append(MAGNITUDES[dtype], STEPS_PAST_THE_END[dtype])
    size = np.minimum(np.abs(values), table[-1])
    above = np.clip(np.searchsorted(table, size), 1, len(table) - 1)
    below = above - 1
    middle = (table[below] + table[above]) / 2
    index = np.where(size < middle, below, np.where(size > middle, above, below + below % 2))
    overflow = inf if dtype != "f8e4m3" else nan
    rounded = np.where(index == len(table) - 1, overflow, table[index])
    return np.where(np.isnan(values), nan, np.copysign(rounded, values))


def test_the_reference_itself_sends_ties_to_even():
    assert nearest([1.125, 1.375, 1.126, -1.124, 2.0**-17], "f8e5m2").tolist() == [1.0, 1.5, 1.25, -1.0, 0.0]
    assert nearest([464.0, -448.0], "f8e4m3").tolist() == [448.0, -448.0]
    assert np.isnan(nearest([464.1, inf], "f8e4m3")).all()
    assert nearest([65519.9, 65520.0, -1e9], "f16").tolist() == [65504.0, inf, -inf]


def check_same(got, wanted):
    """Equal, NaN where NaN is wanted, and zeros with their sign."""
    got = wide(got)
    np.testing.assert_array_equal(got, wanted)
    seen = ~np.isnan(wanted)
    np.testing.assert_array_equal(np.signbit(got)[seen], np.signbit(wanted)[seen])


def quietly(array, dtype):
    with np.errstate(all="ignore"):
        return cast(array, dtype)


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("source", [np.float64, np.float32])
def test_every_tie_rounds_to_even_and_everything_beside_a_tie_to_the_nearer(dtype, source):
    table = np.append(MAGNITUDES[dtype], STEPS_PAST_THE_END[dtype])
    ties = ((table[1:] + table[:-1]) / 2).astype(source)
    exact = MAGNITUDES[dtype].astype(source)
    for values in (ties, np.nextafter(ties, source(0)), np.nextafter(ties, source(inf)), -ties, exact):
        check_same(quietly(values, dtype), nearest(values, dtype))


@pytest.mark.parametrize("dtype", NARROW)
@settings(max_examples=sampled.examples(20, 50))
@given(st.lists(st.floats(width=64), min_size=1, max_size=20))
def test_casts_from_float64_round_to_nearest(dtype, values):
    check_same(quietly(np.array(values), dtype), nearest(values, dtype))


@pytest.mark.parametrize("dtype", NARROW)
@settings(max_examples=sampled.examples(20, 50))
@given(st.lists(st.floats(width=32), min_size=1, max_size=20))
def test_casts_from_float32_round_to_nearest(dtype, values):
    check_same(quietly(np.array(values, np.float32), dtype), nearest(values, dtype))


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("source", NARROW)
def test_casts_between_the_narrow_floats_round_every_value_to_nearest(source, dtype):
    values = every_value(source)
    check_same(quietly(values, dtype), nearest(wide(values), dtype))


@pytest.mark.parametrize("dtype", NARROW)
@settings(max_examples=sampled.examples(20, 50))
@given(st.lists(st.integers(-(2**31), 2**31 - 1) | st.integers(-600, 600), min_size=1, max_size=20))
def test_casts_from_integers_round_to_nearest(dtype, values):
    check_same(quietly(np.array(values, np.int32), dtype), nearest(values, dtype))


@pytest.mark.parametrize(("dtype", "top"), [("f16", 15), ("bf16", 30), ("f8e5m2", 15), ("f8e4m3", 8)])
def test_an_integer_just_past_a_tie_rounds_up(dtype, top):
    tie = 2**top + 2 ** (top - DTYPES[dtype].digits)
    check_same(cast(np.array([tie, tie + 1], np.int32), dtype), nearest([tie, tie + 1], dtype))


@pytest.mark.parametrize("dtype", NARROW)
def test_masks_become_ones_and_zeros(dtype):
    check_same(cast(np.array([True, False]), dtype), np.array([1.0, 0.0]))


@pytest.mark.parametrize("dtype", sorted(FLOATS))
def test_floats_become_masks_by_being_nonzero(dtype):
    values = cast(np.array([0.0, -0.0, 0.5, -2.0], np.float32), dtype)
    np.testing.assert_array_equal(cast(values, "i1"), [False, False, True, True])


def saturated(value, dtype):
    limits = np.iinfo(DTYPES[dtype].numpy)
    return 0 if isnan(value) else int(max(limits.min, min(limits.max, value)))


@pytest.mark.parametrize("dtype", ["i8", "i32"])
@settings(max_examples=sampled.examples(25, 50))
@given(st.lists(st.floats(width=64) | st.floats(-300, 300), min_size=1, max_size=20))
def test_floats_to_integers_truncate_toward_zero_and_saturate(dtype, values):
    got = cast(np.array(values), dtype)
    assert got.dtype == DTYPES[dtype].numpy
    assert got.tolist() == [saturated(v, dtype) for v in values]


@pytest.mark.parametrize("source", NARROW)
def test_narrow_floats_to_i8_saturate_for_every_value(source):
    values = every_value(source)
    assert quietly(values, "i8").tolist() == [saturated(float(v), "i8") for v in values]


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_cast_to_the_same_type_is_the_array_itself(dtype):
    array = np.zeros(3, DTYPES[dtype].numpy)
    assert cast(array, dtype) is array


@sampled.each_row(list(combinations_with_replacement(ORDER, 2)))
def test_promotion_is_commutative_and_keeps_a_type_with_itself(left, right):
    assert promote(left, right) == promote(right, left)
    assert promote(left, left) == left


def test_promotion_is_associative_except_where_two_8_bit_floats_meet_bf16():
    broken = {
        frozenset(triple)
        for triple in product(ORDER, repeat=3)
        if promote(promote(triple[0], triple[1]), triple[2]) != promote(triple[0], promote(triple[1], triple[2]))
    }
    assert broken == {frozenset(("f8e4m3", "f8e5m2", "bf16"))}


def holds(wider, narrow):
    """Whether `wider` holds every finite value of `narrow`."""
    if narrow == "i32":
        values = np.array([2**31 - 1, -(2**31), 2**24 + 1], np.int32)
    elif narrow == "i1":
        values = np.array([False, True])
    elif narrow == "f32":
        values = np.array([1 + 2.0**-23, 2.0**-149, np.finfo(np.float32).max], np.float32)
    else:
        values = every_value(narrow)
    before, after = wide(values), wide(quietly(values, wider))
    return np.array_equal(after[np.isfinite(before)], before[np.isfinite(before)])


@sampled.each_row(list(combinations_with_replacement(ORDER, 2)))
def test_promotion_gives_the_narrowest_type_that_holds_both_or_the_float(left, right):
    result = promote(left, right)
    kinds = {DTYPES[left].kind == "float", DTYPES[right].kind == "float"}
    if kinds == {True, False}:
        assert result == (left if left in FLOATS else right)
        return
    assert holds(result, left)
    assert holds(result, right)
    for other in ORDER:
        if ITEMSIZE[other] < ITEMSIZE[result]:
            assert not (holds(other, left) and holds(other, right))


@pytest.mark.parametrize(
    ("name", "canonical"),
    [(alias, row.name) for row in DTYPES.values() for alias in (row.name, *row.aliases)],
)
def test_names_and_aliases_give_the_canonical_name(name, canonical):
    assert dtype_name(name) == canonical
    assert dtype_name(f"torch.{name}") == canonical
    assert dtype_name(f"tl.{name}") == canonical


@pytest.mark.parametrize("row", list(DTYPES.values()), ids=lambda row: row.name)
def test_numpy_types_and_rows_give_the_canonical_name(row):
    assert dtype_name(row) == row.name
    assert dtype_name(row.numpy) == row.name
    assert dtype_name(row.numpy.type) == row.name
    assert dtype_name(np.zeros(1, row.numpy).dtype) == row.name


class TorchLike:
    """Prints as torch's element types do."""

    def __init__(self, name):
        self.name = name

    def __repr__(self):
        return f"torch.{self.name}"


@pytest.mark.parametrize(
    ("name", "canonical"),
    [
        ("float16", "f16"),
        ("half", "f16"),
        ("bfloat16", "bf16"),
        ("float32", "f32"),
        ("float", "f32"),
        ("float8_e4m3fn", "f8e4m3"),
        ("float8_e5m2", "f8e5m2"),
        ("int8", "i8"),
        ("int32", "i32"),
        ("bool", "i1"),
    ],
)
def test_torch_types_give_the_canonical_name(name, canonical):
    assert dtype_name(TorchLike(name)) == canonical


@pytest.mark.parametrize("bad", ["f64", "float46", np.float64, np.dtype(np.int64), float, int, None, 3, TorchLike("x")])
def test_an_unknown_type_lists_the_known_ones(bad):
    with pytest.raises(MisuseError, match="unknown element type") as caught:
        dtype_name(bad)
    for name in DTYPES:
        assert name in str(caught.value)


def test_an_unknown_type_names_the_likely_meant_one():
    with pytest.raises(MisuseError, match="Did you mean 'bf16'"):
        dtype_name("bf61")


def test_no_two_types_share_an_alias():
    names = [alias for row in DTYPES.values() for alias in (row.name, *row.aliases)]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("dtype", sorted(FLOATS))
def test_the_properties_of_a_float_are_those_of_its_numpy_type(dtype):
    row, about = DTYPES[dtype], ml_dtypes.finfo(DTYPES[dtype].numpy)
    assert row.epsilon == float(about.eps)
    assert row.smallest_normal == float(about.smallest_normal)
    assert row.itemsize == about.bits // 8 == ITEMSIZE[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
def test_fresh_memory_is_poison(dtype):
    memory = poisoned((2, 3), dtype)
    assert memory.shape == (2, 3)
    assert memory.dtype == DTYPES[dtype].numpy
    if dtype in FLOATS:
        assert np.isnan(memory.astype(np.float32)).all()
    else:
        assert (memory == (np.iinfo(memory.dtype).min if dtype != "i1" else False)).all()


class Capsule:
    """Something from another library that speaks DLPack and nothing else."""

    def __init__(self, array):
        self._array = array

    def __dlpack__(self, **options):
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self._array.__dlpack_device__()


class Convertible:
    """Something that NumPy can convert."""

    def __array__(self, dtype=None, copy=None):
        return np.array([1.0, 2.0], dtype)


def test_a_numpy_array_passes_as_it_is():
    array = np.arange(3, dtype=np.float16)
    assert as_array(array) is array


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32, np.int8])
def test_dlpack_objects_become_arrays(dtype):
    array = np.arange(6, dtype=dtype).reshape(2, 3)
    got = as_array(Capsule(array))
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, array)


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ([[1.0, 2.0]], [[1.0, 2.0]]),
        ((1, 2), [1, 2]),
        (2.5, 2.5),
        (3, 3),
        (np.float32(1.5), 1.5),
        (Convertible(), [1, 2]),
    ],
)
def test_lists_numbers_and_convertibles_become_arrays(value, wanted):
    got = as_array(value)
    assert isinstance(got, np.ndarray)
    np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("value", ["text", None, {}, object()])
def test_what_is_no_array_is_refused_by_its_type(value):
    with pytest.raises(MisuseError, match=f"{type(value).__name__} is no array"):
        as_array(value)


class FakeTensor:
    """As much of a torch tensor as the conversion touches: element types NumPy lacks cannot become arrays directly."""

    def __init__(self, array, dtype):
        self._array = array
        self.dtype = dtype

    def detach(self):
        return self

    cpu = contiguous = detach

    def view(self, carrier):
        return FakeTensor(self._array.view(carrier), carrier)

    def numpy(self):
        assert self._array.dtype.kind in "fiu", "torch refuses element types NumPy lacks"
        return self._array


FakeTensor.__module__ = "torch.fake"


@pytest.mark.parametrize(("name", "dtype"), [("bfloat16", "bf16"), ("float8_e4m3fn", "f8e4m3"), ("float16", "f16")])
def test_torch_tensors_keep_their_element_type(monkeypatch, name, dtype):
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(int16=np.int16, uint8=np.uint8))
    array = cast(np.array([1.5, -2.0], np.float32), dtype)
    got = as_array(FakeTensor(array, TorchLike(name)))
    assert got.dtype == DTYPES[dtype].numpy
    np.testing.assert_array_equal(got.astype(np.float32), [1.5, -2.0])
