"""The timing problem, whatever the target: nodes that take time, edges that make one wait for another.

A node starts when all its predecessors have finished (plus the edge's lag). It then takes a fixed time, and if it has
a server, also moves its bytes through that server, whose bandwidth all its current transfers share equally. Times are
integer picoseconds.

Edges are kept by source (CSR). An edge's lag is a class, not a time, so that a graph can be timed again with other
rates: lag class n >= 0 means n dispatches, n < 0 means latency number -n - 1.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernbench.common.compiled import loop, part

Ints = NDArray[np.int64]
Small = NDArray[np.int32]
Bytes = NDArray[np.int8]

# why a node had to wait: kinds of edges
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
    """Edges of node u are rows offsets[u] to offsets[u + 1] of targets, lags and kinds."""

    offsets: Small
    targets: Small
    lags: Small
    kinds: Bytes
    indegree: Small

    @property
    def nodes(self) -> int:
        """How many nodes there are."""
        return len(self.indegree)

    @property
    def edges(self) -> int:
        """How many edges there are."""
        return len(self.targets)


@dataclass(frozen=True)
class Edges:
    """Where edges are put: `cursor[u]` is the place of node u's next one. Without room they are only counted."""

    cursor: Small
    targets: Small
    lags: Small
    kinds: Bytes

    @property
    def arrays(self) -> tuple[Small, Small, Small, Bytes]:
        """As compiled code takes them."""
        return self.cursor, self.targets, self.lags, self.kinds

    def add(self, sources: Small, targets: Small, lags: Small, kinds: Bytes) -> None:
        """Put a list of edges."""
        _put_all(sources, targets, lags, kinds, *self.arrays)


def build_graph(nodes: int, write: Callable[[Edges], None]) -> Graph:
    """The graph of the edges that `write` puts. It is called twice, to count and to fill, instead of keeping a list."""
    counted = _edges(np.zeros(nodes, np.int32), 0)
    write(counted)
    total = int(counted.cursor.sum(dtype=np.int64))
    assert total < 2**31, "edges are numbered by 32 bits"
    offsets = np.zeros(nodes + 1, np.int32)
    np.cumsum(counted.cursor, out=offsets[1:])
    filled = _edges(offsets[:-1].copy(), total)
    write(filled)
    return Graph(offsets, filled.targets, filled.lags, filled.kinds, _indegree(nodes, filled.targets))


def make_graph(nodes: int, sources: Small, targets: Small, lags: Small, kinds: Bytes) -> Graph:
    """The graph of a list of edges."""
    return build_graph(nodes, lambda edges: edges.add(sources, targets, lags, kinds))


def _edges(cursor: Small, count: int) -> Edges:
    return Edges(cursor, np.empty(count, np.int32), np.empty(count, np.int32), np.empty(count, np.int8))


@part
def put(source, target, lag, kind, cursor, targets, lags, kinds):  # type: ignore[no-untyped-def]
    """One edge into the arrays of `Edges`."""
    place = cursor[source]
    cursor[source] = place + 1
    if len(targets):
        targets[place], lags[place], kinds[place] = target, lag, kind


@part
def owner(edge, offsets):  # type: ignore[no-untyped-def]
    """The node that an edge leads from."""
    low, high = 0, len(offsets) - 1
    while high - low > 1:
        middle = (low + high) >> 1
        if offsets[middle] <= edge:
            low = middle
        else:
            high = middle
    return low


@loop
def _put_all(new_sources, new_targets, new_lags, new_kinds, cursor, targets, lags, kinds):  # type: ignore[no-untyped-def]
    for e in range(len(new_sources)):
        put(new_sources[e], new_targets[e], new_lags[e], new_kinds[e], cursor, targets, lags, kinds)


def _indegree(nodes: int, targets: Small) -> Small:
    indegree = np.zeros(nodes, np.int32)
    _count(targets, indegree)
    return indegree


@loop
def _count(values, counts):  # type: ignore[no-untyped-def]
    for value in values:
        counts[value] += 1
