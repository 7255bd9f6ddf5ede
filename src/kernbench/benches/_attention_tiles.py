"""How attention is cut into tiles on one rank: shards, heads, blocks, and the loads and stores of each.

Q and O tiles are [users, S_q, h_q * d_head] on a rank, K and V [users, S_kv, h_kv, d_head]. A query tile takes the rows
of one group of query heads (those sharing a KV head) for some tokens: [group * tokens, d_head], heads outermost.
"""

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from kernbench.common.dtypes import ITEMSIZE
from kernbench.common.errors import MisuseError
from kernbench.common.pe_commands import TensorHandle

DEFAULT_QUERY_ROWS = 512
DEFAULT_KEYS = 128
# a message of at most this many bytes fits one slot of the bundled machines, so that queues of depth 2 suffice
MESSAGE = 64 << 10


class Keys(NamedTuple):
    """A block of keys: KV head, first row in its shard, rows."""

    head: int
    first: int
    rows: int


class Queries(NamedTuple):
    """A tile of queries: user, KV head whose group it is, first token in the shard, tokens."""

    user: int
    head: int
    first: int
    tokens: int


@dataclass(frozen=True)
class Tiling:
    """The geometry one rank works with. Totals are over all ranks: `total_kv` per user, `total_q` the same for all.

    Rank r holds rows r * per_rank and on of every sequence; the last shards may be shorter or empty. `q_split` tells a
    sharded Q (prefill) from a replicated one (decode).
    """

    rank: int
    n_ranks: int
    S_q: int
    S_kv_per_rank: int
    h_q: int
    h_kv: int
    d_head: int
    users: int
    total_q: int
    total_kv: tuple[int, ...]
    q_split: bool
    causal: bool
    scale: float
    block_q: int
    block_kv: int
    group: int = field(init=False)

    def __post_init__(self) -> None:
        if self.h_kv < 1 or self.h_q < 1 or self.h_q % self.h_kv:
            raise MisuseError(f"h_q must be a multiple of h_kv; got {self.h_q} and {self.h_kv}")
        if len(self.total_kv) != self.users:
            raise MisuseError(f"{self.users} users need {self.users} key lengths; got {self.total_kv}")
        if max(self.total_kv) > self.n_ranks * self.S_kv_per_rank:
            raise MisuseError(f"{max(self.total_kv)} keys do not fit {self.n_ranks} shards of {self.S_kv_per_rank}")
        object.__setattr__(self, "group", self.h_q // self.h_kv)

    @property
    def tokens_per_tile(self) -> int:
        """Tokens of a query tile: its rows are the group's heads times these."""
        return max(1, self.block_q // self.group)

    def query_rows(self) -> int:
        """Tokens of Q that this rank holds, of every user."""
        return _share(self.total_q, self.rank, self.S_q) if self.q_split else self.S_q

    def key_rows(self, rank: int, user: int) -> int:
        """Keys of `user` that `rank` holds."""
        return _share(self.total_kv[user], rank, self.S_kv_per_rank)

    def stored_rows(self) -> int:
        """Rows of K and V that this rank's memory has for every user: as many as the longest one needs."""
        return _share(max(self.total_kv), self.rank, self.S_kv_per_rank)

    def key_blocks(self, rank: int, user: int) -> list[Keys]:
        """The blocks of `rank`'s shard, in the order they are sent and folded."""
        rows = self.key_rows(rank, user)
        starts = range(0, rows, self.block_kv)
        return [Keys(h, f, min(self.block_kv, rows - f)) for h in range(self.h_kv) for f in starts]

    def query_tiles(self, user: int) -> list[Queries]:
        """This rank's query tiles of `user`."""
        rows, step = self.query_rows(), self.tokens_per_tile
        return [Queries(user, h, f, min(step, rows - f)) for h in range(self.h_kv) for f in range(0, rows, step)]

    # Positions, for the causal mask

    def query_position(self, tile: Queries) -> int:
        """Where the tile's first token stands among the user's keys: the last query sees the last key."""
        shard = self.rank * self.S_q if self.q_split else 0
        return self.total_kv[tile.user] - self.total_q + shard + tile.first

    def key_position(self, rank: int, block: Keys) -> int:
        """Where the block's first key stands among the user's keys."""
        return rank * self.S_kv_per_rank + block.first

    def hides_all(self, tile: Queries, rank: int, block: Keys) -> bool:
        """Whether no query of the tile sees any key of the block."""
        return self.causal and self.key_position(rank, block) > self.query_position(tile) + tile.tokens - 1

    def mask(self, tl: Any, tile: Queries, rank: int, block: Keys) -> TensorHandle | None:
        """[tokens, keys], true where the query sees the key; None where all do."""
        first_key, first_query = self.key_position(rank, block), self.query_position(tile)
        if not self.causal or first_key + block.rows - 1 <= first_query:
            return None
        queries = tl.arange(first_query, first_query + tile.tokens)
        keys = tl.arange(first_key, first_key + block.rows)
        visible: TensorHandle = queries[:, None] >= keys[None, :]
        return visible

    # Memory

    def load_queries(self, tl: Any, q_ptr: int, tile: Queries) -> TensorHandle:
        """[group * tokens, d_head], heads outermost."""
        shape = (self.group, tile.tokens, self.d_head)
        handle = tl.load(self._query_address(tl, q_ptr, tile), shape=shape, strides=self._query_strides())
        rows: TensorHandle = tl.reshape(handle, (self.group * tile.tokens, self.d_head))
        return rows

    def store_output(self, tl: Any, o_ptr: int, tile: Queries, rows: TensorHandle) -> None:
        """The counterpart of `load_queries`."""
        by_head = tl.reshape(rows, (self.group, tile.tokens, self.d_head))
        tl.store(self._query_address(tl, o_ptr, tile), by_head, strides=self._query_strides())

    def _query_strides(self) -> tuple[int, int, int]:
        return self.d_head, self.h_q * self.d_head, 1

    def _query_address(self, tl: Any, pointer: int, tile: Queries) -> int:
        row = tile.user * self.query_rows() + tile.first
        elements = row * self.h_q * self.d_head + tile.head * self.group * self.d_head
        return pointer + elements * ITEMSIZE[tl.element_type(pointer)]

    def load_keys(self, tl: Any, pointer: int, user: int, block: Keys) -> TensorHandle:
        """A block of this rank's K or V, [rows, d_head]."""
        row = user * self.stored_rows() + block.first
        elements = (row * self.h_kv + block.head) * self.d_head
        address = pointer + elements * ITEMSIZE[tl.element_type(pointer)]
        handle: TensorHandle = tl.load(address, shape=self.key_shape(block), strides=(self.h_kv * self.d_head, 1))
        return handle

    def key_shape(self, block: Keys) -> tuple[int, int]:
        """Shape of a block's K, and of its V."""
        return block.rows, self.d_head


def _share(total: int, rank: int, per_rank: int) -> int:
    return min(max(total - rank * per_rank, 0), per_rank)


def make_tiling(
    tl: Any,
    shapes: tuple[int, int, int, int, int, int],
    rank_axis: int,
    *,
    q_split: bool,
    causal: bool,
    scale: float | None,
    batch: int,
    total_q: int | None,
    total_kv: Any,
    block_q: int | None,
    block_kv: int | None,
) -> Tiling | None:
    """The tiling for the PE that calls; None on PEs that only hold replicas and have nothing to do.

    `shapes` is (S_q, S_kv_per_rank, h_q, h_kv, d_head, n_ranks) as every attention kernel takes them.
    """
    S_q, S_kv_per_rank, h_q, h_kv, d_head, n_ranks = shapes
    if rank_axis == 1 and tl.program_id(0) != 0:
        return None
    if total_kv is None:
        total_kv = n_ranks * S_kv_per_rank
    lengths = (total_kv,) * batch if isinstance(total_kv, int) else tuple(total_kv)
    return Tiling(
        tl.program_id(rank_axis),
        n_ranks,
        S_q,
        S_kv_per_rank,
        h_q,
        h_kv,
        d_head,
        batch,
        total_q if total_q is not None else (n_ranks * S_q if q_split else S_q),
        lengths,
        q_split,
        causal,
        d_head**-0.5 if scale is None else scale,
        block_q or DEFAULT_QUERY_ROWS,
        block_kv or max(1, min(DEFAULT_KEYS, MESSAGE // (4 * d_head))),
    )
