"""The two single threads of the sm_100a chunk-output kernel: one starts copies, the other products."""

from typing import Any

from kernbench.benches.chunk_output.layout import CHUNK
from kernbench.benches.chunk_output.sm100_parts import HALVES, Cursor, Roles
from kernbench.ptx.builder import Register
from kernbench.ptx.builder.matrix.tcgen05 import TensorMemory
from kernbench.ptx.builder.matrix.tiles import MatrixDescriptor
from kernbench.ptx.builder.values.options import Value

# depth of one product, and columns of tensor memory for that many elements of P
_DEPTH, _COLUMNS = 16, 8


def copies(roles: Roles) -> None:
    """Copy the four matrices of each work item, as soon as their stage is free."""
    ctx, layout, barriers = roles.ctx, roles.layout, roles.barriers
    maps = {name: ctx.tensor_map(f"{name}_map") for name in "qkhv"}
    query_head = roles.head // (layout.value_heads // layout.heads)
    ring = Cursor(ctx, roles.plan.stages, parity=1)
    with roles.items() as tile:
        state = tile.chunk * layout.value_heads + roles.head
        # row and head (or state) of each box
        boxes: dict[str, tuple[Value, Register]] = {
            "q": (tile.start, query_head),
            "k": (tile.start, query_head),
            "h": (0, state),
            "v": (tile.value_row, roles.head),
        }
        ctx.mbarrier_wait(barriers.free[ring.stage], ring.parity)
        for names, barrier in (("qk", barriers.arrived_qk), ("hv", barriers.arrived_hv)):
            done = barrier[ring.stage]
            # only the bytes are waited for: this thread has written nothing that others read
            nbytes = sum(roles.matrices[name].nbytes for name in names)
            ctx.mbarrier_arrive_expect_tx(done, nbytes, sem="relaxed")
            for name in names:
                row, head = boxes[name]
                ctx.tma_load(roles.matrices[name].stage(ring.stage).pointer, maps[name], (0, row, 0, head), done)
        ring.advance()


def multiplies(roles: Roles) -> None:
    """Alternate between the scores of an item and the products of the item before it, so that its masks have time.

    With one stage there is no second item in shared memory: its products come first.
    """
    ctx, stages = roles.ctx, roles.plan.stages
    items = (roles.total + ctx.nctaid_x - 1 - ctx.ctaid_x) // ctx.nctaid_x
    lead = min(1, stages - 1)
    operands = {name: ctx.tcgen05_descriptor(roles.matrices[name]) for name in "qkhv"}
    scored, multiplied = ((Cursor(ctx, stages), Cursor(ctx, HALVES)) for _ in range(2))
    with ctx.loop(0, items + lead) as turn:
        with ctx.if_(turn < items):
            _scores(roles, operands, *scored)
        with ctx.if_(turn >= lead):
            _products(roles, operands, *multiplied)


def _scores(roles: Roles, operands: dict[str, MatrixDescriptor], ring: Cursor, half: Cursor) -> None:
    """S = q k^T of one item."""
    ctx, barriers = roles.ctx, roles.barriers
    q, k = (operands[name].at(stage=ring.stage) for name in "qk")
    ctx.mbarrier_wait(barriers.arrived_qk[ring.stage], ring.parity)
    _multiply(roles, roles.accumulator("s", half.stage), q, k, roles.layout.key_size)
    ctx.tcgen05_commit(barriers.scored[half.stage])
    ring.advance()
    half.advance()


def _products(roles: Roles, operands: dict[str, MatrixDescriptor], ring: Cursor, half: Cursor) -> None:
    """O1 = q h^T and O2 = P v of one item."""
    ctx, barriers = roles.ctx, roles.barriers
    q, h, v = (operands[name].at(stage=ring.stage) for name in "qhv")
    ctx.mbarrier_wait(barriers.arrived_hv[ring.stage], ring.parity)
    ctx.mbarrier_wait(barriers.taken[half.stage], half.parity ^ 1)
    ctx.tcgen05_fence_after()
    _multiply(roles, roles.accumulator("carried", half.stage), q, h, roles.layout.key_size)
    ctx.mbarrier_wait(barriers.masked[half.stage], half.parity)
    ctx.tcgen05_fence_after()
    _multiply(roles, roles.accumulator("inner", half.stage), roles.accumulator("p", half.stage), v, CHUNK)
    ctx.tcgen05_commit(barriers.free[ring.stage])
    ctx.tcgen05_commit(barriers.finished[half.stage])
    ring.advance()
    half.advance()


def _multiply(roles: Roles, d: TensorMemory, a: Any, b: MatrixDescriptor, depth: int) -> None:
    """D = A B over a depth; A is a descriptor or in tensor memory."""
    shape = f"m{CHUNK}n{d.columns}k{_DEPTH}"
    for step in range(depth // _DEPTH):
        left = a.at(column=step * _COLUMNS) if isinstance(a, TensorMemory) else a.at(k=step * _DEPTH)
        right = b.at(k=step * _DEPTH)
        roles.ctx.tcgen05_mma(shape, d, left, right, types="f32.bf16.bf16", accumulate=step > 0)
