"""The gated delta rule itself, one token after the other, without optimisation."""

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from kernbench.golden.basis.reference import Float64
from kernbench.golden.gated_delta_rule.problem import Problem, make_problem


class RuleResult(NamedTuple):
    """`output` [T, Hv, V], and the state after the last token of each sequence, `final_state` [N, Hv, V, K]."""

    output: Float64
    final_state: Float64


def recurrent(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    g: ArrayLike,
    beta: ArrayLike,
    *,
    initial_state: ArrayLike | None = None,
    cu_seqlens: ArrayLike | None = None,
    scale: float | None = None,
) -> RuleResult:
    """For each token: S <- e^g S; d = beta (v - S k); S <- S + d k^T; o = scale S q.

    `initial_state` is zeros, `cu_seqlens` one sequence, `scale` 1 / sqrt(K) by default. An empty sequence keeps its
    state.
    """
    problem = make_problem(q, k, v, g, beta, initial_state=initial_state, cu_seqlens=cu_seqlens, scale=scale)
    output = np.zeros(problem.output_shape)
    states = problem.initial_state.copy()
    starts = problem.chunks.cu_seqlens
    for sequence, state in enumerate(states):
        for token in range(starts[sequence], starts[sequence + 1]):
            output[token] = _step(problem, token, state)
    return RuleResult(output, states)


def _step(problem: Problem, token: int, state: Float64) -> Float64:
    """The output [Hv, V] of one token; updates `state` [Hv, V, K]."""
    now = problem.rows(slice(token, token + 1))
    with np.errstate(invalid="ignore", over="ignore"):
        state *= np.exp(now.g)[:, :, None]
        recalled = state @ np.swapaxes(now.k, 1, 2)
        correction = now.beta[:, :, None] * (np.swapaxes(now.v, 1, 2) - recalled)
        state += correction @ now.k
        output: Float64 = problem.scale * (state @ np.swapaxes(now.q, 1, 2))
    return output[:, :, 0]
