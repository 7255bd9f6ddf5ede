"""(m, l, o)-merge decode on every PE: if ranks are cubes, each PE of a cube reads the keys of some heads.

One PE cannot read a cube's keys at the rate of its HBM: a group of eight query heads fills an eighth of the rows
of a 64 x 64 array, so scores and values take six cycles per key and head where the HBM takes one. Eight PEs can. Their
partials go to PE 0 of the cube, are merged over the cubes towards the one in the middle, which divides, and return
as finished rows. PEs other than 0 work on the next queries meanwhile.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernbench.benches.gqa_attention.parts.online_softmax import State, merge
from kernbench.benches.gqa_attention.parts.partials import (
    Chain,
    few_rows,
    finished,
    partials,
    receive,
    send,
    store,
    tiles_at_once,
)
from kernbench.benches.gqa_attention.parts.teams import Arms, Team
from kernbench.benches.gqa_attention.parts.tiles import Queries, Tiling, make_tiling
from kernbench.common.pe_commands import TensorHandle

if TYPE_CHECKING:
    from kernbench.triton_emu.tl_context import TLContext

MOST_KEYS = 512


def attention_team_mlo_kernel(
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
    arms: Arms | None = None,
    tl: "TLContext",
) -> None:
    """The same attention and the same arguments as `attention_mesh_mlo_kernel`, on ranks installed as a line.

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
        q_split=False,
        causal=causal,
        scale=scale,
        batch=batch,
        total_q=S_q,
        total_kv=total_kv,
        block_q=block_q or few_rows(tl, d_head),
        block_kv=block_kv or max(1, min(MOST_KEYS, int(tl.scratch_size // 16 // (d_head * 4)))),
        every_pe=True,
    )
    assert tiling is not None
    for tiles in _batches(tl, tiling):
        _decode(tl, tiling, tiles, (q_ptr, k_ptr, v_ptr, o_ptr), team)


def _batches(tl: "TLContext", tiling: Tiling) -> list[list[Queries]]:
    """Tiles whose partials are merged together; tiles of all heads are adjacent so that all PEs have some."""
    tiles = [tile for user in range(tiling.users) for tile in tiling.query_tiles(user)]
    tiles.sort(key=lambda tile: (tile.user, tile.first, tile.head))
    most = tiles_at_once(tl, tiling)
    if most > tiling.h_kv:
        most -= most % tiling.h_kv
    return [tiles[first : first + most] for first in range(0, len(tiles), most)]


def _decode(
    tl: "TLContext", tiling: Tiling, tiles: list[Queries], pointers: tuple[int, int, int, int], team: Team
) -> None:
    """A batch: computes partials of this PE's heads, and merges them over the team and the ranks."""
    q_ptr, k_ptr, v_ptr, o_ptr = pointers
    assert team.position is not None
    own, state = _of(team, team.position, tiles), None
    if own:
        state = partials(tl, tiling, own, (q_ptr, k_ptr, v_ptr), _part(team, team.position))
    if not team.leads:
        _hand_in(tl, tiling, team, tiles, state)
        return
    parts = _collected(tl, tiling, team, tiles, state)
    rows = _through_middle(tl, tiling, [merged for _, merged in parts], tl.element_type(o_ptr))
    for (some, _), done in zip(parts, rows, strict=True):
        store(tl, tiling, some, o_ptr, done)


def _of(team: Team, position: int, tiles: list[Queries]) -> list[Queries]:
    """The tiles of a batch for which the PE at a position has keys."""
    return [tile for tile in tiles if tile.head in team.heads(position)]


def _part(team: Team, position: int) -> tuple[int, int]:
    """(index, count) of the part of its heads' keys that the PE at a position reads."""
    sharing = team.sharing(team.heads(position).start)
    return sharing.index(position), len(sharing)


def _hand_in(tl: "TLContext", tiling: Tiling, team: Team, tiles: list[Queries], state: State | None) -> None:
    """Send this PE's partial, and those from beyond it, to the leader."""
    leaving = [] if state is None else send(tl, team.inward, state)
    for position in team.beyond:
        some = _of(team, position, tiles)
        if some:
            leaving += send(tl, team.inward, _receive(tl, tiling, team.outward, some))
    for request in leaving:
        request.wait()


def _collected(
    tl: "TLContext", tiling: Tiling, team: Team, tiles: list[Queries], own: State | None
) -> list[tuple[list[Queries], State]]:
    """The team's partials by their tiles; those of PEs that share a head are merged."""
    by_position = {} if own is None else {0: own}
    for direction, positions in team.arms:
        for position in positions:
            some = _of(team, position, tiles)
            if some:
                by_position[position] = _receive(tl, tiling, direction, some)
    by_heads: dict[range, tuple[list[Queries], State]] = {}
    for position, state in sorted(by_position.items()):
        heads = team.heads(position)
        before = by_heads.get(heads)
        whole = state if before is None else merge(tl, before[1], state)
        by_heads[heads] = (_of(team, position, tiles), whole)
    return list(by_heads.values())


def _receive(tl: "TLContext", tiling: Tiling, direction: str, tiles: list[Queries]) -> State:
    return receive(tl, direction, sum(tiling.group * tile.tokens for tile in tiles), tiling.d_head)


def _through_middle(tl: "TLContext", tiling: Tiling, states: list[State], dtype: str) -> list[TensorHandle]:
    """The finished rows of each state, computed by the rank in the middle, pipelined."""
    chain = Chain("W", "E", tiling.rank, tiling.n_ranks, (tiling.n_ranks - 1) // 2)
    merged = [chain.reduce(tl, state) for state in states]
    rows = [finished(tl, state, dtype) if chain.is_root else None for state in merged]
    return [chain.spread(tl, done, state.o.shape, dtype) for done, state in zip(rows, merged, strict=True)]
