"""Shared servers: the current transfers, and when the next one is done.

A shared server divides its bandwidth equally among its transfers (max-min fair, work-conserving). It keeps one number,
the bytes that each of its current transfers has been given; a transfer is done when that has grown by its size. The
number is reset to 0 whenever the server becomes idle, so a lone transfer takes exactly its bytes over the bandwidth,
rounded up.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernbench.common.compiled import part
from kernbench.timing.graph import Ints, Small

# later than any time
NEVER = 1 << 62


@dataclass(frozen=True)
class Rates:
    """The rates a graph is timed with: everything that may change without a new graph.

    - `duration`: each node's fixed time;
    - `server`: its server or -1; `nbytes`: its bytes (the array may end with the last node that has a server);
    - `bytes_per_ps`: the bandwidth of each server;
    - `dispatch` and `latency`: the values of lag classes;
    - `slots`: the result of `slots_of`, for callers that time a graph often.
    """

    duration: Ints
    server: Small
    nbytes: Ints
    bytes_per_ps: NDArray[np.float64]
    dispatch: int
    latency: Ints
    slots: Ints | None = None


def slots_of(server: Small, servers: int) -> Ints:
    """The first slot of each server's transfers, if these are stored server by server; and the end."""
    first = np.zeros(servers + 1, np.int64)
    np.cumsum(np.bincount(server[server >= 0], minlength=servers), out=first[1:])
    return first


def server_room(rates: Rates) -> tuple[object, ...]:
    """Work arrays of the event pass: transfers, servers, and a tournament tree."""
    servers = len(rates.bytes_per_ps)
    slots = slots_of(rates.server, servers) if rates.slots is None else rates.slots
    total = int(slots[-1])
    leaves = 1 << max(servers - 1, 0).bit_length()
    tree = np.full(2 * leaves, -1, np.int32)
    tree[leaves : leaves + servers] = np.arange(servers)
    begins = np.empty(total, np.int64), np.empty(total, np.uint32)
    goals = np.empty(total, np.float64), np.empty(total, np.uint32)
    first, last = slots[:-1].copy(), slots[:-1].copy()
    given, seen, due = np.zeros(servers, np.float64), np.zeros(servers, np.int64), np.full(servers, NEVER, np.int64)
    return (*begins, *goals), (first, last, given, seen, due), tree


@part
def whole(time):  # type: ignore[no-untyped-def]
    """Rounded up to whole picoseconds; an excess of a millionth counts as a rounding error of the float."""
    return np.int64(np.ceil(time - 1e-6))


@part
def insert(keys, nodes, first, last, key, node, rank):  # type: ignore[no-untyped-def]
    """Insert (key, node) into the sorted slots `first` to `last`; equal keys are ordered by rank.

    It searches from the end: transfers begin and end in nearly the same order, so most are inserted last.
    """
    i = last
    while i > first and (key < keys[i - 1] or (key == keys[i - 1] and rank[node] < rank[nodes[i - 1]])):
        keys[i], nodes[i] = keys[i - 1], nodes[i - 1]
        i -= 1
    keys[i], nodes[i] = key, node


@part
def _next_completion(given, now, rate, count, goal):  # type: ignore[no-untyped-def]
    """When a transfer with this `goal` will be done, if nothing changes."""
    left = goal - given
    if left <= 0:
        return now
    return now + whole(left * count / rate)


@part
def _play_off(tree, due, i):  # type: ignore[no-untyped-def]
    """Which of the two servers below a tree node is due first; ties go to the left one."""
    left, right = tree[2 * i], tree[2 * i + 1]
    tree[i] = left if right < 0 or (left >= 0 and due[left] <= due[right]) else right


@part
def begin(u, s, now, nbytes, bytes_per_ps, goal, member, servers, rank):  # type: ignore[no-untyped-def]
    """Node u begins its transfer at server s; the bytes given to the other transfers are updated first."""
    first, last, given, seen, _ = servers
    count = last[s] - first[s]
    if count == 0:
        given[s] = 0.0
    else:
        given[s] += (now - seen[s]) * bytes_per_ps[s] / count
    seen[s] = now
    insert(goal, member, first[s], last[s], given[s] + nbytes[u], u, rank)
    last[s] += 1


@part
def complete(s, now, bytes_per_ps, goal, member, servers, finish, waiting, stack, top):  # type: ignore[no-untyped-def]
    """Remove transfers of server s that are done now; returns the stack's new top."""
    first, last, given, seen, _ = servers
    slot, end = first[s], last[s]
    given[s] += (now - seen[s]) * bytes_per_ps[s] / (end - slot)
    seen[s] = now
    # all that are done by now, at least the one that was due, whatever the rounding of `given`
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
def set_due(s, now, bytes_per_ps, goal, servers, tree, leaves):  # type: ignore[no-untyped-def]
    """Update when the next transfer of server s is done, and which server is due first."""
    first, last, given, _, due = servers
    count = last[s] - first[s]
    if count:
        due[s] = _next_completion(given[s], now, bytes_per_ps[s], count, goal[first[s]])
    else:
        due[s] = NEVER
    i = (leaves + s) >> 1
    while i:
        _play_off(tree, due, i)
        i >>= 1


@part
def start_tree(tree, due, leaves):  # type: ignore[no-untyped-def]
    """Set up the tournament tree."""
    for i in range(leaves - 1, 0, -1):
        _play_off(tree, due, i)
