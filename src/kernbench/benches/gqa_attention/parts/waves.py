"""Waves in lockstep: what every rank holds moves one hop per step, and is passed on only when all of it has arrived."""

from typing import TYPE_CHECKING, Any, Protocol

from kernbench.benches.gqa_attention.parts.routes import BOTH, Hop, Route
from kernbench.common.pe_commands import TensorHandle

if TYPE_CHECKING:
    from kernbench.triton_emu.tl_context import TLContext

# handles that are sent together: K and V of a block, or (m, l) and o of a partial
Pair = tuple[TensorHandle, ...]
# their shapes and element types, one after the other
PairShapes = tuple[Any, ...]


class Goods(Protocol):
    """What is exchanged: each rank owns `count` pairs, read by `get` to be sent, and stored by `put` on arrival."""

    def count(self, owner: int) -> int:
        """Pairs that `owner` started with."""

    def shapes(self, owner: int, number: int) -> PairShapes:
        """Shape and element type of both handles of a pair."""

    def get(self, owner: int, number: int) -> Pair:
        """A pair to pass on."""

    def put(self, owner: int, number: int, pair: Pair) -> None:
        """A pair that arrived."""


def exchange(tl: "TLContext", goods: Goods, hop: Hop) -> list[int]:
    """One step: whole chunks move a hop, pair by pair; returns the owners of those that arrived.

    Each pair is sent both ways before any is received, so a queue must hold two messages; with depth 1 two neighbours
    that both send deadlock.
    """
    sends, receives = _present(goods, hop.sends), _present(goods, hop.receives)
    whole = all(route.parts == BOTH for route, _, _ in receives)
    for number in range(max((count for _, _, count in sends + receives), default=0)):
        for route, owner, count in sends:
            if number < count:
                pair = goods.get(owner, number)
                for part in route.parts:
                    tl.send(dir=route.direction, src=pair[part])
        here = [(route, owner) for route, owner, count in receives if number < count]
        if whole:
            for route, owner in here:
                shape, dtype, second_shape, second_dtype = goods.shapes(owner, number)
                first = tl.recv(dir=route.direction, shape=shape, dtype=dtype)
                second = tl.recv(dir=route.direction, shape=second_shape, dtype=second_dtype)
                goods.put(owner, number, (first, second))
        else:
            _take(tl, goods, here, number)
    return list(dict.fromkeys(owner for _, owner, _ in receives))


def _present(goods: Goods, routes: list[Route]) -> list[tuple[Route, int, int]]:
    """The routes with a chunk, with its owner and number of pairs."""
    return [(route, route.owner, goods.count(route.owner)) for route in routes if route.owner is not None]


def _take(tl: "TLContext", goods: Goods, routes: list[tuple[Route, int]], number: int) -> None:
    """Receive pairs of which only some handles are sent, or whose halves come from two sides."""
    arrived: dict[int, dict[int, TensorHandle]] = {}
    for route, owner in routes:
        shapes = goods.shapes(owner, number)
        for part in route.parts:
            handle = tl.recv(dir=route.direction, shape=shapes[2 * part], dtype=shapes[2 * part + 1])
            arrived.setdefault(owner, {})[part] = handle
    for owner, halves in arrived.items():
        goods.put(owner, number, tuple(halves[part] for part in sorted(halves)))
