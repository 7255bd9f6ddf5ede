"""The chunk output of the gated delta rule for sm_100a: ten warps with different roles, synchronised by mbarriers.

    copying thread      q, k, h, v of an item into a stage of the ring                   -> arrived_qk, arrived_hv
    multiplying thread  S = q k^T into tensor memory                                     -> scored
    masks (4 warps)     P = lower(S * Gamma) in bf16 into tensor memory                  -> masked
    multiplying thread  O1 = q h^T, O2 = P v                                             -> free (the stage), finished
    epilogue (4 warps)  scale (e^G O1 + O2) in bf16: whole tiles by TMA, tails by stores -> taken (the products)

The scores of item i + 1 are begun before the products of item i, so that the masks overlap with the tensor core.
"scored" of item i + 2 comes after the products of item i, and so also means that P may be overwritten; whoever has
waited for "masked" of item i knows that its S was read.

**M = 64.** A chunk has 64 rows, and two chunks or heads share no operand that M = 128 could use twice. An item is 96
KiB of traffic for 4 Mflop: memory is the limit, not the rate of the tensor core. With M = 64 products use 16 of each 32
lanes of tensor memory, so the two stages of S, P, O1 and O2 have the same columns and are in the two halves of the
lanes; A and D of a product must be in the same half anyway.

**Tails.** The tiles of a ragged chunk hold rows of the next sequence, or NaN. Those of q produce rows that are not
stored. Those of k produce columns of S above the diagonal, which are replaced by zeros, not multiplied by zero. Those
of v are multiplied by zeros of P, which keeps a NaN: the mask warps overwrite them in shared memory.
"""

from kernbench.benches.chunk_output.layout import CHUNK, ChunkOutputKernel, Layout
from kernbench.benches.chunk_output.sm100_parts import HALVES, TEAM, WARP, Barriers, Plan, Roles
from kernbench.benches.chunk_output.sm100_rows import finishes, lane_of, masks
from kernbench.benches.chunk_output.sm100_units import copies, multiplies
from kernbench.common.errors import MisuseError
from kernbench.ptx.builder import Context, Pointer, Register

_COPIES, _MULTIPLIES, _WARPS = 2 * TEAM, 2 * TEAM + WARP, 10
_COLUMNS = 512
_SHARED = 227 << 10


class BlackwellChunkOutput(ChunkOutputKernel):
    """Four warps each for masks and epilogue, a copying and a multiplying thread; `stages` items in shared memory."""

    name = "chunk_output_sm100"
    target = "sm_100a"
    idea = "tcgen05 with accumulators in tensor memory; warps that copy, multiply, mask and store"

    def __init__(self, layout: Layout, stages: int = 2):
        super().__init__(layout, stages)
        self.plan = Plan(layout, stages)
        sizes = f"K = {layout.key_size}, V = {layout.value_size}"
        if self.plan.allocated > _COLUMNS:
            raise MisuseError(
                f"{sizes}: the products need more than {_COLUMNS} columns of tensor memory; V is 192 at most"
            )
        if self.shared_bytes > _SHARED:
            raise MisuseError(
                f"{sizes} with {stages} stages: {self.shared_bytes} bytes of shared memory, a block has {_SHARED}: "
                + ("take fewer stages" if stages > 1 else "the heads are too large")
            )

    @property
    def threads(self) -> int:
        """Ten warps."""
        return _WARPS * WARP

    @property
    def shared_bytes(self) -> int:
        """The ring, and two tiles of output."""
        return self.plan.shared_bytes

    def program(self, ctx: Context) -> None:
        """Set up barriers and tensor memory, run the roles, free tensor memory."""
        thread = ctx.tid_x
        barriers, slot = self._barriers(ctx), ctx.shared("u32", 1, name="tensor_slot")
        gates = ctx.shared("f32", HALVES * CHUNK, name="gates")
        last = thread >= _MULTIPLIES
        self._set_up(ctx, thread, barriers)
        with ctx.if_(last):
            ctx.tcgen05_alloc(slot, self.plan.allocated)
            ctx.tcgen05_relinquish()
        ctx.bar_sync()
        roles = Roles(
            ctx=ctx,
            layout=self.layout,
            plan=self.plan,
            barriers=barriers,
            matrices=self.plan.place(ctx),
            tensor=ctx.tensor_memory(slot, self.plan.allocated),
            head=ctx.ctaid_y,
            total=ctx.load(ctx.pointer("total_chunks_ptr", "u32")),
        )
        self._play(roles, thread, gates)
        ctx.bar_sync()
        with ctx.if_(last):
            ctx.tcgen05_dealloc(roles.tensor)

    def _barriers(self, ctx: Context) -> Barriers:
        rings = dict.fromkeys(("arrived_qk", "arrived_hv", "free"), self.stages)
        sizes = rings | dict.fromkeys(("scored", "masked", "finished", "taken"), HALVES)
        return Barriers(**{name: ctx.mbarriers(count, name=name) for name, count in sizes.items()})

    def _set_up(self, ctx: Context, thread: Register, barriers: Barriers) -> None:
        """One thread initialises the barriers: all threads of a team arrive, single threads once each."""
        with ctx.if_(thread == 0):
            for name, array in vars(barriers).items():
                count = TEAM if name in ("masked", "taken") else 1
                for number in range(self.stages if name in ("arrived_qk", "arrived_hv", "free") else HALVES):
                    ctx.mbarrier_init(array[number], count)
            ctx.fence_mbarrier_init()

    def _play(self, roles: Roles, thread: Register, gates: Pointer) -> None:
        ctx = roles.ctx
        with ctx.if_(thread < TEAM):
            masks(roles, lane_of(ctx, thread), gates)
        with ctx.if_(thread - TEAM < TEAM):
            finishes(roles, lane_of(ctx, thread - TEAM))
        with ctx.if_(thread == _COPIES):
            copies(roles)
        with ctx.if_(thread == _MULTIPLIES):
            multiplies(roles)
