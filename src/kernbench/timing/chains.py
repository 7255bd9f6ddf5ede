"""A smaller graph for repeated timing, with the same times and causes: chains of nodes that are timed as one step.

Only needed edges are followed (`needed`). If a node is the only predecessor of the next one, and that its only
successor, the next starts right after it at any rates: the two are links of a chain. The duration of a chain is
computed before its events are played, the times of its nodes afterwards (`playing`), each in memory order. The events
are played over chains stored in the order of an earlier timing: programs take turns, and otherwise the next one's data
would rarely be in the cache (docs/adr/0101).
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernbench.common.deferred import deferred
from kernbench.timing.graph import Graph, Small, make_graph
from kernbench.timing.needed import FOLLOWED, Lanes, Needed, needed_edges

Numbers = NDArray[np.uint32]
# the lag of a missing edge
NO_LAG = -(1 << 31)


@dataclass(frozen=True)
class Chains:
    """The chains of a graph, as rows of nodes.

    Rows first[k] to first[k + 1] of these arrays belong to chain k:

    - `nodes`: the nodes;
    - `before`: the edge from the node before it in the chain;
    - `looked_up`: the edge from its hub (-1: none), and `lags`: that edge's lag or NO_LAG.

    hub[k] is the chain that ends with its hub, or `count` for none. A node with a server is a chain of its own. Chains
    are numbered in the order of their first nodes; position[k] is the index of chain k in `played`.
    """

    first: Numbers
    nodes: Numbers
    before: Small
    looked_up: Small
    lags: Small
    hub: Numbers
    server: Small
    position: Numbers
    played: "Played"

    @property
    def count(self) -> int:
        """Number of chains."""
        return len(self.hub)


class Played(NamedTuple):
    """Chains in the order in which they are played (by position): their numbers, hubs and servers, and their edges.

    Edges from the ends of chains are kept as CSR (`offsets`, `targets` as positions, `lags`); `edges` are their numbers
    in the graph. `indegree` counts the edges into each chain; `roots` are the positions of chains without predecessors,
    in the order of their numbers.
    """

    number: Numbers
    hub: Numbers
    server: Small
    offsets: Numbers
    targets: Numbers
    lags: Small
    edges: Small
    indegree: Small
    roots: Numbers


def make_chains(graph: Graph, server: Small, lanes: Lanes) -> Chains:
    """The chains of a graph whose nodes have these servers (-1: none), to be played in the order of their numbers."""
    needed = needed_edges(graph, lanes)
    before, after = _links(graph, server, needed)
    begins = np.flatnonzero(before < 0).astype(np.uint32)
    count = len(begins)
    first, hub, last = np.zeros(count + 1, np.uint32), np.full(count, -1, np.int32), np.empty(count, np.uint32)
    nodes, chain = np.empty(graph.nodes, np.uint32), np.empty(graph.nodes, np.uint32)
    looked_up = needed.looked_up, needed.hub
    _walk(begins, after, graph.targets.view(np.uint32), looked_up, first, nodes, chain, hub, last)
    edge = needed.looked_up[nodes]
    lags = np.where(edge >= 0, graph.lags[edge] if graph.edges else 0, NO_LAG).astype(np.int32)
    hubs = np.where(hub >= 0, chain[hub], count).astype(np.uint32)
    played, position = _followed(graph, needed, chain, last, hubs, server[begins])
    return Chains(first, nodes, before[nodes], edge, lags, hubs, server[begins], position, played)


def _links(graph: Graph, server: Small, needed: Needed) -> tuple[Small, Small]:
    """For each node the edges to it from the node before it, and from it to the node after it, in its chain; -1.

    None.
    """
    before, after = np.full(graph.nodes, -1, np.int32), np.full(graph.nodes, -1, np.int32)
    given = graph.offsets.view(np.uint32), graph.targets.view(np.uint32), graph.lags
    counts = np.zeros((2, graph.nodes), np.int32)
    _link(given, (needed.use, needed.is_hub), server, counts, before, after)
    return before, after


@deferred(lambda graph, *_: len(graph[0]) + len(graph[1]))
def _link(graph, needed, server, counts, before, after):  # type: ignore[no-untyped-def]
    """`counts` are the followed edges from each node and into it."""
    offsets, targets, lags = graph
    use, is_hub = needed
    for u in range(len(before)):
        for e in range(offsets[u], offsets[u + 1]):
            if use[e] == FOLLOWED:
                counts[0, u] += 1
                counts[1, targets[e]] += 1
    for u in range(len(before)):
        if counts[0, u] != 1 or is_hub[u] != 0 or server[u] >= 0:
            continue
        for e in range(offsets[u], offsets[u + 1]):
            v = targets[e]
            if use[e] == FOLLOWED and counts[1, v] == 1 and lags[e] == 0 and server[v] < 0:
                after[u] = e
                before[v] = e


@deferred(lambda begins, after, *_: len(after))
def _walk(begins, after, targets, looked_up, first, nodes, chain, hub, last):  # type: ignore[no-untyped-def]
    """The nodes of each chain, each node's chain, and each chain's hub (a node) and last node.

    All nodes of a chain that look up a hub have the same one: whatever such a node waits for also waits for that hub.
    """
    edges, hubs = looked_up
    row = 0
    for k in range(len(begins)):
        x = np.int64(begins[k])
        while True:
            nodes[row] = x
            chain[x] = k
            row += 1
            if edges[x] >= 0:
                hub[k] = hubs[x]
            if after[x] < 0:
                break
            x = np.int64(targets[after[x]])
        last[k] = x
        first[k + 1] = row


def _followed(
    graph: Graph, needed: Needed, chain: Numbers, last: Numbers, hubs: Numbers, server: Small
) -> tuple[Played, Numbers]:
    """The chains in the order of their numbers, as they are played by default, and their positions."""
    total = int(np.count_nonzero(needed.use == FOLLOWED))
    sources, targets, edges = (np.empty(total, np.int32) for _ in range(3))
    given = graph.offsets.view(np.uint32), graph.targets.view(np.uint32)
    filled = _collect(*given, needed.use, chain, last, sources, targets, edges)
    sources, targets, edges = sources[:filled], targets[:filled], edges[:filled].copy()
    found = make_graph(len(last), sources, targets, graph.lags[edges], graph.kinds[edges])
    numbers = np.arange(len(last), dtype=np.uint32)
    roots = np.flatnonzero(found.indegree == 0).astype(np.uint32)
    csr = found.offsets.view(np.uint32), found.targets.view(np.uint32), found.lags
    return Played(numbers, hubs, server, *csr, edges, found.indegree, roots), numbers


@deferred(lambda offsets, targets, *_: len(offsets) + len(targets))
def _collect(offsets, targets, use, chain, last, sources, ends, edges):  # type: ignore[no-untyped-def]
    row = 0
    for k in range(len(last)):
        u = last[k]
        for e in range(offsets[u], offsets[u + 1]):
            if use[e] == FOLLOWED:
                sources[row], ends[row], edges[row] = k, chain[targets[e]], e
                row += 1
    return row


def in_order_of(chains: Chains, played: Numbers) -> Chains:
    """The same chains, stored in the order of a timing; `played` are their positions in the order of completion."""
    before, count = chains.played, chains.count
    position = np.empty(count + 1, np.uint32)
    position[played], position[count] = np.arange(count, dtype=np.uint32), count
    degrees = np.diff(before.offsets)[played]
    offsets = np.zeros(count + 1, np.uint32)
    np.cumsum(degrees, out=offsets[1:])
    targets = np.empty_like(before.targets)
    lags, edges = np.empty_like(before.lags), np.empty_like(before.edges)
    given = before.offsets, before.targets, before.lags, before.edges
    _move(played, position, given, targets, lags, edges)
    found = Played(
        before.number[played],
        position[before.hub[played]],
        before.server[played],
        offsets,
        targets,
        lags,
        edges,
        before.indegree[played],
        position[before.roots],
    )
    positions = np.empty(count, np.uint32)
    positions[found.number] = np.arange(count, dtype=np.uint32)
    return replace(chains, position=positions, played=found)


@deferred(lambda played, position, *_: 2 * len(played))
def _move(played, position, given, targets, lags, edges):  # type: ignore[no-untyped-def]
    """Renumber the edges, stored in the new order of their chains."""
    offsets, ends, delays, numbers = given
    row = 0
    for i in range(len(played)):
        k = played[i]
        for e in range(offsets[k], offsets[k + 1]):
            targets[row], lags[row], edges[row] = position[ends[e]], delays[e], numbers[e]
            row += 1
