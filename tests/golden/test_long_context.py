"""Long rows: each element has a wide tolerance there, but whole parts must still be right."""

import numpy as np
import pytest

from kernbench.common.dtypes import DTYPES
from kernbench.golden import attention, compare

KEYS, D = 16384, 32


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    return tuple(rng.standard_normal((n, h, D)).astype(np.float16) for n, h in ((4, 8), (KEYS, 1), (KEYS, 1)))


def narrowed(problem, dtype):
    """Inputs that the kernel's type holds exactly."""
    return tuple(x.astype(DTYPES[dtype].numpy) for x in problem)


def honest(problem, dtype):
    """A blocked online softmax, P rounded to the operand type, sums in f32."""
    q, k, v = (x.astype(np.float32) for x in problem)
    rows = q.reshape(-1, D)
    m, l, o = np.full((len(rows), 1), -1e30, np.float32), np.float32(0), np.float32(0)
    for i in range(0, KEYS, 512):
        s = rows @ k[i : i + 512, 0].T * np.float32(D**-0.5)
        new = np.maximum(m, s.max(axis=1, keepdims=True))
        p, shrink = np.exp(s - new), np.exp(m - new)
        l = l * shrink + p.sum(axis=1, keepdims=True)
        o = o * shrink + p.astype(DTYPES[dtype].numpy).astype(np.float32) @ v[i : i + 512, 0]
        m = new
    return (o / l).astype(DTYPES[dtype].numpy).reshape(problem[0].shape)


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f32"])
def test_an_honest_kernel_passes(problem, dtype):
    problem = narrowed(problem, dtype)
    verdict = compare(honest(problem, dtype), attention(*problem), dtype=dtype)
    assert verdict.passed, verdict.reason


@pytest.mark.parametrize(("dtype", "factor"), [("f16", 0.85), ("f16", 1.15), ("bf16", 0.7), ("f32", 0.85)])
def test_a_wrong_factor_is_seen(problem, dtype, factor):
    problem = narrowed(problem, dtype)
    wrong = honest(problem, dtype).astype(np.float32) * np.float32(factor)
    verdict = compare(wrong.astype(DTYPES[dtype].numpy), attention(*problem), dtype=dtype)
    assert not verdict.passed


def test_a_few_missing_percent_of_the_keys_are_seen(problem):
    q, k, v = problem
    short = attention(q, k[: KEYS - KEYS // 30], v[: KEYS - KEYS // 30]).expected.astype(np.float16)
    verdict = compare(short, attention(*problem))
    assert not verdict.passed


def test_a_wrong_scale_is_seen(problem):
    wrong = attention(*problem, scale=1.2 * D**-0.5).expected.astype(np.float16)
    assert not compare(wrong, attention(*problem)).passed
