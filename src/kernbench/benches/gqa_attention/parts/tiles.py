"""The tiling of attention on one rank: shards, heads, blocks, and the loads and stores of each.

Q and O tiles are [users, S_q, h_q * d_head] on a rank, K and V [users, S_kv, h_kv, d_head]. A query tile takes the rows
of one group of query heads (those sharing a KV head) for some tokens: [group * tokens, d_head], heads outermost.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

from kernbench.benches.gqa_attention.parts.shards import Segment, contiguous, zigzag
from kernbench.common.dtypes import ITEMSIZE
from kernbench.common.errors import MisuseError
from kernbench.common.pe_commands import TensorHandle

if TYPE_CHECKING:
    from kernbench.triton_emu.tl_context import TLContext

DEFAULT_ROWS, DEFAULT_KEYS = 512, 128
# a message of at most this many bytes fits one slot of the bundled machines, so that queues of depth 2 suffice
MESSAGE = 64 << 10


def message_bytes(tl: "TLContext") -> int:
    """Bytes of a message that leaves room for many in scratch."""
    return min(MESSAGE, int(tl.scratch_size) // 32)


class Keys(NamedTuple):
    """A block of keys: KV head, first row in its shard, rows, and the position of the first among the user's keys."""

    head: int
    first: int
    rows: int
    position: int


class Queries(NamedTuple):
    """A tile of queries: user, KV head whose group it is, first token in the shard, tokens, and the position of the
    first among the user's keys.
    """

    user: int
    head: int
    first: int
    tokens: int
    position: int

    @property
    def last(self) -> int:
        """The position of the last token: under a causal mask, the last key that the tile sees."""
        return self.position + self.tokens - 1


@dataclass(frozen=True)
class Tiling:
    """The geometry on one rank. Totals are over all ranks: `total_kv` per user, `total_q` the same for all.

    Rank r holds rows r * per_rank and on of every sequence, or with `zigzag` two runs of it; the last shards may be
    shorter or empty. `q_split` distinguishes a sharded Q (prefill) from a replicated one (decode).
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
    zigzag: bool = False
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

    def query_segments(self, rank: int) -> list[Segment]:
        """The runs of Q that `rank` holds, of every user."""
        if not self.q_split:
            return [Segment(0, 0, self.S_q)]
        return self._segments(self.total_q, rank, self.S_q)

    def key_segments(self, rank: int, user: int) -> list[Segment]:
        """The runs of `user`'s keys that `rank` holds; memory has as many as the longest user needs."""
        held = self._segments(max(self.total_kv), rank, self.S_kv_per_rank)
        clipped = [s._replace(rows=min(s.rows, self.total_kv[user] - s.position)) for s in held]
        return [s for s in clipped if s.rows > 0]

    def _segments(self, total: int, rank: int, per_rank: int) -> list[Segment]:
        return zigzag(total, rank, self.n_ranks) if self.zigzag else contiguous(total, rank, per_rank)

    def query_rows(self, rank: int | None = None) -> int:
        """Tokens of Q that a rank, by default this one, holds for every user."""
        return sum(s.rows for s in self.query_segments(self.rank if rank is None else rank))

    @cached_property
    def stored_rows(self) -> int:
        """Rows of K and V that this rank's memory has for every user: as many as the longest one needs."""
        return sum(s.rows for s in self._segments(max(self.total_kv), self.rank, self.S_kv_per_rank))

    def key_blocks(self, rank: int, user: int) -> list[Keys]:
        """The blocks of `rank`'s shard, in the order they are sent and folded."""
        runs = [cut for s in self.key_segments(rank, user) for cut in _cuts(s, self.block_kv)]
        return [Keys(h, s.first, s.rows, s.position) for h in range(self.h_kv) for s in runs]

    def query_tiles(self, user: int, rank: int | None = None) -> list[Queries]:
        """The query tiles of `user` on a rank, by default this one."""
        before = self.total_kv[user] - self.total_q
        segments = self.query_segments(self.rank if rank is None else rank)
        runs = [cut for s in segments for cut in _cuts(s, self.tokens_per_tile)]
        return [Queries(user, h, s.first, s.rows, before + s.position) for h in range(self.h_kv) for s in runs]

    # Positions, for the causal mask: the last query sees the last key

    def hides_all(self, tile: Queries, position: int) -> bool:
        """Whether no query of the tile sees the key at `position` or any after it."""
        return self.causal and position > tile.last

    def masks(self, tile: Queries, *runs: tuple[int, int]) -> bool:
        """Whether a query of the tile does not see some of the keys, runs of (position, rows)."""
        return self.causal and any(position + rows - 1 > tile.position for position, rows in runs)

    def mask(self, tl: "TLContext", tile: Queries, *runs: tuple[int, int]) -> TensorHandle | None:
        """`visible`; None if every query sees every key."""
        return self.visible(tl, tile, *runs) if self.masks(tile, *runs) else None

    def visible(self, tl: "TLContext", tile: Queries, *runs: tuple[int, int]) -> TensorHandle:
        """[tokens, keys], true where the query sees the key. Keys are runs of (position, rows)."""
        keys = tl.arange(runs[0][0], sum(runs[0]))
        for position, rows in runs[1:]:
            keys = tl.cat(keys, tl.arange(position, position + rows), axis=0)
        queries = tl.arange(tile.position, tile.last + 1)
        sees: TensorHandle = queries[:, None] >= keys[None, :]
        return sees

    # Memory

    def load_queries(self, tl: "TLContext", q_ptr: int, tile: Queries) -> TensorHandle:
        """[group * tokens, d_head], heads outermost."""
        return self.load_rows(tl, self.query_address(tl, q_ptr, tile), tile.tokens)

    def load_rows(self, tl: "TLContext", address: int, tokens: int) -> TensorHandle:
        """The queries of a tile of `tokens` tokens, whose first row is at `address`."""
        shape = (self.group, tokens, self.d_head)
        handle = tl.load(address, shape=shape, strides=self._query_strides())
        rows: TensorHandle = tl.reshape(handle, (self.group * tokens, self.d_head))
        return rows

    def store_output(self, tl: "TLContext", o_ptr: int, tile: Queries, rows: TensorHandle) -> None:
        """The counterpart of `load_queries`."""
        self.store_rows(tl, self.query_address(tl, o_ptr, tile), tile.tokens, rows)

    def store_rows(self, tl: "TLContext", address: int, tokens: int, rows: TensorHandle) -> None:
        """The counterpart of `load_rows`."""
        by_head = tl.reshape(rows, (self.group, tokens, self.d_head))
        tl.store(address, by_head, strides=self._query_strides())

    def _query_strides(self) -> tuple[int, int, int]:
        return self.d_head, self.h_q * self.d_head, 1

    def query_address(self, tl: "TLContext", pointer: int, tile: Queries) -> int:
        """The address of the first row of a tile in Q, or in O."""
        row = tile.user * self.query_rows() + tile.first
        elements = row * self.h_q * self.d_head + tile.head * self.group * self.d_head
        return pointer + elements * ITEMSIZE[tl.element_type(pointer)]

    def load_keys(self, tl: "TLContext", pointer: int, user: int, block: Keys) -> TensorHandle:
        """A block of this rank's K or V, [rows, d_head]."""
        return self.load_key_rows(tl, self.key_address(tl, pointer, user, block), block.rows)

    def key_address(self, tl: "TLContext", pointer: int, user: int, block: Keys) -> int:
        """The address of the first row of a block of this rank's K or V."""
        row = user * self.stored_rows + block.first
        elements = (row * self.h_kv + block.head) * self.d_head
        return pointer + elements * ITEMSIZE[tl.element_type(pointer)]

    def load_key_rows(self, tl: "TLContext", address: int, rows: int) -> TensorHandle:
        """Rows of one head of K or V in a tensor."""
        return load_head_rows(tl, address, (rows, self.d_head), self.key_strides)

    @property
    def key_strides(self) -> tuple[int, int]:
        """Strides of the rows of one head of K or V in a tensor."""
        return self.h_kv * self.d_head, 1

    def key_shape(self, block: Keys) -> tuple[int, int]:
        """Shape of a block's K, and of its V."""
        return block.rows, self.d_head


def load_head_rows(tl: "TLContext", address: int, shape: tuple[int, int], strides: tuple[int, int]) -> TensorHandle:
    """Rows of one head of K or V in a tensor."""
    handle: TensorHandle = tl.load(address, shape=shape, strides=strides)
    return handle


def _cuts(segment: Segment, most: int) -> list[Segment]:
    """A run in pieces of at most `most` rows, as equal as possible: a last piece of a few rows would not fill the
    array.
    """
    size = -(-segment.rows // -(-segment.rows // most))
    starts = range(0, segment.rows, size)
    return [Segment(segment.first + i, segment.position + i, min(size, segment.rows - i)) for i in starts]


def by_head(tiles: Sequence[Queries]) -> list[tuple[int, list[int]]]:
    """(head, numbers of its tiles)."""
    heads = sorted({tile.head for tile in tiles})
    return [(head, [i for i, tile in enumerate(tiles) if tile.head == head]) for head in heads]


def have_one_head(tiles: Sequence[Queries]) -> bool:
    """Whether there are tiles, and all are of the same head."""
    return len({tile.head for tile in tiles}) == 1


def without_position(tiles: Sequence[Queries]) -> tuple[Queries, ...]:
    """The tiles without their positions in memory: what decides which commands process them."""
    return tuple(tile._replace(user=0, head=0, first=0) for tile in tiles)


def make_tiling(
    tl: "TLContext",
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
    zigzag: bool = False,
    every_pe: bool = False,
) -> Tiling | None:
    """The tiling for the calling PE; None on PEs that only hold replicas and have nothing to do, unless `every_pe`.

    `shapes` is (S_q, S_kv_per_rank, h_q, h_kv, d_head, n_ranks) as every attention kernel takes them.
    """
    S_q, S_kv_per_rank, h_q, h_kv, d_head, n_ranks = shapes
    if rank_axis == 1 and tl.program_id(0) != 0 and not every_pe:
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
        block_q or DEFAULT_ROWS,
        block_kv or max(1, min(DEFAULT_KEYS, MESSAGE // (4 * d_head))),
        zigzag,
    )
