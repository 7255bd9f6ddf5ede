"""The two single threads of the sm_100a chunk-output kernel: one begins copies, the other begins products."""

from collections.abc import Sequence
from typing import Any

from kernbench.benches._chunk_output_layout import CHUNK, ROW_BYTES, SPAN
from kernbench.benches._chunk_output_sm100_parts import HALVES, PANEL_BYTES, Cursor, Roles
from kernbench.ptx.builder import Context, Register
from kernbench.ptx.builder.issue import Value
from kernbench.ptx.builder.pointer import Location

# rows of a swizzle's pattern, and depth of one product
_LINES, _DEPTH = 8, 16
# formats in an instruction's descriptor
_BF16_TO_F32 = 1 << 4 | 1 << 7 | 1 << 10
_COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64"
_MULTIPLY = "tcgen05.mma.cta_group::1.kind::f16"


def copies(roles: Roles) -> None:
    """The four tiles of each work item, as soon as their stage is free."""
    ctx, layout, barriers = roles.ctx, roles.layout, roles.barriers
    maps = {name: ctx.tensor_map(f"{name}_map") for name in "qkhv"}
    query_head = roles.head // (layout.value_heads // layout.heads)
    ring = Cursor(ctx, roles.plan.stages, parity=1)
    with roles.items() as tile:
        state = tile.chunk * layout.value_heads + roles.head
        # row and head (or state) of each tile's box
        boxes: dict[str, tuple[Value, Register]] = {
            "q": (tile.start, query_head),
            "k": (tile.start, query_head),
            "h": (0, state),
            "v": (tile.value_row, roles.head),
        }
        ctx.mbarrier_wait(barriers.free[ring.stage], ring.parity)
        for names, barrier, nbytes in (
            ("qk", barriers.arrived_qk, 2 * layout.key_bytes),
            ("hv", barriers.arrived_hv, layout.state_bytes + layout.value_bytes),
        ):
            done = barrier[ring.stage]
            ctx.mbarrier_arrive_expect_tx(done, nbytes)
            for name in names:
                row, head = boxes[name]
                ctx.tma_load(roles.tile(name, ring.stage), maps[name], (0, row, 0, head), done)
        ring.advance()


def multiplies(roles: Roles) -> None:
    """In turn the scores of an item and the products of the item before it, so that its masks have time.

    With one stage there is no second item in shared memory: its products come first.
    """
    ctx, stages = roles.ctx, roles.plan.stages
    items = (roles.total + ctx.nctaid_x - 1 - ctx.ctaid_x) // ctx.nctaid_x
    lead = min(1, stages - 1)
    scored, multiplied = ((Cursor(ctx, stages), Cursor(ctx, HALVES)) for _ in range(2))
    with ctx.loop(0, items + lead) as turn:
        with ctx.if_(turn < items):
            _scores(roles, *scored)
        with ctx.if_(turn >= lead):
            _products(roles, *multiplied)


def _scores(roles: Roles, ring: Cursor, half: Cursor) -> None:
    """S = q k^T of one item."""
    ctx, barriers = roles.ctx, roles.barriers
    ctx.mbarrier_wait(barriers.arrived_qk[ring.stage], ring.parity)
    q, k = (_along_depth(ctx, roles.tile(name, ring.stage).address) for name in ("q", "k"))
    steps = [_along(CHUNK, at) for at in range(roles.layout.key_size // _DEPTH)]
    _multiply(ctx, roles.place("s", half.stage), [q + at for at in steps], [k + at for at in steps], CHUNK)
    ctx.op(_COMMIT, barriers.scored[half.stage])
    ring.advance()
    half.advance()


def _products(roles: Roles, ring: Cursor, half: Cursor) -> None:
    """O1 = q h^T and O2 = P v of one item."""
    ctx, layout, barriers = roles.ctx, roles.layout, roles.barriers
    ctx.mbarrier_wait(barriers.arrived_hv[ring.stage], ring.parity)
    ctx.mbarrier_wait(barriers.taken[half.stage], half.parity ^ 1)
    ctx.op("tcgen05.fence::after_thread_sync")
    q, h = (_along_depth(ctx, roles.tile(name, ring.stage).address) for name in ("q", "h"))
    depth = range(layout.key_size // _DEPTH)
    a, b = [q + _along(CHUNK, at) for at in depth], [h + _along(layout.value_size, at) for at in depth]
    _multiply(ctx, roles.place("carried", half.stage), a, b, layout.value_size)
    ctx.mbarrier_wait(barriers.masked[half.stage], half.parity)
    ctx.op("tcgen05.fence::after_thread_sync")
    p, v = roles.place("p", half.stage), _along_rows(ctx, roles.tile("v", ring.stage).address)
    depth = range(CHUNK // _DEPTH)
    left, right = [Location(p, at * _DEPTH // 2) for at in depth], [v + (at * _DEPTH * ROW_BYTES >> 4) for at in depth]
    _multiply(ctx, roles.place("inner", half.stage), left, right, layout.value_size, transposed=True)
    ctx.op(_COMMIT, barriers.free[ring.stage])
    ctx.op(_COMMIT, barriers.finished[half.stage])
    ring.advance()
    half.advance()


def _multiply(
    ctx: Context, d: Register, a: Sequence[Any], b: Sequence[Register], columns: int, transposed: bool = False
) -> None:
    """D = the sum of the products of A's and B's parts; `transposed`: B lies along its rows."""
    said = _BF16_TO_F32 | transposed << 16 | columns >> 3 << 17 | CHUNK >> 4 << 24
    instruction, fresh, adds = ctx.const(said, "u32"), ctx.const(0, "pred"), ctx.const(1, "pred")
    for number, (left, right) in enumerate(zip(a, b, strict=True)):
        ctx.op(_MULTIPLY, Location(d), left, right, instruction, adds if number else fresh)


def _along_depth(ctx: Context, start: Register) -> Register:
    """The descriptor of a tile whose rows lie along the depth: groups of 8 rows, one pattern apart."""
    return _descriptor(ctx, start, 0, _LINES * ROW_BYTES)


def _along_rows(ctx: Context, start: Register) -> Register:
    """The descriptor of v: its panels hold 64 columns of each row, 8 rows of depth a pattern."""
    return _descriptor(ctx, start, PANEL_BYTES, _LINES * ROW_BYTES)


def _descriptor(ctx: Context, start: Register, leading: int, stride: int) -> Register:
    """A matrix descriptor with the swizzle of 128 bytes."""
    return (start >> 4).to("u64") | (leading >> 4 << 16 | stride >> 4 << 32 | 1 << 46 | 2 << 61)


def _along(rows: int, step: int) -> int:
    """How far a descriptor moves for a step of the depth: inside a line of 64 elements, then on to the next panel."""
    panel, inside = divmod(step * _DEPTH, SPAN)
    return panel * rows * ROW_BYTES + inside * 2 >> 4
