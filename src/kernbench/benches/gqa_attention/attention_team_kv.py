"""K/V prefill in long blocks, on every PE: if ranks are cubes, the PEs of a cube share the rank's heads and queries.

K and V reach the leader of each team as in `stream_kv`, and from it every PE that needs them. Then each PE processes
its own tiles, and sends the finished rows to the leader, which stores them. At real sizes both transfers take 3 % of
the time, so they are not overlapped with the arithmetic. Zigzag shards give every rank the same work.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from kernbench.benches.gqa_attention.parts.long_blocks import LongFold, Rows, long_blocks
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

    `arms` are the PEs of a cube on each path from PE 0 (`arms_of(host.team, ...)`), for ranks that are cubes
    whose PEs are wired; without it PE 0 of a cube works alone.
    """
    team = Team(arms, tl.program_id(0) if rank_axis == 1 else 0, h_kv)
    if team.position is None:
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
    assert team.position is not None
    tiles, heads = _tiles(tiling, user, team, team.position), team.heads(team.position)
    finished = _Finished(tl, tiling, o_ptr, tiles, team)
    types = tuple(tl.element_type(p) for p in pointers)
    # PEs, users and heads differ in addresses only
    alone = replace(tiling, total_kv=tiling.total_kv[user : user + 1], users=1)
    some = tuple(tile._replace(user=0, head=0) for tile in tiles[: len(tiles) // len(heads)])
    rows = keys.rows(heads.start)
    steps = tuple((at.step, at.elements) for at in rows)
    first = Queries(user, heads.start, 0, 0, 0)
    addresses = (tiling.query_address(tl, q_ptr, first), finished.begin(first), *(at.address for at in rows))
    _room = tl.routine(_fold_tiles, tl, alone, some, len(heads), types, steps, team.leads, at=addresses)
    finished.hand_in(lambda position: _tiles(tiling, user, team, position))


def _fold_tiles(
    tl: "TLContext",
    tiling: Tiling,
    tiles: tuple[Queries, ...],
    heads: int,
    types: tuple[str, ...],
    steps: tuple[tuple[int, int], ...],
    leads: bool,
    q: int,
    o: int,
    *keys: int,
) -> tuple[TensorHandle, ...]:
    """Process equal tiles of several adjacent heads over all keys; returns the unused memory.

    `types` are those of Q, K, V and O, `steps` those of K and V from row to row, in bytes and elements, `q`, `o` and
    `keys` the addresses of the first head's.
    """
    width, counts = tiling.group * tiling.d_head, [tiling.group * tile.tokens for tile in tiles]
    rows_of_head = sum(counts)
    # for each tile, by its first token, the rows before it
    before = tuple((tile.first, sum(counts[:i])) for i, tile in enumerate(tiles))
    q_size, k_size, v_size, o_size = (ITEMSIZE[t] for t in types)

    def store(tile: Queries, rows: TensorHandle) -> None:
        if leads:
            address = o + (tile.first * tiling.h_q * tiling.d_head + tile.head * width) * o_size
            tiling.store_rows(tl, address, tile.tokens, rows)
        else:
            row = dict(before)[tile.first] + tile.head * rows_of_head
            tl.store(o + row * tiling.d_head * o_size, rows)

    fold = LongFold(tl, tiling, types[1:3], store)
    for head in tl.range(heads):
        for tile in tiles:
            address = q + (tile.first * tiling.h_q * tiling.d_head + head * width) * q_size
            k, v = (
                Rows(at + head * tiling.d_head * size, *step)
                for at, step, size in zip(keys, steps, (k_size, v_size), strict=True)
            )
            fold.fold(tile._replace(head=head), tiling.load_rows(tl, address, tile.tokens), (k, v))
    return fold.flush()


def _tiles(tiling: Tiling, user: int, team: Team, position: int) -> list[Queries]:
    """The query tiles of the PE at a position: those of its heads, alternating with other PEs that share them."""
    tiles = tiling.query_tiles(user)
    mine: list[Queries] = []
    for head in team.heads(position):
        sharing = team.sharing(head)
        mine += [tile for tile in tiles if tile.head == head][sharing.index(position) :: len(sharing)]
    return mine


class _Finished:
    """Finished rows for the rank's output: the leader stores its own there, the others buffer and send theirs."""

    def __init__(self, tl: "TLContext", tiling: Tiling, o_ptr: int, tiles: list[Queries], team: Team):
        self._tl = tl
        self._tiling = tiling
        self._o_ptr = o_ptr
        self._team = team
        self._dtype = tl.element_type(o_ptr)
        self._tiles = tiles
        self._kept = 0
        if not team.leads and tiles:
            shape = (sum(tiling.group * tile.tokens for tile in tiles), tiling.d_head)
            self._kept = tl.workspace(shape, self._dtype, "finished rows")

    def begin(self, first: Queries) -> int:
        """Where finished rows are stored: the leader's in its output, from the tile `first` on, the others'
        consecutively in memory of their own.
        """
        return self._tiling.query_address(self._tl, self._o_ptr, first) if self._team.leads else self._kept

    def hand_in(self, tiles: object) -> None:
        """Send all rows to the leader, which stores them; `tiles(position)` are the tiles of the PE at a position."""
        if self._team.leads:
            self._take_in(tiles)
            return
        tl, team, outbox = self._tl, self._team, Outbox(self._tl)
        address = self._kept
        for tile in self._tiles:
            shape = (self._tiling.group * tile.tokens, self._tiling.d_head)
            outbox.send(team.inward, tl.load(address, shape=shape))
            address += shape[0] * shape[1] * ITEMSIZE[self._dtype]
        for tile in self._coming(tiles, team.beyond):
            outbox.send(team.inward, self._receive(team.outward, tile))
        outbox.flush()

    def _take_in(self, tiles: object) -> None:
        """Receive tiles from both arms in turn."""
        arms = [[(direction, t) for t in self._coming(tiles, positions)] for direction, positions in self._team.arms]
        for pair in zip_longest(*arms):
            for direction, tile in (some for some in pair if some is not None):
                self._tiling.store_output(self._tl, self._o_ptr, tile, self._receive(direction, tile))

    def _coming(self, tiles: Any, positions: list[int]) -> Iterator[Queries]:
        """The tiles from these positions of an arm in order: each PE sends its own rows before those from beyond."""
        return (tile for position in positions for tile in tiles(position))

    def _receive(self, direction: str, tile: Queries) -> TensorHandle:
        shape = (self._tiling.group * tile.tokens, self._tiling.d_head)
        rows: TensorHandle = self._tl.recv(dir=direction, shape=shape, dtype=self._dtype)
        return rows
