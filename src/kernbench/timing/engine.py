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
    for. Who times a graph often gives `slots`, too (`slots_of`).
    """

    duration: Ints
    server: Small
    nbytes: Ints
    bytes_per_ps: NDArray[np.float64]
    dispatch: int
    latency: Ints
    slots: Ints | None = None


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


def slots_of(server: Small, servers: int) -> Ints:
    """Where the transfers of each server begin, if those of one server lie after those of the other; and their end."""
    first = np.zeros(servers + 1, np.int64)
    np.cumsum(np.bincount(server[server >= 0], minlength=servers), out=first[1:])
    return first


def _blank(graph: Graph) -> Times:
    """No node has been reached: anything is later than its start."""
    start, finish = np.full(graph.nodes, -1, np.int64), np.empty(graph.nodes, np.int64)
    return Times(start, finish, np.full(graph.nodes, -1, np.int32))


def _arguments(graph: Graph, rates: Rates, times: Times) -> tuple[object, ...]:
    """What both passes take: what is given, the times they fill in, what each node still waits for, and a stack.

    Nodes and edges are never below zero: as such numbers they need not be looked at for counting from the end.
    """
    return (
        (graph.offsets.view(np.uint32), graph.targets.view(np.uint32), graph.lags),
        (rates.duration, rates.server, rates.nbytes, rates.bytes_per_ps, rates.dispatch, rates.latency),
        (times.start, times.finish, times.cause),
        (graph.indegree.copy(), np.empty(graph.nodes, np.uint32)),
    )


def _server_room(rates: Rates) -> tuple[object, ...]:
    """Where the pass by events keeps servers and transfers: arrays of the transfers, of the servers, and a tree."""
    servers = len(rates.bytes_per_ps)
    slots = slots_of(rates.server, servers) if rates.slots is None else rates.slots
    total = int(slots[-1])
    leaves = 1 << max(servers - 1, 0).bit_length()
    tree = np.full(2 * leaves, -1, np.int32)
    tree[leaves : leaves + servers] = np.arange(servers)
    begins = np.empty(total, np.int64), np.empty(total, np.uint32)
    goals = np.empty(total, np.float64), np.empty(total, np.uint32)
    first, last = slots[:-1].copy(), slots[:-1].copy()
    given, seen, due = np.zeros(servers, np.float64), np.zeros(servers, np.int64), np.full(servers, _NEVER, np.int64)
    return (*begins, *goals), (first, last, given, seen, due), tree


@part
def _whole(time):  # type: ignore[no-untyped-def]
    """Rounded up to whole picoseconds; a millionth over is taken for the rounding of the float it came from."""
    return np.int64(np.ceil(time - 1e-6))


@part
def _roots(start, waiting, stack):  # type: ignore[no-untyped-def]
    """Nodes that wait for nobody start at 0, and are put on the stack; gives its top."""
    top = 0
    for u in range(len(waiting)):
        if waiting[u] == 0:
            start[u] = 0
            stack[top] = u
            top += 1
    return top


@part
def _release(u, end, offsets, targets, lags, dispatch, latency, start, cause, waiting, stack, top):  # type: ignore[no-untyped-def]
    """Node u is done at `end`: let those wait no longer that waited only for it; gives the stack's new top.

    Without branches, which nobody can foresee here. There is room above the top, as this node is not on the stack.
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


@deferred(lambda graph, *_: len(graph[0]) + len(graph[1]))
def _longest_path(graph, rates, times, work):  # type: ignore[no-untyped-def]
    offsets, targets, lags = graph
    duration, server, nbytes, bytes_per_ps, dispatch, latency = rates
    start, finish, cause = times
    waiting, stack = work
    top = _roots(start, waiting, stack)
    done = 0
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
def _insert(keys, nodes, first, last, key, node):  # type: ignore[no-untyped-def]
    """Put (key, node) in its place among those from `first` up to `last`, which are in order; ties: lower node first.

    From the end: most come after all that are there, as transfers begin and end in nearly the same order. No more are
    there than channels that transfer at once.
    """
    i = last
    while i > first and (key < keys[i - 1] or (key == keys[i - 1] and node < nodes[i - 1])):
        keys[i], nodes[i] = keys[i - 1], nodes[i - 1]
        i -= 1
    keys[i], nodes[i] = key, node


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
    first, last, given, seen, _ = servers
    count = last[s] - first[s]
    if count == 0:
        given[s] = 0.0
    else:
        given[s] += (now - seen[s]) * bytes_per_ps[s] / count
    seen[s] = now
    _insert(goal, member, first[s], last[s], given[s] + nbytes[u], u)
    last[s] += 1


@part
def _complete(s, now, bytes_per_ps, goal, member, servers, finish, waiting, stack, top):  # type: ignore[no-untyped-def]
    """Transfers of server s that are done now leave it; gives the stack's new top."""
    first, last, given, seen, _ = servers
    slot, end = first[s], last[s]
    given[s] += (now - seen[s]) * bytes_per_ps[s] / (end - slot)
    seen[s] = now
    # all that are done by now; the one that was due is, whatever the last bit of `given` says
    reached = max(given[s], goal[slot])
    while slot < end and goal[slot] <= reached:
        u = member[slot]
        finish[u] = now
        waiting[u] = -1
        stack[top] = u
        top += 1
        slot += 1
    first[s] = slot
    return top


@part
def _set_due(s, now, bytes_per_ps, goal, servers, tree, leaves):  # type: ignore[no-untyped-def]
    """When the next transfer of server s is done, and who is due first of all."""
    first, last, given, _, due = servers
    count = last[s] - first[s]
    if count:
        due[s] = _next_completion(given[s], now, bytes_per_ps[s], count, goal[first[s]])
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
    # transfers that have not begun, in the order of time; and those of each server, in its slots, in the order of the
    # bytes at which they are done
    begin_time, begin_node, goal, member = transfers
    # for each server: its first transfer and the end of its last one, what each was given until it was last seen, and
    # when the next of them is done
    due = servers[4]
    # a tournament over the servers' due times
    leaves = len(tree) >> 1
    for i in range(leaves - 1, 0, -1):
        _play_off(tree, due, i)
    top = _roots(start, waiting, stack)
    done = 0
    first_begin, begins = 0, 0
    while True:
        while top:
            top -= 1
            u = stack[top]
            if server[u] < 0:
                end = start[u] + duration[u]
                finish[u] = end
            elif waiting[u] == 0:
                # ready, not done: it begins its transfer after its fixed time
                _insert(begin_time, begin_node, first_begin, begins, start[u] + duration[u], u)
                begins += 1
                continue
            else:
                end = finish[u]
            done += 1
            top = _release(u, end, offsets, targets, lags, dispatch, latency, start, cause, waiting, stack, top)
        s = tree[1]
        now = due[s] if s >= 0 else _NEVER
        if first_begin < begins and begin_time[first_begin] < now:
            now = begin_time[first_begin]
            u = begin_node[first_begin]
            first_begin += 1
            s = server[u]
            _begin(u, s, now, nbytes, bytes_per_ps, goal, member, servers)
        elif now == _NEVER:
            break
        else:
            top = _complete(s, now, bytes_per_ps, goal, member, servers, finish, waiting, stack, top)
        _set_due(s, now, bytes_per_ps, goal, servers, tree, leaves)
    return done
