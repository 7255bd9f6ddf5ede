"""Control flow of one function: a block order in which lanes reconverge, its loops, and liveness.

The order is a weak topological order: a loop's blocks are consecutive, its head first, and what follows the loop comes
after all of it. The scheduler runs the fragment that is first in this order, so lanes that leave a loop early wait for
the others.
"""

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop: its head, and all its blocks including the head."""

    head: int
    blocks: frozenset[int]


@dataclass(frozen=True, slots=True)
class Order:
    """`ranks[block]` in a weak topological order, unreachable blocks last; loops, outer ones first."""

    ranks: tuple[int, ...]
    loops: tuple[Loop, ...]


def order_blocks(successors: Sequence[Sequence[int]], entry: int = 0) -> Order:
    """Rank the blocks of a flow graph."""
    ordered: list[int] = []
    loops: list[Loop] = []
    # work items: a set of blocks to be ordered from an entry, or a single block to be appended
    work: list[tuple[frozenset[int], int | None]] = [(frozenset(range(len(successors))), entry)]
    while work:
        members, start = work.pop()
        if start is None:
            ordered.extend(members)
            continue
        following: list[tuple[frozenset[int], int | None]] = []
        for component in _components(successors, members, start):
            head = component[0]
            if len(component) == 1 and head not in successors[head]:
                following.append((frozenset(component), None))
                continue
            inside = frozenset(component)
            loops.append(Loop(head, inside))
            following.append((frozenset((head,)), None))
            rest = inside - {head}
            inner = next((block for block in successors[head] if block in rest), None)
            if inner is not None:
                following.append((rest, inner))
        work.extend(reversed(following))
    return Order(_ranks(ordered, len(successors)), tuple(loops))


def _ranks(ordered: list[int], count: int) -> tuple[int, ...]:
    ranks = [count] * count
    for rank, block in enumerate(dict.fromkeys(ordered)):
        ranks[block] = rank
    return tuple(ranks)


def _components(successors: Sequence[Sequence[int]], members: frozenset[int], start: int) -> list[list[int]]:
    """Strongly connected components of `members` in topological order; each lists its first visited block first."""
    number: dict[int, int] = {}
    low: dict[int, int] = {}
    stack: list[int] = []
    on_stack: set[int] = set()
    found: list[list[int]] = []
    for root in (start, *sorted(members)):
        if root in number or root not in members:
            continue
        _visit(root, successors, members, number, low, stack, on_stack, found)
    return [sorted(component, key=number.__getitem__) for component in reversed(found)]


def _visit(
    root: int,
    successors: Sequence[Sequence[int]],
    members: frozenset[int],
    number: dict[int, int],
    low: dict[int, int],
    stack: list[int],
    on_stack: set[int],
    found: list[list[int]],
) -> None:
    """Tarjan's search from one root, without recursion; components are found in reverse topological order."""
    walk: list[tuple[int, int]] = [(root, 0)]
    while walk:
        block, index = walk.pop()
        if index == 0:
            number[block] = low[block] = len(number)
            stack.append(block)
            on_stack.add(block)
        descended = False
        for position in range(index, len(successors[block])):
            child = successors[block][position]
            if child not in members:
                continue
            if child not in number:
                walk.append((block, position + 1))
                walk.append((child, 0))
                descended = True
                break
            if child in on_stack:
                low[block] = min(low[block], number[child])
        if descended:
            continue
        if walk:
            parent = walk[-1][0]
            low[parent] = min(low[parent], low[block])
        if low[block] == number[block]:
            component = []
            while True:
                member = stack.pop()
                on_stack.discard(member)
                component.append(member)
                if member == block:
                    break
            found.append(component)
