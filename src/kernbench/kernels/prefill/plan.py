"""The work of a prefill: tiles of 128 query rows of a head, those with the most keys first.

CTA w of W takes tiles w, w + W, w + 2 W, ... of the list. Query heads that share a KV head are adjacent, so
that their keys and values come from L2 for all but one of them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.errors import MisuseError
from kernbench.kernels.prefill.shape import ROWS, PrefillShape


@dataclass(frozen=True)
class PrefillPlan:
    """Tiles for sequences of given lengths; `records` [tiles, 8] is what the kernel reads for each.

    First row in q, number of the tile's rows in the sequence, the head, the first row in k (for a paged cache the
    sequence's index), keys of the sequence, the key position of row 0, the first tile of keys that some row sees, and
    the number of tiles of keys.
    """

    shape: PrefillShape
    query_lengths: tuple[int, ...]
    key_lengths: tuple[int, ...]
    ctas: int
    records: Array

    @classmethod
    def of(
        cls, shape: PrefillShape, query_lengths: Sequence[int], key_lengths: Sequence[int] | None = None, sms: int = 132
    ) -> "PrefillPlan":
        """A plan; by default there are as many keys as queries."""
        queries = tuple(map(int, query_lengths))
        keys = queries if key_lengths is None else tuple(map(int, key_lengths))
        if len(keys) != len(queries):
            raise MisuseError(f"{len(keys)} numbers of keys for {len(queries)} sequences")
        for count, seen in zip(queries, keys, strict=True):
            if count < 0 or seen < 0:
                raise MisuseError(f"lengths {count} and {seen}: none may be negative")
            if shape.causal and seen < count:
                raise MisuseError(f"{count} queries and {seen} keys: causal queries need a key each")
        records = _records(shape, queries, keys)
        if not len(records):
            raise MisuseError("there are no queries: nothing is to be launched")
        return cls(shape, queries, keys, min(sms, len(records)), records)

    @property
    def flops(self) -> int:
        """Floating-point operations of the visible scores."""
        pairs = 0
        for count, seen in zip(self.query_lengths, self.key_lengths, strict=True):
            at = np.arange(seen - count, seen, dtype=np.int64) + 1
            visible = np.minimum(at, self.shape.window) if self.shape.window else at
            pairs += int(visible.sum()) if self.shape.causal else count * seen
        return 4 * pairs * self.shape.heads * self.shape.head_size

    def explain(self) -> str:
        """The partition in words."""
        counts = self.records[:, 7]
        loads = [int(counts[i :: self.ctas].sum()) for i in range(self.ctas)]
        return (
            f"{sum(self.query_lengths):,} queries of {len(self.query_lengths)} sequences, {self.shape.heads} heads: "
            f"{len(counts):,} tiles of {ROWS} rows over {self.ctas} CTAs, {min(loads)} to {max(loads)} steps of "
            f"{self.shape.keys} keys each; {self.flops / 1e12:.3f} TFLOP"
        )


def _records(shape: PrefillShape, queries: tuple[int, ...], keys: tuple[int, ...]) -> Array:
    rows = []
    first_query = first_key = 0
    for number, (count, seen) in enumerate(zip(queries, keys, strict=True)):
        where = number if shape.paged else first_key
        for start in range(0, count, ROWS):
            held = min(ROWS, count - start)
            at = seen - count + start
            last = min(seen, at + held) if shape.causal else seen
            first = max(0, at - shape.window + 1) // shape.keys if shape.window else 0
            tiles = max(1, -(-last // shape.keys) - first)
            rows.append((first_query + start, held, where, seen, at, first, tiles))
        first_query += count
        first_key += seen
    rows.sort(key=lambda row: -row[6])
    table = np.array(rows, np.int64).reshape(-1, 7)
    # all heads of one tile, then the next
    whole = np.repeat(table, shape.heads, axis=0)
    heads = np.tile(np.arange(shape.heads), len(table))
    return np.insert(whole, 2, heads, axis=1).astype(np.int32)
