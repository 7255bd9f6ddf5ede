"""Which edges of a graph need to be followed, whatever the rates.

An edge can be dropped if another edge into the same node always ends later: if its source is done before the source of
the other edge starts, and that takes time.

A hub is a node with many successors. An edge from it can be looked up when all other predecessors of the node are done,
if these themselves wait for the hub: they finish no earlier than the hub, and for equal ends the hub's edge is the
first.

Neither changes the order in which nodes become ready, nor the edge that any of them waited for longest (docs/adr/0101).
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernbench.common.compiled import part
from kernbench.common.deferred import deferred
from kernbench.timing.graph import DISPATCH, Bytes, Graph, Small

# how an edge is treated
LEFT_OUT, FOLLOWED, LOOKED_UP = 0, 1, 2
# nodes with more incoming edges keep all: edges are compared pairwise
_MOST_EDGES = 64
_Numbers = NDArray[np.uint32]


class Lanes(NamedTuple):
    """Known order besides edges: each node's group, its lane there (-1: none), and whether it takes time at any rates.

    The nodes of a lane run in the order of their numbers.
    """

    group: Small
    lane: Small
    takes_time: Bytes


@dataclass(frozen=True)
class Needed:
    """How each edge is treated; by node its hub and the edge from it to look up (-1: none), and whether it is a hub."""

    use: Bytes
    hub: Small
    looked_up: Small
    is_hub: Bytes


class _Incoming(NamedTuple):
    """Edges into node v are rows offsets[v] to offsets[v + 1] of `edges`; `sources` are their source nodes."""

    offsets: _Numbers
    edges: _Numbers
    sources: _Numbers


def needed_edges(graph: Graph, lanes: Lanes) -> Needed:
    """How to treat the edges of a graph."""
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
    """A vector clock: for each lane of its group, the last node that is done before node c starts."""
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
def _is_outdone(e, f, lags, sources, lanes, clocks):  # type: ignore[no-untyped-def]
    """Whether edge f always ends later than edge e into the same node, or at the same time but precedes it.

    If the sources differ, the source of e must be done before that of f starts (by the vector clock of f's source), and
    that must take time.
    """
    group, lane, takes_time = lanes
    a, b = sources[e], sources[f]
    if a == b:
        return f < e and (lags[e] == lags[f] or (lags[e] >= 0 and lags[e] < lags[f]))
    if lags[e] != 0 or takes_time[b] == 0 or lane[a] < 0 or group[a] != group[b]:
        return False
    return clocks[b, lane[a]] >= np.int32(a)


@part
def _leave_out(c, lags, incoming, lanes, clocks, use):  # type: ignore[no-untyped-def]
    """Drop edges into node c that another one always outdoes.

    That edge may be dropped, too: the one that outdoes it outdoes both.
    """
    offsets, edges, sources = incoming
    first, last = offsets[c], offsets[c + 1]
    if last - first > _MOST_EDGES:
        return
    for i in range(first, last):
        for j in range(first, last):
            if i != j and _is_outdone(edges[i], edges[j], lags, sources, lanes, clocks):
                use[edges[i]] = LEFT_OUT
                break


@part
def _look_up(c, kinds, incoming, found):  # type: ignore[no-untyped-def]
    """Look up the edge from node c's hub instead of following it.

    This is possible if c has other predecessors, and all of them wait for that hub.
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
    """Visits nodes in topological order."""
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
