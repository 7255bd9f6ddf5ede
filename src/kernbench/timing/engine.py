"""Two passes that time a graph: longest path where order does not depend on arrival, events where servers are shared.

Both give, for each node, its start, its finish, and the edge that it waited for longest. If no two transfers share a
server at once, the two passes agree exactly.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from kernbench.common.compiled import part, prefetch
from kernbench.common.deferred import deferred
from kernbench.common.errors import KernbenchError
from kernbench.timing.graph import Graph, Ints, Small, Together, one_by_one, pieces
from kernbench.timing.servers import NEVER, Rates, begin, complete, insert, server_room, set_due, start_tree, whole

# number of nodes from which on a graph exceeds the caches of a core; and, for such graphs, the prefetch distance in
# nodes and edges
_MANY, _SOON = 1 << 17, 48


@dataclass(frozen=True)
class Times:
    """Start and finish of each node, and the edge it waited for longest (-1: none)."""

    start: Ints
    finish: Ints
    cause: Small

    @property
    def total(self) -> int:
        """The finish of the last node."""
        return int(self.finish.max(initial=0))


class CycleError(KernbenchError):
    """The graph has a cycle, so that some nodes never start; each target reports what that means for its programs."""

    def __init__(self, done: int, count: int):
        super().__init__(f"a cycle: {count - done} of {count} steps wait for each other, or for one that does")


def run_events(graph: Graph, rates: Rates, together: Together = one_by_one) -> Times:
    """Time the graph by events, with fair sharing of servers; `together` runs the parallel parts of the setup."""
    times = _blank(graph, together)
    done = _events(*_arguments(graph, rates, times, together), *server_room(rates), graph.nodes > _MANY)
    check_done(done, graph.nodes)
    return times


def run_longest_path(graph: Graph, rates: Rates) -> Times:
    """Time the graph in topological order, as if every transfer had its server to itself."""
    times = _blank(graph)
    done = _longest_path(*_arguments(graph, rates, times))
    check_done(done, graph.nodes)
    return times


def check_done(done: int, count: int) -> None:
    """Raise a `CycleError` unless all nodes are done."""
    if done != count:
        raise CycleError(done, count)


def never_done(graph: Graph, rates: Rates) -> NDArray[np.bool_]:
    """The nodes that are never done, because they are on a cycle or depend on one; independent of rates."""
    waiting = graph.indegree.copy()
    given, rows, times, (_, *room) = _arguments(graph, rates, _blank(graph))
    _longest_path(given, rows, times, (waiting, *room))
    left: NDArray[np.bool_] = waiting > 0
    return left


def _blank(graph: Graph, together: Together = one_by_one) -> Times:
    """No node has been reached: anything is later than its start."""
    start, finish = np.empty((2, graph.nodes), np.int64)
    cause = np.empty(graph.nodes, np.int32)

    def fill(part: slice) -> None:
        start[part], finish[part], cause[part] = -1, 0, -1

    together(partial(fill, part) for part in pieces(graph.nodes))
    return Times(start, finish, cause)


def _arguments(
    graph: Graph, rates: Rates, times: Times, together: Together = one_by_one
) -> tuple[tuple[object, ...], ...]:
    """Arguments of both passes: the graph, the rates, the times to fill in, and work arrays (in-degrees, a stack).

    Nodes and edges are passed as unsigned numbers: then no code for negative indices is compiled.
    """
    waiting = np.empty(graph.nodes, np.int32)
    together(partial(np.copyto, waiting[part], graph.indegree[part]) for part in pieces(graph.nodes))
    return (
        (graph.offsets.view(np.uint32), graph.targets.view(np.uint32), graph.lags),
        (rates.duration, rates.server, rates.nbytes, rates.bytes_per_ps, rates.dispatch, rates.latency),
        (times.start, times.finish, times.cause),
        (waiting, np.empty(graph.nodes, np.uint32), graph.numbers),
    )


@part
def roots(start, waiting, stack):  # type: ignore[no-untyped-def]
    """Start nodes without predecessors at 0, and push them on the stack; returns its top."""
    top = 0
    for u in range(len(waiting)):
        if waiting[u] == 0:
            start[u] = 0
            stack[top] = u
            top += 1
    return top


@part
def release(u, end, offsets, targets, lags, dispatch, latency, start, cause, waiting, stack, top):  # type: ignore[no-untyped-def]
    """Node u is done at `end`: release its successors, and push those that waited only for it; returns the stack's top.

    It is branch-free, as the branches would be unpredictable. A slot above the top is always free, as node u has left
    the stack.
    """
    for e in range(offsets[u], offsets[u + 1]):
        v = targets[e]
        lag = lags[e]
        t = end + (lag * dispatch if lag >= 0 else latency[-lag - 1])
        before, known = start[v], cause[v]
        start[v] = t if t > before else before
        cause[v] = np.int32(e) if t > before else known
        left = waiting[v] - 1
        waiting[v] = left
        stack[top] = v
        top += 1 if left == 0 else 0
    return top


@part
def _fetch(u, offsets, targets, duration, server, start, finish, cause, waiting):  # type: ignore[no-untyped-def]
    """Prefetch the data of nodes shortly after node u, as they will soon be processed.

    Many programs take turns, each with cache lines of its own, so the hardware prefetcher cannot predict the next.
    """
    soon = u + _SOON
    prefetch(offsets, soon)
    prefetch(duration, soon)
    prefetch(server, soon)
    prefetch(start, soon)
    prefetch(finish, soon)
    prefetch(cause, soon)
    prefetch(waiting, soon)
    prefetch(targets, offsets[u] + _SOON)


@deferred(lambda graph, *_: len(graph[0]) + len(graph[1]))
def _longest_path(graph, rates, times, work):  # type: ignore[no-untyped-def]
    offsets, targets, lags = graph
    duration, server, nbytes, bytes_per_ps, dispatch, latency = rates
    start, finish, cause = times
    waiting, stack, _ = work
    top = roots(start, waiting, stack)
    done = 0
    while top:
        top -= 1
        u = stack[top]
        end = start[u] + duration[u]
        if server[u] >= 0:
            end += whole(nbytes[u] / bytes_per_ps[server[u]])
        finish[u] = end
        done += 1
        top = release(u, end, offsets, targets, lags, dispatch, latency, start, cause, waiting, stack, top)
    return done


@deferred(lambda graph, *_: len(graph[0]) + len(graph[1]))
def _events(graph, rates, times, work, transfers, servers, tree, is_large):  # type: ignore[no-untyped-def]
    offsets, targets, lags = graph
    duration, server, nbytes, bytes_per_ps, dispatch, latency = rates
    start, finish, cause = times
    waiting, stack, numbers = work
    # transfers that have not begun, by time; and those of each server, in its slots, by the byte count at which they
    # are done
    begin_time, begin_node, goal, member = transfers
    # by server: the slots of its first and last transfer, bytes given to each transfer, the time of the last update,
    # and the time of the next completion
    due = servers[4]
    # a tournament tree over the servers' due times
    leaves = len(tree) >> 1
    start_tree(tree, due, leaves)
    top = roots(start, waiting, stack)
    done = 0
    first_begin, begins = 0, 0
    while True:
        while top:
            top -= 1
            u = stack[top]
            if is_large:
                _fetch(u, offsets, targets, duration, server, start, finish, cause, waiting)
            if server[u] < 0:
                end = start[u] + duration[u]
                finish[u] = end
            elif waiting[u] == 0:
                # ready: its transfer begins after its fixed time
                insert(begin_time, begin_node, first_begin, begins, start[u] + duration[u], u, numbers)
                begins += 1
                continue
            else:
                end = finish[u]
            done += 1
            top = release(u, end, offsets, targets, lags, dispatch, latency, start, cause, waiting, stack, top)
        s = tree[1]
        now = due[s] if s >= 0 else NEVER
        if first_begin < begins and begin_time[first_begin] < now:
            now = begin_time[first_begin]
            u = begin_node[first_begin]
            first_begin += 1
            s = server[u]
            begin(u, s, now, nbytes, bytes_per_ps, goal, member, servers, numbers)
        elif now == NEVER:
            break
        else:
            top = complete(s, now, bytes_per_ps, goal, member, servers, finish, waiting, stack, top)
        set_due(s, now, bytes_per_ps, goal, servers, tree, leaves)
    return done
