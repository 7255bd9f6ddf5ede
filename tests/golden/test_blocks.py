"""What is compared in blocks of rows, on several threads, is what it would be in one piece: to the last bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from tests import sampled

from kernbench.common.errors import MisuseError
from kernbench.golden import attention, compare
from kernbench.golden.basis import blocks
from kernbench.golden.basis.blocks import in_blocks, largest
from kernbench.golden.basis.threads import threads
from kernbench.golden.compare import limits_ahead


def verdict(size, count, *args, **options):
    """All that a comparison says, in blocks of `size` elements on `count` threads."""
    with pytest.MonkeyPatch.context() as patch, threads(count):
        patch.setattr(blocks, "BLOCK", size)
        found = compare(*args, **options)
    shown = None if found.error_map is None else found.error_map.values
    return repr(found), shown


def spoil(output, how):
    """Outputs with nothing wrong, rows that are too large, what is not finite, and zeros."""
    if how == "rows":
        output[:, 1:3] *= 2
    elif how == "nan":
        output[0, -1, 0, -1] = np.nan
        output[0, 0, 0, 0] = np.inf
    elif how == "zeros":
        output[...] = 0
    return output


@settings(max_examples=sampled.examples(20, 40))
@given(
    st.tuples(st.integers(1, 2), st.integers(3, 20), st.sampled_from((1, 2, 4)), st.integers(1, 40)),
    st.sampled_from(("right", "rows", "nan", "zeros")),
    st.sampled_from((np.float16, np.float32)),
    st.sampled_from((None, 1, 2)),
    st.sampled_from((7, 64, 500)),
    st.sampled_from((1, 3)),
)
def test_a_comparison_in_blocks_is_that_of_the_whole(shape, how, dtype, axis, size, count):
    rng = np.random.default_rng(sum(shape))
    q, k, v = (rng.standard_normal(shape).astype(dtype) for _ in range(3))
    reference = attention(q, k, v, causal=True)
    output = spoil(reference.expected.astype(dtype), how)
    options = {} if axis is None else {"rank_axis": axis, "ranks": 2}
    whole, worst = verdict(1 << 30, 1, output, reference, **options)
    cut, worst_cut = verdict(size, count, output, reference, **options)
    assert cut == whole
    assert_array_equal(worst_cut, worst)
    plain = verdict(1 << 30, 1, output, reference.expected, allowed=(1e-2, 1e-3))[0]
    assert verdict(size, count, output, reference.expected, allowed=(1e-2, 1e-3))[0] == plain


def test_arrays_that_lie_otherwise_are_compared_as_they_lie(monkeypatch):
    """The order in which a sum adds elements is that of memory."""
    monkeypatch.setattr(blocks, "BLOCK", 8)
    values = np.arange(24.0).reshape(4, 6).T
    found = in_blocks(np.sqrt, (values,))
    assert found.strides == values.strides
    assert_array_equal(found, np.sqrt(values))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (5,), (7, 1), (2, 3, 4)])
def test_any_shape_is_cut(shape, monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", 4)
    values = np.arange(float(np.prod(shape))).reshape(shape)
    rows = np.ones((*shape[:-1], 1)) if shape else np.ones(())
    assert_array_equal(in_blocks(np.add, (values, rows)), values + 1)
    assert largest(np.add, (values, rows)) == (values + 1).max(initial=0.0)


def test_an_error_of_a_block_is_raised(monkeypatch):
    monkeypatch.setattr(blocks, "BLOCK", 4)

    def refuse(values):
        if values[0, 0] == 8:
            raise ValueError("no such row")
        return values

    with threads(2), pytest.raises(ValueError, match="no such row"):
        in_blocks(refuse, (np.arange(16.0).reshape(4, 4),))


@pytest.mark.sampled(20)
@pytest.mark.parametrize("guess", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("how", ["right", "rows", "nan", "zeros", "noise"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"rank_axis": 1, "ranks": 3},
        {"compute_dtype": "bf16"},
        {"allowed": (0.01, 0.001)},
        {"allowed": (0.01, 0.001), "rank_axis": 0, "ranks": 2},
    ],
)
def test_limits_may_be_known_before_the_output(guess, how, options):
    """Worked out ahead, for the type of the output or for another: the verdict is the same."""
    drawn = [np.random.default_rng(seed).standard_normal((2, 12, 2, 40)) for seed in range(3)]
    reference = attention(*drawn, causal=True)
    output = spoil(reference.expected.astype(np.float16), how)
    if how == "noise":
        output[:, 4:8] *= np.float16(0.85)
    how_looked_at = {"compute_dtype": None, "rank_axis": None, "ranks": None, "allowed": None, **options}
    for known, reduction in ((reference, None), (reference.expected, 7)):
        wanted = verdict(64, 1, output, known, name="o", reduction=reduction, **options)
        with threads(3):
            limits = limits_ahead(known, name="o", dtype=guess, reduction=reduction, **how_looked_at)
        found = verdict(64, 3, output, limits, name="o", reduction=reduction, **options)
        assert found[0] == wanted[0]
        assert_array_equal(found[1], wanted[1])


def test_limits_that_nobody_may_need_raise_nothing():
    """A reference beyond the range of a type is an error only if the output is of that type."""
    reference = np.array([[1e5, 2.0]])
    limits = limits_ahead(
        reference, name="o", dtype="f16", compute_dtype=None, reduction=None, rank_axis=None, ranks=None, allowed=None
    )
    assert compare(reference.astype(np.float32), limits).passed
    with pytest.raises(MisuseError, match="beyond the range of f16"):
        compare(np.ones((1, 2), np.float16), limits)


def test_limits_of_another_tolerance_are_worked_out_anew():
    reference = np.array([[1.0, 2.0]])
    options = {"compute_dtype": None, "reduction": None, "rank_axis": None, "ranks": None}
    limits = limits_ahead(reference, name="o", dtype="f32", allowed=None, **options)
    output = reference.astype(np.float32) + np.float32(0.01)
    assert not compare(output, limits).passed
    assert compare(output, limits, allowed=(0.0, 0.1)).passed


def test_a_comparison_asks_nothing_that_was_worked_out_ahead(monkeypatch):
    drawn = [np.random.default_rng(seed).standard_normal((1, 12, 2, 8)) for seed in range(3)]
    reference = attention(*drawn)
    options = {"compute_dtype": None, "rank_axis": 1, "ranks": 4, "allowed": None}
    limits = limits_ahead(reference, name="o", dtype="f16", reduction=None, **options)
    for name in ("elementwise", "noise", "score_error", "_in_range"):
        monkeypatch.setattr(f"kernbench.golden.limits.{name}", None)
    assert compare(reference.expected.astype(np.float16), limits, **options).passed
