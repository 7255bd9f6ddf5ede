"""Shared by the roles of the sm_100a chunk-output kernel: memory layout, barriers, and work items."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from kernbench.benches.chunk_output.layout import CHUNK, Layout, Tile
from kernbench.ptx.builder import Context, Pointer, Register
from kernbench.ptx.builder.matrix.tcgen05 import TensorMemory
from kernbench.ptx.builder.matrix.tiles import Tile as Matrix

WARP = 32
# threads of the mask warps, and of the epilogue
TEAM = 128
# stages of tensor memory: the two halves of each quarter's 32 lanes
HALVES, HALF_LANES, QUARTER_LANES = 2, 16, 32


@dataclass(frozen=True)
class Plan:
    """The memory layout for given sizes: matrices in shared memory, and columns of tensor memory."""

    layout: Layout
    stages: int

    @property
    def matrices(self) -> dict[str, tuple[int, int, str, int]]:
        """Rows, depth, contiguous dimension, and stages of each matrix: the four of a work item, and the output."""
        K, V, stages = self.layout.key_size, self.layout.value_size, self.stages
        query = CHUNK, K, "K", stages
        return {
            "q": query,
            "k": query,
            "h": (V, K, "K", stages),
            "v": (V, CHUNK, "MN", stages),
            "o": (CHUNK, V, "K", 2),
        }

    @property
    def shared_bytes(self) -> int:
        """Bytes of all matrices."""
        return sum(rows * depth * 2 * stages for rows, depth, _, stages in self.matrices.values())

    def place(self, ctx: Context) -> dict[str, Matrix]:
        """The matrices, one after the other in dynamic shared memory."""
        found, memory = {}, ctx.dynamic_shared("b8", align=1024)
        for name, (rows, depth, major, stages) in self.matrices.items():
            found[name] = made = ctx.shared_tile("bf16", rows, depth, major=major, stages=stages, at=memory)
            memory = memory.shifted(made.nbytes * stages)
        return found

    @property
    def columns(self) -> dict[str, tuple[int, int]]:
        """First column and number of columns of S, P (two elements in a column) and the two products."""
        V, products = self.layout.value_size, CHUNK + CHUNK // 2
        return {"s": (0, CHUNK), "p": (CHUNK, CHUNK // 2), "carried": (products, V), "inner": (products + V, V)}

    @property
    def allocated(self) -> int:
        """Columns to allocate: a power of two."""
        return 1 << (sum(self.columns["inner"]) - 1).bit_length()


@dataclass(frozen=True)
class Barriers:
    """Arrays of mbarriers: the first three have one for each stage of the ring, the others one for each half."""

    arrived_qk: Pointer
    arrived_hv: Pointer
    free: Pointer
    scored: Pointer
    masked: Pointer
    finished: Pointer
    taken: Pointer


class Cursor:
    """The position of one role in a ring of barriers: stage and parity. The role that fills the stages begins with
    parity 1.
    """

    def __init__(self, ctx: Context, stages: int, parity: int = 0):
        self._ctx, self._stages = ctx, stages
        self.stage, self.parity = ctx.const(0, "u32"), ctx.const(parity, "u32")

    def advance(self) -> None:
        """Go to the next stage."""
        self.stage += 1
        around = self.stage == self._stages
        self._ctx.mov(0, out=self.stage, pred=around)
        self._ctx.xor(self.parity, 1, out=self.parity, pred=around)


@dataclass(frozen=True)
class Roles:
    """The kernel under construction, as each of its roles sees it."""

    ctx: Context
    layout: Layout
    plan: Plan
    barriers: Barriers
    matrices: Mapping[str, Matrix]
    tensor: TensorMemory
    # this block's value head, and the number of chunks
    head: Register
    total: Register

    @contextmanager
    def items(self) -> Iterator[Tile]:
        """The chunks of this block in order."""
        ctx = self.ctx
        with ctx.loop(ctx.ctaid_x, self.total, ctx.nctaid_x) as chunk:
            yield self.layout.tile(ctx, chunk)

    def accumulator(self, name: str, half: Register) -> TensorMemory:
        """S, P or a product in one half of tensor memory."""
        first, count = self.plan.columns[name]
        return self.tensor.at(lane=half * HALF_LANES, column=first, columns=count)

    def gates(self, tile: Tile) -> Pointer:
        """The gate of a tile's first row in this head; those of the next rows are `value_heads` apart."""
        return self.ctx.pointer("g_ptr", "f32") + (tile.start * self.layout.value_heads + self.head)
