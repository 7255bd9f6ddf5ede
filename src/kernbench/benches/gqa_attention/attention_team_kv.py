"""K/V prefill in long blocks, on every PE: where ranks are cubes, the PEs of a cube share the rank's heads and queries.

K and V reach the leader of each team as in `stream_kv`, and from it every PE that needs them. Then each PE folds tiles
of its own, and the finished rows go to the leader, which stores them. At real sizes both ways take three hundredths of
the time, so they are not hidden behind the arithmetic. Zigzag shards give every rank the same work.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from kernbench.benches.gqa_attention.parts.long_blocks import LongFold, long_blocks
from kernbench.benches.gqa_attention.parts.routes import Hop, along_line, round_cycle
from kernbench.benches.gqa_attention.parts.team_keys import LeaderKeys, MemberKeys, Outbox
from kernbench.benches.gqa_attention.parts.teams import Arms, Team
from kernbench.benches.gqa_attention.parts.tiles import Queries, Tiling, make_tiling
from kernbench.common.dtypes import ITEMSIZE
from kernbench.common.pe_commands import TensorHandle

if TYPE_CHECKING:
    from kernbench.triton_emu.tl_context import TLContext


def attention_team_kv_kernel(
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
    arms: Arms | None = None,
    tl: "TLContext",
) -> None:
    """The same attention and the same arguments as `attention_stream_kv_kernel`.

    `arms` are the PEs of a cube by the way from PE 0 to them (`arms_of(host.team, ...)`), for ranks that are cubes
    whose PEs are wired; without it PE 0 of a cube works alone.
    """
    team = Team(arms, tl.program_id(0) if rank_axis == 1 else 0, h_kv)
    if team.place is None:
        return
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
        zigzag=zigzag,
        every_pe=True,
    )
    assert tiling is not None
    pointers = (q_ptr, k_ptr, v_ptr, o_ptr)
    # enough tiles for all that share a head
    share = -(-S_q // len(team.sharing(0)))
    tiling = long_blocks(tl, replace(tiling, S_q=max(1, share)), pointers, block_q, block_kv)
    tiling = replace(tiling, S_q=S_q)
    hops = along_line(tiling.rank, n_ranks) if order is None else round_cycle(tiling.rank, order)
    for user in range(batch):
        _attend(tl, tiling, user, pointers, hops, team)


def _attend(
    tl: "TLContext", tiling: Tiling, user: int, pointers: tuple[int, int, int, int], hops: list[Hop], team: Team
) -> None:
    q_ptr, k_ptr, v_ptr, o_ptr = pointers
    store = LeaderKeys if team.leads else MemberKeys
    keys = store(tl, tiling, user, (k_ptr, v_ptr), team)
    keys.collect(hops)
    assert team.place is not None
    tiles = _tiles(tiling, user, team, team.place)
    finished = _Finished(tl, tiling, o_ptr, tiles, team)
    fold = LongFold(tl, tiling, [tl.element_type(p) for p in (k_ptr, v_ptr)], finished.keep)
    heads = team.heads(team.place)
    # heads differ in addresses only
    for head in tl.range(heads.start, heads.stop):
        for tile in tiles[: len(tiles) // len(heads)]:
            mine = tile._replace(head=head)
            fold.fold(mine, tiling.load_queries(tl, q_ptr, mine), keys.rows(head))
    fold.flush()
    finished.hand_in(lambda place: _tiles(tiling, user, team, place))


def _tiles(tiling: Tiling, user: int, team: Team, place: int) -> list[Queries]:
    """The query tiles of the PE at a place: those of its heads, in turn with others that share them."""
    tiles = tiling.query_tiles(user)
    mine: list[Queries] = []
    for head in team.heads(place):
        sharing = team.sharing(head)
        mine += [tile for tile in tiles if tile.head == head][sharing.index(place) :: len(sharing)]
    return mine


class _Finished:
    """Finished rows on their way to the rank's output: the leader stores its own, the others keep and hand them in."""

    def __init__(self, tl: "TLContext", tiling: Tiling, o_ptr: int, tiles: list[Queries], team: Team):
        self._tl = tl
        self._tiling = tiling
        self._o_ptr = o_ptr
        self._team = team
        self._dtype = tl.element_type(o_ptr)
        self._kept: list[tuple[int, tuple[int, int]]] = []
        if not team.leads and tiles:
            shape = (sum(tiling.group * tile.tokens for tile in tiles), tiling.d_head)
            self._free = tl.workspace(shape, self._dtype, "finished rows")

    def keep(self, tile: Queries, rows: TensorHandle) -> None:
        """Rows that are done."""
        if self._team.leads:
            self._tiling.store_output(self._tl, self._o_ptr, tile, rows)
            return
        self._tl.store(self._free, rows)
        count, width = rows.shape
        self._kept.append((self._free, (count, width)))
        self._free += count * width * ITEMSIZE[self._dtype]

    def hand_in(self, tiles: object) -> None:
        """All rows reach the leader, which stores them; `tiles(place)` are the tiles of the PE at a place."""
        if self._team.leads:
            self._take_in(tiles)
            return
        tl, team, outbox = self._tl, self._team, Outbox(self._tl)
        for address, shape in self._kept:
            outbox.send(team.inward, tl.load(address, shape=shape))
        for tile in self._coming(tiles, team.beyond):
            outbox.send(team.inward, self._receive(team.outward, tile))
        outbox.flush()

    def _take_in(self, tiles: object) -> None:
        """Tiles from both arms in turn."""
        arms = [[(direction, t) for t in self._coming(tiles, places)] for direction, places in self._team.arms]
        for pair in zip_longest(*arms):
            for direction, tile in (some for some in pair if some is not None):
                self._tiling.store_output(self._tl, self._o_ptr, tile, self._receive(direction, tile))

    def _coming(self, tiles: Any, places: list[int]) -> Iterator[Queries]:
        """What comes from these places of an arm: each PE sends its own rows before those from beyond."""
        return (tile for place in places for tile in tiles(place))

    def _receive(self, direction: str, tile: Queries) -> TensorHandle:
        shape = (self._tiling.group * tile.tokens, self._tiling.d_head)
        rows: TensorHandle = self._tl.recv(dir=direction, shape=shape, dtype=self._dtype)
        return rows
