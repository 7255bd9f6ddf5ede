"""Waves on an open line: what every rank holds travels east and west at once, one hop a step.

At step s rank i passes on what it got at step s - 1: east what came from rank i - (s - 1), west what came from rank
i + (s - 1). So rank i's goods reach rank j at step |i - j|, each exactly once, and no wrap link is needed.
"""

from typing import Any, Protocol

from kernbench.common.pe_commands import TensorHandle

# two handles that travel together: K and V of a block, or (m, l) and o of a partial
Pair = tuple[TensorHandle, TensorHandle]
PairShapes = tuple[tuple[int, ...], str, tuple[int, ...], str]
# a direction and whose goods go there, or come from there; None for nobody's
Route = tuple[str, int | None]


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


def travel(rank: int, n_ranks: int, step: int) -> tuple[int | None, int | None, int | None, int | None]:
    """Whose goods go east, go west, come from the west and come from the east at `step`; None for nobody's."""
    out_east = rank - (step - 1) if rank < n_ranks - 1 else -1
    out_west = rank + (step - 1) if rank > 0 else n_ranks
    in_west, in_east = rank - step, rank + step
    kept = (out_east, out_west, in_west, in_east)
    east, west, from_west, from_east = (r if 0 <= r < n_ranks else None for r in kept)
    return east, west, from_west, from_east


def exchange(tl: Any, goods: Goods, sends: list[Route], receives: list[Route]) -> None:
    """One step: the goods of whole ranks move a hop, pair by pair.

    Each pair is sent both ways before any is received, so a queue must hold two messages; with depth 1 two neighbours
    that both send wait for each other for ever.
    """
    counts = [goods.count(owner) for _, owner in sends + receives if owner is not None]
    for number in range(max(counts, default=0)):
        for direction, owner in sends:
            if owner is not None and number < goods.count(owner):
                for handle in goods.get(owner, number):
                    tl.send(dir=direction, src=handle)
        for direction, owner in receives:
            if owner is not None and number < goods.count(owner):
                first_shape, first_type, second_shape, second_type = goods.shapes(owner, number)
                first = tl.recv(dir=direction, shape=first_shape, dtype=first_type)
                second = tl.recv(dir=direction, shape=second_shape, dtype=second_type)
                goods.put(owner, number, (first, second))
