"""Fused paged attention for the npu: one mixed task; cube and vector cores stream S, P and O through FIFOs.

While the vector cores prepare step i, the cube multiplies P V of step i - 1; while they update with step i - 1, it
multiplies Q K of step i + 1. Keys and values are double-buffered in L1. Events: see the tables beside the loops.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kernbench.benches._paged_shape import Item, Shape, Step, keys_of, padded, steps_of
from kernbench.npu import (
    FIX,
    IN,
    L0A,
    L0B,
    L0C,
    L1,
    MTE1,
    MTE2,
    MTE3,
    OUT,
    UB,
    FifoState,
    KernelCore,
    M,
    Runtime,
    Tensor,
    Tile,
    V,
)

# MTE2 -> MTE1: loaded, and back: free. K, V and P have two buffers each.
K, VALUE, P, Q = 0, 2, 4, 6
# MTE1 -> M: operands are there, and back: free. M -> FIX: a result is there, and back: free.
QK, PV = 0, 1


@dataclass
class Cube:
    """The tiles of the cube core."""

    core: KernelCore
    shape: Shape

    def __post_init__(self) -> None:
        core, rows, D, columns = self.core, padded(self.shape.rows, 16), self.shape.D, padded(self.shape.step, 16)
        self.q = core.alloc(L1, (rows, D), "bf16", name="q")
        self.k = [core.alloc(L1, (D, columns), "bf16", name=f"k{i}") for i in range(2)]
        self.v = [core.alloc(L1, (columns, D), "bf16", name=f"v{i}") for i in range(2)]
        self.p = [core.alloc(L1, (rows, columns), "bf16", name=f"p{i}") for i in range(2)]
        self.q_l0 = core.alloc(L0A, (rows, D), "bf16", name="q")
        self.p_l0 = core.alloc(L0A, (rows, columns), "bf16", name="p")
        self.k_l0 = core.alloc(L0B, (D, columns), "bf16", name="k")
        self.v_l0 = core.alloc(L0B, (columns, D), "bf16", name="v")
        self.s = core.alloc(L0C, (rows, columns), "f32", name="s")
        self.o = core.alloc(L0C, (rows, D), "f32", name="o")


def part(tile: Tile, rows: int, columns: int) -> Tile:
    """A tile with another valid part."""
    return tile.view(valid=(rows, columns))


def cube(
    core: KernelCore, query: Tensor, keys: Tensor, values: Tensor, table: Tensor, lens: Tensor, out: Tensor,
    s_fifo: FifoState, p_fifo: FifoState, o_fifo: FifoState, shape: Shape,
) -> None:  # fmt: skip
    """S = Q K^T and O = P V for all items of this block."""
    at = Cube(core, shape)
    cube_events(core.set_flag)
    turn = 0
    for number in range(core.block_idx, shape.items, core.block_num):
        item = shape.item(number)
        steps = steps_of(shape, core.read(lens, item.batch))
        if steps:
            core.wait_flag(MTE1, MTE2, Q)
            core.tload(part(at.q, item.rows, shape.D), query[item.batch, item.first : item.first + item.rows])
            core.set_flag(MTE2, MTE1, Q)
        for i, step in enumerate(steps):
            multiply_keys(at, item, step, keys_of(core, keys, table, item, step), (turn + i) % 2, i == 0, s_fifo)
            if i:
                earlier = steps[i - 1]
                _pv(at, item, earlier, keys_of(core, values, table, item, earlier), (turn + i - 1) % 2, p_fifo, o_fifo)
        if steps:
            last = steps[-1]
            _pv(at, item, last, keys_of(core, values, table, item, last), (turn + len(steps) - 1) % 2, p_fifo, o_fifo)
        turn += len(steps)
    cube_events(core.wait_flag)


def cube_events(act: Callable[[str, str, int], None]) -> None:
    """All that is free at first, and again at the end: set before the loop, waited for after it."""
    for event in (K, K + 1, VALUE, VALUE + 1, P, P + 1, Q):
        act(MTE1, MTE2, event)
    for event in (QK, PV):
        act(M, MTE1, event)
        act(FIX, M, event)


def multiply_keys(
    at: Cube, item: Item, step: Step, keys: Tensor, buffer: int, is_first: bool, s_fifo: FifoState
) -> None:
    """S = Q K^T of one step, into its FIFO; the first step of an item also moves Q."""
    core, D = at.core, at.shape.D
    k_l1, k_l0 = part(at.k[buffer], D, step.keys), part(at.k_l0, D, step.keys)
    q_l1, q_l0, s = part(at.q, item.rows, D), part(at.q_l0, item.rows, D), part(at.s, item.rows, step.keys)
    core.wait_flag(MTE1, MTE2, K + buffer)
    core.tload(k_l1, keys.T)
    core.set_flag(MTE2, MTE1, K + buffer)
    core.wait_flag(M, MTE1, QK)
    if is_first:
        core.wait_flag(MTE2, MTE1, Q)
        core.tmov(q_l0, q_l1)
        core.set_flag(MTE1, MTE2, Q)
    core.wait_flag(MTE2, MTE1, K + buffer)
    core.tmov(k_l0, k_l1)
    core.set_flag(MTE1, MTE2, K + buffer)
    core.set_flag(MTE1, M, QK)
    core.wait_flag(MTE1, M, QK)
    core.wait_flag(FIX, M, QK)
    core.tmatmul(s, q_l0, k_l0)
    core.set_flag(M, MTE1, QK)
    core.set_flag(M, FIX, QK)
    core.wait_flag(M, FIX, QK)
    core.tpush(s_fifo, s)
    core.set_flag(FIX, M, QK)


def _pv(at: Cube, item: Item, step: Step, values: Tensor, buffer: int, p_fifo: FifoState, o_fifo: FifoState) -> None:
    core, D = at.core, at.shape.D
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
    core.wait_flag(FIX, M, PV)
    core.tmatmul(o, p_l0, v_l0)
    core.set_flag(M, MTE1, PV)
    core.set_flag(M, FIX, PV)
    core.wait_flag(M, FIX, PV)
    core.tpush(o_fifo, o)
    core.set_flag(FIX, M, PV)


# MTE2 -> V: loaded, and back: free. V -> MTE3: to be stored, and back: free.
SCORES, OUTPUT = 0, 1
PROBABILITIES, RESULT = 0, 1


@dataclass
class Vector:
    """The tiles of a vector core."""

    core: KernelCore
    shape: Shape

    def __post_init__(self) -> None:
        core, rows, D, columns = self.core, self.shape.lane_rows, self.shape.D, padded(self.shape.step, 16)
        self.s = core.alloc(UB, (rows, columns), "f32", name="s")
        self.p = core.alloc(UB, (rows, columns), "bf16", name="p")
        self.o = core.alloc(UB, (rows, D), "f32", name="o")
        self.o_all = core.alloc(UB, (rows, D), "f32", name="o_all")
        self.result = core.alloc(UB, (rows, D), "f32", name="result")
        self.m, self.l = ([self._vector(f"{name}{i}") for i in range(2)] for name in "ml")
        self.m_all, self.l_all, self.m_new, self.a, self.b = map(self._vector, ("m_all", "l_all", "m_new", "a", "b"))

    def _vector(self, name: str) -> Tile:
        return self.core.alloc(UB, (padded(self.shape.lane_rows, 8), 1), "f32", layout="col", name=name)


def vector(
    core: KernelCore, query: Tensor, keys: Tensor, values: Tensor, table: Tensor, lens: Tensor, out: Tensor,
    s_fifo: FifoState, p_fifo: FifoState, o_fifo: FifoState, shape: Shape,
) -> None:  # fmt: skip
    """Softmax and online update of this lane's rows, for all items of this block."""
    at = Vector(core, shape)
    core.set_flag(V, MTE2, SCORES)
    core.set_flag(V, MTE2, OUTPUT)
    core.set_flag(MTE3, V, PROBABILITIES)
    core.set_flag(MTE3, V, RESULT)
    for number in range(core.block_idx, shape.items, core.block_num):
        item = shape.item(number)
        first, rows = item.lane(core.sub_block_id, shape.lane_rows)
        steps = steps_of(shape, core.read(lens, item.batch))
        for i, step in enumerate(steps):
            _softmax(at, rows, step, i % 2, s_fifo, p_fifo)
            if i:
                _update(at, rows, (i - 1) % 2, i == 1, o_fifo)
        if steps:
            # inside the loop the barriers of the next step's softmax stand between
            core.pipe_barrier(V)
            _update(at, rows, (len(steps) - 1) % 2, len(steps) == 1, o_fifo)
        place = out[item.batch, item.first + first : item.first + first + rows]
        _finish(at, rows, bool(steps), place)
    core.wait_flag(V, MTE2, SCORES)
    core.wait_flag(V, MTE2, OUTPUT)
    core.wait_flag(MTE3, V, PROBABILITIES)
    core.wait_flag(MTE3, V, RESULT)


def _softmax(at: Vector, rows: int, step: Step, buffer: int, s_fifo: FifoState, p_fifo: FifoState) -> None:
    """m = row maximum, P = exp(S - m) rounded to bf16, l = row sum of the rounded P."""
    core = at.core
    s, p = (part(t, rows, step.keys) for t in (at.s, at.p))
    m, l = (part(t[buffer], rows, 1) for t in (at.m, at.l))
    core.wait_flag(V, MTE2, SCORES)
    core.tpop(s_fifo, s)
    core.set_flag(MTE2, V, SCORES)
    core.wait_flag(MTE2, V, SCORES)
    core.tmuls(s, s, at.shape.scale)
    core.pipe_barrier(V)
    core.trowmax(m, s)
    core.pipe_barrier(V)
    core.trowexpandsub(s, s, m)
    core.pipe_barrier(V)
    core.texp(s, s)
    core.pipe_barrier(V)
    core.wait_flag(MTE3, V, PROBABILITIES)
    core.tcvt(p, s)
    core.set_flag(V, MTE3, PROBABILITIES)
    core.wait_flag(V, MTE3, PROBABILITIES)
    core.tpush(p_fifo, p)
    core.set_flag(MTE3, V, PROBABILITIES)
    core.pipe_barrier(V)
    core.tcvt(s, p)
    core.pipe_barrier(V)
    core.trowsum(l, s)
    core.set_flag(V, MTE2, SCORES)


def _update(at: Vector, rows: int, buffer: int, is_first: bool, o_fifo: FifoState) -> None:
    """The running m, l and o with one more step."""
    core, D = at.core, at.shape.D
    o, o_all = (part(t, rows, D) for t in (at.o, at.o_all))
    m, l = (part(t[buffer], rows, 1) for t in (at.m, at.l))
    m_all, l_all, m_new, a, b = (part(t, rows, 1) for t in (at.m_all, at.l_all, at.m_new, at.a, at.b))
    core.wait_flag(V, MTE2, OUTPUT)
    core.tpop(o_fifo, o)
    core.set_flag(MTE2, V, OUTPUT)
    core.wait_flag(MTE2, V, OUTPUT)
    if is_first:
        core.tmov(m_all, m)
        core.tmov(l_all, l)
        core.tmov(o_all, o)
    else:
        core.tmax(m_new, m_all, m)
        core.pipe_barrier(V)
        core.tsub(a, m_all, m_new)
        core.tsub(b, m, m_new)
        core.pipe_barrier(V)
        core.texp(a, a)
        core.texp(b, b)
        core.tmov(m_all, m_new)
        core.pipe_barrier(V)
        core.tmul(l_all, l_all, a)
        core.tmul(l, l, b)
        core.trowexpandmul(o_all, o_all, a)
        core.trowexpandmul(o, o, b)
        core.pipe_barrier(V)
        core.tadd(l_all, l_all, l)
        core.tadd(o_all, o_all, o)
    core.set_flag(V, MTE2, OUTPUT)


def _finish(at: Vector, rows: int, has_keys: bool, place: Tensor) -> None:
    """out = o / l; zeros without keys."""
    core, D = at.core, at.shape.D
    result = part(at.result, rows, D)
    core.wait_flag(MTE3, V, RESULT)
    if has_keys:
        core.pipe_barrier(V)
        core.trowexpanddiv(result, part(at.o_all, rows, D), part(at.l_all, rows, 1))
    else:
        core.texpands(result, 0.0)
    core.set_flag(V, MTE3, RESULT)
    core.wait_flag(V, MTE3, RESULT)
    core.tstore(place, result)
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
