"""Routes on which every rank's chunk reaches every other rank: what each rank sends and receives, step by step.

A route along an open line needs P - 1 steps, since the ends have one link. Round a cycle over the grid's own
links, in both directions at once, P / 2 steps suffice; in the last one K of the opposite rank comes one way and its V
the other.
"""

from collections.abc import Sequence
from typing import NamedTuple

KEY, VALUE = 0, 1
BOTH = (KEY, VALUE)


class Route(NamedTuple):
    """A direction, the owner of the chunk sent or received there (None: no chunk), and which handles of each pair."""

    direction: str
    owner: int | None
    parts: tuple[int, ...] = BOTH


class Hop(NamedTuple):
    """What one step sends, and what it receives."""

    sends: list[Route]
    receives: list[Route]


def along_line(rank: int, n_ranks: int) -> list[Hop]:
    """East and west at once on an open line: rank i's chunk reaches rank j at step |i - j|."""
    return along_chain(rank, range(n_ranks))


def along_chain(
    rank: int, chain: Sequence[int], low: str = "W", high: str = "E", parts: tuple[int, ...] = BOTH
) -> list[Hop]:
    """Both ways at once along the open line of ranks `chain`, whose ends are in the directions `low` and `high`."""
    position, length = list(chain).index(rank), len(chain)

    def route(direction: str, owner: int) -> Route:
        return Route(direction, chain[owner] if 0 <= owner < length else None, parts)

    hops = []
    for step in range(1, length):
        up = position - (step - 1) if position < length - 1 else -1
        down = position + (step - 1) if position > 0 else length
        hops.append(
            Hop([route(high, up), route(low, down)], [route(low, position - step), route(high, position + step)])
        )
    return hops


def round_ring(rank: int, n_ranks: int) -> list[Hop]:
    """East only, round a closed ring of ranks."""
    return [
        Hop([Route("E", (rank - step + 1) % n_ranks)], [Route("W", (rank - step) % n_ranks)])
        for step in range(1, n_ranks)
    ]


def round_cycle(rank: int, order: Sequence[int]) -> list[Hop]:
    """East and west at once round the cycle `order`."""
    n_ranks, position = len(order), list(order).index(rank)

    def owner(away: int) -> int:
        return order[(position + away) % n_ranks]

    hops = []
    for step in range(1, n_ranks // 2 + 1):
        # the opposite rank's chunk comes once: its K from the west, its V from the east
        parts = ((KEY,), (VALUE,)) if 2 * step == n_ranks else (BOTH, BOTH)
        east, west = Route("E", owner(1 - step), parts[0]), Route("W", owner(step - 1), parts[1])
        hops.append(Hop([east, west], [Route("W", owner(-step), parts[0]), Route("E", owner(step), parts[1])]))
    return hops
