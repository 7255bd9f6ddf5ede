"""Attention the direct way: scores, mask, softmax with the maximum subtracted, weighted sum, all in float64."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kernbench.common.dtypes import Array
from kernbench.golden.basis.reference import Float64, Reference
from kernbench.golden.basis.threads import in_threads
from kernbench.golden.problem import Block, Lengths, Problem, make_problem
from kernbench.golden.softmax import exponentials

_FULL = ("expected", "magnitude", "deviation", "flat_magnitude")
_ROWS = ("terms", "denominator", "concentration", "score_magnitude")


def attention(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    *,
    causal: bool = False,
    scale: float | None = None,
    key_lengths: Lengths = None,
    query_offset: Lengths = None,
) -> Reference:
    """softmax(scale q k^T) v for q [..., S_q, h_q, d], k [..., S_kv, h_kv, d] and v [..., S_kv, h_kv, d_v].

    The leading batch axes agree; query head i uses key head i // (h_q // h_kv). Elements of any type are used exactly.

    - `scale`: 1 / sqrt(d) by default
    - `key_lengths`: how many keys of each sequence are real, an int or an array over the batch axes; all by default
    - `causal`: query i sees the keys at positions up to `query_offset` + i. The offset is an int or an array over the
      batch axes; by default key length - S_q, so that the last query sees every key. Without `causal` it is not used

    Rows that see no key give zeros. Keys and values that a row does not see have no influence on it, even if NaN.
    """
    problem = make_problem(q, k, v, causal=causal, scale=scale, key_lengths=key_lengths, query_offset=query_offset)
    arrays: dict[str, Any] = {name: np.zeros(problem.output_shape) for name in _FULL}
    arrays |= {name: np.zeros((*problem.output_shape[:3], 1)) for name in _ROWS}

    def solve(blocks: Iterable[Block]) -> None:
        for block in blocks:
            for name, part in _solve(block, problem.scale).items():
                target = arrays[name][block.where]
                target[...] = part.reshape(target.shape)

    in_threads(solve, problem.heads())
    return _reference(problem, arrays)


def _solve(block: Block, scale: float) -> dict[str, Array]:
    """The arrays of a `Reference` for the rows of one block."""
    _, weights = exponentials(block.scores)
    with np.errstate(invalid="ignore", over="ignore"):
        denominator = weights.sum(axis=1, keepdims=True)
        safe = np.where(denominator == 0.0, 1.0, denominator)
        weights /= safe
        expected = weights @ block.values
        variance = weights @ np.square(block.values) - np.square(expected)
        return {
            "expected": expected,
            "magnitude": weights @ np.abs(block.values),
            "deviation": np.sqrt(np.maximum(variance, 0.0)),
            "flat_magnitude": _prefix_sums(np.abs(block.values))[block.visible] / safe,
            "terms": block.visible,
            "denominator": denominator,
            "concentration": np.einsum("rk,rk->r", weights, weights),
            "score_magnitude": _score_magnitude(block, scale),
        }


def _prefix_sums(values: Float64) -> Float64:
    """Row n is the sum of the first n rows of `values`."""
    return np.concatenate([np.zeros((1, values.shape[1])), np.cumsum(values, axis=0)])


def _score_magnitude(block: Block, scale: float) -> Float64:
    largest = np.maximum.accumulate(np.append(0.0, np.linalg.norm(block.keys, axis=1)))
    magnitude: Float64 = abs(scale) * np.linalg.norm(block.queries, axis=1) * largest[block.visible]
    return magnitude


def _reference(problem: Problem, arrays: dict[str, Array]) -> Reference:
    return Reference(
        **{name: problem.unflatten(array) for name, array in arrays.items()},
        head_size=problem.q.shape[3],
        operand_digits=problem.operand_digits,
    )
