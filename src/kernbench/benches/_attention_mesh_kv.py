"""Ring-K/V prefill on an open line: K and V travel east and west at once, every rank processes every chunk once."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernbench.benches.gqa_attention.parts.ring_kv import attend
from kernbench.benches.gqa_attention.parts.routes import along_line
from kernbench.benches.gqa_attention.parts.tiles import make_tiling

if TYPE_CHECKING:
    from kernbench.triton_emu.tl_context import TLContext


def attention_mesh_kv_kernel(
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
    """Attention of this rank's S_q queries over the keys of all ranks; Q, K and V are split along the sequence.

    Q and O are [S_q, h_q * d_head] on a rank, K and V [S_kv_per_rank, h_kv, d_head]; `batch` users are processed
    one after another. `total_q` and `total_kv` (one for each user, or one for all) are the true lengths if the
    last shards are shorter. Causal: the last query sees the last key. Blocks have `block_q` query rows (heads of a
    group times tokens) and `block_kv` keys; a block of K must fit half of the slots of a queue.
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
        block_q=block_q,
        block_kv=block_kv,
    )
    if tiling is None:
        return
    for user in range(batch):
        attend(tl, tiling, user, (q_ptr, k_ptr, v_ptr, o_ptr), along_line(tiling.rank, n_ranks))
