"""The two passes over a graph: longest path where order cannot depend on arrival, events where servers are shared.

Both give, for each node, when it started, when it finished, and the edge that made it wait longest.

A shared server divides its bandwidth equally among the transfers it has (max-min fair, work-conserving). It keeps one
number, the bytes each of its current transfers has been given; a transfer is done when that has grown by its size. The
number starts again from 0 whenever the server falls idle, so a lone transfer takes exactly its bytes over the
bandwidth, rounded up: there the two passes agree to the last digit.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernbench.common.compiled import njit
from kernbench.timing.graph import Graph, Ints, Small


@dataclass(frozen=True)
class Rates:
    """What a graph is timed with: everything that may change without a new graph.

    `duration` is each node's fixed time; `server` its server or -1, `nbytes` what it moves through it (it may end with
    the last node that has one); `bytes_per_ps` the bandwidth of each server; `dispatch` and `latency` what lags stand
    for.
    """

    duration: Ints
    server: Small
    nbytes: Ints
    bytes_per_ps: NDArray[np.float64]
    dispatch: int
    latency: Ints


@dataclass(frozen=True)
class Times:
    """When each node started and finished, and the edge it waited for longest (-1: none)."""

    start: Ints
    finish: Ints
    cause: Small

    @property
    def total(self) -> int:
        """When the last node finished."""
        return int(self.finish.max(initial=0))


def run_events(graph: Graph, rates: Rates) -> Times:
    """Time the graph by events, sharing servers fairly."""
    start, finish, cause, done = _events(*_arguments(graph, rates))
    assert done == graph.nodes, "the graph has a cycle"
    return Times(start, finish, cause)


def run_longest_path(graph: Graph, rates: Rates) -> Times:
    """Time the graph by one pass in topological order; every transfer has its server to itself."""
    start, finish, cause, done = _longest_path(*_arguments(graph, rates))
    assert done == graph.nodes, "the graph has a cycle"
    return Times(start, finish, cause)


def _arguments(graph: Graph, rates: Rates) -> tuple[object, ...]:
    return (
        graph.offsets,
        graph.targets,
        graph.lags,
        graph.indegree,
        rates.duration,
        rates.server,
        rates.nbytes,
        rates.bytes_per_ps,
        rates.dispatch,
        rates.latency,
    )


@njit(cache=True)
def _whole(time):  # type: ignore[no-untyped-def]
    """Rounded up to whole picoseconds; a millionth over is taken for the rounding of the float it came from."""
    return np.int64(np.ceil(time - 1e-6))


@njit(cache=True)
def _release(u, end, offsets, targets, lags, dispatch, latency, start, cause, waiting, stack, top):  # type: ignore[no-untyped-def]
    """Node u is done at `end`: let those wait no longer that waited only for it; gives the stack's new top."""
    for e in range(offsets[u], offsets[u + 1]):
        v = targets[e]
        lag = lags[e]
        t = end + (lag * dispatch if lag >= 0 else latency[-lag - 1])
        if t > start[v] or cause[v] < 0:
            start[v] = t
            cause[v] = e
        waiting[v] -= 1
        if waiting[v] == 0:
            stack[top] = v
            top += 1
    return top


@njit(cache=True)
def _longest_path(offsets, targets, lags, indegree, duration, server, nbytes, bytes_per_ps, dispatch, latency):  # type: ignore[no-untyped-def]
    nodes = len(indegree)
    waiting = indegree.copy()
    start = np.zeros(nodes, np.int64)
    finish = np.zeros(nodes, np.int64)
    cause = np.full(nodes, -1, np.int32)
    stack = np.empty(nodes, np.int32)
    top = 0
    done = 0
    for u in range(nodes):
        if waiting[u] == 0:
            stack[top] = u
            top += 1
    while top:
        top -= 1
        u = stack[top]
        end = start[u] + duration[u]
        if server[u] >= 0:
            end += _whole(nbytes[u] / bytes_per_ps[server[u]])
        finish[u] = end
        done += 1
        top = _release(u, end, offsets, targets, lags, dispatch, latency, start, cause, waiting, stack, top)
    return start, finish, cause, done


@njit(cache=True)
def _before(time_a, node_a, time_b, node_b):  # type: ignore[no-untyped-def]
    return time_a < time_b or (time_a == time_b and node_a < node_b)


@njit(cache=True)
def _push(times, nodes, size, time, node):  # type: ignore[no-untyped-def]
    """Put (time, node) on a heap of `size`; ties go to the lower node."""
    i = size
    while i > 0:
        parent = (i - 1) >> 1
        if not _before(time, node, times[parent], nodes[parent]):
            break
        times[i], nodes[i] = times[parent], nodes[parent]
        i = parent
    times[i], nodes[i] = time, node
    return size + 1


@njit(cache=True)
def _pop(times, nodes, size):  # type: ignore[no-untyped-def]
    """Remove the first of a heap of `size`."""
    size -= 1
    time, node = times[size], nodes[size]
    i = 0
    while True:
        child = 2 * i + 1
        if child >= size:
            break
        if child + 1 < size and _before(times[child + 1], nodes[child + 1], times[child], nodes[child]):
            child += 1
        if not _before(times[child], nodes[child], time, node):
            break
        times[i], nodes[i] = times[child], nodes[child]
        i = child
    times[i], nodes[i] = time, node
    return size


@njit(cache=True)
def _next_completion(given, now, rate, count, goal):  # type: ignore[no-untyped-def]
    """When a transfer that is done at `goal` bytes will be, if nothing changes."""
    left = goal - given
    if left <= 0:
        return now
    return now + _whole(left * count / rate)


@njit(cache=True)
def _events(offsets, targets, lags, indegree, duration, server, nbytes, bytes_per_ps, dispatch, latency):  # type: ignore[no-untyped-def]
    nodes = len(indegree)
    servers = len(bytes_per_ps)
    waiting = indegree.copy()
    start = np.zeros(nodes, np.int64)
    finish = np.zeros(nodes, np.int64)
    cause = np.full(nodes, -1, np.int32)
    stack = np.empty(nodes, np.int32)
    top = 0
    done = 0

    transfers = np.zeros(servers + 1, np.int64)
    for u in range(nodes):
        if server[u] >= 0:
            transfers[server[u] + 1] += 1
    for s in range(servers):
        transfers[s + 1] += transfers[s]
    total = transfers[servers]
    # transfers that have not begun, by time
    begin_time = np.empty(total, np.int64)
    begin_node = np.empty(total, np.int32)
    begins = 0
    # for each server: its transfers by the bytes at which they are done
    goal = np.empty(total, np.float64)
    member = np.empty(total, np.int32)
    count = np.zeros(servers, np.int64)
    given = np.zeros(servers, np.float64)
    seen = np.zeros(servers, np.int64)
    # for each server: when its next transfer is done; and a heap of those
    none = np.int64(1) << 62
    due = np.full(servers, none, np.int64)
    # a tournament tree over the servers' due times
    leaves = 1
    while leaves < servers:
        leaves *= 2
    tree = np.full(2 * leaves, -1, np.int32)
    for s in range(servers):
        tree[leaves + s] = s
    for i in range(leaves - 1, 0, -1):
        left, right = tree[2 * i], tree[2 * i + 1]
        tree[i] = left if right < 0 or (left >= 0 and due[left] <= due[right]) else right

    for u in range(nodes):
        if waiting[u] == 0:
            stack[top] = u
            top += 1
    while True:
        while top:
            top -= 1
            u = stack[top]
            if server[u] >= 0 and waiting[u] == 0:
                # ready, not done: it begins its transfer after its fixed time
                begins = _push(begin_time, begin_node, begins, start[u] + duration[u], u)
                continue
            if server[u] < 0:
                finish[u] = start[u] + duration[u]
            end = finish[u]
            done += 1
            top = _release(u, end, offsets, targets, lags, dispatch, latency, start, cause, waiting, stack, top)
        first = tree[1] if servers else -1
        completion = due[first] if first >= 0 else none
        if begins == 0 and completion == none:
            break
        if begins and begin_time[0] < completion:
            now = begin_time[0]
            u = begin_node[0]
            begins = _pop(begin_time, begin_node, begins)
            s = server[u]
            if count[s] == 0:
                given[s] = 0.0
            else:
                given[s] += (now - seen[s]) * bytes_per_ps[s] / count[s]
            seen[s] = now
            base = transfers[s]
            count[s] = _push(goal[base:], member[base:], count[s], given[s] + nbytes[u], u)
        else:
            now = completion
            s = first
            given[s] += (now - seen[s]) * bytes_per_ps[s] / count[s]
            seen[s] = now
            base = transfers[s]
            # all that are done by now; the one that was due is, whatever the last bit of `given` says
            reached = max(given[s], goal[base])
            while count[s] and goal[base] <= reached:
                u = member[base]
                count[s] = _pop(goal[base:], member[base:], count[s])
                finish[u] = now
                waiting[u] = -1
                stack[top] = u
                top += 1
        base = transfers[s]
        if count[s]:
            due[s] = _next_completion(given[s], now, bytes_per_ps[s], count[s], goal[base])
        else:
            due[s] = none
        i = (leaves + s) >> 1
        while i:
            left, right = tree[2 * i], tree[2 * i + 1]
            tree[i] = left if right < 0 or (left >= 0 and due[left] <= due[right]) else right
            i >>= 1
    return start, finish, cause, done
