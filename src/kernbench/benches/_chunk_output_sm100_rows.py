"""The two teams of four warps of the sm_100a chunk-output kernel: masks between the products, and the epilogue.

Warp w of a team has rows 16 w to 16 w + 15, as they lie in its quarter of tensor memory: lane t has rows t / 4 and
t / 4 + 8 of them, and of every 8 columns the pair 2 (t % 4), 2 (t % 4) + 1. What is loaded so as f32 is stored so as
pairs of bf16: to tensor memory with half the columns, or as 8 x 8 matrices to shared memory.
"""

from dataclasses import dataclass

from kernbench.benches._chunk_output_layout import CHUNK, ROW_BYTES, SPAN, Tile
from kernbench.benches._chunk_output_sm100_parts import (
    HALVES,
    PANEL_BYTES,
    QUARTER,
    TEAM,
    WARP,
    Cursor,
    Roles,
)
from kernbench.ptx.builder import Context, Pointer, Predicate, Register
from kernbench.ptx.builder.pointer import Location

MASKS_MEET, EPILOGUE_MEETS = 1, 2
_GROUPS = SPAN // 8
_LOAD = f"tcgen05.ld.sync.aligned.16x256b.x{_GROUPS}.b32"
_STORE = f"tcgen05.st.sync.aligned.16x128b.x{_GROUPS}.b32"
_PIECE = 16


@dataclass(frozen=True)
class Lane:
    """Where a thread of a team is: in the team, its warp's lanes of tensor memory, its two rows, its first column."""

    ctx: Context
    thread: Register
    quarter: Register
    rows: tuple[Register, Register]
    column: Register

    def load(self, address: Register) -> list[Register]:
        """64 columns of its rows from tensor memory as f32: by groups of 8 columns, two of each row."""
        words = self.ctx.op(_LOAD, Location(address + self.quarter))
        return [word.bits("f32") for word in words]


def lane_of(ctx: Context, thread: Register) -> Lane:
    """The thread of a team with this number."""
    lane = thread % WARP
    row = thread // WARP * 16 + lane // 4
    return Lane(ctx, thread, thread // WARP * QUARTER, (row, row + 8), lane % 4 * 2)


def masks(roles: Roles, lane: Lane, gates: Pointer) -> None:
    """P of each item from its S: nothing above the diagonal, the rest decayed; `gates` is room for two tiles' gates."""
    ctx, barriers = roles.ctx, roles.barriers
    ring, half = Cursor(ctx, roles.plan.stages), Cursor(ctx, HALVES)
    with roles.items() as tile:
        mine = gates + half.stage * CHUNK
        _share_gates(roles, lane, tile, mine)
        ctx.mbarrier_wait(barriers.scored[half.stage], half.parity)
        ctx.op("tcgen05.fence::after_thread_sync")
        scores = lane.load(roles.place("s", half.stage))
        ctx.op("tcgen05.wait::ld.sync.aligned")
        weights = _decayed(lane, scores, mine)
        ctx.op(_STORE, Location(roles.place("p", half.stage) + lane.quarter), weights)
        ctx.op("tcgen05.wait::st.sync.aligned")
        ctx.op("tcgen05.fence::before_thread_sync")
        with ctx.if_(tile.length < CHUNK):
            ctx.mbarrier_wait(barriers.arrived_hv[ring.stage], ring.parity)
            _clear(roles, lane, tile, roles.tile("v", ring.stage))
        ctx.mbarrier_arrive(barriers.masked[half.stage])
        ring.advance()
        half.advance()


def _share_gates(roles: Roles, lane: Lane, tile: Tile, mine: Pointer) -> None:
    """The gates of a tile into shared memory, zeros where it has no rows; all masks meet."""
    ctx, row = roles.ctx, lane.thread
    with ctx.if_(row < CHUNK):
        gate = ctx.load(roles.gates(tile), row * roles.layout.value_heads, mask=row < tile.length, other=0.0)
        ctx.store(mine, gate, row)
    ctx.bar_sync(MASKS_MEET, TEAM)


def _decayed(lane: Lane, scores: list[Register], gates: Pointer) -> list[Register]:
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
            # above the diagonal the exponent may be large: it counts for nothing, and must not overflow
            decays = [ctx.exp(ctx.min(gate - other, 0.0)) for other in others]
            kept = [
                ctx.selp(score * decay, 0.0, last >= 8 * group + place)
                for place, (score, decay) in enumerate(zip(pair, decays, strict=True))
            ]
            found.append(ctx.cvt_pack("bf16x2", kept[1], kept[0]))
    return found


def _clear(roles: Roles, lane: Lane, tile: Tile, values: Pointer) -> None:
    """Zeros in the rows of v past the tile's end: half a line of each panel for every thread."""
    ctx = roles.ctx
    row = lane.thread // 2
    zero = ctx.const(0, "u32")
    line = values + (row * ROW_BYTES + lane.thread % 2 * (ROW_BYTES // 2))
    with ctx.if_(row >= tile.length):
        for panel in range(roles.layout.value_size // SPAN):
            for piece in range(0, ROW_BYTES // 2, _PIECE):
                ctx.store(line.shifted(panel * PANEL_BYTES + piece).retyped("u32"), (zero,) * 4)
    ctx.fence_proxy_async()


def finishes(roles: Roles, lane: Lane) -> None:
    """The output of each item from its two products."""
    ctx, barriers = roles.ctx, roles.barriers
    half, buffer = Cursor(ctx, HALVES), Cursor(ctx, 2)
    scale, first = ctx.param("scale"), lane.thread == 0
    with roles.items() as tile:
        factors = [scale * ctx.exp(_gate(roles, tile, row)) for row in lane.rows]
        ctx.mbarrier_wait(barriers.finished[half.stage], half.parity)
        ctx.op("tcgen05.fence::after_thread_sync")
        words = [_combined(roles, lane, half.stage, panel, factors, scale) for panel in range(_panels(roles))]
        ctx.op("tcgen05.fence::before_thread_sync")
        ctx.mbarrier_arrive(barriers.taken[half.stage])
        half.advance()
        with ctx.if_(tile.length == CHUNK):
            _store_tile(roles, lane, tile, words, buffer, first)
        with ctx.else_():
            _store_rows(roles, lane, tile, words)
    ctx.bulk_wait(0, read=True)


def _panels(roles: Roles) -> int:
    return roles.layout.value_size // SPAN


def _gate(roles: Roles, tile: Tile, row: Register) -> Register:
    place = row * roles.layout.value_heads
    return roles.ctx.load(roles.gates(tile), place, mask=row < tile.length, other=0.0)  # type: ignore[no-any-return]


def _combined(
    roles: Roles, lane: Lane, half: Register, panel: int, factors: list[Register], scale: Register
) -> list[Register]:
    """scale (e^G O1 + O2) of 64 columns, as pairs of bf16."""
    ctx = roles.ctx
    carried, inner = (lane.load(roles.place(name, half) + panel * SPAN) for name in ("carried", "inner"))
    ctx.op("tcgen05.wait::ld.sync.aligned")
    found = [
        ctx.fma(a, factors[number // 2 % 2], b * scale)
        for number, (a, b) in enumerate(zip(carried, inner, strict=True))
    ]
    return [ctx.cvt_pack("bf16x2", high, low) for low, high in zip(found[::2], found[1::2], strict=True)]


def _store_tile(
    roles: Roles, lane: Lane, tile: Tile, words: list[list[Register]], buffer: Cursor, first: Predicate
) -> None:
    """A whole tile by way of shared memory: the buffer is free when its last copy but one has read it."""
    ctx, nbytes = roles.ctx, roles.layout.value_bytes
    base = roles.tiles.shifted(roles.plan.output_offset) + buffer.stage * nbytes
    with ctx.if_(first):
        ctx.bulk_wait(1, read=True)
    ctx.bar_sync(EPILOGUE_MEETS, TEAM)
    # a lane gives the address of one line of the four matrices that are stored together: 16 rows, two groups of columns
    place = lane.thread % WARP
    row = lane.thread // WARP * 16 + place % 16
    line = base + row * ROW_BYTES
    for panel, pairs in enumerate(words):
        for group in range(0, _GROUPS, 2):
            piece = (place // 16 + group) ^ (row % 8)
            ctx.stmatrix((line + piece * _PIECE).shifted(panel * PANEL_BYTES), pairs[2 * group :][:4])
    ctx.fence_proxy_async()
    ctx.bar_sync(EPILOGUE_MEETS, TEAM)
    with ctx.if_(first):
        ctx.tma_store(ctx.tensor_map("o_map"), (0, tile.start, 0, roles.head), base)
        ctx.bulk_commit()
    buffer.advance()


def _store_rows(roles: Roles, lane: Lane, tile: Tile, words: list[list[Register]]) -> None:
    """The rows of a tail, each thread its own pairs of columns."""
    ctx, layout = roles.ctx, roles.layout
    out = ctx.pointer("o_ptr", "bf16")
    for upper, row in enumerate(lane.rows):
        start = ((tile.start + row) * layout.value_heads + roles.head) * layout.value_size + lane.column
        with ctx.if_(row < tile.length):
            place = (out + start).retyped("bf16x2")
            for panel, pairs in enumerate(words):
                for group in range(_GROUPS):
                    ctx.store(place, pairs[2 * group + upper], (panel * SPAN + 8 * group) // 2)
