"""(m, l, o)-merge decode on a grid, all heads in one message, in two variants.

By rows, then by columns: every rank ends with all of it after rows + columns - 2 hops, where the open line needs
ranks - 1, and a hop carries one merged partial, not every rank's own. Or through a root: partials are merged towards
the rank in the middle, which alone divides; the output returns the same way in its own element type, half the bytes
or less. That takes twice the distance to the farthest rank, sends the fewest bytes, and ranks cannot disagree.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernbench.benches.gqa_attention.parts.grid import GridPosition
from kernbench.benches.gqa_attention.parts.online_softmax import State
from kernbench.benches.gqa_attention.parts.partials import (
    Chain,
    few_keys,
    few_rows,
    finished,
    partials,
    scan,
    store,
    tiles_at_once,
)
from kernbench.benches.gqa_attention.parts.tiles import make_tiling
from kernbench.common.pe_commands import TensorHandle

if TYPE_CHECKING:
    from kernbench.triton_emu.tl_context import TLContext


def attention_merge_mlo_kernel(
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
    total_kv: int | Sequence[int] | None = None,
    block_q: int | None = None,
    block_kv: int | None = None,
    columns: int,
    through_root: bool = False,
    tl: "TLContext",
) -> None:
    """The same attention and the same arguments as `attention_mesh_mlo_kernel`, on ranks installed as a grid.

    The ranks fill whole rows of `columns`, or are one row.
    """
    tiling = make_tiling(
        tl,
        (S_q, S_kv_per_rank, h_q, h_kv, d_head, n_ranks),
        rank_axis,
        q_split=False,
        causal=causal,
        scale=scale,
        batch=batch,
        total_q=S_q,
        total_kv=total_kv,
        block_q=block_q or few_rows(tl, d_head),
        block_kv=block_kv or few_keys(tl, d_head),
    )
    if tiling is None:
        return
    position = GridPosition(tiling.rank, n_ranks, columns)
    tiles = [tile for user in range(batch) for tile in tiling.query_tiles(user)]
    together = tiles_at_once(tl, tiling)
    for first in range(0, len(tiles), together):
        some = tiles[first : first + together]
        state = partials(tl, tiling, some, (q_ptr, k_ptr, v_ptr))
        merged = _through_root if through_root else _by_rows_and_columns
        store(tl, tiling, some, o_ptr, merged(tl, position, state, tl.element_type(o_ptr)))


def _by_rows_and_columns(tl: "TLContext", position: GridPosition, state: State, dtype: str) -> TensorHandle:
    """The finished rows, computed by every rank for itself."""
    state = scan(tl, state, "W", "E", position.column, position.columns)
    state = scan(tl, state, "N", "S", position.row, position.rows)
    return finished(tl, state, dtype)


def _through_root(tl: "TLContext", position: GridPosition, state: State, dtype: str) -> TensorHandle:
    """The finished rows, computed by the rank in the middle: along the row to the middle column, and along that."""
    shape = state.o.shape
    across = Chain("W", "E", position.column, position.columns, _middle(position.columns))
    down = Chain("N", "S", position.row, position.rows, _middle(position.rows))
    state = across.reduce(tl, state)
    rows = None
    if across.is_root:
        state = down.reduce(tl, state)
        rows = down.spread(tl, finished(tl, state, dtype) if down.is_root else None, shape, dtype)
    return across.spread(tl, rows, shape, dtype)


def _middle(length: int) -> int:
    return (length - 1) // 2
