"""The gated delta rule over whole sequences for sm_90a: a CTA processes a segment of one for a value head.

The state [V, K] stays in registers, in f32, from the first chunk to the last. A group of four warps has 64 of its rows,
and with them 64 rows of everything that has V: all products are transposed, so that the left operand of every product,
including the state, is what the one before left in registers. Groups share only the operands, which one thread copies
into a ring of stages, and what another group precomputes: the weights P = lower((q k^T) e^(G[i] - G[j])), and powers
of G, the cumulated gates. The steps of a group for a chunk (B is the inverse of `inverse`, S the state before the
chunk, rounded):

1. X = S k^T, then S q^T, which is in flight while the output of the chunk before is stored and
2. Y = v^T - X e^G is computed and rounded, and V' = Y B^T multiplied
3. the state e^(G[last]) S + (V' e^(G[last] - G)) k, and after it
4. the output (S q^T) e^G + V' P^T, which is in flight while the next chunk begins

With few sequences and heads, a CTA has 64 rows of the state, and another the others. Sequences may also
be cut: the final state of a segment is its initial state times a matrix, plus what its tokens add, which does not
depend on it. The same kernel without queries computes both: the latter from zeros, and the matrix from the identity,
without values. `chain` then computes the initial state of each segment.
"""

from kernbench.common.errors import MisuseError
from kernbench.kernels.gated_delta_rule.group import AHEAD, GROUP, Between, Group, Operands
from kernbench.kernels.gated_delta_rule.shape import CHUNK, NOBODY, ForwardShape, parts_of
from kernbench.kernels.gated_delta_rule.weights import Weights
from kernbench.ptx.builder import FULL_MASK, Context, PtxKernel, Register
from kernbench.ptx.text.module import Kernel

WARP = 32
SHARED_BYTES = 227 << 10
_SWIZZLE_BYTES = 1024
# computing groups -> registers of a thread of theirs, of one that computes weights, and of one that copies
REGISTERS = {1: (240, 120, 24), 2: (208, 72, 24)}
# kind of kernel -> the operands of its chunks: the whole pass; the final state of a segment that begins with
# zeros; and the matrix by which it multiplies its initial state, which is the final state for the identity
OPERANDS = {
    "forward": ("q", "k", "v", "inverses"),
    "states": ("k", "v", "inverses"),
    "transfers": ("k", "inverses"),
}


class ForwardKernel:
    """The kernel of one shape, with `stages` chunks in flight, for one of `OPERANDS`; `parts` CTAs share a state."""

    target = "sm_90a"

    def __init__(self, shape: ForwardShape, stages: int | None = None, kind: str = "forward", parts: int = 1):
        self.shape, self.kind, self.operands = shape, kind, OPERANDS[kind]
        self.parts = min(parts, self.all_groups)
        self.name = f"gated_delta_{kind}"
        # with a single group a CTA needs more stages, as it processes a chunk faster than operands arrive
        self.stages = stages = stages if stages is not None else 4 // self.groups
        if stages < 1 or stages & (stages - 1):
            raise MisuseError(f"stages = {stages!r}: a power of two is wanted")
        if self.shared_bytes + 2 * _SWIZZLE_BYTES > SHARED_BYTES:
            raise MisuseError(f"stages = {stages!r}: {self.shared_bytes} bytes of shared memory are too many for a CTA")

    @classmethod
    def fitting(cls, shape: ForwardShape, segments: int, sms: int, kind: str = "forward") -> "ForwardKernel":
        """The variant whose CTAs finish first."""
        whole = cls(shape, kind=kind)
        return cls(shape, kind=kind, parts=parts_of(whole.all_groups, shape.v_heads * segments, sms))

    @property
    def all_groups(self) -> int:
        """Groups of four warps that have a state."""
        return (self.shape.value_size if "v" in self.operands else self.shape.key_size) // CHUNK

    @property
    def groups(self) -> int:
        """Computing groups of a CTA."""
        return self.all_groups // self.parts

    @property
    def threads(self) -> int:
        """Threads of a CTA: the computing groups, the one for weights, and one of which a single thread copies."""
        return (self.groups + 2) * GROUP

    @property
    def shared_bytes(self) -> int:
        """Dynamic shared memory: the ring, weights and outputs."""
        return self.stages * self.stage_bytes + Between.nbytes(self.groups, "q" in self.operands)

    @property
    def stage_bytes(self) -> int:
        """Bytes of the operands of a chunk."""
        return Operands.nbytes(self.shape, self.operands, self.groups)

    @property
    def maps(self) -> tuple[str, ...]:
        """Arrays behind the kernel's tensor maps, in order."""
        return *self.operands, *(("out",) if "q" in self.operands else ())

    @property
    def pointers(self) -> tuple[str, ...]:
        """Arrays of the kernel's further parameters, in order."""
        more = ("initial", "final", "out") if "q" in self.operands else (self.kind,)
        return "segments" if "q" in self.operands else "inner", "gates", *more

    def grid(self, segments: int) -> tuple[int, int, int]:
        """Parts of value heads, then segments."""
        return self.shape.v_heads * self.parts, segments, 1

    def build(self, lines: bool = True) -> Kernel:
        """The kernel, built and checked; with `lines` it has line information."""
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
        """Initialise barriers, then branch to the roles of the warps."""
        _Cta(ctx, self).run()


class _Cta:
    """The kernel under construction."""

    def __init__(self, ctx: Context, kernel: ForwardKernel):
        self.ctx, self.kernel, self.shape = ctx, kernel, kernel.shape
        self.full = ctx.mbarriers(kernel.stages, name="full")
        self.empty = ctx.mbarriers(kernel.stages, name="empty")
        memory = ctx.dynamic_shared("b8", align=_SWIZZLE_BYTES)
        self.ring = Operands.at(ctx, memory, self.shape, kernel.stages, kernel.operands, kernel.groups)
        self.between = Between(ctx, memory.shifted(kernel.stages * kernel.stage_bytes), self.shape)
        self.head, self.part = ctx.ctaid_x // kernel.parts, ctx.ctaid_x % kernel.parts
        record = ctx.pointer("segments_ptr", "u32") + ctx.ctaid_y * 8
        self.row, self.rows, self.chunk, self.first_state = ctx.load(record, vec=4)
        self.last_state = ctx.load(record[4])
        self.count = (self.rows + (CHUNK - 1)) >> 6

    def run(self) -> None:
        """Initialise barriers, then branch to the roles of the warps."""
        ctx, computing = self.ctx, self.kernel.groups * GROUP
        warps = computing // WARP
        with ctx.if_(ctx.tid_x == 0):
            for stage in range(self.kernel.stages):
                ctx.mbarrier_init(self.full[stage], 1)
                ctx.mbarrier_init(self.empty[stage], warps + GROUP // WARP)
            for buffer in range(AHEAD):
                ctx.mbarrier_init(self.between.ready[buffer], 1)
                ctx.mbarrier_init(self.between.free[buffer], warps)
            ctx.fence_mbarrier_init()
        ctx.bar_sync()
        many, some, few = REGISTERS[self.kernel.groups]
        with ctx.if_(ctx.tid_x < computing):
            ctx.setmaxnreg_inc(many)
            self.compute()
        with ctx.else_(), ctx.if_(ctx.tid_x < computing + GROUP):
            ctx.setmaxnreg_dec(some)
            self.weigh()
        with ctx.if_(ctx.tid_x >= computing + GROUP):
            ctx.setmaxnreg_dec(few)
            with ctx.if_(ctx.tid_x == computing + GROUP):
                self.copy()

    def position(self, turn: Register) -> tuple[Register, Register]:
        """Stage of chunk number `turn`, and the parity of its barrier's phase while it is filled."""
        return _position(turn, self.kernel.stages)

    def copy(self) -> None:
        """The copying thread: q, k, v and the inverse of each chunk, as soon as its stage is empty."""
        ctx, shape, groups = self.ctx, self.shape, self.kernel.groups
        maps = {name: ctx.tensor_map(f"{name}_map") for name in self.ring.tiles}
        shared = self.head // shape.group
        with ctx.loop(0, self.count) as number:
            stage, parity = self.position(number)
            full = self.full + stage
            ctx.mbarrier_wait(self.empty[stage], parity ^ 1)
            ctx.mbarrier_arrive_expect_tx(full, self.kernel.stage_bytes, sem="relaxed")
            row = ctx.mad(number, CHUNK, self.row)
            item = ctx.mad(self.chunk + number, shape.v_heads, self.head)
            boxes = {"q": (0, row, 0, shared), "k": (0, row, 0, shared), "inverses": (0, 0, item)}
            for name, tile in self.ring.tiles.items():
                target = tile.stage(stage)
                if name in boxes:
                    ctx.tma_load(target.pointer, maps[name], boxes[name], full)
                    continue
                for panel in range(groups):
                    span = ctx.mad(self.part, groups, panel)
                    ctx.tma_load(target.panel(panel), maps[name], (0, row, span, self.head), full)

    def weigh(self) -> None:
        """The group that computes weights ahead of the others."""
        ctx = self.ctx
        weights = Weights(ctx, self.shape, self.ring, self.between, self.head)
        weights.look(self.row, ctx.min(self.rows, CHUNK))
        left = self.rows.copy()
        with ctx.loop(0, self.count) as number:
            stage, parity = self.position(number)
            buffer, phase = _position(number, AHEAD)
            ctx.mbarrier_wait(self.between.free[buffer], phase ^ 1)
            weights.share_gates(buffer)
            length = ctx.min(left, CHUNK)
            left -= length
            # prefetch the next chunk's while this one is multiplied
            weights.look(ctx.mad(number, CHUNK, self.row) + CHUNK, ctx.min(left, CHUNK))
            ctx.mbarrier_wait(self.full[stage], parity)
            weights.make(stage, buffer, length)
            ctx.mbarrier_arrive(self.empty[stage], pred=weights.lane == 0)

    def compute(self) -> None:
        """A computing group: all chunks in order; the output of each is stored while the next is in flight."""
        ctx, kernel = self.ctx, self.kernel
        group = Group(ctx, self.shape, self.ring, self.between, self.head, self.part * kernel.groups)
        whole = "q" in kernel.operands
        group.begin(self._item(self.first_state) if whole else None)
        with ctx.loop(0, self.count) as number:
            stage, parity = self.position(number)
            buffer, phase = _position(number, AHEAD)
            ctx.mbarrier_wait(self.full[stage], parity)
            ctx.mbarrier_wait(self.between.ready[buffer], phase)
            group.recall(stage)
            if whole:
                group.carry(stage)
                with ctx.if_(number > 0):
                    group.store(ctx.mad(number - 1, CHUNK, self.row))
            group.change(stage, buffer)
            self._release(group, stage, buffer)
        if whole:
            self._last_output(group)
        final = ctx.pointer("final_ptr", "f32")
        wanted = (self.last_state != NOBODY) & (final.base != 0)
        group.end(self._item(self.last_state), wanted)

    def _release(self, group: Group, stage: Register, buffer: Register) -> None:
        """A warp has read all that it needs of a chunk."""
        ctx = self.ctx
        ctx.bar_warp_sync(FULL_MASK)
        ctx.mbarrier_arrive(self.empty[stage], pred=group.lane == 0)
        ctx.mbarrier_arrive(self.between.free[buffer], pred=group.lane == 0)

    def _last_output(self, group: Group) -> None:
        ctx = self.ctx
        with ctx.if_(self.count > 0):
            row = ctx.mad(self.count - 1, CHUNK, self.row)
            length = self.row + self.rows - row
            with ctx.if_(length == CHUNK):
                group.store(row)
            with ctx.else_():
                group.store_rows(row, length)

    def _item(self, number: Register) -> Register:
        """The index of a state of this value head."""
        return self.ctx.mad(number, self.shape.v_heads, self.head)


def _position(turn: Register, count: int) -> tuple[Register, Register]:
    """Stage of use number `turn` of a ring of `count`, and the parity of its phase."""
    # ptxas does not turn divisions into shifts, not even by two
    return turn & (count - 1), (turn >> (count.bit_length() - 1)) & 1
