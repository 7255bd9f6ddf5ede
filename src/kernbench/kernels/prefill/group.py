"""A group of computing warps of the prefill kernel: scores, softmax, sums, and the output of 64 query rows."""

from dataclasses import dataclass, fields

from kernbench.kernels.attention import LN_2, LOWEST, ROW_BYTES, SPAN, first_element
from kernbench.kernels.prefill.shape import GROUP_ROWS, PrefillShape
from kernbench.ptx.builder import FULL_MASK, Context, Pointer, Register
from kernbench.ptx.builder.matrix.tiles import Tile as Matrix

WARP, GROUP = 32, 128
DEPTH, OCTET = 16, 8
PIECE_BYTES = 16
# barrier numbers: of each group, of its turn, and of both
_MEETING, _TURN, _BOTH = 1, 3, 5


@dataclass(frozen=True)
class Tile:
    """A tile's record, in registers: see `PrefillPlan`."""

    query: Register
    rows: Register
    head: Register
    key: Register
    keys: Register
    at: Register
    first: Register
    count: Register

    @classmethod
    def load(cls, ctx: Context, index: Register) -> "Tile":
        """Load tile number `index`."""
        record = ctx.pointer("records_ptr", "u32") + index * 8
        return cls(*ctx.load(record, vec=4), *ctx.load(record[4], vec=4))

    def set(self, other: "Tile") -> None:
        """Become another tile."""
        for field in fields(self):
            getattr(self, field.name).set(getattr(other, field.name))


class Group:
    """Four warps with 16 rows each: a lane has two columns of every eight, in two rows eight apart."""

    def __init__(self, ctx: Context, shape: PrefillShape, q: Matrix, k: Matrix, v: Matrix, turns: bool):
        self.ctx, self.shape, self.turns = ctx, shape, turns
        self.number, self.thread, self.lane = ctx.tid_x // GROUP, ctx.tid_x % GROUP, ctx.tid_x % WARP
        self.row, self.column = first_element(ctx, self.thread)
        self.values = v
        # this group's rows in every panel of the first stage of q, and the offset to this tile's stage
        self.own = q.pointer.retyped("b8") + self.number * (GROUP_ROWS * ROW_BYTES)
        self.panel_bytes, self.stage_bytes = q.panel_bytes, q.nbytes
        self.slot = ctx.const(0, "u32")
        mine = Matrix(self.own, q.type, q.rows, q.depth, stages=q.stages)
        self.q, self.k, self.v = ctx.wgmma_descriptor(mine), ctx.wgmma_descriptor(k), ctx.wgmma_descriptor(v)
        self.scale = ctx.param("scale_log2")
        self.before_tanh = ctx.param("before_tanh") if shape.softcap else None
        self.scores = list(ctx.wgmma_accumulator(shape.keys))
        self.sums = list(ctx.wgmma_accumulator(shape.head_size))
        self.weights = [ctx.const(0, "b32") for _ in range(shape.keys // 4)]
        self.largest = [ctx.const(LOWEST, "f32") for _ in range(2)]
        self.total = [ctx.const(0.0, "f32") for _ in range(2)]
        self.correction = [ctx.const(1.0, "f32") for _ in range(2)]
        self.types = f"f32.{shape.dtype}.{shape.dtype}"

    # Turns of the two groups

    def enter(self) -> None:
        """The second group gives the first its turn."""
        if self.turns:
            with self.ctx.if_(self.number == 1):
                self.ctx.bar_arrive(_TURN, 2 * GROUP)

    def take_turn(self) -> None:
        """Wait until the other group has begun its products."""
        if self.turns:
            self.ctx.bar_sync(self.number + _TURN, 2 * GROUP)

    def give_turn(self) -> None:
        """Let the other group begin."""
        if self.turns:
            self.ctx.bar_arrive((self.number ^ 1) + _TURN, 2 * GROUP)

    def leave(self) -> None:
        """Take the last turn given by the other group, so that its barrier is completed."""
        if self.turns:
            with self.ctx.if_(self.number == 0):
                self.ctx.bar_sync(_TURN, 2 * GROUP)

    # Products

    def begin(self, slot: Register) -> None:
        """Reset the state; the queries are in stage `slot`."""
        self.slot.set(slot)
        for half in range(2):
            self.largest[half].set(LOWEST)
            self.total[half].set(0.0)
        for register in self.sums:
            register.set(0.0)

    def begin_scores(self, stage: Register) -> None:
        """Begin q k^T of a stage."""
        ctx, keys = self.ctx, self.k.at(stage=stage)
        queries = self.q.at(stage=self.slot)
        ctx.wgmma_fence()
        for depth in range(0, self.shape.head_size, DEPTH):
            ctx.wgmma(
                f"m64n{self.shape.keys}k{DEPTH}",
                self.scores,
                queries.at(k=depth),
                keys.at(k=depth),
                types=self.types,
                accumulate=depth > 0,
            )
        ctx.wgmma_commit()

    def begin_sums(self, stage: Register) -> None:
        """Begin the product of the weights with the values of a stage."""
        ctx, values = self.ctx, self.v.at(stage=stage)
        ctx.wgmma_fence()
        for depth in range(0, self.shape.keys, DEPTH):
            left = self.weights[depth // 4 : depth // 4 + 4]
            ctx.wgmma(f"m64n{self.shape.head_size}k{DEPTH}", self.sums, left, values.at(k=depth), types=self.types)
        ctx.wgmma_commit()

    def wait(self, groups: int) -> None:
        """Wait until at most this many products are in flight."""
        self.ctx.wgmma_wait(groups)

    # Softmax

    def weigh(self, tile: Tile, number: Register) -> None:
        """Turn the scores of tile `number` of keys into weights in f32; update maxima and totals."""
        ctx = self.ctx
        if self.before_tanh is not None:
            for i, score in enumerate(self.scores):
                self.scores[i].set(ctx.tanh(score * self.before_tanh))
        self._mask(tile, number)
        parts = [self._weigh_row(half) for half in range(2)]
        # Never true: sums of weights are not negative. ptxas may move the wait for the sums before whatever does
        # not depend on it, and so before all of this; it cannot move it before a branch that needs every weight.
        with ctx.if_(parts[0] + parts[1] < 0.0):
            ctx.nanosleep(0)

    def _weigh_row(self, half: int) -> Register:
        """One of a lane's two rows; the sum of its weights."""
        ctx = self.ctx
        mine = [i for i in range(len(self.scores)) if i // 2 % 2 == half]
        # four chains at a time: a single one would be limited by latency
        chains = [ctx.max(self.scores[mine[i]], self.scores[mine[i + 4]]) for i in range(4)]
        for n, i in enumerate(mine[8:]):
            ctx.max_(chains[n % 4], self.scores[i])
        new = ctx.max(ctx.max(chains[0], chains[1]), ctx.max(chains[2], chains[3]))
        for step in (1, 2):
            ctx.max_(new, ctx.shfl_bfly(new, step, mask=FULL_MASK))
        ctx.max_(new, self.largest[half])
        self.correction[half].set(ctx.ex2((self.largest[half] - new) * self.scale, ftz=True))
        self.largest[half].set(new)
        below = -(new * self.scale)
        parts = []
        for n, i in enumerate(mine):
            self.scores[i].set(ctx.ex2(ctx.fma(self.scores[i], self.scale, below), ftz=True))
            if n < 4:
                parts.append(self.scores[i].copy())
            else:
                parts[n % 4] += self.scores[i]
        part = (parts[0] + parts[1]) + (parts[2] + parts[3])
        ctx.fma(self.total[half], self.correction[half], part, out=self.total[half])
        return part

    def correct(self) -> None:
        """Rescale the sums to the new maxima; for most tiles no row of a warp has a new one."""
        ctx = self.ctx
        # corrections are at most 1
        with ctx.if_(ctx.vote_any(self.correction[0] + self.correction[1] != 2.0, mask=FULL_MASK)):
            for i, register in enumerate(self.sums):
                register *= self.correction[i // 2 % 2]

    def pack(self) -> None:
        """Convert the weights to operands of the product with the values. No product may be in flight."""
        ctx = self.ctx
        for i in range(0, len(self.scores), 2):
            self.weights[i // 2].set(
                ctx.cvt_pack(f"{self.shape.dtype}x2", self.scores[i + 1], self.scores[i]).bits("b32")
            )

    def _mask(self, tile: Tile, number: Register) -> None:
        """Set scores of keys that a row does not see to minus infinity; most tiles are seen completely by all rows."""
        ctx, shape = self.ctx, self.shape
        first = number * shape.keys
        mine = (tile.at + self.number * GROUP_ROWS).to("s32")
        partly = first + shape.keys > tile.keys
        if shape.causal:
            partly = partly | (first.to("s32") + shape.keys - 1 > mine)
        if shape.window:
            partly = partly | (first.to("s32") <= mine + (GROUP_ROWS - 1 - shape.window))
        with ctx.if_(partly):
            # the last key that each row sees, relative to this lane's first column of the tile
            left = (tile.keys - first).to("s32") - self.column.to("s32") - 1
            own = mine + self.row.to("s32") - first.to("s32") - self.column.to("s32")
            for half in range(2):
                until = ctx.min(left, own + half * OCTET) if shape.causal else left
                since = own + half * OCTET - (shape.window - 1) if shape.window else None
                for i in range(len(self.scores)):
                    if i // 2 % 2 == half:
                        column = OCTET * (i // 4) + i % 2
                        seen = until >= column
                        if since is not None:
                            seen = seen & (since <= column)
                        self.scores[i].set(ctx.selp(self.scores[i], float("-inf"), seen))

    def clear_values(self, stage: Register, tile: Tile) -> None:
        """Set values of missing keys to zero: zero times NaN would be NaN. Both groups, half the rows each."""
        ctx, shape = self.ctx, self.shape
        zero = ctx.const(0, "u32")
        rows = self.values.stage(stage).pointer.retyped("u32")
        left = tile.keys - (tile.first + tile.count - 1) * shape.keys
        threads = ROW_BYTES // PIECE_BYTES
        with ctx.loop(left + ctx.tid_x // threads, shape.keys, 2 * GROUP // threads) as row:
            piece = rows + ctx.mad(row, ROW_BYTES // 4, ctx.tid_x % threads * (PIECE_BYTES // 4))
            for span in range(shape.spans):
                ctx.store(piece.shifted(span * shape.keys * ROW_BYTES), (zero,) * (PIECE_BYTES // 4))
        ctx.fence_proxy_async()
        ctx.bar_sync(_BOTH, 2 * GROUP)

    # The output

    def finish(self, tile: Tile) -> None:
        """Sums divided by their totals: whole tiles by a bulk store, ragged ones row by row."""
        ctx = self.ctx
        inverse = []
        for half in range(2):
            total = self.total[half]
            for step in (1, 2):
                total += ctx.shfl_bfly(total, step, mask=FULL_MASK)
            inverse.append(ctx.selp(ctx.rcp(total), 0.0, total > 0.0))
        scaled = [value * inverse[i // 2 % 2] for i, value in enumerate(self.sums)]
        packed = [
            ctx.cvt_pack(f"{self.shape.dtype}x2", scaled[i + 1], scaled[i]).bits("b32")
            for i in range(0, len(scaled), 2)
        ]
        if self.shape.lse:
            self._store_logarithms(tile)
        with ctx.if_(tile.rows >= (self.number + 1) * GROUP_ROWS):
            self._store_whole(tile, packed)
        with ctx.else_():
            self._store_rows(tile, packed)
            # all have multiplied with the queries: one thread may release them
            ctx.bar_sync(self.number + _MEETING, GROUP)

    def release(self, empty: Pointer) -> None:
        """Release the queries' memory when the output staged in it has been read."""
        ctx = self.ctx
        with ctx.if_(self.thread == 0):
            ctx.bulk_wait(0, read=True)
            ctx.mbarrier_arrive(empty)

    def end(self) -> None:
        """The last output was read before the shared memory is freed."""
        with self.ctx.if_(self.thread == 0):
            self.ctx.bulk_wait(0, read=True)

    def _store_whole(self, tile: Tile, packed: list[Register]) -> None:
        """Through the shared memory of this group's queries, which are no longer read."""
        ctx = self.ctx
        row = self.thread // WARP * DEPTH + (self.lane & 15)
        own = self.own + self.slot * self.stage_bytes
        start = own + row * ROW_BYTES
        piece = ((self.lane >> 4) ^ (self.lane & 7)) * PIECE_BYTES
        for i in range(0, len(packed), 4):
            span, octet = divmod(i // 2, SPAN // OCTET)
            target = start + (piece ^ octet * PIECE_BYTES)
            ctx.stmatrix(target.shifted(span * self.panel_bytes), packed[i : i + 4])
        ctx.fence_proxy_async()
        ctx.bar_sync(self.number + _MEETING, GROUP)
        with ctx.if_(self.thread == 0):
            output = ctx.tensor_map("o_map")
            for span in range(self.shape.spans):
                where = (0, tile.query + self.number * GROUP_ROWS, span, tile.head)
                ctx.tma_store(output, where, own.shifted(span * self.panel_bytes))
            ctx.bulk_commit()

    def _store_rows(self, tile: Tile, packed: list[Register]) -> None:
        ctx, shape = self.ctx, self.shape
        out: Pointer = ctx.pointer("out_ptr", "b32")
        for half in range(2):
            row = self.number * GROUP_ROWS + self.row + half * OCTET
            element = ctx.mad(tile.query + row, shape.heads, tile.head) * (shape.head_size // 2)
            target = out + (element + self.column // 2)
            for i in range(half, len(packed), 2):
                ctx.store(target[i // 2 * (OCTET // 2)], packed[i], mask=row < tile.rows)

    def _store_logarithms(self, tile: Tile) -> None:
        """Logarithms of the sums of both rows; the first of the four lanes that have them writes. Minus infinity
        without keys.
        """
        ctx = self.ctx
        lse = ctx.pointer("lse_ptr", "f32")
        for half in range(2):
            row = self.number * GROUP_ROWS + self.row + half * OCTET
            value = ctx.fma(self.largest[half], self.scale, ctx.lg2(self.total[half])) * LN_2
            where = ctx.mad(tile.query + row, self.shape.heads, tile.head)
            with ctx.if_((self.column == 0) & (row < tile.rows)):
                ctx.store(lse, value, where)
