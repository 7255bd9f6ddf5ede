"""What is compared in blocks of rows, on several threads, is what it would be in one piece: to the last bit."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal
from tests import sampled

from kernbench.golden import attention, compare
from kernbench.golden.basis import blocks
from kernbench.golden.basis.blocks import in_blocks, largest
from kernbench.golden.basis.threads import threads


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
