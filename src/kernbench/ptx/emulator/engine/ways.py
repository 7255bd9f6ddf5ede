"""The way of a batch, made of the ways of its pieces: how many instructions it would have run as one.

A way is the blocks that a piece ran, by their numbers, with what happened whenever no warp of it could go on: waits
that had become complete were woken (`WOKEN`), or else what was in flight arrived (`ARRIVED`).

The scheduler always runs the fragment that stands first in the program, and fragments at one block are one. CTAs of
different pieces share nothing that has a say in that. So the batch runs, of all blocks that its pieces would run next,
the first, for all pieces that would run it. Only when all pieces are stuck does anything happen to those who wait: as
in one piece, what is complete is woken before anything in flight arrives, and what arrives does so everywhere at once.

That holds where waits are for barriers and asynchronous work. A piece with loops that poll, barriers of clusters or
calls that are not inlined has no way that could be merged.
"""

from collections.abc import Sequence

# numbers of blocks are not negative
WOKEN, ARRIVED = -1, -2
# entries after which a way is given up
MOST = 1 << 20


def merged_steps(ways: Sequence[Sequence[int]], ranks: Sequence[int], sizes: Sequence[int]) -> int:
    """Instructions that a batch runs whose pieces have these ways; of blocks, by number, their ranks and sizes."""
    coming = [iter(way) for way in ways]
    # what each piece that has not ended does next
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
    """What the batch does next."""
    first = min((head for head in heads.values() if head >= 0), key=ranks.__getitem__, default=None)
    return max(heads.values()) if first is None else first
