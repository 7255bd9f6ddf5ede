"""The gated delta rule over whole sequences for sm_90a: a CTA walks a segment of one for a value head.

The state [V, K] stays in registers, in f32, from the first chunk to the last. A group of four warps has 64 of its rows,
and with them 64 columns of everything that has V columns: groups need nothing of each other but the operands, which one
thread copies into a ring of stages. What a group does with a chunk (G are the cumulated gates, B the inverse of
`inverse`, S the state before the chunk, rounded, in shared memory):

1. X = k S^T, then the scores q k^T and the carried q S^T, which are under way while
2. Y = v - e^G X is made and rounded, and V' = B Y multiplied
3. the output e^G (q S^T) + lower((q k^T) e^(G[i] - G[j])) V'
4. the state e^(G[last]) S + (V' e^(G[last] - G))^T k, while the output leaves

A state that a segment begins with comes out of it multiplied with a matrix, and what its tokens add does not depend on
it. The same kernel without queries makes both: from zeros what is added, and from the identity, without values, the
matrix. `chain` then finds the state that each segment begins with.
"""

from kernbench.common.errors import MisuseError
from kernbench.kernels.gated_delta_rule.group import GROUP, Group, Memory, Operands
from kernbench.kernels.gated_delta_rule.shape import CHUNK, NOBODY, ForwardShape
from kernbench.ptx.builder import Context, PtxKernel, Register
from kernbench.ptx.text.module import Kernel

WARP = 32
SHARED_BYTES = 227 << 10
_SWIZZLE_BYTES = 1024
# registers of a thread that copies, and of one that computes
FEW, MANY = 40, 232
# what a kernel is for -> the operands of its chunks: the whole; the state that a segment ends with when it begins with
# zeros; and the matrix that it multiplies a state with that it begins with, which is where the identity ends
OPERANDS = {
    "forward": ("q", "k", "v", "inverses"),
    "states": ("k", "v", "inverses"),
    "transfers": ("k", "inverses"),
}


class ForwardKernel:
    """The kernel of one shape, with `stages` chunks under way, for one of `OPERANDS`."""

    target = "sm_90a"

    def __init__(self, shape: ForwardShape, stages: int = 2, kind: str = "forward"):
        self.shape, self.stages, self.kind, self.operands = shape, stages, kind, OPERANDS[kind]
        self.name = f"gated_delta_{kind}"
        if stages < 1 or stages & (stages - 1):
            raise MisuseError(f"stages = {stages!r}: a power of two is wanted")
        if self.shared_bytes + _SWIZZLE_BYTES > SHARED_BYTES:
            raise MisuseError(f"stages = {stages!r}: {self.shared_bytes} bytes of shared memory are too many for a CTA")

    @property
    def groups(self) -> int:
        """Groups of four warps that compute."""
        return (self.shape.value_size if "v" in self.operands else self.shape.key_size) // CHUNK

    @property
    def threads(self) -> int:
        """Threads of a CTA: the groups, and one of which a thread copies."""
        return (self.groups + 1) * GROUP

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory: the ring, and what each group has of its own."""
        return self.stages * self.stage_bytes + self.groups * Memory.nbytes(self.shape)

    @property
    def stage_bytes(self) -> int:
        """The operands of a chunk."""
        return Operands.nbytes(self.shape, self.operands)

    @property
    def maps(self) -> tuple[str, ...]:
        """Arrays that the kernel has tensor maps of, in this order."""
        return *self.operands, *(("out",) if "q" in self.operands else ())

    @property
    def pointers(self) -> tuple[str, ...]:
        """Arrays that the kernel is given behind them, in this order."""
        more = ("initial", "final", "out") if "q" in self.operands else (self.kind,)
        return "segments" if "q" in self.operands else "inner", "gates", *more

    def grid(self, segments: int) -> tuple[int, int, int]:
        """Value heads, then segments."""
        return self.shape.v_heads, segments, 1

    def build(self, lines: bool = True) -> Kernel:
        """The kernel, built and checked; with `lines` it names those of its source."""
        kernel = PtxKernel(self.name, target=self.target, lines=lines).reqntid(self.threads)
        for name in self.maps:
            kernel.param("tensormap", f"{name}_map")
        names = {"segments": "segments", "inner": "segments", self.kind: "final"}
        for name in self.pointers:
            kernel.param("u64", f"{names.get(name, name)}_ptr")
        if "q" in self.operands:
            kernel.param("f32", "scale")
        return kernel.build(self.program)

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
        self.ring = Operands.at(ctx, self.memory, self.shape, kernel.stages, kernel.operands)
        record = ctx.pointer("segments_ptr", "u32") + ctx.ctaid_y * 8
        self.row, self.rows, self.chunk, self.first_state = ctx.load(record, vec=4)
        self.last_state = ctx.load(record[4])
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
            ctx.mbarrier_arrive_expect_tx(full, self.kernel.stage_bytes, sem="relaxed")
            row = ctx.mad(number, CHUNK, self.row)
            item = ctx.mad(self.chunk + number, shape.v_heads, head)
            boxes = {
                "q": (0, row, 0, shared),
                "k": (0, row, 0, shared),
                "v": (0, row, 0, head),
                "inverses": (0, 0, item),
            }
            for name, tile in self.ring.tiles.items():
                ctx.tma_load(tile.stage(stage).pointer, maps[name], boxes[name], full)

    def compute(self) -> None:
        """A group: all chunks one after the other."""
        ctx, kernel = self.ctx, self.kernel
        own = self.memory.shifted(kernel.stages * kernel.stage_bytes)
        group = Group(ctx, self.shape, self.ring, own, kernel.groups)
        group.look(self.row, ctx.min(self.rows, CHUNK))
        whole = "q" in kernel.operands
        group.begin(self._item(self.first_state) if whole else None)
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
        final = ctx.pointer("final_ptr", "f32")
        wanted = (self.last_state != NOBODY) & (final.base != 0)
        group.end(self._item(self.last_state), wanted)

    def _item(self, number: Register) -> Register:
        """The number of a state of this value head."""
        return self.ctx.mad(number, self.shape.v_heads, self.ctx.ctaid_x)
