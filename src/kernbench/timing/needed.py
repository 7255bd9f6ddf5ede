"""Which edges of a graph need to be followed, whatever the rates.

An edge can be left out if another into the same node always ends later: the node it leads from is done before that of
the other one starts, which takes time. An edge from a hub, which lets many nodes go, can be looked up when all else
that its node waits for is done, if all that waits for the hub itself: the hub was done first, so that of equal ends its
edge is the first. Neither changes the order in which nodes become ready, nor what any of them waited for longest
(docs/adr/0101).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernbench.common.compiled import part
from kernbench.common.deferred import deferred
from kernbench.timing.graph import DISPATCH, Bytes, Graph, Small

# what becomes of an edge
LEFT_OUT, FOLLOWED, LOOKED_UP = 0, 1, 2
# nodes with more edges into them keep all: each edge is held against each other one
_MOST_EDGES = 64
_Numbers = NDArray[np.uint32]


class Lanes(NamedTuple):
    """What is known of nodes beside their edges: each one's group, its lane there (-1: none), and whether it takes time
    at any rates. Nodes of a lane wait for each other in the order of their numbers.
    """

    group: Small
    lane: Small
    takes_time: Bytes


@dataclass(frozen=True)
class Needed:
    """What becomes of each edge; for each node its hub and the edge from it that is looked up (-1: none); for each node
    whether it is a hub that is looked up.
    """

    use: Bytes
    hub: Small
    looked_up: Small
    is_hub: Bytes


class _Incoming(NamedTuple):
    """Edges into node v are rows offsets[v] to offsets[v + 1] of `edges`; the node that each edge leads from."""

    offsets: _Numbers
    edges: _Numbers
    sources: _Numbers


def needed_edges(graph: Graph, lanes: Lanes) -> Needed:
    """What becomes of the edges of a graph."""
    nodes = graph.nodes
    found = Needed(
        np.full(graph.edges, FOLLOWED, np.int8),
        np.full(nodes, -1, np.int32),
        np.full(nodes, -1, np.int32),
        np.zeros(nodes, np.int8),
    )
    count = int(lanes.lane.max(initial=-1)) + 1
    _sift(
        (graph.offsets.view(np.uint32), graph.targets.view(np.uint32), graph.lags, graph.kinds),
        _incoming(graph),
        lanes,
        (graph.indegree.copy(), np.empty(nodes, np.uint32), np.full((nodes, count), -1, np.int32)),
        (found.use, found.hub, found.looked_up, found.is_hub),
    )
    return found


def _incoming(graph: Graph) -> _Incoming:
    offsets = np.zeros(graph.nodes + 1, np.uint32)
    np.cumsum(graph.indegree, out=offsets[1:])
    edges, sources = np.empty(graph.edges, np.uint32), np.empty(graph.edges, np.uint32)
    given = graph.offsets.view(np.uint32), graph.targets.view(np.uint32)
    _turn_round(*given, offsets[:-1].copy(), edges, sources)
    return _Incoming(offsets, edges, sources)


@deferred(lambda offsets, targets, *_: len(targets))
def _turn_round(offsets, targets, slots, edges, sources):  # type: ignore[no-untyped-def]
    for u in range(len(offsets) - 1):
        for e in range(offsets[u], offsets[u + 1]):
            slot = slots[targets[e]]
            slots[targets[e]] = slot + 1
            edges[slot] = e
            sources[e] = u


@part
def _see(c, incoming, lanes, clocks):  # type: ignore[no-untyped-def]
    """The last node of each lane of its group that is done before node c starts."""
    group, lane, _ = lanes
    offsets, edges, sources = incoming
    for i in range(offsets[c], offsets[c + 1]):
        a = sources[edges[i]]
        if group[a] == group[c]:
            for k in range(clocks.shape[1]):
                clocks[c, k] = max(clocks[c, k], clocks[a, k])
            if lane[a] >= 0:
                clocks[c, lane[a]] = max(clocks[c, lane[a]], np.int32(a))


@part
def _is_outdone(e, f, c, lags, sources, lanes, clocks):  # type: ignore[no-untyped-def]
    """Whether edge f into node c always ends later than edge e, or at once and is the first of them."""
    group, lane, takes_time = lanes
    a, b = sources[e], sources[f]
    if a == b:
        return f < e and (lags[e] == lags[f] or (lags[e] >= 0 and lags[e] < lags[f]))
    if lags[e] != 0 or takes_time[b] == 0 or lane[a] < 0 or group[a] != group[b]:
        return False
    return clocks[b, lane[a]] >= np.int32(a)


@part
def _leave_out(c, lags, incoming, lanes, clocks, use):  # type: ignore[no-untyped-def]
    """Edges into node c that another one always outdoes. It may be left out itself: what outdoes it stays."""
    offsets, edges, sources = incoming
    first, last = offsets[c], offsets[c + 1]
    if last - first > _MOST_EDGES:
        return
    for i in range(first, last):
        for j in range(first, last):
            if i != j and _is_outdone(edges[i], edges[j], c, lags, sources, lanes, clocks):
                use[edges[i]] = LEFT_OUT
                break


@part
def _look_up(c, kinds, incoming, found):  # type: ignore[no-untyped-def]
    """The edge from its hub need not be followed if all else that node c waits for, and there is something, waits for
    that hub.
    """
    use, hub, looked_up, is_hub = found
    offsets, edges, sources = incoming
    candidate = np.int64(-1)
    others = 0
    for i in range(offsets[c], offsets[c + 1]):
        e = edges[i]
        if use[e] == FOLLOWED and kinds[e] == DISPATCH:
            candidate = np.int64(e)
    if candidate < 0:
        return
    source = np.int32(sources[candidate])
    hub[c] = source
    for i in range(offsets[c], offsets[c + 1]):
        e = edges[i]
        if use[e] == FOLLOWED and np.int64(e) != candidate:
            others += 1
            if hub[sources[e]] != source:
                return
    if others > 0:
        use[candidate] = LOOKED_UP
        looked_up[c] = np.int32(candidate)
        is_hub[source] = 1


@deferred(lambda graph, *_: 10 * len(graph[1]))
def _sift(graph, incoming, lanes, work, found):  # type: ignore[no-untyped-def]
    """In an order in which each node comes after all that it waits for."""
    offsets, targets, lags, kinds = graph
    waiting, stack, clocks = work
    top = 0
    for u in range(len(waiting)):
        if waiting[u] == 0:
            stack[top] = u
            top += 1
    while top:
        top -= 1
        c = stack[top]
        _see(c, incoming, lanes, clocks)
        _leave_out(c, lags, incoming, lanes, clocks, found[0])
        _look_up(c, kinds, incoming, found)
        for e in range(offsets[c], offsets[c + 1]):
            v = targets[e]
            waiting[v] -= 1
            if waiting[v] == 0:
                stack[top] = v
                top += 1
