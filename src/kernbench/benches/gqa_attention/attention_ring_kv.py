"""The older K/V ring: chunks travel in one direction round a closed ring. Needs the wrap link; kept for comparison."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernbench.benches.gqa_attention.parts.ring_kv import attend
from kernbench.benches.gqa_attention.parts.routes import round_ring
from kernbench.benches.gqa_attention.parts.tiles import make_tiling

if TYPE_CHECKING:
    from kernbench.triton_emu.tl_context import TLContext


def attention_ring_kv_kernel(
    q_ptr: int,
    k_ptr: int,
    v_ptr: int,
    o_ptr: int,
    S_q: int,
    S_kv_per_rank: int,
    h_q: int,
    h_kv: int,
    d_head: int,
    n_ranks: int,
    rank_axis: int = 0,
    *,
    causal: bool = False,
    scale: float | None = None,
    batch: int = 1,
    total_q: int | None = None,
    total_kv: int | Sequence[int] | None = None,
    block_q: int | None = None,
    block_kv: int | None = None,
    tl: "TLContext",
) -> None:
    """The same attention and the same arguments as `attention_mesh_kv_kernel`, on ranks installed as a ring."""
    tiling = make_tiling(
        tl,
        (S_q, S_kv_per_rank, h_q, h_kv, d_head, n_ranks),
        rank_axis,
        q_split=True,
        causal=causal,
        scale=scale,
        batch=batch,
        total_q=total_q,
        total_kv=total_kv,
        block_q=block_q,
        block_kv=block_kv,
    )
    if tiling is None:
        return
    for user in range(batch):
        attend(tl, tiling, user, (q_ptr, k_ptr, v_ptr, o_ptr), round_ring(tiling.rank, n_ranks))
