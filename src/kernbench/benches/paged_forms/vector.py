"""The vector core's part of the streamed forms of paged attention: tiles, receiving S, sending P, and merging O."""

from collections.abc import Callable
from dataclasses import dataclass

from kernbench.benches.paged_forms.shape import Group, Item, Shape, padded
from kernbench.benches.paged_forms.stream import part
from kernbench.npu import MTE2, MTE3, UB, FifoState, KernelCore, Tensor, Tile, V

# MTE2 -> V: loaded, and back: free
SCORES, OUTPUT = 0, 1
# V -> MTE3: to be stored, and back: free
PROBABILITIES, RESULT = 0, 1


@dataclass
class Vector:
    """The tiles of a vector core, with S of `size` steps, and the barriers that order their use."""

    core: KernelCore
    shape: Shape
    size: int

    def __post_init__(self) -> None:
        core, rows, D, columns = self.core, self.shape.lane_rows, self.shape.D, padded(self.shape.step, 16)
        self.s = [core.alloc(UB, (rows, columns), "f32", name=f"s{i}") for i in range(self.size)]
        narrow = self.shape.scores != "f32"
        self.half = core.alloc(UB, (rows, columns), self.shape.scores, name="half") if narrow else None
        self.p = core.alloc(UB, (rows, columns), "bf16", name="p")
        self.o = core.alloc(UB, (rows, D), "f32", name="o")
        self.o_all = core.alloc(UB, (rows, D), "f32", name="o_all")
        self.result = core.alloc(UB, (rows, D), "f32", name="result")
        self.m, self.l = ([self._vector(f"{name}{i}") for i in range(2)] for name in "ml")
        names = ("m_all", "l_all", "m_new", "a", "b", "part")
        self.m_all, self.l_all, self.m_new, self.a, self.b, self.part = map(self._vector, names)
        self.barriers = 0
        # barrier counts when a group's maximum was known, when its last P was sent, and at the last merge
        self.known, self.given, self.merged = [-1, -1], [-1, -1], -1

    def barrier(self) -> None:
        """All vector operations so far are done before the next."""
        self.core.pipe_barrier(V)
        self.barriers += 1

    def settle(self, mark: int) -> None:
        """A barrier, unless one has come since the count was `mark`."""
        if self.barriers == mark:
            self.barrier()

    def _vector(self, name: str) -> Tile:
        return self.core.alloc(UB, (padded(self.shape.lane_rows, 8), 1), "f32", layout="col", name=name)


def vector_events(act: Callable[[str, str, int], None]) -> None:
    """All flags that are raised at first, and again at the end: set before the loop, waited for after it."""
    act(V, MTE2, OUTPUT)
    for event in (PROBABILITIES, RESULT):
        act(MTE3, V, event)


def lane_rows(at: Vector, item: Item) -> int:
    """Rows of an item that this lane has."""
    return item.lane(at.core.sub_block_id, at.shape.lane_rows)[1]


def take_scores(at: Vector, s: Tile, s_fifo: FifoState) -> None:
    """S of one step from its FIFO, in f32 and scaled. The flag from V says that the receiving tile is free."""
    core = at.core
    arrived = s if at.half is None else part(at.half, *s.valid)
    core.wait_flag(V, MTE2, SCORES)
    core.tpop(s_fifo, arrived)
    core.set_flag(MTE2, V, SCORES)
    core.wait_flag(MTE2, V, SCORES)
    if at.half is not None:
        at.settle(max(at.given))
        core.tcvt(s, arrived)
        core.set_flag(V, MTE2, SCORES)
        at.barrier()
    core.tmuls(s, s, at.shape.scale)
    at.barrier()


def give_weights(at: Vector, s: Tile, m: Tile, p_fifo: FifoState) -> None:
    """P = exp(S - m) rounded to bf16, into its FIFO; S becomes the rounded P."""
    core, p = at.core, part(at.p, *s.valid)
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


def merge(at: Vector, group: Group, buffer: int, o_fifo: FifoState, out: Tensor) -> None:
    """Merge one more group into the item's m, l and o; after its last the item is done."""
    core, D, rows = at.core, at.shape.D, lane_rows(at, group.item)
    o, o_all = (part(t, rows, D) for t in (at.o, at.o_all))
    m, l = (part(t[buffer], rows, 1) for t in (at.m, at.l))
    m_all, l_all, m_new, a, b = (part(t, rows, 1) for t in (at.m_all, at.l_all, at.m_new, at.a, at.b))
    core.wait_flag(V, MTE2, OUTPUT)
    core.tpop(o_fifo, o)
    core.set_flag(MTE2, V, OUTPUT)
    core.wait_flag(MTE2, V, OUTPUT)
    at.settle(max(at.merged, at.given[buffer] if group.is_first else -1))
    if group.is_first:
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
    if group.is_last:
        _finish(at, group.item, out, True)
    at.merged = at.barriers


def finish_empty(at: Vector, lens: Tensor, out: Tensor) -> None:
    """Zeros for the items of this block that have no keys."""
    core, shape = at.core, at.shape
    for number in range(core.block_idx, shape.items, core.block_num):
        item = shape.item(number)
        if core.read(lens, item.batch) <= 0:
            _finish(at, item, out, False)


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
