"""The timing problem, whatever the target: nodes that take time, edges that make one wait for another.

A node starts when all its predecessors have finished (plus the edge's lag). It then takes a fixed time, and if it has
a server, also moves its bytes through that server, whose bandwidth all its current transfers share equally. Times are
integer picoseconds.

Edges are kept by source (CSR). An edge's lag is a class, not a time, so that a graph can be timed again with other
rates: lag class n >= 0 means n dispatches, n < 0 means latency number -n - 1.
"""

from dataclasses import dataclass

import numpy as np
from numba import njit
from numpy.typing import NDArray

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

    offsets: Ints
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


def make_graph(nodes: int, sources: Small, targets: Small, lags: Small, kinds: Bytes) -> Graph:
    """Sort an edge list by source."""
    return Graph(*_sort(nodes, sources, targets, lags, kinds))


@njit(cache=True)
def _sort(nodes, sources, targets, lags, kinds):  # type: ignore[no-untyped-def]
    edges = len(sources)
    offsets = np.zeros(nodes + 1, np.int64)
    indegree = np.zeros(nodes, np.int32)
    for e in range(edges):
        offsets[sources[e] + 1] += 1
        indegree[targets[e]] += 1
    for u in range(nodes):
        offsets[u + 1] += offsets[u]
    cursor = offsets[:-1].copy()
    out_targets = np.empty(edges, np.int32)
    out_lags = np.empty(edges, np.int32)
    out_kinds = np.empty(edges, np.int8)
    for e in range(edges):
        place = cursor[sources[e]]
        cursor[sources[e]] = place + 1
        out_targets[place] = targets[e]
        out_lags[place] = lags[e]
        out_kinds[place] = kinds[e]
    return offsets, out_targets, out_lags, out_kinds, indegree
