"""What the roles of the sm_100a chunk-output kernel share: where things lie, the barriers, and the work items."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kernbench.benches._chunk_output_layout import CHUNK, Layout, Tile
from kernbench.ptx.builder import Context, Pointer, Register

WARP = 32
# threads of the masks, and of the epilogue
TEAM = 128
# stages of tensor memory are the two halves of each quarter's lanes; lanes are counted from bit 16 of an address
HALVES = 2
HALF, QUARTER = 16 << 16, 32 << 16
# bytes of a panel: 64 lines of 128 bytes
PANEL_BYTES = 64 * 128


@dataclass(frozen=True)
class Plan:
    """What follows from the sizes: where the tiles of a stage lie in shared memory, and columns of tensor memory."""

    layout: Layout
    stages: int

    @property
    def stage_bytes(self) -> int:
        """q, k, h and v of one work item."""
        return 2 * self.layout.key_bytes + self.layout.state_bytes + self.layout.value_bytes

    @property
    def offsets(self) -> dict[str, int]:
        """Where the tiles of a stage begin."""
        q, h = self.layout.key_bytes, self.layout.state_bytes
        return {"q": 0, "k": q, "h": 2 * q, "v": 2 * q + h}

    @property
    def output_offset(self) -> int:
        """Where the two tiles of output begin."""
        return self.stages * self.stage_bytes

    @property
    def shared_bytes(self) -> int:
        """The ring of stages, and two tiles of output."""
        return self.output_offset + 2 * self.layout.value_bytes

    @property
    def columns(self) -> dict[str, int]:
        """Where S, P and the two products begin in tensor memory; P has two elements in a column."""
        products = CHUNK + CHUNK // 2
        return {"s": 0, "p": CHUNK, "carried": products, "inner": products + self.layout.value_size}

    @property
    def allocated(self) -> int:
        """Columns to allocate: a power of two."""
        return 1 << (self.columns["inner"] + self.layout.value_size - 1).bit_length()


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
    """Where one role is in a ring of barriers: stage and parity. Who fills the stages begins with parity 1."""

    def __init__(self, ctx: Context, stages: int, parity: int = 0):
        self._ctx, self._stages = ctx, stages
        self.stage, self.parity = ctx.const(0, "u32"), ctx.const(parity, "u32")

    def advance(self) -> None:
        """On to the next stage."""
        self.stage += 1
        around = self.stage == self._stages
        self._ctx.mov(0, out=self.stage, pred=around)
        self._ctx.xor(self.parity, 1, out=self.parity, pred=around)


@dataclass(frozen=True)
class Roles:
    """The kernel that is being built, as each of its roles sees it."""

    ctx: Context
    layout: Layout
    plan: Plan
    barriers: Barriers
    # the first tile in shared memory, tensor memory's address, this block's value head, and the number of chunks
    tiles: Pointer
    tensor: Register
    head: Register
    total: Register

    @contextmanager
    def items(self) -> Iterator[Tile]:
        """The chunks of this block, one after the other."""
        ctx = self.ctx
        with ctx.loop(ctx.ctaid_x, self.total, ctx.nctaid_x) as chunk:
            yield self.layout.tile(ctx, chunk)

    def tile(self, name: str, stage: Register) -> Pointer:
        """A tile of a stage."""
        return self.tiles.shifted(self.plan.offsets[name]) + stage * self.plan.stage_bytes

    def place(self, name: str, half: Register) -> Register:
        """The address of S, P or a product in one half of tensor memory."""
        return self.ctx.mad(half, HALF, self.tensor + self.plan.columns[name])

    def gates(self, tile: Tile) -> Pointer:
        """The gate of a tile's first row in this head; those of the next rows are `value_heads` apart."""
        return self.ctx.pointer("g_ptr", "f32") + (tile.start * self.layout.value_heads + self.head)
