"""Grouped paged attention for the npu: like the fused form, but O leaves the cube once for a whole group of steps.

The vector cores keep the scores of a group in UB until its maximum is known, then hand out P for all of its steps
against that one maximum. So the cube adds P V of the group up in L0C, and neither O nor the rescaling of it is needed
for each step: less goes through memory, which is what bounds the fused form. Two groups are in flight: while the cube
multiplies Q K of one, it multiplies P V of the one before; the vector cores take scores of one and give P of the other.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kernbench.benches._paged_fused import PV, VALUE, Cube, P, Q, cube_events, multiply_keys, part
from kernbench.benches._paged_shape import Item, Shape, Step, keys_of, padded, steps_of
from kernbench.npu import FIX, IN, MTE1, MTE2, MTE3, OUT, UB, FifoState, KernelCore, M, Runtime, Tensor, Tile, V

_MOST_STEPS = 64


def group_size(shape: Shape) -> int:
    """Steps of a group, so that its scores fit UB; those of the next take their place one by one."""
    step = shape.lane_rows * padded(shape.step, 16) * 4
    return max(1, min(_MOST_STEPS, shape.score_bytes // step))


@dataclass(frozen=True)
class Group:
    """Some steps of an item; whether they are its first and its last."""

    item: Item
    steps: list[Step]
    is_first: bool
    is_last: bool


def groups_of(core: KernelCore, shape: Shape, lens: Tensor) -> list[Group]:
    """All groups of this block, item after item. An item without keys has none."""
    found, size = [], group_size(shape)
    for number in range(core.block_idx, shape.items, core.block_num):
        item = shape.item(number)
        steps = steps_of(shape, core.read(lens, item.batch))
        for first in range(0, len(steps), size):
            found.append(Group(item, steps[first : first + size], first == 0, first + size >= len(steps)))
    return found


def cube(
    core: KernelCore, query: Tensor, keys: Tensor, values: Tensor, table: Tensor, lens: Tensor, out: Tensor,
    s_fifo: FifoState, p_fifo: FifoState, o_fifo: FifoState, shape: Shape,
) -> None:  # fmt: skip
    """S = Q K^T of each group, and O = P V of the group before it."""
    at = Cube(core, shape)
    cube_events(core.set_flag)
    groups = groups_of(core, shape, lens)
    key_turn = value_turn = 0
    for now, before in zip([*groups, None], [None, *groups], strict=True):
        if now is not None and now.is_first:
            item = now.item
            core.wait_flag(MTE1, MTE2, Q)
            core.tload(part(at.q, item.rows, shape.D), query[item.batch, item.first : item.first + item.rows])
            core.set_flag(MTE2, MTE1, Q)
        for i in range(max((len(g.steps) for g in (now, before) if g is not None), default=0)):
            if now is not None and i < len(now.steps):
                step = now.steps[i]
                source = keys_of(core, keys, table, now.item, step)
                multiply_keys(at, now.item, step, source, key_turn % 2, now.is_first and i == 0, s_fifo)
                key_turn += 1
            if before is not None and i < len(before.steps):
                step = before.steps[i]
                source = keys_of(core, values, table, before.item, step)
                _add_values(at, before, i, source, value_turn % 2, p_fifo, o_fifo)
                value_turn += 1
    cube_events(core.wait_flag)


def _add_values(
    at: Cube, group: Group, i: int, values: Tensor, buffer: int, p_fifo: FifoState, o_fifo: FifoState
) -> None:
    """O = P V for the first step of a group, O += P V for the others; after the last O leaves."""
    core, D, item, step = at.core, at.shape.D, group.item, group.steps[i]
    v_l1, v_l0 = part(at.v[buffer], step.keys, D), part(at.v_l0, step.keys, D)
    p_l1, p_l0 = (part(t, item.rows, step.keys) for t in (at.p[buffer], at.p_l0))
    o = part(at.o, item.rows, D)
    core.wait_flag(MTE1, MTE2, VALUE + buffer)
    core.tload(v_l1, values)
    core.set_flag(MTE2, MTE1, VALUE + buffer)
    core.wait_flag(MTE1, MTE2, P + buffer)
    core.tpop(p_fifo, p_l1)
    core.set_flag(MTE2, MTE1, P + buffer)
    core.wait_flag(M, MTE1, PV)
    core.wait_flag(MTE2, MTE1, VALUE + buffer)
    core.tmov(v_l0, v_l1)
    core.set_flag(MTE1, MTE2, VALUE + buffer)
    core.wait_flag(MTE2, MTE1, P + buffer)
    core.tmov(p_l0, p_l1)
    core.set_flag(MTE1, MTE2, P + buffer)
    core.set_flag(MTE1, M, PV)
    core.wait_flag(MTE1, M, PV)
    if i == 0:
        core.wait_flag(FIX, M, PV)
        core.tmatmul(o, p_l0, v_l0)
    else:
        core.tmatmul_acc(o, p_l0, v_l0)
    core.set_flag(M, MTE1, PV)
    if i == len(group.steps) - 1:
        core.set_flag(M, FIX, PV)
        core.wait_flag(M, FIX, PV)
        core.tpush(o_fifo, o)
        core.set_flag(FIX, M, PV)


# MTE2 -> V: loaded, and back: free
SCORES, OUTPUT = 0, 1
# V -> MTE3: to be stored, and back: free
PROBABILITIES, RESULT = 0, 1


@dataclass
class Vector:
    """The tiles of a vector core."""

    core: KernelCore
    shape: Shape

    def __post_init__(self) -> None:
        core, rows, D, columns = self.core, self.shape.lane_rows, self.shape.D, padded(self.shape.step, 16)
        self.s = [core.alloc(UB, (rows, columns), "f32", name=f"s{i}") for i in range(group_size(self.shape))]
        self.p = core.alloc(UB, (rows, columns), "bf16", name="p")
        self.o = core.alloc(UB, (rows, D), "f32", name="o")
        self.o_all = core.alloc(UB, (rows, D), "f32", name="o_all")
        self.result = core.alloc(UB, (rows, D), "f32", name="result")
        self.m, self.l = ([self._vector(f"{name}{i}") for i in range(2)] for name in "ml")
        names = ("m_all", "l_all", "m_new", "a", "b", "part")
        self.m_all, self.l_all, self.m_new, self.a, self.b, self.part = map(self._vector, names)

        self.barriers = 0
        # barriers that had come when a group's maximum was known, and when its last P was given
        self.known, self.given = [-1, -1], [-1, -1]

    def barrier(self) -> None:
        """All vector operations so far are done before the next."""
        self.core.pipe_barrier(V)
        self.barriers += 1

    def settle(self, mark: int) -> None:
        """A barrier, unless one has come since there were `mark`."""
        if self.barriers == mark:
            self.barrier()

    def _vector(self, name: str) -> Tile:
        return self.core.alloc(UB, (padded(self.shape.lane_rows, 8), 1), "f32", layout="col", name=name)


def vector(
    core: KernelCore, query: Tensor, keys: Tensor, values: Tensor, table: Tensor, lens: Tensor, out: Tensor,
    s_fifo: FifoState, p_fifo: FifoState, o_fifo: FifoState, shape: Shape,
) -> None:  # fmt: skip
    """Scores of each group taken, P of the group before it given, its O taken and merged."""
    at = Vector(core, shape)
    _vector_events(core.set_flag)
    groups = groups_of(core, shape, lens)
    for number, (now, before) in enumerate(zip([*groups, None], [None, *groups], strict=True)):
        this, other = number % 2, (number + 1) % 2
        for i in range(max((len(g.steps) for g in (now, before) if g is not None), default=0)):
            if before is not None and i < len(before.steps):
                _give(at, before, i, other, p_fifo)
            if now is not None and i < len(now.steps):
                _take(at, now, i, this, s_fifo)
            if before is not None and i == len(before.steps) - 1:
                _merge(at, before, other, o_fifo)
                if before.is_last:
                    _finish(at, before.item, out, True)
    for number in range(core.block_idx, shape.items, core.block_num):
        item = shape.item(number)
        if core.read(lens, item.batch) <= 0:
            _finish(at, item, out, False)
    _vector_events(core.wait_flag)


def _vector_events(act: Callable[[str, str, int], None]) -> None:
    act(V, MTE2, OUTPUT)
    for event in (PROBABILITIES, RESULT):
        act(MTE3, V, event)


def _rows(at: Vector, item: Item) -> int:
    return item.lane(at.core.sub_block_id, at.shape.lane_rows)[1]


def _take(at: Vector, group: Group, i: int, buffer: int, s_fifo: FifoState) -> None:
    """Scores of one step, scaled, in the place of those that were just given as P; the group's maximum so far."""
    core, rows = at.core, _rows(at, group.item)
    s = part(at.s[i], rows, group.steps[i].keys)
    m, highest = part(at.m[buffer], rows, 1), part(at.part, rows, 1)
    core.set_flag(V, MTE2, SCORES)
    core.wait_flag(V, MTE2, SCORES)
    core.tpop(s_fifo, s)
    core.set_flag(MTE2, V, SCORES)
    core.wait_flag(MTE2, V, SCORES)
    core.tmuls(s, s, at.shape.scale)
    at.barrier()
    if i == 0:
        core.trowmax(m, s)
    else:
        core.trowmax(highest, s)
        at.barrier()
        core.tmax(m, m, highest)
    at.known[buffer] = at.barriers


def _give(at: Vector, group: Group, i: int, buffer: int, p_fifo: FifoState) -> None:
    """P of one step against the group's maximum, rounded to bf16, and the group's sum so far."""
    core, rows, count = at.core, _rows(at, group.item), group.steps[i].keys
    s, p = part(at.s[i], rows, count), part(at.p, rows, count)
    m, l, total = (part(t, rows, 1) for t in (at.m[buffer], at.l[buffer], at.part))
    if i == 0:
        at.settle(at.known[buffer])
    core.trowexpandsub(s, s, m)
    at.barrier()
    core.texp(s, s)
    at.barrier()
    core.wait_flag(MTE3, V, PROBABILITIES)
    core.tcvt(p, s)
    core.set_flag(V, MTE3, PROBABILITIES)
    core.wait_flag(V, MTE3, PROBABILITIES)
    core.tpush(p_fifo, p)
    core.set_flag(MTE3, V, PROBABILITIES)
    at.barrier()
    core.tcvt(s, p)
    at.barrier()
    if i == 0:
        core.trowsum(l, s)
    else:
        core.trowsum(total, s)
        at.barrier()
        core.tadd(l, l, total)
    at.given[buffer] = at.barriers


def _merge(at: Vector, group: Group, buffer: int, o_fifo: FifoState) -> None:
    """The item's m, l and o with one more group."""
    core, D, rows = at.core, at.shape.D, _rows(at, group.item)
    o, o_all = (part(t, rows, D) for t in (at.o, at.o_all))
    m, l = (part(t[buffer], rows, 1) for t in (at.m, at.l))
    m_all, l_all, m_new, a, b = (part(t, rows, 1) for t in (at.m_all, at.l_all, at.m_new, at.a, at.b))
    core.wait_flag(V, MTE2, OUTPUT)
    core.tpop(o_fifo, o)
    core.set_flag(MTE2, V, OUTPUT)
    core.wait_flag(MTE2, V, OUTPUT)
    if group.is_first:
        at.settle(at.given[buffer])
        core.tmov(m_all, m)
        core.tmov(l_all, l)
        core.tmov(o_all, o)
    else:
        core.tmax(m_new, m_all, m)
        at.barrier()
        core.tsub(a, m_all, m_new)
        core.tsub(b, m, m_new)
        at.barrier()
        core.texp(a, a)
        core.texp(b, b)
        core.tmov(m_all, m_new)
        at.barrier()
        core.tmul(l_all, l_all, a)
        core.tmul(l, l, b)
        core.trowexpandmul(o_all, o_all, a)
        core.trowexpandmul(o, o, b)
        at.barrier()
        core.tadd(l_all, l_all, l)
        core.tadd(o_all, o_all, o)
    core.set_flag(V, MTE2, OUTPUT)


def _finish(at: Vector, item: Item, out: Tensor, has_keys: bool) -> None:
    """out = o / l; zeros without keys."""
    core, D = at.core, at.shape.D
    first, rows = item.lane(core.sub_block_id, at.shape.lane_rows)
    result = part(at.result, rows, D)
    core.wait_flag(MTE3, V, RESULT)
    if has_keys:
        at.barrier()
        core.trowexpanddiv(result, part(at.o_all, rows, D), part(at.l_all, rows, 1))
    else:
        core.texpands(result, 0.0)
    core.set_flag(V, MTE3, RESULT)
    core.wait_flag(V, MTE3, RESULT)
    core.tstore(out[item.batch, item.first + first : item.first + first + rows], result)
    core.set_flag(MTE3, V, RESULT)


def orchestrate(
    rt: Runtime, query: Tensor, key_cache: Tensor, value_cache: Tensor, block_table: Tensor, context_lens: Tensor,
    out: Tensor, shape: Shape,
) -> None:  # fmt: skip
    """One task, a block on each cluster; items are dealt out in turn."""
    rows = 2 * shape.lane_rows
    fifos = [
        rt.fifo("s", "to_aiv", (rows, shape.step), "f32"),
        rt.fifo("p", "to_aic", (rows, shape.step), "bf16"),
        rt.fifo("o", "to_aiv", (rows, shape.D), "f32"),
    ]
    tensors = [IN(t) for t in (query, key_cache, value_cache, block_table, context_lens)]
    rt.submit(aic=cube, aiv=vector, args=[*tensors, OUT(out), *fifos, shape], block_num=min(rt.clusters, shape.items))
