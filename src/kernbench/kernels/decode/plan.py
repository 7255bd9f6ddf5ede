"""Partition of the work: every CTA gets equally many tiles, across the borders of sequences and heads.

The work is a sequence of tiles: for each sequence, for each of its KV heads, the tiles of its keys. CTA w of W takes
tiles [w T / W, (w + 1) T / W) of all T. A CTA's tiles of one head of a sequence are a *segment*. A segment that is all
of its head writes the output; others write partial sums, at most two per CTA, and the last CTA of a head merges them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.errors import MisuseError
from kernbench.kernels.decode.shape import TILE, DecodeShape

# products of tiles and CTAs are computed in 32 bits
_MOST = 1 << 32
# numbers that a CTA reads at its start, and for each sequence
BEGIN, RECORD = 12, 4


@dataclass(frozen=True)
class DecodePlan:
    """The partition for given lengths; `tile_starts` [sequences + 1] counts the tiles of one KV head.

    A kernel reads `records` [sequences, 4]: the first tile of a sequence (counted for one head), the number of its
    tiles, of its keys, and its first row in a dense cache; and `begins` [CTAs, 12]: the sequence, the head
    and the first tile of a CTA, that tile's number among all, the sequence's record, the CTA's end tile,
    the numbers of all tiles and of CTAs with tiles, and a zero. The remaining CTAs have no tiles.
    """

    shape: DecodeShape
    lengths: tuple[int, ...]
    ctas: int
    tile_starts: Array

    @classmethod
    def of(cls, shape: DecodeShape, lengths: Sequence[int], sms: int, *, fixed: bool = False) -> "DecodePlan":
        """One CTA for each SM, fewer if there are fewer tiles; a sequence without keys has one tile.

        With `fixed` there are as many CTAs as SMs for any lengths, so that one captured launch can be replayed for all.
        """
        if not len(lengths):
            raise MisuseError("there are no sequences: nothing is to be launched")
        if min(lengths) < 0:
            raise MisuseError(f"lengths = {list(lengths)}: none may be negative")
        tiles = np.maximum(1, -(-np.asarray(lengths, np.int64) // TILE))
        starts = np.concatenate([[0], np.cumsum(tiles)])
        total = int(starts[-1]) * shape.kv_heads
        ctas = sms if fixed else min(sms, total)
        if (total + 1) * ctas >= _MOST:
            raise MisuseError(f"{total:,} tiles of {TILE} keys are too many for one launch: split the batch")
        return cls(shape, tuple(map(int, lengths)), ctas, starts.astype(np.uint32))

    @property
    def tiles(self) -> int:
        """Tiles of all heads."""
        return int(self.tile_starts[-1]) * self.shape.kv_heads

    @property
    def working(self) -> int:
        """CTAs that have tiles."""
        return min(self.ctas, self.tiles)

    @property
    def partial_shape(self) -> tuple[int, int, int]:
        """Partial sums: two for each CTA."""
        return 2 * self.ctas, self.shape.group, self.shape.head_size

    @property
    def stats_shape(self) -> tuple[int, int, int]:
        """The maximum and the total of each partial sum."""
        return (*self.partial_shape[:2], 2)

    @property
    def counters(self) -> int:
        """The number of arrival counters: one for each sequence and KV head."""
        return len(self.lengths) * self.shape.kv_heads

    def begin(self, cta: int) -> int:
        """The first tile of a CTA."""
        return min(cta, self.working) * self.tiles // self.working

    def records(self, rows: Sequence[int] | None = None) -> Array:
        """The kernel's record of each sequence; by default, sequences are consecutive in the cache."""
        starts, lengths = self.tile_starts.astype(np.int64), np.asarray(self.lengths, np.int64)
        first = np.cumsum(lengths) - lengths if rows is None else np.asarray(rows, np.int64)
        if len(first) != len(lengths):
            raise MisuseError(f"{len(first)} first rows for {len(lengths)} sequences")
        return np.stack([starts[:-1], np.diff(starts), lengths, first], 1).astype(np.uint32)

    def begins(self, records: Array) -> Array:
        """The kernel's record of each CTA."""
        working, total, heads = self.working, self.tiles, self.shape.kv_heads
        edges = np.arange(working + 1, dtype=np.int64) * total // working
        position = edges[:-1]
        sequence = np.searchsorted(self.tile_starts.astype(np.int64) * heads, position, "right") - 1
        mine = records[sequence]
        head, tile = np.divmod(position - mine[:, 0].astype(np.int64) * heads, mine[:, 1])
        made = np.zeros((self.ctas, BEGIN), np.uint32)
        made[:, 8:11] = total, total, working
        made[:, 3] = total
        made[:working, :4] = np.stack([sequence, head, tile, position], 1)
        made[:working, 4:8] = mine
        made[:working, 8] = edges[1:]
        return made

    def explain(self) -> str:
        """The partition in words."""
        shape, tiles = self.shape, [self.begin(i + 1) - self.begin(i) for i in range(self.working)]
        keys = sum(self.lengths)
        cut = sum(self._parts(item) > 1 for item in range(self.counters))
        nbytes = 2 * keys * shape.kv_heads * shape.head_size * 2
        return (
            f"{len(self.lengths)} sequences with {keys:,} keys, {shape.kv_heads} KV heads of {shape.head_size}: "
            f"{nbytes / 1e6:,.1f} MB of keys and values in {self.tiles:,} tiles of {TILE} keys over {self.working} "
            f"CTAs, {min(tiles)} to {max(tiles)} tiles each; {cut} of {self.counters} heads are shared by CTAs and "
            "merged"
        )

    def _parts(self, item: int) -> int:
        sequence, head = divmod(item, self.shape.kv_heads)
        start, end = (int(number) for number in self.tile_starts[sequence : sequence + 2])
        first = start * self.shape.kv_heads + head * (end - start)
        return self._owner(first + end - start - 1) - self._owner(first) + 1

    def _owner(self, tile: int) -> int:
        """The CTA of a tile: the last that begins at it or before."""
        return ((tile + 1) * self.working - 1) // self.tiles
