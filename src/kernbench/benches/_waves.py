"""Waves in lockstep: what every rank holds moves one hop a step, and is passed on only when all of it has arrived."""

from typing import Any, Protocol

from kernbench.benches._routes import Hop, Route
from kernbench.common.pe_commands import TensorHandle

# handles that travel together: K and V of a block, or (m, l) and o of a partial
Pair = tuple[TensorHandle, ...]
# their shapes and element types, one after the other
PairShapes = tuple[Any, ...]


class Goods(Protocol):
    """What travels: each rank owns `count` pairs; they are got to be sent, and put when they arrive."""

    def count(self, owner: int) -> int:
        """Pairs that `owner` started with."""

    def shapes(self, owner: int, number: int) -> PairShapes:
        """Shape and element type of both handles of a pair."""

    def get(self, owner: int, number: int) -> Pair:
        """A pair to pass on."""

    def put(self, owner: int, number: int, pair: Pair) -> None:
        """A pair that arrived."""


def exchange(tl: Any, goods: Goods, hop: Hop) -> list[int]:
    """One step: the goods of whole ranks move a hop, pair by pair; whose have arrived.

    Each pair is sent both ways before any is received, so a queue must hold two messages; with depth 1 two neighbours
    that both send wait for each other for ever.
    """
    counts = [goods.count(route.owner) for route in hop.sends + hop.receives if route.owner is not None]
    for number in range(max(counts, default=0)):
        for route in hop.sends:
            if route.owner is not None and number < goods.count(route.owner):
                pair = goods.get(route.owner, number)
                for part in route.parts:
                    tl.send(dir=route.direction, src=pair[part])
        _take(tl, goods, hop.receives, number)
    return list(dict.fromkeys(route.owner for route in hop.receives if route.owner is not None))


def _take(tl: Any, goods: Goods, routes: list[Route], number: int) -> None:
    """Receive the pairs of this number; one pair may come in two halves from two sides."""
    arrived: dict[int, dict[int, TensorHandle]] = {}
    for route in routes:
        if route.owner is not None and number < goods.count(route.owner):
            shapes = goods.shapes(route.owner, number)
            for part in route.parts:
                handle = tl.recv(dir=route.direction, shape=shapes[2 * part], dtype=shapes[2 * part + 1])
                arrived.setdefault(route.owner, {})[part] = handle
    for owner, halves in arrived.items():
        goods.put(owner, number, tuple(halves[part] for part in sorted(halves)))
