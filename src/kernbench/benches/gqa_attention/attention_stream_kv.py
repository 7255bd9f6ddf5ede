"""K/V prefill with overlap: double-buffered exchange, and scores computed one block ahead.

Zigzag shards give every rank the same work under a causal mask.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernbench.benches.gqa_attention.parts.routes import along_line, round_cycle
from kernbench.benches.gqa_attention.parts.stream_kv import LARGEST_BLOCK, LARGEST_TILE, attend, sized
from kernbench.benches.gqa_attention.parts.tiles import make_tiling

if TYPE_CHECKING:
    from kernbench.triton_emu.tl_context import TLContext


def attention_stream_kv_kernel(
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
    order: Sequence[int] | None = None,
    zigzag: bool = False,
    tl: "TLContext",
) -> None:
    """The same attention and the same arguments as `attention_mesh_kv_kernel`.

    `order` is a cycle (`host.cycle`) on ranks installed as a cycle; without it they are an open line. With
    `zigzag`, ranks hold two runs of the sequence each: Q, K, V and O are sharded by `zigzag_rows`. By default the
    blocks are as large as the scratch memory allows.
    """
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
        block_q=block_q or LARGEST_TILE,
        block_kv=block_kv or LARGEST_BLOCK,
        zigzag=zigzag,
    )
    if tiling is None:
        return
    pointers = (q_ptr, k_ptr, v_ptr, o_ptr)
    tiling = sized(tl, tiling, pointers, grow=block_kv is None)
    hops = along_line(tiling.rank, n_ranks) if order is None else round_cycle(tiling.rank, order)
    for user in range(batch):
        attend(tl, tiling, user, pointers, hops)
