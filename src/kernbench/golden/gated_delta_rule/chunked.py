"""The rule by chunks: the intermediates of all chunks of all sequences."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from kernbench.golden.basis.reference import Float64
from kernbench.golden.gated_delta_rule.chunk import Chunk, solve
from kernbench.golden.gated_delta_rule.chunks import CHUNK, Chunks
from kernbench.golden.gated_delta_rule.problem import Problem, heads_first, make_problem
from kernbench.golden.gated_delta_rule.rounding import EXACT, Rounding


@dataclass(frozen=True)
class Stages:
    """The results of the stages for all chunks; `chunks.pad` makes whole chunks of packed rows.

    - packed rows: `gates`, cumulated in each chunk, [T, Hv]; `u`, `v_new`, `output` [T, Hv, V]; `w` [T, Hv, K]
    - chunk by chunk: `inverse` [chunks, Hv, size, size], zeros outside a ragged chunk; `h`, the state before the chunk,
      [chunks, Hv, V, K]
    - sequence by sequence: `final_state` [N, Hv, V, K]
    """

    gates: Float64
    inverse: Float64
    u: Float64
    w: Float64
    h: Float64
    v_new: Float64
    output: Float64
    final_state: Float64
    chunks: Chunks


def chunked(
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
) -> Stages:
    """`recurrent` by chunks, with all stages; `rounding` selects the stages that round, none by default."""
    problem = make_problem(
        q, k, v, g, beta, initial_state=initial_state, cu_seqlens=cu_seqlens, scale=scale, chunk_size=chunk_size
    )
    stages = _room(problem)
    for number, chunk in walk(problem, rounding):
        _store(stages, number, chunk)
    return stages


def walk(problem: Problem, rounding: Rounding) -> Iterator[tuple[int, Chunk]]:
    """The chunks in order, each with its number; every sequence starts from its initial state."""
    state = np.zeros(problem.initial_state.shape[1:])
    for number, (sequence, index) in enumerate(problem.chunks.indices):
        before = problem.initial_state[sequence] if index == 0 else state
        chunk = solve(problem.rows(problem.chunks.rows(number)), before, problem.scale, rounding)
        yield number, chunk
        state = chunk.next_state


def _room(problem: Problem) -> Stages:
    chunks, (T, Hv, V) = problem.chunks, problem.output_shape
    K = problem.whole.k.shape[2]
    return Stages(
        gates=np.zeros((T, Hv)),
        inverse=np.zeros((chunks.total, Hv, chunks.size, chunks.size)),
        u=np.zeros((T, Hv, V)),
        w=np.zeros((T, Hv, K)),
        h=np.zeros((chunks.total, Hv, V, K)),
        v_new=np.zeros((T, Hv, V)),
        output=np.zeros((T, Hv, V)),
        final_state=problem.initial_state.copy(),
        chunks=chunks,
    )


def _store(stages: Stages, number: int, chunk: Chunk) -> None:
    rows = stages.chunks.rows(number)
    for name in ("gates", "u", "w", "v_new", "output"):
        getattr(stages, name)[rows] = heads_first(getattr(chunk, name))
    length = rows.stop - rows.start
    stages.inverse[number, :, :length, :length] = chunk.inverse
    stages.h[number] = chunk.h
    stages.final_state[stages.chunks.indices[number, 0]] = chunk.next_state
