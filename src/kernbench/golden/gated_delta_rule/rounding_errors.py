"""Errors of the whole rule from rounding between the stages: output and final state with the sizes of their errors.

Roundings at different points are independent and of either sign, so their squares add up; write u for the largest
relative error of one. All of them act through V' (`_injected`), or in the products of the output:

- Tm, and again Tm or v and k times beta: u Tm beta v in U and u Tm beta e^G S k through W, twice each
- U and W, and H in its product with W: u U, u W S twice
- V' itself, and again when it is scaled to the end of the chunk: u V' twice

An error of V' becomes one of the next state, which propagates like the state, by M = e^(G[L]) - W^T (k e^(G[L] - G)).
`_StateError` tracks the mean square of the error of each state row, and their directions as one covariance
for all rows of a head. The output adds the roundings of H and P, and the state's error as seen by e^G q - P W.

Errors that happen to agree in sign, or are concentrated in few unusual rows, exceed the root of the mean square:
eight times it is allowed. The largest of a million independent errors is 3 times it.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from kernbench.golden.basis.reference import Float64, Reference
from kernbench.golden.gated_delta_rule.chunk import Chunk, remaining, transposed
from kernbench.golden.gated_delta_rule.chunked import walk
from kernbench.golden.gated_delta_rule.chunks import CHUNK
from kernbench.golden.gated_delta_rule.output import make_reference
from kernbench.golden.gated_delta_rule.problem import Problem, heads_first, make_problem
from kernbench.golden.gated_delta_rule.rounding import EXACT, Rounding

_ALLOWED = 8.0


class RuleReferences(NamedTuple):
    """`output` [T, Hv, V] and `final_state` [N, Hv, V, K], each to be compared with what a kernel computed."""

    output: Reference
    final_state: Reference


def references(
    q: ArrayLike,
    k: ArrayLike,
    v: ArrayLike,
    g: ArrayLike,
    beta: ArrayLike,
    *,
    initial_state: ArrayLike | None = None,
    cu_seqlens: ArrayLike | None = None,
    scale: float | None = None,
    chunk_size: int = CHUNK,
    rounding: Rounding = EXACT,
) -> RuleReferences:
    """The rule with the errors of a kernel that rounds Tm, U, W, V', H and P to the compute type.

    The expected values are those of the exact rule or, with `rounding`, of the rule rounded accordingly; the sizes of
    the errors are the same. Compare a final state in f32 of such a kernel with `compute_dtype="bf16"`.
    """
    problem = make_problem(
        q, k, v, g, beta, initial_state=initial_state, cu_seqlens=cu_seqlens, scale=scale, chunk_size=chunk_size
    )
    output, output_error = np.zeros(problem.output_shape), np.zeros(problem.output_shape)
    state, state_error = problem.initial_state.copy(), np.zeros_like(problem.initial_state)
    error = _StateError.none(problem)
    for number, chunk in walk(problem, rounding):
        sequence, index = problem.chunks.indices[number]
        if index == 0:
            error = _StateError.none(problem)
        rows, injected = problem.chunks.rows(number), _injected(chunk)
        output[rows] = heads_first(chunk.output)
        output_error[rows] = heads_first(problem.scale**2 * _output_error(chunk, injected, error))
        error = error.after(chunk, injected)
        state[sequence], state_error[sequence] = chunk.next_state, error.elements
    return RuleReferences(_reference(problem, output, output_error), _reference(problem, state, state_error))


@dataclass(frozen=True)
class _StateError:
    """The error of a state, in units of u^2: the square of the norm of each row's, `rows` [Hv, V], and the covariance
    of an average row's, `directions` [Hv, K, K].
    """

    rows: Float64
    directions: Float64

    @classmethod
    def none(cls, problem: Problem) -> "_StateError":
        _, heads, V, K = problem.initial_state.shape
        return cls(np.zeros((heads, V)), np.zeros((heads, K, K)))

    @property
    def elements(self) -> Float64:
        """The mean square error of each element [Hv, V, K]."""
        share: Float64 = np.diagonal(self._shape, axis1=1, axis2=2)[:, None]
        return self.rows[:, :, None] * share

    def seen_by(self, queries: Float64) -> Float64:
        """The mean square error [Hv, L, V] of the products of the state with `queries` [Hv, L, K]."""
        seen = np.einsum("hlk,hkm,hlm->hl", queries, self._shape, queries, optimize=True)
        squares: Float64 = np.maximum(seen, 0.0)[:, :, None] * self.rows[:, None]
        return squares

    def after(self, chunk: Chunk, injected: Float64) -> "_StateError":
        """The error of the next state, if V' has an error of `injected` in addition to what follows from this one."""
        keys = remaining(chunk.gates, chunk.rows.k)
        move = np.exp(chunk.gates[:, -1])[:, None, None] * np.eye(keys.shape[2]) - transposed(chunk.w) @ keys
        moved = transposed(move) @ self.directions @ move
        gain = _ratio(_trace(moved), _trace(self.directions))
        added = transposed(keys) @ (injected.mean(axis=2)[:, :, None] * keys)
        rows = np.einsum("hlv,hlk->hv", injected, np.square(keys), optimize=True)
        return _StateError(gain[:, None] * self.rows + rows, moved + added)

    @property
    def _shape(self) -> Float64:
        """`directions` with trace 1."""
        return self.directions * _ratio(np.ones(len(self.directions)), _trace(self.directions))[:, None, None]


def _injected(chunk: Chunk) -> Float64:
    """The mean square error of V' [Hv, L, V] from the roundings of its own chunk, in units of u^2."""
    rows = chunk.rows
    recalled = np.exp(chunk.gates)[:, :, None] * (rows.k @ transposed(chunk.state))
    solved = np.square(chunk.inverse * rows.beta[:, None]) @ (np.square(rows.v) + np.square(recalled))
    products = np.square(chunk.w) @ transposed(np.square(chunk.state))
    errors: Float64 = 2 * solved + np.square(chunk.u) + 2 * products + 2 * np.square(chunk.v_new)
    return errors


def _output_error(chunk: Chunk, injected: Float64, error: _StateError) -> Float64:
    """The mean square error of the output, in units of (scale u)^2."""
    rows, decay = chunk.rows, np.exp(chunk.gates)[:, :, None]
    carried = np.square(decay) * (np.square(rows.q) @ transposed(np.square(chunk.state)))
    inside = np.square(chunk.p) @ (injected + np.square(chunk.v_new))
    return carried + inside + error.seen_by(decay * rows.q - chunk.p @ chunk.w)


def _reference(problem: Problem, expected: Float64, squares: Float64) -> Reference:
    energy = np.maximum(_ALLOWED * np.sqrt(squares), np.abs(expected))
    one_for_each_row = np.ones((*expected.shape[:-1], 1))
    K = problem.whole.k.shape[2]
    return make_reference(
        expected=expected,
        magnitude=energy,
        energy=energy,
        flat_magnitude=energy,
        terms=one_for_each_row * (K + problem.chunks.size),
        concentration=one_for_each_row / _ALLOWED**2,
        head_size=K,
    )


def _trace(matrices: Float64) -> Float64:
    trace: Float64 = np.einsum("hkk->h", matrices)
    return trace


def _ratio(above: Float64, below: Float64) -> Float64:
    """above / below, 0 where below is 0."""
    ratio: Float64 = np.divide(above, below, out=np.zeros_like(above), where=below > 0.0)
    return ratio
