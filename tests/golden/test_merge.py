"""Partials merge to attention in any grouping and any order, in float64 and in float32."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled

from kernbench.common.errors import MisuseError
from kernbench.golden import Partial, attention, compare, finish, merge, partial


def draw(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


@st.composite
def problems(draw_value):
    """Inputs, options, a cut of the keys into ranges, and an order to merge them in."""
    seed, size = draw_value(st.integers(0, 1000)), draw_value(st.sampled_from([0.1, 1.0, 10.0]))
    S_q, S_kv, group = draw_value(st.integers(1, 4)), draw_value(st.integers(0, 12)), draw_value(st.integers(1, 2))
    q, k = size * draw(seed, S_q, 2 * group, 4), size * draw(seed + 1, S_kv, 2, 4)
    v = draw(seed + 2, S_kv, 2, 3)
    options = {"causal": draw_value(st.booleans()), "key_lengths": draw_value(st.none() | st.integers(0, S_kv))}
    inner = draw_value(st.lists(st.integers(0, S_kv), max_size=5))
    cuts = [0, *sorted(inner), S_kv]
    order = draw_value(st.permutations(range(len(cuts) - 1)))
    return (q, k, v), options, [(cuts[i], cuts[i + 1]) for i in order]


def in_groups(parts, data):
    """Merge neighbours at random until one is left: any binary tree over the parts."""
    parts = list(parts)
    while len(parts) > 1:
        at = data.draw(st.integers(0, len(parts) - 2))
        parts[at : at + 2] = [merge(parts[at : at + 2])]
    return parts[0]


@given(problems(), st.data())
@settings(max_examples=sampled.examples(50, 150))
def test_any_grouping_and_order_gives_attention(problem, data):
    inputs, options, ranges = problem
    parts = [partial(*inputs, start=start, stop=stop, **options) for start, stop in ranges]
    wanted = attention(*inputs, **options)
    for merged in (merge(parts), in_groups(parts, data)):
        np.testing.assert_allclose(finish(*merged), wanted.expected, rtol=1e-12, atol=1e-14)


@given(problems(), st.data())
@settings(max_examples=sampled.examples(50, 150))
def test_it_holds_in_float32_within_its_rounding(problem, data):
    inputs, options, ranges = problem
    parts = [partial(*inputs, start=start, stop=stop, **options) for start, stop in ranges]
    narrow = [Partial(*(x.astype(np.float32) for x in part)) for part in parts]
    result = finish(*in_groups(narrow, data))
    assert result.dtype == np.float32
    assert compare(result, attention(*inputs, **options)).passed


def test_partials_keep_their_batch_axes():
    q, k, v = draw(1, 2, 3, 4, 2, 8), draw(2, 2, 3, 6, 1, 8), draw(3, 2, 3, 6, 1, 5)
    lengths = np.array([[0, 1, 2], [6, 5, 4]])
    parts = [partial(q, k, v, start=s, stop=s + 2, key_lengths=lengths, causal=True) for s in (4, 0, 2)]
    assert parts[0].m.shape == parts[0].l.shape == (2, 3, 4, 2, 1)
    wanted = attention(q, k, v, key_lengths=lengths, causal=True)
    np.testing.assert_allclose(finish(*merge(parts)), wanted.expected, rtol=1e-12, atol=1e-15)


def test_a_range_without_visible_keys_is_the_neutral_element():
    q, k, v = draw(1, 3, 2, 4), draw(2, 6, 1, 4), draw(3, 6, 1, 4)
    nothing = partial(q, k, np.full_like(v, np.nan), start=2, stop=2)
    assert np.isneginf(nothing.m).all()
    assert not nothing.l.any()
    assert not nothing.o.any()
    something = partial(q, k, v)
    for both in (merge([nothing, something]), merge([something, nothing])):
        for left, right in zip(both, something, strict=True):
            np.testing.assert_array_equal(left, right)
    assert not finish(*merge([nothing, nothing])).any()


def test_merging_normalised_partials_is_not_attention():
    q, k, v = draw(1, 8, 2, 16), draw(2, 64, 2, 16), draw(3, 64, 2, 16)
    parts = [partial(q, k, v, start=s, stop=s + 16) for s in range(0, 64, 16)]
    normalised = [Partial(part.m, part.l, part.o / part.l) for part in parts]
    wanted = attention(q, k, v)
    assert compare(finish(*merge(parts)), wanted).passed
    assert not compare(finish(*merge(normalised)), wanted).passed


def test_misuse_is_refused():
    x = draw(1, 4, 1, 4)
    with pytest.raises(MisuseError, match="at least one partial"):
        merge([])
    for start, stop in ((-1, 2), (3, 2), (0, 5)):
        with pytest.raises(MisuseError, match=f"keys {start} to {stop} does not lie within the 4 keys"):
            partial(x, x, x, start=start, stop=stop)
