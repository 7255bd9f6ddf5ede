"""The path of a batch, merged from the paths of its pieces: how many instructions it would have run as one.

A path (*way*) is the list of basic blocks that a piece ran, by number, with what happened whenever none of its warps
could continue: completed waits were woken (`WOKEN`), or else what was in flight arrived (`ARRIVED`).

The scheduler always runs the fragment that is first in program order, and fragments at one block are merged. CTAs of
different pieces share nothing that affects that choice. So among the next blocks of all pieces the batch runs the
first one, for all pieces that are at it. Waits are woken only when all pieces are stuck: as in one piece, completed
waits before anything in flight arrives, and arrivals in all pieces at once.

That holds where waits are for barriers and asynchronous work. A piece with polling loops, barriers of clusters or
calls that are not inlined has no path that could be merged.
"""

from collections.abc import Sequence

# block numbers are never negative
WOKEN, ARRIVED = -1, -2
# maximal entries of a path
MOST = 1 << 20


def merged_steps(ways: Sequence[Sequence[int]], ranks: Sequence[int], sizes: Sequence[int]) -> int:
    """The instructions that a batch runs if its pieces take these paths; `ranks` and `sizes` are by block."""
    coming = [iter(way) for way in ways]
    # the next entry of each piece that has not ended
    heads = {piece: first for piece, way in enumerate(coming) if (first := next(way, None)) is not None}
    steps = 0
    while heads:
        following = _following(heads, ranks)
        if following >= 0:
            steps += sizes[following]
        for piece in [piece for piece, head in heads.items() if head == following]:
            head = next(coming[piece], None)
            if head is None:
                del heads[piece]
            else:
                heads[piece] = head
    return steps


def _following(heads: dict[int, int], ranks: Sequence[int]) -> int:
    """The next event of the batch."""
    first = min((head for head in heads.values() if head >= 0), key=ranks.__getitem__, default=None)
    return max(heads.values()) if first is None else first
