"""The gated delta rule over whole sequences for sm_90a: a CTA walks a sequence for one value head.

The state [V, K] stays in registers, in f32, from the first chunk to the last. A group of four warps has 64 of its rows,
and with them 64 columns of everything that has V columns: groups need nothing of each other but the operands, which one
thread copies into a ring of stages. What a group does with a chunk (G are the cumulated gates, B the inverse of
`inverse`, S the state before the chunk, rounded, in shared memory):

1. X = k S^T, then the scores q k^T and the carried q S^T, which are under way while
2. Y = v - e^G X is made and rounded, and V' = B Y multiplied
3. the output e^G (q S^T) + lower((q k^T) e^(G[i] - G[j])) V'
4. the state e^(G[last]) S + (V' e^(G[last] - G))^T k, while the output leaves
"""

from kernbench.common.errors import MisuseError
from kernbench.kernels.gated_delta_rule.group import GROUP, Group, Memory, Operands
from kernbench.kernels.gated_delta_rule.shape import CHUNK, ForwardShape
from kernbench.ptx.builder import Context, PtxKernel, Register
from kernbench.ptx.text.module import Kernel

WARP = 32
SHARED_BYTES = 227 << 10
_SWIZZLE_BYTES = 1024
# registers of a thread that copies, and of one that computes
FEW, MANY = 40, 232
MAPS = ("q", "k", "v", "inverses", "out")
POINTERS = ("sequences", "gates", "initial", "final", "out")


class ForwardKernel:
    """The kernel of one shape, with `stages` chunks under way."""

    name = "gated_delta_forward"
    target = "sm_90a"

    def __init__(self, shape: ForwardShape, stages: int = 2):
        self.shape, self.stages = shape, stages
        if stages < 1 or stages & (stages - 1):
            raise MisuseError(f"stages = {stages!r}: a power of two is wanted")
        if self.shared_bytes + _SWIZZLE_BYTES > SHARED_BYTES:
            raise MisuseError(f"stages = {stages!r}: {self.shared_bytes} bytes of shared memory are too many for a CTA")

    @property
    def groups(self) -> int:
        """Groups of four warps that compute."""
        return self.shape.value_size // CHUNK

    @property
    def threads(self) -> int:
        """Threads of a CTA: the groups, and one of which a thread copies."""
        return (self.groups + 1) * GROUP

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory: the ring, and what each group has of its own."""
        return self.stages * Operands.nbytes(self.shape) + self.groups * Memory.nbytes(self.shape)

    def grid(self, sequences: int) -> tuple[int, int, int]:
        """Value heads, then sequences."""
        return self.shape.v_heads, sequences, 1

    def build(self, lines: bool = True) -> Kernel:
        """The kernel, built and checked; with `lines` it names those of its source."""
        kernel = PtxKernel(self.name, target=self.target, lines=lines).reqntid(self.threads)
        for name in MAPS:
            kernel.param("tensormap", f"{name}_map")
        for name in POINTERS:
            kernel.param("u64", f"{name}_ptr")
        return kernel.param("f32", "scale").build(self.program)

    def program(self, ctx: Context) -> None:
        """Barriers, then the roles."""
        _Cta(ctx, self).run()


class _Cta:
    """The kernel while it is built."""

    def __init__(self, ctx: Context, kernel: ForwardKernel):
        self.ctx, self.kernel, self.shape = ctx, kernel, kernel.shape
        self.full = ctx.mbarriers(kernel.stages, name="full")
        self.empty = ctx.mbarriers(kernel.stages, name="empty")
        self.memory = ctx.dynamic_shared("b8", align=_SWIZZLE_BYTES)
        self.ring = Operands.at(ctx, self.memory, self.shape, kernel.stages)
        record = ctx.load(ctx.pointer("sequences_ptr", "u32") + ctx.ctaid_y * 4, vec=4)
        self.row, self.rows, self.chunk, self.sequence = record
        self.count = (self.rows + (CHUNK - 1)) >> 6

    def run(self) -> None:
        """Barriers, then the roles."""
        ctx, computing = self.ctx, self.kernel.groups * GROUP
        with ctx.if_(ctx.tid_x == 0):
            for stage in range(self.kernel.stages):
                ctx.mbarrier_init(self.full[stage], 1)
                ctx.mbarrier_init(self.empty[stage], computing // WARP)
            ctx.fence_mbarrier_init()
        ctx.bar_sync()
        with ctx.if_(ctx.tid_x < computing):
            # with one group there are enough for all
            if self.kernel.groups > 1:
                ctx.setmaxnreg_inc(MANY)
            self.compute()
        with ctx.else_():
            if self.kernel.groups > 1:
                ctx.setmaxnreg_dec(FEW)
            with ctx.if_(ctx.tid_x == computing):
                self.copy()

    def position(self, turn: Register) -> tuple[Register, Register]:
        """Stage of chunk number `turn`, and the parity of its barrier's phase while it is filled."""
        # an assembler of PTX divides where it is asked to, also by two
        return turn & (self.kernel.stages - 1), (turn >> (self.kernel.stages.bit_length() - 1)) & 1

    def copy(self) -> None:
        """The copying thread: q, k, v and the inverse of each chunk, as soon as its stage is empty."""
        ctx, shape = self.ctx, self.shape
        maps = {name: ctx.tensor_map(f"{name}_map") for name in self.ring.tiles}
        head, shared = ctx.ctaid_x, ctx.ctaid_x // shape.group
        with ctx.loop(0, self.count) as number:
            stage, parity = self.position(number)
            full = self.full + stage
            ctx.mbarrier_wait(self.empty[stage], parity ^ 1)
            ctx.mbarrier_arrive_expect_tx(full, Operands.nbytes(shape), sem="relaxed")
            row = ctx.mad(number, CHUNK, self.row)
            item = ctx.mad(self.chunk + number, shape.v_heads, head)
            boxes = {
                "q": (0, row, 0, shared),
                "k": (0, row, 0, shared),
                "v": (0, row, 0, head),
                "inverses": (0, 0, item),
            }
            for name, box in boxes.items():
                ctx.tma_load(self.ring.tiles[name].stage(stage).pointer, maps[name], box, full)

    def compute(self) -> None:
        """A group: all chunks one after the other."""
        ctx, kernel = self.ctx, self.kernel
        own = self.memory.shifted(kernel.stages * Operands.nbytes(self.shape))
        group = Group(ctx, self.shape, self.ring, own, kernel.groups)
        state = ctx.mad(self.sequence, self.shape.v_heads, ctx.ctaid_x)
        group.look(self.row, ctx.min(self.rows, CHUNK))
        group.begin(state)
        left = self.rows.copy()
        with ctx.loop(0, self.count) as number:
            stage, parity = self.position(number)
            row = ctx.mad(number, CHUNK, self.row)
            length = ctx.min(left, CHUNK)
            group.share_gates(row, length)
            left -= length
            # the next chunk's come while this one is multiplied
            group.look(row + CHUNK, ctx.min(left, CHUNK))
            ctx.mbarrier_wait(self.full[stage], parity)
            group.multiply(stage)
            ctx.mbarrier_arrive(self.empty[stage], pred=group.lane == 0)
            group.keep_state()
        group.end(state)
