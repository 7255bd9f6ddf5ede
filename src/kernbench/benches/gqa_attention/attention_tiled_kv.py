"""Two-dimensional prefill: ranks of one side of the grid share their queries, those of the other their keys.

Each rank computes its line's queries over its cross line's keys; the partials return to the queries' owner, merged on
the way. With n ranks along the queries' side and m along the keys', a rank sends n - 1 query shards, m - 1 key shards
and n - 1 partials, where passing K and V sends all key shards: less if heads are not grouped or ranks are many, more
for few ranks and eight query heads per KV head.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from kernbench.benches.gqa_attention.parts.grid import GridPosition
from kernbench.benches.gqa_attention.parts.key_store import HbmKeys, Run
from kernbench.benches.gqa_attention.parts.online_softmax import State
from kernbench.benches.gqa_attention.parts.partials import Chain, finished
from kernbench.benches.gqa_attention.parts.routes import along_chain
from kernbench.benches.gqa_attention.parts.stream_kv import (
    LARGEST_BLOCK,
    Blocks,
    Pointers,
    QuerySet,
    Seen,
    lying_at,
    sized,
)
from kernbench.benches.gqa_attention.parts.tiles import Queries, Tiling, make_tiling, message_bytes, without_position
from kernbench.benches.gqa_attention.parts.waves import Pair, PairShapes, exchange
from kernbench.common.dtypes import ITEMSIZE
from kernbench.common.pe_commands import TensorHandle

if TYPE_CHECKING:
    from kernbench.triton_emu.tl_context import TLContext

# query rows of a tile: few, so that five states of it leave room for long blocks of keys, which fill the array better
TILE = 512


def attention_tiled_kv_kernel(
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
    columns: int,
    zigzag: bool = False,
    tl: "TLContext",
) -> None:
    """The same attention and the same arguments as `attention_stream_kv_kernel`, on ranks installed as a grid.

    The ranks fill whole rows of `columns`, or are one row.
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
        block_q=block_q or TILE,
        block_kv=block_kv or LARGEST_BLOCK,
        zigzag=zigzag,
    )
    if tiling is None:
        return
    pointers = (q_ptr, k_ptr, v_ptr, o_ptr)
    # while partials are merged there are two states of a tile and the temporaries of the merge
    tiling = sized(tl, tiling, pointers, grow=block_kv is None, merging=5)
    sides = Sides(GridPosition(tiling.rank, n_ranks, columns), group=h_q // h_kv)
    for user in range(batch):
        _attend(tl, tiling, user, pointers, sides)


class Sides:
    """The two lines of ranks through this one: queries are shared along one, keys along the other.

    Queries and partials are about `group` times as large as keys, so they take the shorter line if heads are grouped.
    """

    def __init__(self, position: GridPosition, group: int):
        row = [position.grid.id_at(position.row, c) for c in range(position.columns)]
        column = [position.grid.id_at(r, position.column) for r in range(position.rows)]
        lines = [(row, "W", "E", position.column), (column, "N", "S", position.row)]
        short_first = sorted(lines, key=lambda line: len(line[0]))
        self.queries, self.keys = short_first if group > 1 else short_first[::-1]


def _attend(tl: "TLContext", tiling: Tiling, user: int, pointers: Pointers, sides: Sides) -> None:
    q_ptr, k_ptr, v_ptr, o_ptr = pointers
    line, low, high, position = sides.queries
    across, across_low, across_high, _ = sides.keys
    keys = HbmKeys(tl, tiling, user, k_ptr, v_ptr)
    keys.keep_own()
    for hop in along_chain(tiling.rank, across, across_low, across_high):
        exchange(tl, keys, hop)
    queries = SharedQueries(tl, tiling, user, q_ptr, line)
    for hop in along_chain(tiling.rank, line, low, high, parts=(0,)):
        exchange(tl, queries, hop)
    runs = [run for owner in across for run in keys.messages(owner)]
    blocks = Blocks(runs, tiling.block_kv)
    dtype = tl.element_type(o_ptr)
    # ranks differ in addresses and positions only
    alike = replace(tiling, rank=0)
    for root, tile in queries.tiles():
        seen, origin = blocks.alike(tiling, without_position([tile]))
        at = queries.address(line[root], tile), tile.position, *lying_at(keys, tile.head, blocks, origin), origin
        chain = Chain(low, high, position, len(line), root)
        state = chain.reduce(tl, tl.routine(_fold_tile, tl, alike, tile.tokens, seen, keys.row_bytes, at=at))
        if chain.is_root:
            tiling.store_output(tl, o_ptr, tile, finished(tl, state, dtype))


def _fold_tile(
    tl: "TLContext",
    tiling: Tiling,
    tokens: int,
    seen: Seen,
    row_bytes: tuple[int, int],
    q: int,
    position: int,
    *keys: int,
) -> State:
    """The state of a tile after some keys; `q` and `position` are the address and the position of its queries, `keys`
    four addresses of keys and a position.
    """
    tile = Queries(0, 0, 0, tokens, position)
    part = QuerySet(tl, tiling, [tile], [_load_queries(tl, tiling, q, tokens)])
    part.fold_rows(seen, row_bytes, keys[:4], keys[4])
    return part.take()


def _load_queries(tl: "TLContext", tiling: Tiling, address: int, tokens: int) -> TensorHandle:
    """A tile's queries, [group * tokens, d_head], heads outermost."""
    shape, steps = (tiling.group, tokens, tiling.d_head), (tiling.d_head, tiling.h_q * tiling.d_head, 1)
    handle = tl.load(address, shape=shape, strides=steps)
    rows: TensorHandle = tl.reshape(handle, (tiling.group * tokens, tiling.d_head))
    return rows


class SharedQueries:
    """Q of every rank of a line, stored in HBM in its own layout, [tokens, h_q * d_head]; a message is some whole
    rows.
    """

    def __init__(self, tl: "TLContext", tiling: Tiling, user: int, q_ptr: int, line: Sequence[int]):
        self._tl = tl
        self._tiling = tiling
        self._user = user
        self._line = line
        self._dtype = tl.element_type(q_ptr)
        self._width = tiling.h_q * tiling.d_head
        own = q_ptr + user * tiling.query_rows() * self._width * ITEMSIZE[self._dtype]
        others = [owner for owner in line if owner != tiling.rank and tiling.query_rows(owner)]
        self._base = {owner: self._landing(owner) for owner in others} | {tiling.rank: own}
        self._cut: dict[int, list[Run]] = {}

    def _landing(self, owner: int) -> int:
        shape = (self._tiling.query_rows(owner), self._width)
        return int(self._tl.workspace(shape, self._dtype, f"queries of rank {owner}"))

    def _messages(self, owner: int) -> list[Run]:
        """(first row, rows) of each message."""
        if owner not in self._cut:
            most = max(1, message_bytes(self._tl) // (self._width * ITEMSIZE[self._dtype]))
            rows = self._tiling.query_rows(owner)
            self._cut[owner] = [(first, min(most, rows - first)) for first in range(0, rows, most)]
        return self._cut[owner]

    def _address(self, owner: int, row: int, element: int = 0) -> int:
        return self._base[owner] + (row * self._width + element) * ITEMSIZE[self._dtype]

    def count(self, owner: int) -> int:
        """Messages of a rank's Q."""
        return len(self._messages(owner))

    def shapes(self, owner: int, number: int) -> PairShapes:
        """Shape and element type of a message."""
        return (self._messages(owner)[number][1], self._width), self._dtype

    def get(self, owner: int, number: int) -> Pair:
        """A message to send, from the tensor or from where it was received to."""
        first, rows = self._messages(owner)[number]
        return (self._tl.load(self._address(owner, first), shape=(rows, self._width)),)

    def put(self, owner: int, number: int, pair: Pair) -> None:
        """Store a received message."""
        self._tl.store(self._address(owner, self._messages(owner)[number][0]), pair[0])

    def tiles(self) -> Iterator[tuple[int, Queries]]:
        """(index of the owner along the line, tile), in the same order on every rank of the line.

        Owners alternate, so that partials for all of them are in flight at once.
        """
        by_owner = [self._tiling.query_tiles(self._user, owner) for owner in self._line]
        for number in range(max(map(len, by_owner))):
            for position, tiles in enumerate(by_owner):
                if number < len(tiles):
                    yield position, tiles[number]

    def address(self, owner: int, tile: Queries) -> int:
        """The address of the first row of a tile."""
        return self._address(owner, tile.first, tile.head * self._tiling.group * self._tiling.d_head)
