"""Chunk output of the gated delta rule for sm_90a: bulk tensor copies into a ring of stages, wgmma out of it.

The last warp of a block copies: it waits until a stage is empty, and begins the copies of the next tile's q, k, H and
V'. Two groups of four warps compute, every second tile each, so that one multiplies while the other masks or stores.
In a group:

- q k^T and q H^T from shared memory, the second still under way while P = lower((q k^T) * Gamma) is made in registers
- rows e^G times the second, plus P V' with P from registers
- a whole tile leaves through shared memory and a bulk tensor store, a tail row by row

Registers suffice without `setmaxnreg`: with 9 warps a thread may have 168, and heads of 128 take 134.
"""

from kernbench.benches._chunk_output_layout import ATOM_BYTES, ChunkOutputKernel, Layout, Stage
from kernbench.benches._chunk_output_sm90_group import GROUP, WARP, Group, Memory
from kernbench.common.errors import MisuseError
from kernbench.ptx.builder import Context, Pointer, Register
from kernbench.ptx.builder.issue import Value

SHARED_BYTES = 227 << 10


class HopperChunkOutput(ChunkOutputKernel):
    """TMA and wgmma; `groups` of four warps compute: by default two, or one if the stages are odd in number.

    A parity tells two phases apart, so a group must have seen the phase before the one it waits for: all tiles of a
    stage are one group's, which they are if `groups` divides `stages`.
    """

    name = "chunk_output_sm90"
    target = "sm_90a"
    idea = "one warp copies, groups of four multiply with wgmma and store"

    def __init__(self, layout: Layout, stages: int = 2, groups: int | None = None):
        super().__init__(layout, stages)
        self.groups = groups if groups is not None else 2 - stages % 2
        if self.groups not in (1, 2, 3) or stages % self.groups:
            raise MisuseError(f"groups = {groups!r} for {stages} stages: 1, 2 or 3, so that each has stages of its own")
        self.stage = Stage.of(layout)
        # barriers, and room to align what follows them
        needed = self.shared_bytes + ATOM_BYTES
        if needed > SHARED_BYTES:
            raise MisuseError(
                f"{stages} stages of {self.stage.nbytes} bytes and the outputs of {self.groups} groups need {needed} "
                f"bytes of shared memory, and a block has {SHARED_BYTES}: take fewer stages or groups, or smaller heads"
            )

    @property
    def threads(self) -> int:
        """The groups, and one warp that copies."""
        return self.groups * GROUP + WARP

    @property
    def shared_bytes(self) -> int:
        """The ring of stages, an output tile for each group, and its gates."""
        return self.stages * self.stage.nbytes + self.groups * Memory.nbytes(self.layout)

    def program(self, ctx: Context) -> None:
        """Barriers, then the roles."""
        _Block(ctx, self).run()


class _Block:
    """The kernel while it is built: the ring of stages, and who fills and empties it."""

    def __init__(self, ctx: Context, kernel: HopperChunkOutput):
        self.ctx, self.kernel, self.layout = ctx, kernel, kernel.layout
        self.full = ctx.mbarriers(kernel.stages, name="full")
        self.empty = ctx.mbarriers(kernel.stages, name="empty")
        self.ring = ctx.dynamic_shared("b8", align=ATOM_BYTES)
        self.head = ctx.ctaid_y
        self.total = ctx.load(ctx.pointer("total_chunks_ptr", "u32"))

    def run(self) -> None:
        """Barriers, then the roles."""
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
        ctx, layout, stage = self.ctx, self.layout, self.kernel.stage
        maps = {name: ctx.tensor_map(f"{name}_map") for name in "qkhv"}
        query_head = self.head // (layout.value_heads // layout.heads)
        turn = ctx.const(0, "u32")
        with ctx.loop(ctx.ctaid_x, self.total, ctx.nctaid_x) as chunk:
            tile = layout.tile(ctx, chunk)
            number, parity, memory = self.place(turn)
            full = self.full + number
            ctx.mbarrier_wait(self.empty[number], parity ^ 1)
            ctx.mbarrier_arrive_expect_tx(full, stage.nbytes)
            boxes: dict[str, tuple[int, Value, Register]] = {
                "q": (stage.q, tile.start, query_head),
                "k": (stage.k, tile.start, query_head),
                "h": (stage.h, 0, ctx.mad(chunk, layout.value_heads, self.head)),
                "v": (stage.v, tile.value_row, self.head),
            }
            for name, (offset, row, head) in boxes.items():
                ctx.tma_load(memory.shifted(offset), maps[name], (0, row, 0, head), full)
            turn += 1

    def compute(self) -> None:
        """A group of warps: the tiles that are its own, released as soon as they are multiplied."""
        ctx, kernel = self.ctx, self.kernel
        outputs = self.ring.shifted(kernel.stages * kernel.stage.nbytes)
        group = Group(ctx, self.layout, kernel.stage, Memory.of(ctx, outputs, self.layout, kernel.groups))
        turn = group.number.copy()
        first = ctx.mad(turn, ctx.nctaid_x, ctx.ctaid_x)
        with ctx.loop(first, self.total, ctx.nctaid_x * kernel.groups) as chunk:
            tile = self.layout.tile(ctx, chunk)
            number, parity, memory = self.place(turn)
            group.share_gates(tile)
            ctx.mbarrier_wait(self.full[number], parity)
            sums = group.multiply(tile, memory)
            ctx.mbarrier_arrive(self.empty[number], pred=group.lane == 0)
            group.store(tile, sums)
            turn += kernel.groups
        group.finish()

    def place(self, turn: Register) -> tuple[Register, Register, Pointer]:
        """Stage of the block's tile number `turn`, the parity of its barrier's phase while it is filled, its memory."""
        number = turn % self.kernel.stages
        return number, (turn // self.kernel.stages) & 1, self.ring + number * self.kernel.stage.nbytes
