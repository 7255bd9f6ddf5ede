"""Fused paged attention for the npu: one mixed task; cube and vector cores stream S, P and O of each step.

While the vector cores prepare step i, the cube multiplies P V of step i - 1; while they update with step i - 1, it
multiplies Q K of step i + 1.
"""

from kernbench.benches.paged_forms.shape import Group, Shape, groups_of, in_turn
from kernbench.benches.paged_forms.stream import part, stream
from kernbench.benches.paged_forms.vector import (
    SCORES,
    Vector,
    finish_empty,
    give_weights,
    lane_rows,
    merge,
    take_scores,
    vector_events,
)
from kernbench.npu import MTE2, FifoState, KernelCore, Runtime, Tensor, V


def vector(
    core: KernelCore, query: Tensor, keys: Tensor, values: Tensor, table: Tensor, lens: Tensor, out: Tensor,
    s_fifo: FifoState, p_fifo: FifoState, o_fifo: FifoState, shape: Shape, size: int,
) -> None:  # fmt: skip
    """Softmax of each step of this lane's rows, and the online update with the step before it."""
    at = Vector(core, shape, 1)
    core.set_flag(V, MTE2, SCORES)
    vector_events(core.set_flag)
    for number, (now, before) in enumerate(in_turn(groups_of(core, shape, lens, size))):
        if now is not None:
            _softmax(at, now, number % 2, s_fifo, p_fifo)
        if before is not None:
            merge(at, before, (number + 1) % 2, o_fifo, out)
    finish_empty(at, lens, out)
    core.wait_flag(V, MTE2, SCORES)
    vector_events(core.wait_flag)
    core.pipe_sync()


def _softmax(at: Vector, group: Group, buffer: int, s_fifo: FifoState, p_fifo: FifoState) -> None:
    """m = row maximum, P = exp(S - m) rounded to bf16, l = row sum of the rounded P."""
    core, rows = at.core, lane_rows(at, group.item)
    s = part(at.s[0], rows, group.steps[0].keys)
    m, l = (part(t[buffer], rows, 1) for t in (at.m, at.l))
    take_scores(at, s, s_fifo)
    core.trowmax(m, s)
    at.barrier()
    give_weights(at, s, m, p_fifo)
    core.trowsum(l, s)
    if at.half is None:
        core.set_flag(V, MTE2, SCORES)
    at.given[buffer] = at.barriers


def orchestrate(
    rt: Runtime, query: Tensor, key_cache: Tensor, value_cache: Tensor, block_table: Tensor, context_lens: Tensor,
    out: Tensor, shape: Shape,
) -> None:  # fmt: skip
    """One task; each step is a group of its own."""
    stream(rt, vector, (query, key_cache, value_cache, block_table, context_lens), out, shape, 1)
