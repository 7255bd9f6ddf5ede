"""The tokens of a sequence that a rank holds: one contiguous run, or two that mirror each other (zigzag).

Under a causal mask the last tokens see every key and the first almost none. With contiguous shards the last rank has
nearly twice the mean work; with zigzag shards rank r of P holds runs r and 2P - 1 - r of 2P, and all have the same.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Segment(NamedTuple):
    """A run of tokens on a rank: first row in its shard, position in the sequence, rows."""

    first: int
    position: int
    rows: int


def contiguous(total: int, rank: int, per_rank: int) -> list[Segment]:
    """Rank r holds tokens r * per_rank and on; the last shards may be shorter or empty."""
    rows = min(max(total - rank * per_rank, 0), per_rank)
    return [Segment(0, rank * per_rank, rows)] if rows else []


def zigzag(total: int, rank: int, n_ranks: int) -> list[Segment]:
    """Rank r holds runs r and 2 * n_ranks - 1 - r of 2 * n_ranks equal ones; the last runs may be shorter or empty."""
    run = -(-total // (2 * n_ranks))
    segments: list[Segment] = []
    for number in (rank, 2 * n_ranks - 1 - rank):
        rows = min(max(total - number * run, 0), run)
        if rows:
            segments.append(Segment(sum(s.rows for s in segments), number * run, rows))
    return segments


def zigzag_rows(total: int, n_ranks: int) -> list[NDArray[np.int64]]:
    """The tokens of every rank, in the order of its shard: the `rows` of the host's tensors."""
    runs = [[np.arange(s.position, s.position + s.rows) for s in zigzag(total, r, n_ranks)] for r in range(n_ranks)]
    return [np.concatenate([np.empty(0, np.int64), *parts]) for parts in runs]
