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

from kernbench.common.compiled import part
from kernbench.common.deferred import deferred
from kernbench.timing.graph import Graph, Ints, Small

# later than anything
_NEVER = 1 << 62


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
    times = _blank(graph)
    done = _events(*_arguments(graph, rates, times), *_server_room(rates))
    assert done == graph.nodes, "the graph has a cycle"
    return times


def run_longest_path(graph: Graph, rates: Rates) -> Times:
    """Time the graph by one pass in topological order; every transfer has its server to itself."""
    times = _blank(graph)
    done = _longest_path(*_arguments(graph, rates, times))
    assert done == graph.nodes, "the graph has a cycle"
    return times


def _blank(graph: Graph) -> Times:
    start, finish = np.zeros((2, graph.nodes), np.int64)
    return Times(start, finish, np.full(graph.nodes, -1, np.int32))


def _arguments(graph: Graph, rates: Rates, times: Times) -> tuple[object, ...]:
    """What both passes take: what is given, the times they fill in, what each node still waits for, and a stack."""
    return (
        (graph.offsets, graph.targets, graph.lags),
        (rates.duration, rates.server, rates.nbytes, rates.bytes_per_ps, rates.dispatch, rates.latency),
        (times.start, times.finish, times.cause),
        (graph.indegree.copy(), np.empty(graph.nodes, np.int32)),
    )


def _server_room(rates: Rates) -> tuple[object, ...]:
    """Where the pass by events keeps servers and transfers: arrays of the transfers, of the servers, and a tree."""
    servers = len(rates.bytes_per_ps)
    first = np.zeros(servers + 1, np.int64)
    np.cumsum(np.bincount(rates.server[rates.server >= 0], minlength=servers), out=first[1:])
    total = int(first[-1])
    leaves = 1 << max(servers - 1, 0).bit_length()
    tree = np.full(2 * leaves, -1, np.int32)
    tree[leaves : leaves + servers] = np.arange(servers)
    begins = np.empty(total, np.int64), np.empty(total, np.int32)
    goals = np.empty(total, np.float64), np.empty(total, np.int32)
    counts, seen = np.zeros((2, servers), np.int64)
    due = np.full(servers, _NEVER, np.int64)
    return (*begins, *goals), (first, counts, np.zeros(servers, np.float64), seen, due), tree


@part
def _whole(time):  # type: ignore[no-untyped-def]
    """Rounded up to whole picoseconds; a millionth over is taken for the rounding of the float it came from."""
    return np.int64(np.ceil(time - 1e-6))


@part
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


@deferred(lambda graph, *_: len(graph[0]) + len(graph[1]))
def _longest_path(graph, rates, times, work):  # type: ignore[no-untyped-def]
    offsets, targets, lags = graph
    duration, server, nbytes, bytes_per_ps, dispatch, latency = rates
    start, finish, cause = times
    waiting, stack = work
    nodes = len(waiting)
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
    return done


@part
def _before(time_a, node_a, time_b, node_b):  # type: ignore[no-untyped-def]
    return time_a < time_b or (time_a == time_b and node_a < node_b)


@part
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


@part
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


@part
def _next_completion(given, now, rate, count, goal):  # type: ignore[no-untyped-def]
    """When a transfer that is done at `goal` bytes will be, if nothing changes."""
    left = goal - given
    if left <= 0:
        return now
    return now + _whole(left * count / rate)


@part
def _play_off(tree, due, i):  # type: ignore[no-untyped-def]
    """Which server of the two below a node of the tree is due first; ties go to the left one."""
    left, right = tree[2 * i], tree[2 * i + 1]
    tree[i] = left if right < 0 or (left >= 0 and due[left] <= due[right]) else right


@part
def _begin(u, s, now, nbytes, bytes_per_ps, goal, member, servers):  # type: ignore[no-untyped-def]
    """Node u begins its transfer at server s: what the others were given until now is settled first."""
    first_slot, count, given, seen, _ = servers
    if count[s] == 0:
        given[s] = 0.0
    else:
        given[s] += (now - seen[s]) * bytes_per_ps[s] / count[s]
    seen[s] = now
    base = first_slot[s]
    count[s] = _push(goal[base:], member[base:], count[s], given[s] + nbytes[u], u)


@part
def _complete(s, now, bytes_per_ps, goal, member, servers, finish, waiting, stack, top):  # type: ignore[no-untyped-def]
    """Transfers of server s that are done now leave it; gives the stack's new top."""
    first_slot, count, given, seen, _ = servers
    given[s] += (now - seen[s]) * bytes_per_ps[s] / count[s]
    seen[s] = now
    base = first_slot[s]
    # all that are done by now; the one that was due is, whatever the last bit of `given` says
    reached = max(given[s], goal[base])
    while count[s] and goal[base] <= reached:
        u = member[base]
        count[s] = _pop(goal[base:], member[base:], count[s])
        finish[u] = now
        waiting[u] = -1
        stack[top] = u
        top += 1
    return top


@part
def _set_due(s, now, bytes_per_ps, goal, servers, tree, leaves):  # type: ignore[no-untyped-def]
    """When the next transfer of server s is done, and who is due first of all."""
    first_slot, count, given, _, due = servers
    if count[s]:
        due[s] = _next_completion(given[s], now, bytes_per_ps[s], count[s], goal[first_slot[s]])
    else:
        due[s] = _NEVER
    i = (leaves + s) >> 1
    while i:
        _play_off(tree, due, i)
        i >>= 1


@deferred(lambda graph, *_: len(graph[0]) + len(graph[1]))
def _events(graph, rates, times, work, transfers, servers, tree):  # type: ignore[no-untyped-def]
    offsets, targets, lags = graph
    duration, server, nbytes, bytes_per_ps, dispatch, latency = rates
    start, finish, cause = times
    waiting, stack = work
    # transfers that have not begun, by time; and those of each server, from its first slot on, by the bytes at which
    # they are done
    begin_time, begin_node, goal, member = transfers
    # for each server: its first slot, how many transfers it has, what each was given until it was last seen, and when
    # the next of them is done
    due = servers[4]
    # a tournament over the servers' due times
    leaves = len(tree) >> 1
    for i in range(leaves - 1, 0, -1):
        _play_off(tree, due, i)
    top = 0
    done = 0
    begins = 0
    for u in range(len(waiting)):
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
        first = tree[1]
        completion = due[first] if first >= 0 else _NEVER
        if begins == 0 and completion == _NEVER:
            break
        if begins and begin_time[0] < completion:
            now = begin_time[0]
            u = begin_node[0]
            begins = _pop(begin_time, begin_node, begins)
            s = server[u]
            _begin(u, s, now, nbytes, bytes_per_ps, goal, member, servers)
        else:
            now = completion
            s = first
            top = _complete(s, now, bytes_per_ps, goal, member, servers, finish, waiting, stack, top)
        _set_due(s, now, bytes_per_ps, goal, servers, tree, leaves)
    return done
