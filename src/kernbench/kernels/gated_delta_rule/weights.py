"""The group of four warps that works ahead of the others: weights of a chunk's tokens, and powers of its gates."""

from kernbench.kernels.attention import LOG2_E, ROW_BYTES, first_element
from kernbench.kernels.gated_delta_rule.group import (
    AHEAD,
    DEPTH,
    GROUP,
    OCTET,
    PANEL_BYTES,
    PIECE_BYTES,
    WARP,
    WEIGHTS_BARRIER,
    Between,
    Operands,
)
from kernbench.kernels.gated_delta_rule.shape import CHUNK, ForwardShape
from kernbench.ptx.builder import Context, Pointer, Register


class Weights:
    """lower((q k^T) e^(G[i] - G[j])) times the scale, rounded, powers of G, and zeros past the end of a ragged
    chunk.
    """

    def __init__(self, ctx: Context, shape: ForwardShape, ring: Operands, between: Between, head: Register):
        self.ctx, self.shape, self.ring, self.between, self.head = ctx, shape, ring, between, head
        self.thread, self.lane = ctx.tid_x % GROUP, ctx.tid_x % WARP
        self.row, self.column = first_element(ctx, self.thread)
        self.gates = ctx.shared("f32", AHEAD * CHUNK, name="gates")
        self.gate = ctx.const(0.0, "f32")
        self.products = "q" in ring.tiles

    def meet(self) -> None:
        """A barrier of the group."""
        self.ctx.bar_sync(WEIGHTS_BARRIER, GROUP)

    def look(self, start: Register, length: Register) -> None:
        """Start loading G of a chunk's rows: of row number `thread`, past the end of the last one; nothing without
        rows.
        """
        ctx = self.ctx
        last = ctx.min(self.thread, length - 1)
        where = ctx.mad(start + last, self.shape.v_heads, self.head)
        wanted = (self.thread < CHUNK) & (length > 0)
        ctx.load(ctx.pointer("gates_ptr", "f32"), where, mask=wanted, out=self.gate)

    def share_gates(self, buffer: Register) -> None:
        """Write the loaded values, scaled for ex2, to shared memory."""
        first = buffer * CHUNK
        self.mine = self.gates + first
        self.ctx.store(self.mine, self.gate * LOG2_E, self.thread, mask=self.thread < CHUNK)
        self.meet()

    def make(self, stage: Register, buffer: Register, length: Register) -> None:
        """Compute the weights and powers of a chunk; they are visible to those that wait for `ready`."""
        ctx = self.ctx
        self._clear_tail(stage, length)
        with ctx.if_(self.thread < CHUNK):
            gate, last = ctx.load(self.mine, self.thread), ctx.load(self.mine[CHUNK - 1])
            target = ctx.mad(buffer, CHUNK, self.thread)
            decay = ctx.ex2(gate)
            ctx.store(self.between.decay, decay, target)
            if self.products:
                ctx.store(self.between.carried, decay * ctx.param("scale"), target)
            ctx.store(self.between.late, ctx.ex2(last - gate), target)
        if self.products:
            self._keep(self._weigh(self._scores(stage)), buffer)
        ctx.fence_proxy_async()
        self.meet()
        ctx.mbarrier_arrive(self.between.ready + buffer, pred=self.thread == 0)

    def _clear_tail(self, stage: Register, length: Register) -> None:
        """Set keys and values of the next sequence to zero: zero times NaN would be NaN."""
        ctx, threads = self.ctx, ROW_BYTES // PIECE_BYTES
        with ctx.if_(length < CHUNK):
            zero = ctx.const(0, "u32")
            for name in ("k", "v"):
                if name not in self.ring.tiles:
                    continue
                tile = self.ring.tiles[name].stage(stage)
                start = tile.pointer.retyped("u32")
                with ctx.loop(length + (self.thread >> 3), CHUNK, GROUP // threads) as row:
                    piece = start + ctx.mad(row, ROW_BYTES // 4, (self.thread & threads - 1) * (PIECE_BYTES // 4))
                    for panel in range(tile.panels):
                        ctx.store(piece.shifted(panel * PANEL_BYTES), (zero,) * (PIECE_BYTES // 4))
            ctx.fence_proxy_async()
            self.meet()

    def _scores(self, stage: Register) -> list[Register]:
        ctx, types = self.ctx, f"f32.{self.shape.dtype}.{self.shape.dtype}"
        q, k = (ctx.wgmma_descriptor(self.ring.tiles[name]).at(stage=stage) for name in ("q", "k"))
        scores = list(ctx.wgmma_accumulator(CHUNK))
        ctx.wgmma_fence()
        for depth in range(0, self.shape.key_size, DEPTH):
            ctx.wgmma(f"m64n{CHUNK}k{DEPTH}", scores, q.at(k=depth), k.at(k=depth), types=types, accumulate=depth > 0)
        ctx.wgmma_commit()
        ctx.wgmma_wait(0)
        return scores

    def _weigh(self, scores: list[Register]) -> list[Register]:
        """Two columns per register."""
        ctx, columns = self.ctx, self.mine + self.column
        own = [ctx.load(self.mine + self.row, half * OCTET) for half in range(2)]
        below, scale = self.row.to("s32") - self.column.to("s32"), ctx.param("scale")
        packed = []
        for octet in range(0, CHUNK, OCTET):
            others = ctx.load(columns[octet], vec=2)
            for half in range(2):
                pair = []
                for j, other in enumerate(others):
                    # above the diagonal the exponential may overflow
                    weight = scores[octet // 2 + 2 * half + j] * (ctx.ex2(own[half] - other) * scale)
                    pair.append(ctx.selp(weight, 0.0, below >= octet + j - half * OCTET))
                packed.append(ctx.cvt_pack(f"{self.shape.dtype}x2", pair[1], pair[0]).bits("b32"))
        return packed

    def _keep(self, packed: list[Register], buffer: Register) -> None:
        """Write the rows of tokens, swizzled."""
        panel = self.between.weights.stage(buffer).pointer.retyped("b8")
        row = ((self.thread >> 5) << 4) + (self.lane & 15)
        piece = ((self.lane >> 4) ^ (self.lane & 7)) * PIECE_BYTES
        for i in range(0, len(packed), 4):
            target: Pointer = panel + row * ROW_BYTES + (piece ^ i // 2 * PIECE_BYTES)
            self.ctx.stmatrix(target, packed[i : i + 4])
