"""Query tiles over long blocks of keys: the tiling for an array whose fill and drain are expensive.

A product of a tile with values costs (R + C - 2 + keys) cycles for each piece of the array's size, so long blocks spend
little of it on filling the array; scores cost (R + C - 2 + d_head) for any block. Rows are few in exchange, so
that two blocks of scores fit the scratch memory. Scores are computed one block ahead of the softmax, also from one tile
to the next, so that GEMM and MATH never wait for each other's last block. Under a causal mask the last block
ends at the last key that the tile sees.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from kernbench.benches.gqa_attention.parts.online_softmax import State, absorb_keeping, finish, start
from kernbench.benches.gqa_attention.parts.tiles import Queries, Tiling
from kernbench.common.dtypes import ITEMSIZE
from kernbench.common.pe_commands import TensorHandle

if TYPE_CHECKING:
    from kernbench.triton_emu.tl_context import TLContext

LONG_ROWS, LONG_KEYS, SHORTEST_KEYS, COLUMNS = 256, 1024, 256, 64
# keys up to which a sequence is short
SHORT = 16 * LONG_KEYS
# usable fraction of the scratch memory; the rest is for small values and gaps between blocks
USABLE = 0.9


class Rows(NamedTuple):
    """One head of K or V in HBM: address of its first row, bytes from a row to the next, and elements."""

    address: int
    step: int
    elements: int


@dataclass
class _Tile:
    """A tile in progress."""

    tile: Queries
    q: TensorHandle
    state: State


@dataclass
class _Scores:
    """Scores whose softmax is still to come: `position` of their first key if some query does not see all of them,
    and whether they are the tile's last.
    """

    of: _Tile
    s: TensorHandle
    v: TensorHandle
    position: int | None
    last: bool


class LongFold:
    """Processes tiles in order; `done(tile, rows)` is called with each tile's finished rows, one tile late.

    `types` are the element types of K and V.
    """

    def __init__(
        self, tl: "TLContext", tiling: Tiling, types: Sequence[str], done: Callable[[Queries, TensorHandle], None]
    ):
        self._tl = tl
        self._tiling = tiling
        self._done = done
        self._k: TensorHandle | None = None
        self._ahead: _Scores | None = None
        self._folded: _Tile | None = None
        # the large values are allocated first, side by side, so that small ones leave no gaps between them: scores
        # alternate between two blocks of memory, and each two of K and V reuse these
        rows = tiling.group * min(tiling.tokens_per_tile, max(1, tiling.S_q))
        self._free = [tl.zeros((rows, tiling.block_kv)) for _ in range(2)]
        _room = [tl.zeros((tiling.block_kv, tiling.d_head), dtype) for dtype in types for _ in range(2)]

    def fold(self, tile: Queries, q: TensorHandle, keys: tuple[Rows, Rows]) -> None:
        """Process all keys that the tile sees; `keys` are the user's K and V of its head."""
        tiling, total = self._tiling, self._tiling.total_kv[tile.user]
        work = _Tile(tile, q, start(self._tl, q.shape[0], tiling.d_head))
        # keys that some query sees, and those that all see
        seen, clear = (
            (total, total) if not tiling.causal else (_within(total, n + 1) for n in (tile.last, tile.position))
        )
        if not seen:
            self.flush()
            self._folded = work
            return
        size = min(tiling.block_kv, total)
        rows = _even(seen, size)
        blocks = -(-seen // rows)
        # blocks without a mask for which a load of the full size does not reach beyond the last key
        plain = min(blocks - 1, clear // rows, (total - size) // rows + 1)
        if plain:
            self._push(work, [self._load(at, at.address, size)[:rows] for at in keys])
        for block in self._tl.range(1, plain):
            self._push(work, [self._load(at, at.address + block * (rows * at.step), size)[:rows] for at in keys])
        for block in range(plain, blocks):
            self._push_edge(work, keys, (block * rows, min(rows, seen - block * rows)), block == blocks - 1)

    def flush(self) -> tuple[TensorHandle, ...]:
        """Finish all tiles so far; returns the memory held."""
        self._absorb_ahead()
        self._finish()
        return (*self._free, *(() if self._k is None else (self._k,)))

    def _load(self, at: Rows, address: int, size: int) -> TensorHandle:
        """Rows from `address` on. All loads have one size: blocks of many sizes would leave gaps in scratch."""
        shape, strides = (size, self._tiling.d_head), (at.elements, 1)
        whole: TensorHandle = self._tl.load(address, shape=shape, strides=strides)
        return whole

    def _push_edge(self, work: _Tile, keys: tuple[Rows, Rows], block: tuple[int, int], last: bool) -> None:
        """Process a block (position, rows) that needs a mask, or is at the end of the keys."""
        position, rows = block
        total = self._tiling.total_kv[work.tile.user]
        size = min(self._tiling.block_kv, total)
        first = min(position, total - size)
        some = slice(position - first, position - first + rows)
        self._push(work, [self._load(at, at.address + first * at.step, size)[some] for at in keys], position, last)

    def _push(self, work: _Tile, pair: list[TensorHandle], position: int | None = None, last: bool = False) -> None:
        """Compute a block's scores, then the softmax of the block before."""
        k, v = pair
        s = self._tl.dot(work.q, self._tl.trans(k), out=self._free.pop(0))
        # held for one block more, so that the next K is loaded to other memory while this one is still read
        self._k = k
        self._absorb_ahead()
        self._ahead = _Scores(work, s, v, position, last)

    def _absorb_ahead(self) -> None:
        """The softmax of the block whose scores were computed last.

        The tile before is finished only then: its last product is done meanwhile, and MATH need not wait for it.
        """
        job, self._ahead = self._ahead, None
        if job is None:
            return
        tl, work, tiling = self._tl, job.of, self._tiling
        mask = None if job.position is None else tiling.mask(tl, work.tile, (job.position, job.s.shape[1]))
        work.state, free = absorb_keeping(tl, work.state, job.s, job.v, tiling.scale, mask)
        self._free.append(free)
        self._finish()
        if job.last:
            self._folded = work

    def _finish(self) -> None:
        work, self._folded = self._folded, None
        if work is not None:
            self._done(work.tile, finish(self._tl, work.state))


def _within(total: int, keys: int) -> int:
    return max(0, min(total, keys))


def _even(rows: int, most: int) -> int:
    """Rows of a block, for the fewest and most equal blocks: unequal ones leave an engine idle between them.

    A multiple of the array's columns, if the largest block has that many.
    """
    size = -(-rows // -(-rows // most))
    return min(most, -(-size // COLUMNS) * COLUMNS)


def long_blocks(
    tl: "TLContext", tiling: Tiling, pointers: Sequence[int], block_q: int | None, block_kv: int | None
) -> Tiling:
    """The tiling with tiles of few rows and blocks of many keys, as large as the scratch memory allows."""
    keys = max(1, min(block_kv or LONG_KEYS, max(tiling.total_kv)))
    tokens = max(1, min((block_q or LONG_ROWS) // tiling.group, tiling.S_q))
    while _bytes(tl, tiling, pointers, tokens, keys) > tl.scratch_size * USABLE and (keys > 1 or tokens > 1):
        if keys > SHORTEST_KEYS or tokens == 1:
            # a quarter less, in whole columns of the array
            keys = max(3 * keys // 4 // COLUMNS * COLUMNS, -(-keys // 2))
        else:
            tokens //= 2
    return replace(tiling, block_q=tokens * tiling.group, block_kv=keys)


def _bytes(tl: "TLContext", tiling: Tiling, pointers: Sequence[int], tokens: int, keys: int) -> int:
    """Two blocks of scores with masks, two of K and V, two tiles of queries with a state each.

    For a short sequence many blocks have masks, of many sizes, which leave gaps: one block of K or V more.
    """
    q_size, *key_sizes = (ITEMSIZE[tl.element_type(p)] for p in pointers[:3])
    rows, d_head = tiling.group * tokens, tiling.d_head
    twice = rows * keys * 4 + tokens * keys + keys * d_head * sum(key_sizes) + rows * (d_head * (4 + q_size) + 16)
    spare = keys * d_head * max(key_sizes) if max(tiling.total_kv) <= SHORT else 0
    return 2 * twice + spare
