"""Chunk output of the gated delta rule for sm_90a: bulk tensor copies into a ring of stages, products by wgmma.

The last warp of a block copies: it waits until a stage is empty, and starts the copies of the next tile's q, k, H and
V'. Two groups of four warps compute, every second tile each, so that one multiplies while the other masks or stores.
In a group:

- q k^T and q H^T from shared memory, the second still in flight while P = lower((q k^T) * Gamma) is computed
- rows e^G times the second, plus P V' with P from registers
- a whole tile is stored through shared memory by a bulk tensor store, a ragged one row by row

Registers suffice without `setmaxnreg`: with 9 warps a thread may have 168, and heads of 128 take fewer.
"""

from kernbench.benches.chunk_output.layout import ATOM_BYTES, ChunkOutputKernel, Layout
from kernbench.benches.chunk_output.sm90_group import GROUP, WARP, Group, Memory, Operands
from kernbench.common.errors import MisuseError
from kernbench.ptx.builder import Context, Register
from kernbench.ptx.builder.values.options import Value

SHARED_BYTES = 227 << 10


class HopperChunkOutput(ChunkOutputKernel):
    """TMA and wgmma; `groups` of four warps compute: by default two, or one if the number of stages is odd.

    A parity distinguishes two phases, so a group must have seen the phase before the one it waits for: all tiles of a
    stage must belong to one group, which holds if `groups` divides `stages`.

    With `flat` any number of blocks takes tiles in turn, all value heads of a chunk before the next chunk: no SM is
    idle if the heads do not divide their number, and concurrent blocks read adjacent memory.
    """

    name = "chunk_output_sm90"
    target = "sm_90a"
    idea = "one warp copies, groups of four multiply with wgmma and store"

    def __init__(self, layout: Layout, stages: int = 2, groups: int | None = None, flat: bool = True):
        super().__init__(layout, stages)
        self.flat = flat
        self.groups = groups if groups is not None else 2 - stages % 2
        if self.groups not in (1, 2, 3) or stages % self.groups:
            raise MisuseError(f"groups = {groups!r} for {stages} stages: 1, 2 or 3, so that each has stages of its own")
        # barriers, and padding to align what follows them
        needed = self.shared_bytes + ATOM_BYTES
        if needed > SHARED_BYTES:
            raise MisuseError(
                f"{stages} stages of {self.stage_bytes} bytes and the outputs of {self.groups} groups need {needed} "
                f"bytes of shared memory, and a block has {SHARED_BYTES}: take fewer stages or groups, or smaller heads"
            )

    @property
    def threads(self) -> int:
        """The groups, and one warp that copies."""
        return self.groups * GROUP + WARP

    @property
    def stage_bytes(self) -> int:
        """Bytes of the operands of one tile."""
        return 2 * self.layout.key_bytes + self.layout.state_bytes + self.layout.value_bytes

    @property
    def shared_bytes(self) -> int:
        """The ring of stages, and the shared memory of each group."""
        return self.stages * self.stage_bytes + self.groups * Memory.nbytes(self.layout)

    def grid(self, sms: int) -> tuple[int, int]:
        """The grid for a number of SMs."""
        return (sms, 1) if self.flat else self.layout.grid(sms)

    def program(self, ctx: Context) -> None:
        """Initialise barriers, then branch to the roles of the warps."""
        _Block(ctx, self).run()


class _Block:
    """The kernel under construction: the ring of stages, and the roles that fill and empty it."""

    def __init__(self, ctx: Context, kernel: HopperChunkOutput):
        self.ctx, self.kernel, self.layout = ctx, kernel, kernel.layout
        self.full = ctx.mbarriers(kernel.stages, name="full")
        self.empty = ctx.mbarriers(kernel.stages, name="empty")
        self.memory = ctx.dynamic_shared("b8", align=ATOM_BYTES)
        self.ring = Operands.at(ctx, self.memory, kernel.layout, kernel.stages)
        self.head = ctx.ctaid_y
        self.total = ctx.load(ctx.pointer("total_chunks_ptr", "u32"))
        if kernel.flat:
            self.total *= kernel.layout.value_heads

    def run(self) -> None:
        """Initialise barriers, then branch to the roles of the warps."""
        ctx = self.ctx
        with ctx.if_(ctx.tid_x == 0):
            for stage in range(self.kernel.stages):
                ctx.mbarrier_init(self.full[stage], 1)
                ctx.mbarrier_init(self.empty[stage], GROUP // WARP)
            ctx.fence_mbarrier_init()
        ctx.bar_sync()
        copier = self.kernel.groups * GROUP
        with ctx.if_(ctx.tid_x < copier):
            self.compute()
        with ctx.else_(), ctx.if_(ctx.tid_x == copier):
            self.copy()

    def copy(self) -> None:
        """The copying thread: four boxes for each tile, as soon as its stage is empty."""
        ctx, layout = self.ctx, self.layout
        maps = {name: ctx.tensor_map(f"{name}_map") for name in self.ring.tiles}
        turn = ctx.const(0, "u32")
        with ctx.loop(ctx.ctaid_x, self.total, ctx.nctaid_x) as number:
            chunk, head = self.chunk_and_head(number)
            query_head = head // (layout.value_heads // layout.heads)
            tile = layout.tile(ctx, chunk)
            stage, parity = self.stage_and_parity(turn)
            full = self.full + stage
            ctx.mbarrier_wait(self.empty[stage], parity ^ 1)
            # the copies publish their own writes: the arrival has nothing to release
            ctx.mbarrier_arrive_expect_tx(full, self.kernel.stage_bytes, sem="relaxed")
            boxes: dict[str, tuple[Value, Register]] = {
                "q": (tile.start, query_head),
                "k": (tile.start, query_head),
                "h": (0, ctx.mad(chunk, layout.value_heads, head)),
                "v": (tile.value_row, head),
            }
            for name, (row, number_of_head) in boxes.items():
                ctx.tma_load(self.ring.tiles[name].stage(stage).pointer, maps[name], (0, row, 0, number_of_head), full)
            turn += 1

    def compute(self) -> None:
        """A group of warps: processes its tiles, and releases each stage as soon as it is multiplied."""
        ctx, kernel = self.ctx, self.kernel
        own = self.memory.shifted(kernel.stages * kernel.stage_bytes)
        group = Group(ctx, self.layout, self.ring, Memory.of(ctx, own, self.layout, kernel.groups))
        turn, step = group.number.copy(), ctx.nctaid_x * kernel.groups
        first = ctx.mad(turn, ctx.nctaid_x, ctx.ctaid_x)
        with ctx.if_(first < self.total):
            tile = group.look(*self.chunk_and_head(first))
            with ctx.loop(first, self.total, step) as number:
                stage, parity = self.stage_and_parity(turn)
                group.share_gates(tile)
                ctx.mbarrier_wait(self.full[stage], parity)
                group.begin(stage)
                # prefetch the next tile's gates while this one's products are in flight
                following = group.look(*self.chunk_and_head(ctx.min(number + step, self.total - 1)))
                sums = group.multiply(tile, stage)
                ctx.mbarrier_arrive(self.empty[stage], pred=group.lane == 0)
                group.store(tile, sums)
                tile.set(following)
                turn += kernel.groups
            group.finish()

    def chunk_and_head(self, number: Register) -> tuple[Register, Register]:
        """The chunk and the value head of tile `number` of this block's."""
        heads = self.layout.value_heads
        return (number // heads, number % heads) if self.kernel.flat else (number, self.head)

    def stage_and_parity(self, turn: Register) -> tuple[Register, Register]:
        """Stage of the block's tile number `turn`, and the parity of its barrier's phase while it is filled."""
        return turn % self.kernel.stages, (turn // self.kernel.stages) & 1
