"""The timing problem, for any target: nodes that take time, and edges for dependences.

A node starts when all its predecessors have finished (plus the edge's lag). It then takes a fixed time, and if it has a
server, also transfers its bytes through that server, whose bandwidth is shared equally by all its current transfers.
Times are integer picoseconds.

Edges are stored by source (CSR). An edge's lag is a class, not a time, so that a graph can be timed again at other
rates: lag class n >= 0 means n dispatches, n < 0 means latency number -n - 1.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernbench.common.compiled import part
from kernbench.common.deferred import deferred

Ints = NDArray[np.int64]
Small = NDArray[np.int32]
Bytes = NDArray[np.int8]
# runs some functions, in any order or in parallel
Together = Callable[[Iterable[Callable[[], object]]], None]
# nodes or edges per parallel piece: the first touch of fresh memory takes the system as long as the write itself, and
# threads can do it in parallel
_AT_ONCE = 1 << 18

# kinds of edges: why a node had to wait
DISPATCH, ENGINE, OPERAND, MESSAGE, CREDIT, LINK, POSTED, SPACE, MEMORY = range(9)
KIND_NAMES = (
    "dispatch",
    "engine order",
    "operand",
    "message",
    "queue full",
    "link order",
    "receive posted",
    "scratch space",
    "memory",
)
NO_SERVER = -1


@dataclass(frozen=True)
class Graph:
    """A graph as CSR: edges of node u are rows offsets[u] to offsets[u + 1] of targets, lags and kinds."""

    offsets: Small
    targets: Small
    lags: Small
    kinds: Bytes
    indegree: Small

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return len(self.indegree)

    @property
    def edges(self) -> int:
        """Number of edges."""
        return len(self.targets)

    @cached_property
    def numbers(self) -> NDArray[np.uint32]:
        """Node numbers: the rank that orders transfers which begin or end at the same time."""
        return np.arange(self.nodes, dtype=np.uint32)

    def number(self, together: Together) -> None:
        """Compute `numbers` in parallel, before their first use."""
        numbers = np.empty(self.nodes, np.uint32)

        def fill(part: slice) -> None:
            numbers[part] = np.arange(part.start, part.stop, dtype=np.uint32)

        together(partial(fill, part) for part in pieces(self.nodes))
        vars(self)["numbers"] = numbers


def one_by_one(works: Iterable[Callable[[], object]]) -> None:
    """Run some functions one after the other."""
    for work in works:
        work()


def pieces(count: int) -> list[slice]:
    """Slices of `count` nodes or edges for parallel work."""
    return [slice(begin, min(begin + _AT_ONCE, count)) for begin in range(0, max(count, 1), _AT_ONCE)]


class Edges(NamedTuple):
    """A list of edges, in insertion order; `filled[0]` of its slots are used."""

    sources: Small
    targets: Small
    lags: Small
    kinds: Bytes
    filled: Ints

    def grown(self) -> "Edges":
        """The same with twice the capacity."""
        more = no_edges(2 * len(self.sources))
        taken = len(self.sources)
        more.sources[:taken], more.targets[:taken] = self.sources, self.targets
        more.lags[:taken], more.kinds[:taken] = self.lags, self.kinds
        return more._replace(filled=self.filled)


def no_edges(room: int) -> Edges:
    """An empty list with this capacity."""
    sources, targets, lags = (np.empty(room, np.int32) for _ in range(3))
    return Edges(sources, targets, lags, np.empty(room, np.int8), np.zeros(1, np.int64))


class GraphBuilder:
    """Builds a graph incrementally, nodes in order with their edges.

    The edges of a node keep their order. At most one edge list exists besides the graph itself, which grows in place.
    """

    def __init__(self, nodes: int, room: int):
        """`room` is the expected number of edges."""
        self._offsets = np.zeros(nodes + 1, np.int32)
        self._targets, self._lags = (np.empty(max(1, room), np.int32) for _ in range(2))
        self._kinds = np.empty(max(1, room), np.int8)
        self._nodes = self._edges = 0

    def add(self, nodes: int, found: Edges) -> Edges:
        """Add the next `nodes` nodes with their edges, whose sources count from 0.

        Edges of source `nodes` belong to a later node; they are not added yet, but returned.
        """
        count = int(found.filled[0])
        self._make_room(count)
        ends = np.zeros(nodes + 1, np.int64)
        _count(found.sources[:count], ends)
        np.cumsum(ends, out=ends)
        total = self._edges + int(ends[-1])
        assert total < 2**31, "edges are numbered by 32 bits"
        last = self._edges + (int(ends[-2]) if nodes else 0)
        self._offsets[self._nodes + 1 : self._nodes + nodes + 1] = self._edges + ends[:-1]
        slots = np.concatenate([[0], ends[:-1]]) + self._edges
        _put_all(found, slots, self._targets, self._lags, self._kinds)
        self._nodes, self._edges = self._nodes + nodes, last
        targets, lags = (column[last:total].copy() for column in (self._targets, self._lags))
        kinds, left = self._kinds[last:total].copy(), total - last
        return Edges(np.zeros(left, np.int32), targets, lags, kinds, np.array([left]))

    def _make_room(self, more: int) -> None:
        wanted = self._edges + more
        if wanted > len(self._targets):
            self._resize(wanted + wanted // 2)

    def _resize(self, room: int) -> None:
        """Resize the columns, in place if possible; nothing else refers to them."""
        self._targets.resize(room, refcheck=False)
        self._lags.resize(room, refcheck=False)
        self._kinds.resize(room, refcheck=False)

    def graph(self) -> Graph:
        """The finished graph; remaining nodes have no edges."""
        self._offsets[self._nodes + 1 :] = self._edges
        self._resize(self._edges)
        indegree = np.zeros(len(self._offsets) - 1, np.int32)
        _count(self._targets, indegree)
        return Graph(self._offsets, self._targets, self._lags, self._kinds, indegree)


def make_graph(nodes: int, sources: Small, targets: Small, lags: Small, kinds: Bytes) -> Graph:
    """The graph of a list of edges."""
    builder = GraphBuilder(nodes, len(sources))
    # convert to the types that the compiled code expects
    sources, targets, lags = (np.ascontiguousarray(column, np.int32) for column in (sources, targets, lags))
    found = Edges(sources, targets, lags, np.ascontiguousarray(kinds, np.int8), np.array([len(sources)]))
    builder.add(nodes, found)
    return builder.graph()


class Unlagged(NamedTuple):
    """A list of edges without lags."""

    sources: Small
    targets: Small
    kinds: Bytes


def graph_of(nodes: int, apart: Sequence[Unlagged], others: Sequence[Unlagged], together: Together) -> Graph:
    """The graph of several edge lists, in this order.

    Lists in `apart` share no source and no target, so that `together` may process them in parallel.
    """
    offsets, indegree = np.zeros(nodes + 1, np.int32), np.zeros(nodes, np.int32)
    together(partial(_count, one.sources, offsets[1:]) for one in apart)
    for one in others:
        _count(one.sources, offsets[1:])
    slots = _summed(offsets, together)
    targets, kinds = np.empty(offsets[-1], np.int32), np.empty(offsets[-1], np.int8)
    together(partial(_put_edges, *one, slots, targets, kinds, indegree) for one in apart)
    for one in others:
        _put_edges(*one, slots, targets, kinds, indegree)
    graph = Graph(offsets, targets, np.zeros(len(targets), np.int32), kinds, indegree)
    graph.number(together)
    return graph


def _summed(offsets: Small, together: Together) -> Small:
    """Turn edge counts (entry u + 1 is that of node u) into offsets in place, and return a copy of them.

    In parallel.
    """
    slots, parts = np.empty(len(offsets), np.int32), pieces(len(offsets))
    together(partial(np.cumsum, offsets[part], out=offsets[part]) for part in parts)
    sums = [0, *np.cumsum([offsets[part.stop - 1] for part in parts]).tolist()]

    def add(part: slice, before: int) -> None:
        np.add(offsets[part], np.int32(before), out=offsets[part])
        slots[part] = offsets[part]

    together(partial(add, part, before) for part, before in zip(parts, sums[:-1], strict=True))
    return slots


def with_other_edges(graph: Graph, first: int, others: Sequence[Unlagged]) -> Graph:
    """A graph without lags, with the edges of nodes from `first` on replaced."""
    kept = int(graph.offsets[first])
    offsets, indegree = graph.offsets.copy(), graph.indegree.copy()
    offsets[first:] = 0
    for one in others:
        _count(one.sources, offsets[1:])
    offsets[first] = kept
    np.cumsum(offsets[first:], out=offsets[first:])
    targets, kinds = np.empty(offsets[-1], np.int32), np.empty(offsets[-1], np.int8)
    targets[:kept], kinds[:kept] = graph.targets[:kept], graph.kinds[:kept]
    _count_off(graph.targets[kept:], indegree)
    slots = offsets[:-1].copy()
    for one in others:
        _put_edges(*one, slots, targets, kinds, indegree)
    changed = Graph(offsets, targets, np.zeros(len(targets), np.int32), kinds, indegree)
    vars(changed)["numbers"] = graph.numbers
    return changed


@part
def put(source, target, lag, kind, edges):  # type: ignore[no-untyped-def]
    """Append an edge to a list, which must have room."""
    slot = edges.filled[0]
    edges.sources[slot], edges.targets[slot], edges.lags[slot], edges.kinds[slot] = source, target, lag, kind
    edges.filled[0] = slot + 1


@part
def owner(edge, offsets):  # type: ignore[no-untyped-def]
    """The source node of an edge, by binary search."""
    low, high = 0, len(offsets) - 1
    while high - low > 1:
        middle = (low + high) >> 1
        if offsets[middle] <= edge:
            low = middle
        else:
            high = middle
    return low


@deferred(lambda found, *_: found.filled[0])
def _put_all(found, slots, targets, lags, kinds):  # type: ignore[no-untyped-def]
    """Move edges into the rows of their sources; `slots` is the next free row of each source."""
    for e in range(found.filled[0]):
        source = found.sources[e]
        slot = slots[source]
        slots[source] = slot + 1
        targets[slot], lags[slot], kinds[slot] = found.targets[e], found.lags[e], found.kinds[e]


@deferred(lambda sources, *_: len(sources))
def _put_edges(sources, targets, kinds, slots, all_targets, all_kinds, indegree):  # type: ignore[no-untyped-def]
    """Move edges into the rows of their sources; `slots` is the next free row of each source."""
    for e in range(len(sources)):
        source, target = sources[e], targets[e]
        slot = slots[source]
        slots[source] = slot + 1
        all_targets[slot], all_kinds[slot] = target, kinds[e]
        indegree[target] += 1


@deferred(lambda values, _: len(values))
def _count(values, counts):  # type: ignore[no-untyped-def]
    for value in values:
        counts[value] += 1


@deferred(lambda values, _: len(values))
def _count_off(values, counts):  # type: ignore[no-untyped-def]
    for value in values:
        counts[value] -= 1
