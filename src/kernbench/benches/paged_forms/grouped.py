"""Grouped paged attention for the npu: like the fused form, but O leaves the cube once for a whole group of steps.

The vector cores keep the scores of a group in UB until its maximum is known, then send P for all of its steps
relative to that maximum. So the cube accumulates P V of the group in L0C, and neither transfers nor rescaling of O are
needed for each step: less goes through memory, which bounds the fused form. Two groups are in flight: while the cube
multiplies Q K of one, it multiplies P V of the one before; the vector cores receive scores of one and send P of the
other.
"""

from kernbench.benches.paged_forms.shape import Group, Shape, groups_of, in_turn, padded
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

_MOST_STEPS = 64


def group_size(shape: Shape) -> int:
    """Steps of a group, so that its scores fit UB; the next group's scores replace them one by one."""
    step = shape.lane_rows * padded(shape.step, 16) * 4
    return max(1, min(_MOST_STEPS, shape.score_bytes // step))


def vector(
    core: KernelCore, query: Tensor, keys: Tensor, values: Tensor, table: Tensor, lens: Tensor, out: Tensor,
    s_fifo: FifoState, p_fifo: FifoState, o_fifo: FifoState, shape: Shape, size: int,
) -> None:  # fmt: skip
    """Receive the scores of each group, send P of the group before it, receive its O and merge it."""
    at = Vector(core, shape, size)
    if at.half is not None:
        core.set_flag(V, MTE2, SCORES)
    vector_events(core.set_flag)
    for number, (now, before) in enumerate(in_turn(groups_of(core, shape, lens, size))):
        this, other = number % 2, (number + 1) % 2
        for i in range(max((len(g.steps) for g in (now, before) if g is not None), default=0)):
            if before is not None and i < len(before.steps):
                _give(at, before, i, other, p_fifo)
            if now is not None and i < len(now.steps):
                _take(at, now, i, this, s_fifo)
            if before is not None and i == len(before.steps) - 1:
                merge(at, before, other, o_fifo, out)
    finish_empty(at, lens, out)
    if at.half is not None:
        core.wait_flag(V, MTE2, SCORES)
    vector_events(core.wait_flag)
    core.pipe_sync()


def _take(at: Vector, group: Group, i: int, buffer: int, s_fifo: FifoState) -> None:
    """Receive scores of one step into the buffer of those that were just sent as P; update the group's maximum."""
    core, rows = at.core, lane_rows(at, group.item)
    s = part(at.s[i], rows, group.steps[i].keys)
    m, highest = part(at.m[buffer], rows, 1), part(at.part, rows, 1)
    if at.half is None:
        core.set_flag(V, MTE2, SCORES)
    take_scores(at, s, s_fifo)
    if i == 0:
        core.trowmax(m, s)
    else:
        core.trowmax(highest, s)
        at.barrier()
        core.tmax(m, m, highest)
    at.known[buffer] = at.barriers


def _give(at: Vector, group: Group, i: int, buffer: int, p_fifo: FifoState) -> None:
    """Send P of one step relative to the group's maximum, and update the group's sum."""
    core, rows = at.core, lane_rows(at, group.item)
    s = part(at.s[i], rows, group.steps[i].keys)
    m, l, total = (part(t, rows, 1) for t in (at.m[buffer], at.l[buffer], at.part))
    if i == 0:
        at.settle(at.known[buffer])
    give_weights(at, s, m, p_fifo)
    if i == 0:
        core.trowsum(l, s)
    else:
        core.trowsum(total, s)
        at.barrier()
        core.tadd(l, l, total)
    at.given[buffer] = at.barriers


def orchestrate(
    rt: Runtime, query: Tensor, key_cache: Tensor, value_cache: Tensor, block_table: Tensor, context_lens: Tensor,
    out: Tensor, shape: Shape,
) -> None:  # fmt: skip
    """One task; the steps of an item in groups as large as UB allows."""
    stream(rt, vector, (query, key_cache, value_cache, block_table, context_lens), out, shape, group_size(shape))
