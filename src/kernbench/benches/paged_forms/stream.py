"""Shared by the streamed forms of paged attention: the cube's kernel, and the task that combines it with a vector
kernel.

While the vector cores work on a group of steps, the cube multiplies P V of the group before it and Q K of the next;
S, P and O go through FIFOs. Keys and values are double-buffered in L1. Events: see the tables beside the loops.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kernbench.benches.paged_forms.shape import Group, Item, Shape, Step, groups_of, in_turn, keys_of, padded
from kernbench.npu import (
    FIX,
    IN,
    L0A,
    L0B,
    L0C,
    L1,
    MTE1,
    MTE2,
    OUT,
    FifoState,
    KernelCore,
    M,
    Runtime,
    Tensor,
    Tile,
)

# MTE2 -> MTE1: loaded, and back: free. K, V and P have two buffers each.
K, VALUE, P, Q = 0, 2, 4, 6
# MTE1 -> M: operands are loaded, and back: free. M -> FIX: a result is ready, and back: free.
QK, PV = 0, 1


def part(tile: Tile, rows: int, columns: int) -> Tile:
    """A tile with another valid part."""
    return tile.view(valid=(rows, columns))


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


def cube(
    core: KernelCore, query: Tensor, keys: Tensor, values: Tensor, table: Tensor, lens: Tensor, out: Tensor,
    s_fifo: FifoState, p_fifo: FifoState, o_fifo: FifoState, shape: Shape, size: int,
) -> None:  # fmt: skip
    """S = Q K^T of each group of `size` steps, and O = P V of the group before it."""
    at = Cube(core, shape)
    _events(core.set_flag)
    key_turn = value_turn = 0
    for now, before in in_turn(groups_of(core, shape, lens, size)):
        if now is not None and now.is_first:
            _load_query(at, now.item, query)
        for i in range(max((len(g.steps) for g in (now, before) if g is not None), default=0)):
            if now is not None and i < len(now.steps):
                source = keys_of(core, keys, table, now.item, now.steps[i])
                _multiply_keys(at, now.item, now.steps[i], source, key_turn % 2, now.is_first and i == 0, s_fifo)
                key_turn += 1
            if before is not None and i < len(before.steps):
                source = keys_of(core, values, table, before.item, before.steps[i])
                _multiply_values(at, before, i, source, value_turn % 2, p_fifo, o_fifo)
                value_turn += 1
    _events(core.wait_flag)


def _events(act: Callable[[str, str, int], None]) -> None:
    """All flags that are raised at first, and again at the end: set before the loop, waited for after it."""
    for event in (K, K + 1, VALUE, VALUE + 1, P, P + 1, Q):
        act(MTE1, MTE2, event)
    for event in (QK, PV):
        act(M, MTE1, event)
        act(FIX, M, event)


def _load_query(at: Cube, item: Item, query: Tensor) -> None:
    at.core.wait_flag(MTE1, MTE2, Q)
    at.core.tload(part(at.q, item.rows, at.shape.D), query[item.batch, item.first : item.first + item.rows])
    at.core.set_flag(MTE2, MTE1, Q)


def _multiply_keys(
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


def _multiply_values(
    at: Cube, group: Group, i: int, values: Tensor, buffer: int, p_fifo: FifoState, o_fifo: FifoState
) -> None:
    """O = P V for the first step of a group, O += P V for the others; after the last O is pushed."""
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


def stream(
    rt: Runtime, vector: Callable[..., None], tensors: tuple[Tensor, ...], out: Tensor, shape: Shape, size: int
) -> None:
    """One task, a block on each cluster; items are distributed cyclically, their steps in groups of `size`."""
    rows = 2 * shape.lane_rows
    fifos = [
        rt.fifo("s", "to_aiv", (rows, shape.step), shape.scores),
        rt.fifo("p", "to_aic", (rows, shape.step), "bf16"),
        rt.fifo("o", "to_aiv", (rows, shape.D), "f32"),
    ]
    args = [*map(IN, tensors), OUT(out), *fifos, shape, size]
    rt.submit(aic=cube, aiv=vector, args=args, block_num=min(rt.clusters, shape.items))
