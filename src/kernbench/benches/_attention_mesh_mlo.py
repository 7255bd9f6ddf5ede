"""(m, l, o)-merge decode on an open line: partial results travel east and west, K and V are not sent."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kernbench.benches.gqa_attention.parts.online_softmax import State, finish, fold, merge, start
from kernbench.benches.gqa_attention.parts.partials import few_rows
from kernbench.benches.gqa_attention.parts.routes import along_line
from kernbench.benches.gqa_attention.parts.tiles import (
    MESSAGE,
    Keys,
    Queries,
    Tiling,
    make_tiling,
    without_position,
)
from kernbench.benches.gqa_attention.parts.waves import Pair, PairShapes, exchange
from kernbench.common.dtypes import ITEMSIZE
from kernbench.common.pe_commands import TensorHandle

if TYPE_CHECKING:
    from kernbench.triton_emu.tl_context import TLContext


def attention_mesh_mlo_kernel(
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
    tl: "TLContext",
) -> None:
    """Attention of S_q queries, the same on every rank, over keys split along the sequence; every rank stores all of O.

    Shapes and options as in `attention_mesh_kv_kernel`; Q is replicated, so it has no `total_q`.
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
        block_kv=block_kv,
    )
    if tiling is None:
        return
    tiles = [tile for user in range(batch) for tile in tiling.query_tiles(user)]
    together = _tiles_at_once(tl, tiling)
    for first in range(0, len(tiles), together):
        _decode(tl, tiling, tiles[first : first + together], (q_ptr, k_ptr, v_ptr, o_ptr))


def _tiles_at_once(tl: "TLContext", tiling: Tiling) -> int:
    """As many tiles as leave half of the scratch free while six states of each exist: own, merged, four in flight."""
    rows = tiling.group * min(tiling.tokens_per_tile, max(1, tiling.S_q))
    return max(1, int(tl.scratch_size // 2 // (6 * rows * (tiling.d_head + 2) * 4)))


class Partials:
    """The packed partials, by owner: one pair for each part of a query tile."""

    def __init__(self, states: list[State]):
        self._shapes: list[PairShapes] = [((s.o.shape[0], 2), "f32", s.o.shape, "f32") for s in states]
        self.held: dict[int, list[Pair]] = {}

    def count(self, owner: int) -> int:
        """Every rank has a partial of every part."""
        return len(self._shapes)

    def shapes(self, owner: int, number: int) -> PairShapes:
        """(m, l) and o of a tile."""
        return self._shapes[number]

    def get(self, owner: int, number: int) -> Pair:
        """One that arrived, or the rank's own."""
        return self.held[owner][number]

    def put(self, owner: int, number: int, pair: Pair) -> None:
        """Keep it to be merged and passed on."""
        self.held.setdefault(owner, []).append(pair)


def _decode(tl: "TLContext", tiling: Tiling, tiles: list[Queries], pointers: tuple[int, int, int, int]) -> None:
    q_ptr, k_ptr, v_ptr, o_ptr = pointers
    rank, n_ranks = tiling.rank, tiling.n_ranks
    states = [_partial(tl, tiling, tile, q_ptr, k_ptr, v_ptr) for tile in tiles]
    parts = [_parts(state) for state in states]
    merged = [part for tile in parts for part in tile]
    partials = Partials(merged)
    if n_ranks > 1:
        partials.held[rank] = [_pack(tl, state) for state in merged]
    for hop in along_line(rank, n_ranks):
        arrived = exchange(tl, partials, hop)
        partials.held = {o: pairs for o, pairs in partials.held.items() if o in arrived}
        for pairs in partials.held.values():
            merged = [merge(tl, state, _unpack(pair)) for state, pair in zip(merged, pairs, strict=True)]
    del states
    for tile, count in zip(tiles, map(len, parts), strict=True):
        done, merged = merged[:count], merged[count:]
        tiling.store_output(tl, o_ptr, tile, _joined(tl, [finish(tl, state) for state in done]))


def _parts(state: State) -> list[State]:
    """A state split by rows so that o of each part fits one message; the whole state if it does."""
    rows, d_head = state.o.shape
    most = max(1, MESSAGE // (4 * d_head))
    if rows <= most:
        return [state]
    spans = [(i, min(i + most, rows)) for i in range(0, rows, most)]
    return [State(*(x[first:last] for x in state)) for first, last in spans]


def _joined(tl: "TLContext", rows: list[TensorHandle]) -> TensorHandle:
    whole = rows[0]
    for more in rows[1:]:
        whole = tl.cat(whole, more, axis=0)
    return whole


def _partial(tl: "TLContext", tiling: Tiling, tile: Queries, q_ptr: int, k_ptr: int, v_ptr: int) -> State:
    """The unnormalised result over this rank's own keys. Tiles of other heads, of users with as many keys, and of other
    ranks without hidden keys differ in addresses only.
    """
    first, pointers = Keys(tile.head, 0, 0, 0), (k_ptr, v_ptr)
    blocks = [b for b in tiling.key_blocks(tiling.rank, tile.user) if b.head == tile.head]
    seen = [b for b in blocks if not tiling.hides_all(tile, b.position)]
    masked = tuple(tiling.masks(tile, (b.position, b.rows)) for b in seen)
    runs = tuple((b.first, b.rows, b.position if mask else None) for b, mask in zip(seen, masked, strict=True))
    steps = tuple(tiling.h_kv * tiling.d_head * ITEMSIZE[tl.element_type(p)] for p in pointers)
    begins = (tiling.key_address(tl, p, tile.user, first) for p in pointers)
    (some,) = without_position([tile if any(masked) else tile._replace(position=0)])
    addresses = (tiling.query_address(tl, q_ptr, tile), *begins)
    return tl.routine(_fold_runs, tl, replace(tiling, rank=0), some, runs, steps, at=addresses)


def _fold_runs(
    tl: "TLContext",
    tiling: Tiling,
    tile: Queries,
    runs: tuple[tuple[int, int, int | None], ...],
    steps: tuple[int, ...],
    q_address: int,
    *begins: int,
) -> State:
    """The state of a tile after runs of keys: for each the first row, the rows, and the position if some are hidden.
    `begins` are the addresses of K and V of the head, `steps` the bytes from one row to the next.
    """
    q = tiling.load_rows(tl, q_address, tile.tokens)
    state = start(tl, tiling.group * tile.tokens, tiling.d_head)
    for first, rows, position in runs:
        k, v = (tiling.load_key_rows(tl, begin + first * step, rows) for begin, step in zip(begins, steps, strict=True))
        mask = None if position is None else tiling.mask(tl, tile, (position, rows))
        state = fold(tl, state, q, k, v, tiling.scale, mask)
    return state


def _pack(tl: "TLContext", state: State) -> Pair:
    """Pack into two messages: m and l as columns of one, and o."""
    return tl.cat(state.m, state.l, axis=1), state.o


def _unpack(pair: Pair) -> State:
    ml, o = pair
    return State(ml[:, 0:1], ml[:, 1:2], o)
