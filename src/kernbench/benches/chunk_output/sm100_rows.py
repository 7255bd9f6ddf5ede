"""The two teams of four warps of the sm_100a chunk-output kernel: masks between the products, and the epilogue.

Warp w of a team has rows 16 w to 16 w + 15, in its quarter of tensor memory: lane t has rows t / 4 and
t / 4 + 8 of them, and the pair 2 (t % 4), 2 (t % 4) + 1 of every 8 columns. Values loaded in this layout as f32 are
stored in it as pairs of bf16: to tensor memory with half the columns, or as 8 x 8 matrices to shared memory.
"""

from dataclasses import dataclass

from kernbench.benches.chunk_output.layout import CHUNK, ROW_BYTES, SPAN, Tile, checkpoint_tile
from kernbench.benches.chunk_output.sm100_parts import HALVES, QUARTER_LANES, TEAM, WARP, Cursor, Roles
from kernbench.ptx.builder import Context, Pointer, Predicate, Register
from kernbench.ptx.builder.matrix.tcgen05 import TensorMemory
from kernbench.ptx.builder.matrix.tiles import Tile as Matrix

MASKS_MEET, EPILOGUE_MEETS = 1, 2
_GROUPS = SPAN // 8
_PIECE = 16


@dataclass(frozen=True)
class Lane:
    """The position of a thread in its team: index, quarter of tensor memory, its two rows, its first column."""

    ctx: Context
    thread: Register
    quarter: Register
    rows: tuple[Register, Register]
    column: Register

    def load(self, memory: TensorMemory) -> tuple[Register, ...]:
        """64 columns of its rows from tensor memory as f32: by groups of 8 columns, two of each row."""
        return self.ctx.tcgen05_ld(memory.at(lane=self.quarter), _GROUPS, shape="16x256b", type="f32")

    def store(self, memory: TensorMemory, pairs: list[Register]) -> None:
        """64 columns of its rows to tensor memory, as pairs of bf16."""
        self.ctx.tcgen05_st(memory.at(lane=self.quarter), pairs, shape="16x128b")


def lane_of(ctx: Context, thread: Register) -> Lane:
    """The thread of a team with this number."""
    lane, warp = thread % WARP, thread // WARP
    row = warp * 16 + lane // 4
    return Lane(ctx, thread, warp * QUARTER_LANES, (row, row + 8), lane % 4 * 2)


def masks(roles: Roles, lane: Lane, gates: Pointer) -> None:
    """Compute P of each item from its S: zeros above the diagonal, the rest decayed; `gates` has space for two
    tiles' gates.
    """
    ctx, barriers = roles.ctx, roles.barriers
    ring, half = Cursor(ctx, roles.plan.stages), Cursor(ctx, HALVES)
    with roles.items() as tile:
        mine = gates + half.stage * CHUNK
        _share_gates(roles, lane, tile, mine)
        ctx.mbarrier_wait(barriers.scored[half.stage], half.parity)
        ctx.tcgen05_fence_after()
        scores = lane.load(roles.accumulator("s", half.stage))
        ctx.tcgen05_wait_ld()
        checkpoint_tile(ctx, "scores", scores, tile, lane.rows[0], lane.column, square=True)
        p = _decayed(lane, scores, mine)
        checkpoint_tile(ctx, "p", p, tile, lane.rows[0], lane.column, square=True)
        lane.store(roles.accumulator("p", half.stage), p)
        ctx.tcgen05_wait_st()
        ctx.tcgen05_fence_before()
        with ctx.if_(tile.length < CHUNK):
            ctx.mbarrier_wait(barriers.arrived_hv[ring.stage], ring.parity)
            _clear(roles, lane, tile, roles.matrices["v"].stage(ring.stage))
        ctx.mbarrier_arrive(barriers.masked[half.stage])
        ring.advance()
        half.advance()


def _share_gates(roles: Roles, lane: Lane, tile: Tile, mine: Pointer) -> None:
    """Write the gates of a tile to shared memory, zeros for missing rows; ends with a barrier of all mask warps."""
    ctx, row = roles.ctx, lane.thread
    with ctx.if_(row < CHUNK):
        gate = ctx.load(roles.gates(tile), row * roles.layout.value_heads, mask=row < tile.length, other=0.0)
        ctx.store(mine, gate, row)
    ctx.bar_sync(MASKS_MEET, TEAM)


def _decayed(lane: Lane, scores: tuple[Register, ...], gates: Pointer) -> list[Register]:
    """lower(S * Gamma) as pairs of bf16."""
    ctx = lane.ctx
    own = [ctx.load(gates, row) for row in lane.rows]
    reach = [row.bits("s32") - lane.column.bits("s32") for row in lane.rows]
    columns = gates + lane.column
    found = []
    for group in range(_GROUPS):
        others = ctx.load(columns[8 * group], vec=2)
        for upper, (gate, last) in enumerate(zip(own, reach, strict=True)):
            pair = scores[4 * group + 2 * upper :][:2]
            # above the diagonal the exponent may be large: its result is not used, but must not overflow
            decays = [ctx.exp(ctx.min(gate - other, 0.0)) for other in others]
            kept = [
                ctx.selp(score * decay, 0.0, last >= 8 * group + number)
                for number, (score, decay) in enumerate(zip(pair, decays, strict=True))
            ]
            found.append(ctx.cvt_pack("bf16x2", kept[1], kept[0]))
    return found


def _clear(roles: Roles, lane: Lane, tile: Tile, values: Matrix) -> None:
    """Set the rows of v past the tile's end to zero: half a line of each panel for every thread."""
    ctx = roles.ctx
    row, half = lane.thread // 2, lane.thread % 2
    zero = ctx.const(0, "u32")
    with ctx.if_(row >= tile.length):
        offset = row * ROW_BYTES + half * (ROW_BYTES // 2)
        for panel in range(values.panels):
            line = values.panel(panel).retyped("b8") + offset
            for piece in range(0, ROW_BYTES // 2, _PIECE):
                ctx.store(line.shifted(piece).retyped("u32"), (zero,) * 4)
    ctx.fence_proxy_async()


def finishes(roles: Roles, lane: Lane) -> None:
    """The output of each item from its two products, which may be overwritten as soon as the last part is loaded."""
    ctx, barriers = roles.ctx, roles.barriers
    half, buffer = Cursor(ctx, HALVES), Cursor(ctx, 2)
    scale, first = ctx.param("scale"), lane.thread == 0
    with roles.items() as tile:
        factors = [scale * ctx.exp(_gate(roles, tile, row)) for row in lane.rows]
        ctx.mbarrier_wait(barriers.finished[half.stage], half.parity)
        ctx.tcgen05_fence_after()
        words = []
        for column in range(0, roles.layout.value_size, SPAN):
            carried, inner = (
                lane.load(roles.accumulator(name, half.stage).at(column=column)) for name in ("carried", "inner")
            )
            ctx.tcgen05_wait_ld()
            if column + SPAN == roles.layout.value_size:
                ctx.tcgen05_fence_before()
                ctx.mbarrier_arrive(barriers.taken[half.stage])
            words.append(_combined(ctx, carried, inner, factors, scale))
        half.advance()
        with ctx.if_(tile.length == CHUNK):
            _store_tile(roles, lane, tile, words, buffer, first)
        with ctx.else_():
            _store_rows(roles, lane, tile, words)
    ctx.bulk_wait(0, read=True)


def _gate(roles: Roles, tile: Tile, row: Register) -> Register:
    element = row * roles.layout.value_heads
    return roles.ctx.load(roles.gates(tile), element, mask=row < tile.length, other=0.0)  # type: ignore[no-any-return]


def _combined(
    ctx: Context,
    carried: tuple[Register, ...],
    inner: tuple[Register, ...],
    factors: list[Register],
    scale: Register,
) -> list[Register]:
    """scale (e^G O1 + O2) of 64 columns, as pairs of bf16."""
    found = [
        ctx.fma(a, factors[number // 2 % 2], b * scale)
        for number, (a, b) in enumerate(zip(carried, inner, strict=True))
    ]
    return [ctx.cvt_pack("bf16x2", high, low) for low, high in zip(found[::2], found[1::2], strict=True)]


def _store_tile(
    roles: Roles, lane: Lane, tile: Tile, words: list[list[Register]], buffer: Cursor, first: Predicate
) -> None:
    """Store a whole tile through shared memory: the buffer is free when its last copy but one has read it."""
    ctx, output = roles.ctx, roles.matrices["o"].stage(buffer.stage)
    with ctx.if_(first):
        ctx.bulk_wait(1, read=True)
    ctx.bar_sync(EPILOGUE_MEETS, TEAM)
    # a lane gives the address of one line of the four matrices that are stored together: 16 rows, two groups of columns
    lane_number = lane.thread % WARP
    row = lane.thread // WARP * 16 + lane_number % 16
    for panel, pairs in enumerate(words):
        line = output.panel(panel).retyped("b8") + row * ROW_BYTES
        for group in range(0, _GROUPS, 2):
            piece = (lane_number // 16 + group) ^ (row % 8)
            ctx.stmatrix(line + piece * _PIECE, pairs[2 * group :][:4])
    ctx.fence_proxy_async()
    ctx.bar_sync(EPILOGUE_MEETS, TEAM)
    with ctx.if_(first):
        ctx.tma_store(ctx.tensor_map("o_map"), (0, tile.start, 0, roles.head), output.pointer)
        ctx.bulk_commit()
    buffer.advance()


def _store_rows(roles: Roles, lane: Lane, tile: Tile, words: list[list[Register]]) -> None:
    """Store the rows of a ragged chunk, each thread its own pairs of columns."""
    ctx, layout = roles.ctx, roles.layout
    out = ctx.pointer("o_ptr", "bf16")
    for upper, row in enumerate(lane.rows):
        start = ((tile.start + row) * layout.value_heads + roles.head) * layout.value_size + lane.column
        with ctx.if_(row < tile.length):
            pairs_out = (out + start).retyped("bf16x2")
            for panel, pairs in enumerate(words):
                for group in range(_GROUPS):
                    ctx.store(pairs_out, pairs[2 * group + upper], (panel * SPAN + 8 * group) // 2)
