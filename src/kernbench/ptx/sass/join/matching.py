"""The path through machine code that fits a trace best: a shortest path over (node, explained tokens), compiled.

A state is a warp that enters a node when the first t tokens of its trace are explained. The node explains the next c
of them; every anchor without a token costs, and every token without an anchor, less if the anchor is predicated. Each
node costs a little more, so that the shortest of equally good paths is taken: the slow path of a division, for
instance, leaves no trace in PTX and is not taken. States that cost much more than the best one with as many tokens are
dropped, so that a trace that does not fit is matched approximately in bounded time.

Costs are integers: the same trace takes the same path on every machine.
"""

import numpy as np
from numpy.typing import NDArray

from kernbench.common.compiled import part
from kernbench.common.native_loops import native_loop

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]

# cost of a token without an anchor, or of an anchor without a token: for an event, a step, a step represented by a
# mere comparison or address arithmetic, and an event whose code was hoisted
EVENT, STEP, LOOSE, HOISTED = 1000, 500, 100, 20
# cost of a predicated anchor without a token; of divergence, where steps with fewer active lanes suggest it, and
# where none do
NOT_TAKEN, PARTED, TOGETHER = 20, 50, 3 * EVENT
# a state that costs this much more than the best one with as many tokens is dropped
BEAM = 6 * EVENT
# number of splits of tokens that are followed at a node, what they may cost beyond the best one, and tokens that a
# node may explain beyond its anchors
_SPLITS, _WORSE, BEYOND = 6, 2 * EVENT, 4
# number of states with the same t that are followed
_WIDE = 96
OVERFLOW, NO_WAY = -1, -2
# columns of a state
_NODE, _PARENT, _SPLIT, _NEXT, _DONE = range(5)
STATE_COLUMNS = 5
# in the column _SPLIT: the state follows its parent by skipping a token, without executing the node
SKIPPED = -1


@native_loop
def match(
    tokens: Ints,
    weight: Ints,
    anchors: tuple[Ints, Ints, Flags],
    node_cost: Ints,
    edges: tuple[Ints, Ints, Flags, Ints],
    room: tuple[Ints, Longs, Ints, Ints, Ints, Longs],
    end: Longs,
) -> int:
    """Find the best path; returns the number of states, or OVERFLOW if the room did not suffice.

    `tokens` are rows, `weight` is the cost of a token by row. Node n has the anchors `start[n]` to `start[n + 1]`, each
    with a row and whether it must act; and the edges `edges[0][n]` to `edges[0][n + 1]`: the successor (negative: the
    end) and whether lanes diverge there, at a cost by the number of explained tokens. `room` holds states, their costs,
    the first state by number of tokens, free anchors by row (that must act, that may), and costs by split. `end`
    receives the cost of the path, its last state (NO_WAY: there is none) and the number of tokens that the last node
    explains.
    """
    state, cost, head, have_must, have_may, costs = room
    total = len(tokens)
    head[: total + 1] = -1
    have_must[:] = 0
    have_may[:] = 0
    end[0], end[1], end[2] = -1, NO_WAY, 0
    count = _put(state, cost, head, 0, 0, 0, np.int64(0), -1, 0)
    for t in range(total + 1):
        least = np.int64(-1)
        for _ in range(_WIDE):
            now = _cheapest(state, cost, head[t])
            if now < 0 or (least >= 0 and cost[now] > least + BEAM):
                break
            least = cost[now] if least < 0 else least
            state[now, _DONE] = 1
            node = state[now, _NODE]
            if t < total:
                count = _put(state, cost, head, count, node, t + 1, cost[now] + weight[tokens[t]], now, SKIPPED)
            most = _split_costs(tokens, t, weight, anchors, node, have_must, have_may, costs)
            count = _follow(state, cost, head, count, (t, now, total), node_cost[node], edges, costs[:most], end)
            if count < 0:
                return OVERFLOW
    return count


@part
def _follow(
    state: Ints,
    cost: Longs,
    head: Ints,
    count: int,
    at: tuple[int, int, int],
    node_cost: int,
    edges: tuple[Ints, Ints, Flags, Ints],
    costs: Longs,
    end: Longs,
) -> int:
    """Follow each edge of a state's node, for the cheapest splits; returns the number of states."""
    t, now, total = at
    edge_start, edge_to, edge_parts, part_cost = edges
    node = state[now, _NODE]
    most = np.int64(-1)
    for _ in range(_SPLITS):
        c = _least_split(costs)
        if c < 0 or (most >= 0 and costs[c] > most):
            break
        most = costs[c] + _WORSE if most < 0 else most
        here = cost[now] + costs[c] + node_cost
        costs[c] = -1
        for e in range(edge_start[node], edge_start[node + 1]):
            if edge_to[e] >= 0:
                price = here + part_cost[t + c] if edge_parts[e] else here
                count = _put(state, cost, head, count, edge_to[e], t + c, price, now, c)
            elif t + c == total and (end[0] < 0 or here < end[0]):
                end[0], end[1], end[2] = here, now, c
    return count


@part
def _put(
    state: Ints, cost: Longs, head: Ints, count: int, node: int, t: int, price: int, parent: int, split: int
) -> int:
    """Add a state or lower its cost; returns the number of states, or OVERFLOW."""
    if count < 0:
        return OVERFLOW
    at = head[t]
    while at >= 0:
        if state[at, _NODE] == node:
            if state[at, _DONE] == 0 and price < cost[at]:
                cost[at] = price
                state[at, _PARENT] = parent
                state[at, _SPLIT] = split
            return count
        at = state[at, _NEXT]
    if count >= len(cost):
        return OVERFLOW
    cost[count] = price
    state[count, _NODE] = node
    state[count, _PARENT] = parent
    state[count, _SPLIT] = split
    state[count, _NEXT] = head[t]
    state[count, _DONE] = 0
    head[t] = count
    return count + 1


@part
def _cheapest(state: Ints, cost: Longs, at: int) -> int:
    """The cheapest state of a list that was not followed yet; among equal ones that of the lowest node."""
    found = -1
    while at >= 0:
        if state[at, _DONE] == 0 and (
            found < 0 or cost[at] < cost[found] or (cost[at] == cost[found] and state[at, _NODE] < state[found, _NODE])
        ):
            found = at
        at = state[at, _NEXT]
    return found


@part
def _split_costs(
    tokens: Ints,
    t: int,
    weight: Ints,
    anchors: tuple[Ints, Ints, Flags],
    node: int,
    have_must: Ints,
    have_may: Ints,
    costs: Longs,
) -> int:
    """Costs of explaining the next 0, 1, ... tokens by the anchors of a node; returns their number."""
    start, row, must = anchors
    first, last = start[node], start[node + 1]
    price = np.int64(0)
    for a in range(first, last):
        if must[a]:
            have_must[row[a]] += 1
            price += weight[row[a]]
        else:
            have_may[row[a]] += 1
            price += NOT_TAKEN
    costs[0] = price
    beyond, c = 0, 0
    while t + c < len(tokens) and beyond <= BEYOND and c < len(costs) - 1:
        r = tokens[t + c]
        if have_must[r] > 0:
            have_must[r] -= 1
            price -= weight[r]
        elif have_may[r] > 0:
            have_may[r] -= 1
            price -= NOT_TAKEN
        else:
            price += weight[r]
            beyond += 1
        c += 1
        costs[c] = price
    for a in range(first, last):
        have_must[row[a]] = 0
        have_may[row[a]] = 0
    return c + 1


@part
def _least_split(costs: Longs) -> int:
    """The cheapest unused split (used ones are negative), the shortest of equal ones; -1 if there is none."""
    found = -1
    for c in range(len(costs)):
        if costs[c] >= 0 and (found < 0 or costs[c] < costs[found]):
            found = c
    return found


@native_loop
def way(state: Ints, last: int, split: int, nodes: Ints, splits: Ints, skipped: Ints) -> int:
    """Write the path to a state, last node first: nodes, tokens explained by each, tokens skipped before it.

    Returns its length; with empty arrays it only counts.
    """
    at = last
    keep = len(nodes) > 0
    if keep:
        nodes[0] = state[last, _NODE]
        splits[0] = split
        skipped[0] = 0
    count = 1
    while state[at, _PARENT] >= 0 or state[at, _SPLIT] == SKIPPED:
        if state[at, _SPLIT] == SKIPPED:
            if keep:
                skipped[count - 1] += 1
        else:
            if keep:
                nodes[count] = state[state[at, _PARENT], _NODE]
                splits[count] = state[at, _SPLIT]
                skipped[count] = 0
            count += 1
        at = state[at, _PARENT]
    return count


@native_loop
def pair(
    tokens: Ints,
    nodes: Ints,
    first_token: Longs,
    splits: Ints,
    anchors: tuple[Ints, Ints, Flags],
    queue: tuple[Ints, Ints],
    first_anchor: Longs,
    token_of: Ints,
    taken: Flags,
) -> int:
    """Assign tokens to the anchors of a path, -1 if none is left; returns the number assigned.

    Node i of the path explains `splits[i]` tokens from `first_token[i]` on; its anchors are those from
    `first_anchor[i]` on. Anchors that must act are preferred. `queue` holds, by row, the next anchors that must and
    may.
    """
    next_must, next_may = queue
    start, row, must = anchors
    token_of[:] = -1
    found = 0
    for i in range(len(nodes)):
        first, last = start[nodes[i]], start[nodes[i] + 1]
        for a in range(first, last):
            next_must[row[a]] = first
            next_may[row[a]] = first
        for t in range(first_token[i], first_token[i] + splits[i]):
            a = _next_anchor(row, must, True, tokens[t], next_must, first, last)
            if a < 0:
                a = _next_anchor(row, must, False, tokens[t], next_may, first, last)
            if a >= 0:
                token_of[first_anchor[i] + a - first] = t
                taken[t] = True
                found += 1
    return found


@part
def _next_anchor(row: Ints, must: Flags, wanted: bool, token: int, following: Ints, first: int, last: int) -> int:
    """The next anchor of a row in a node that must act, or may; -1 if none is left."""
    at = following[token]
    # the entry was left by an earlier node
    if at < first or at > last:
        return -1
    while at < last and (row[at] != token or must[at] != wanted):
        at += 1
    following[token] = min(at + 1, last + 1)
    return at if at < last else -1


@native_loop
def pair_moved(
    tokens: Ints,
    near: Longs,
    reach: int,
    waiting: Ints,
    following: Ints,
    token_of: Ints,
    taken: Flags,
) -> int:
    """Assign remaining tokens to free anchors of their row nearby: code was moved from one node to another.

    `near[k]` is the token at which the path reaches anchor k. `waiting` is, by row, the first free anchor, `following`,
    by anchor, the next free one of its row.
    """
    found = 0
    for t in range(len(tokens)):
        if taken[t]:
            continue
        r = tokens[t]
        k = waiting[r]
        while k >= 0 and near[k] < t - reach:
            k = following[k]
        waiting[r] = k
        if k >= 0 and near[k] <= t + reach:
            token_of[k] = t
            taken[t] = True
            waiting[r] = following[k]
            found += 1
    return found
