"""The reference itself: against loops nobody can misread, at every edge, and with nothing leaking from hidden keys."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled

from kernbench.common.errors import MisuseError
from kernbench.golden import Reference, attention, problem


def draw(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape)


def by_hand(q, k, v, visible, scale):
    """One row at a time; `visible(i)` keys are seen by query i."""
    (S_q, h_q, _), (_, h_kv, d_v) = q.shape, v.shape
    out = np.zeros((S_q, h_q, d_v))
    for i in range(S_q):
        for h in range(h_q):
            n, kv = max(0, visible(i)), h // (h_q // h_kv)
            weights = [math.exp(scale * float(q[i, h] @ k[j, kv])) for j in range(n)]
            for j in range(n):
                out[i, h] += weights[j] / sum(weights) * v[j, kv]
    return out


@given(
    S_q=st.integers(0, 6),
    S_kv=st.integers(0, 9),
    h_kv=st.integers(1, 3),
    group=st.integers(1, 3),
    d_v=st.integers(1, 5),
    causal=st.booleans(),
    offset=st.none() | st.integers(-4, 9),
    length=st.none() | st.integers(0, 9),
)
@settings(max_examples=sampled.examples(60, 150))
def test_it_agrees_with_loops(S_q, S_kv, h_kv, group, d_v, causal, offset, length):
    q, k, v = draw(1, S_q, h_kv * group, 4), draw(2, S_kv, h_kv, 4), draw(3, S_kv, h_kv, d_v)
    length = None if length is None else min(length, S_kv)
    keys = S_kv if length is None else length
    first = keys - S_q if offset is None else offset
    wanted = by_hand(q, k, v, lambda i: min(keys, first + i + 1) if causal else keys, 0.5)
    result = attention(q, k, v, causal=causal, key_lengths=length, query_offset=offset)
    np.testing.assert_allclose(result.expected, wanted, rtol=1e-12, atol=1e-14)
    assert result.expected.dtype == np.float64


def test_batches_are_independent_and_may_have_several_axes():
    q, k, v = draw(1, 2, 3, 5, 4, 8), draw(2, 2, 3, 7, 2, 8), draw(3, 2, 3, 7, 2, 6)
    lengths, offsets = np.array([[7, 5, 0], [1, 2, 3]]), np.array([[0, 1, 2], [3, -2, 5]])
    result = attention(q, k, v, causal=True, key_lengths=lengths, query_offset=offsets)
    assert result.shape == (2, 3, 5, 4, 6)
    for at in np.ndindex(2, 3):
        one = attention(q[at], k[at], v[at], causal=True, key_lengths=lengths[at], query_offset=offsets[at])
        np.testing.assert_array_equal(result.expected[at], one.expected)


def test_the_last_causal_query_sees_every_key_by_default():
    q, k, v = draw(1, 4, 1, 8), draw(2, 10, 1, 8), draw(3, 10, 1, 8)
    whole, causal = attention(q, k, v), attention(q, k, v, causal=True)
    np.testing.assert_array_equal(causal.expected[-1], whole.expected[-1])
    assert causal.terms[:, 0, 0].tolist() == [7, 8, 9, 10]


def test_the_scale_is_one_over_the_root_of_the_head_size():
    q, k, v = draw(1, 4, 2, 16), draw(2, 6, 2, 16), draw(3, 6, 2, 16)
    np.testing.assert_array_equal(attention(q, k, v).expected, attention(q, k, v, scale=0.25).expected)
    np.testing.assert_allclose(attention(q, k, v, scale=0.0).expected[0], v.mean(axis=0), atol=1e-15)


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("where", ["k", "v"])
def test_hidden_keys_and_values_have_no_influence(poison, where):
    q, k, v = draw(1, 6, 4, 8), draw(2, 6, 2, 8), draw(3, 6, 2, 8)
    clean = attention(q, k, v, causal=True, key_lengths=5)
    spoilt = {"k": k.copy(), "v": v.copy()}
    spoilt[where][4:, 1] = poison
    result = attention(q, spoilt["k"], spoilt["v"], causal=True, key_lengths=5)
    seen = clean.terms[:, :, 0] > 4
    seen[:, :2] = False
    np.testing.assert_allclose(result.expected[~seen], clean.expected[~seen], rtol=1e-14)
    np.testing.assert_allclose(result.magnitude[~seen], clean.magnitude[~seen], rtol=1e-14)
    assert seen.any()
    if not (where == "k" and np.isneginf(poison)):
        assert not np.isfinite(result.expected[seen]).all()


def test_nan_in_one_query_stays_in_its_row():
    q, k, v = draw(1, 6, 1, 8), draw(2, 6, 1, 8), draw(3, 6, 1, 8)
    q[2] = np.nan
    rows = np.isnan(attention(q, k, v).expected).any(axis=(1, 2))
    assert rows.tolist() == [False, False, True, False, False, False]


def test_a_row_without_keys_gives_zeros():
    q, k, v = draw(1, 3, 2, 4), np.full((5, 1, 4), np.nan), np.full((5, 1, 4), np.nan)
    for result in (
        attention(q, k, v, key_lengths=0),
        attention(q, k, v, causal=True, query_offset=-3),
        attention(q, k[:0], v[:0]),
    ):
        assert not result.expected.any()
        assert result.reduction == 0
    assert attention(q[:0], k, v).shape == (0, 2, 4)
    assert attention(np.zeros((0, 3, 2, 4)), np.zeros((0, 5, 1, 4)), np.zeros((0, 5, 1, 4))).shape == (0, 3, 2, 4)


def test_large_scores_do_not_overflow():
    q, k, v = draw(1, 3, 1, 4) * 1e3, draw(2, 5, 1, 4) * 1e3, draw(3, 5, 1, 4)
    best = (q[:, 0] @ k[:, 0].T).argmax(axis=1)
    np.testing.assert_allclose(attention(q, k, v).expected[:, 0], v[best, 0])


@pytest.mark.parametrize("element", [np.float16, np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, np.int8])
def test_narrow_elements_are_taken_exactly(element):
    q, k, v = (draw(s, 4, 1, 8).astype(element) for s in (1, 2, 3))
    wide = attention(*(x.astype(np.float64) for x in (q, k, v)))
    np.testing.assert_array_equal(attention(q, k, v).expected, wide.expected)


def test_blocks_do_not_change_the_result(monkeypatch):
    q, k, v = draw(1, 50, 6, 8), draw(2, 70, 2, 8), draw(3, 70, 2, 8)
    whole = attention(q, k, v, causal=True)
    monkeypatch.setattr(problem, "BLOCK_BYTES", 24 * 70 * 2)
    cut = attention(q, k, v, causal=True)
    np.testing.assert_allclose(cut.expected, whole.expected, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(cut.deviation, whole.deviation, rtol=1e-6)


def test_the_scores_of_a_block_are_bounded():
    keys = np.zeros((1 << 20, 1))
    rows, heads = problem._extent(keys, keys, 64)
    assert rows * heads * len(keys) * 8 <= problem.BLOCK_BYTES


def test_the_sizes_that_bound_errors_are_what_they_say():
    q, k, v = draw(1, 5, 2, 16), draw(2, 9, 1, 16), draw(3, 9, 1, 4)
    result = attention(q, k, v, causal=True)
    for i, h in np.ndindex(5, 2):
        n = 5 + i
        scores = q[i, h] @ k[:n, 0].T / 4
        e = np.exp(scores - scores.max())
        p, seen = e / e.sum(), v[:n, 0]
        o = p @ seen
        assert result.terms[i, h, 0] == n
        np.testing.assert_allclose(result.magnitude[i, h], p @ abs(seen))
        np.testing.assert_allclose(result.deviation[i, h], np.sqrt(p @ (seen - o) ** 2))
        np.testing.assert_allclose(result.energy[i, h], np.sqrt(p @ seen**2))
        np.testing.assert_allclose(result.flat_magnitude[i, h], abs(seen).sum(axis=0) / e.sum())
        np.testing.assert_allclose(result.denominator[i, h, 0], e.sum())
        np.testing.assert_allclose(result.concentration[i, h, 0], p @ p)
        assert result.score_magnitude[i, h, 0] >= (abs(q[i, h]) @ abs(k[:n, 0]).T / 4).max()
    assert (result.reduction, result.head_size, result.operand_digits) == (9, 16, 53)


def test_a_reference_checks_its_shapes():
    good = attention(*(draw(s, 4, 1, 8) for s in (1, 2, 3)))
    with pytest.raises(
        MisuseError, match=r"terms has shape \(4,\), but expected of shape \(4, 1, 8\) needs \(4, 1, 1\)"
    ):
        Reference(**{**good.__dict__, "terms": np.ones(4)})


A = np.zeros((4, 2, 8))


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((A[0], A, A), {}, "at least three axes"),
        ((A[None], A, A), {}, "batch axes"),
        ((A, A, A[:3]), {}, "agree in sequence length and heads"),
        ((A, A, A[:, :1]), {}, "agree in sequence length and heads"),
        ((A, A[..., :4], A), {}, "same head size"),
        ((A[..., :0], A[..., :0], A), {}, "same head size"),
        ((A[:, :1], A, A), {}, "multiple of the key heads, got 1 and 2"),
        ((A, A[:, :0], A[:, :0]), {}, "multiple of the key heads, got 2 and 0"),
        ((A, A, A), {"scale": math.nan}, "scale must be a finite number, got nan"),
        ((A, A, A), {"key_lengths": 5}, "between 0 and the 4 keys given; got 5"),
        ((A, A, A), {"key_lengths": -1}, "between 0 and the 4 keys given; got -1"),
        ((A, A, A), {"key_lengths": 1.5}, "key_lengths must be integers, got float64"),
        ((A, A, A), {"key_lengths": np.array([1, 2])}, r"batch shape \(\); got shape \(2,\)"),
        ((A, A, A), {"causal": True, "query_offset": np.array([1])}, "query_offset must be one number"),
        ((A, A.astype(complex), A), {}, "k: elements of type complex128 are no real numbers"),
        ((A.astype(np.int64), A, A), {}, "q: unknown element type 'int64'"),
        ((A, A, A.astype(bool)), {}, "v holds truth values"),
        ((object(), A, A), {}, "q: object is no array"),
        (([[1], [2, 3]], A, A), {}, "q: "),
    ],
)
def test_arguments_that_state_no_problem_are_refused(arguments, options, message):
    with pytest.raises(MisuseError, match=message):
        attention(*arguments, **options)
