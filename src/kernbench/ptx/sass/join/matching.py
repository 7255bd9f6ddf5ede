"""The way through machine code that fits a trace best: a shortest path over (node, tokens explained), compiled.

A state is a warp that enters a node with the first t tokens of its trace explained. The node explains the next c of
them; every anchor without a token costs, as does every token without an anchor, little where a predicate may have kept
the anchor from acting. Each node costs a trifle more, so that of ways that explain the same the shortest is taken: a
slow path of a division, which leaves no trace in PTX, is not. States that cost much more than the best one that
explains as much are dropped; a trace that does not fit is still matched as well as can be, and nothing is searched
twice.

Costs are integers: the same trace takes the same way on every machine.
"""

import numpy as np
from numpy.typing import NDArray

from kernbench.common.compiled import part
from kernbench.common.native_loops import native_loop

Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Flags = NDArray[np.bool_]

# weight of an event, of a step, of a step that only a comparison or address arithmetic stands for, of an event whose
# code left its loop: the cost of a token without an anchor, or of an anchor without a token
EVENT, STEP, LOOSE, HOISTED = 1000, 500, 100, 20
# of an anchor that its predicate kept from acting; of lanes that part, where steps with fewer lanes than the warp has
# say that they may have, and where none does
NOT_TAKEN, PARTED, TOGETHER = 20, 50, 3 * EVENT
# a state that costs this much more than the best with as many tokens is dropped
BEAM = 6 * EVENT
# ways to split tokens at a node that are followed, what they may cost beyond the best, and tokens beyond its anchors
# that a node may explain
_SPLITS, _WORSE, BEYOND = 6, 2 * EVENT, 4
# states of one t that are followed
_WIDE = 96
OVERFLOW, NO_WAY = -1, -2
# columns of a state
_NODE, _PARENT, _SPLIT, _NEXT, _DONE = range(5)
STATE_COLUMNS = 5
# how a state came from its parent: without running the node, a token is passed over
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
    """Find the best way; the number of states, or OVERFLOW where the room did not suffice.

    `tokens` are rows, `weight` the cost of one by row. Node n has the anchors `start[n]` to `start[n + 1]`, of a row
    each, which must act or may; and the edges `edges[0][n]` to `edges[0][n + 1]`: where to (negative: the end) and
    whether lanes part there, at a cost by the number of tokens explained. `room` holds states, their costs, the first
    state by number of tokens, anchors left by row (that must act, that may), and costs by split. `end` gets the cost
    of the way, its last state (NO_WAY: none leads to an end) and how many tokens the last node explains.
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
    """Go on from a state by each edge of its node, for the cheapest splits; the number of states."""
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
    """Note a way to a state, if it is the cheapest so far; the number of states, or OVERFLOW."""
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
    """The cheapest state of a list that was not followed yet; of equal ones the first node."""
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
    """Costs of explaining the next 0, 1, ... tokens by the anchors of a node; how many there are."""
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
    """The cheapest split that was not taken yet (those are negative), the shortest of equal ones; -1: none is left."""
    found = -1
    for c in range(len(costs)):
        if costs[c] >= 0 and (found < 0 or costs[c] < costs[found]):
            found = c
    return found


@native_loop
def way(state: Ints, last: int, split: int, nodes: Ints, splits: Ints, skipped: Ints) -> int:
    """Write the way to a state, last node first: nodes, tokens each explains, tokens passed over before it; its length.

    With arrays of no length it only counts.
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
    """Give each anchor on a way its token, -1 where none is left; how many got one.

    Node i of the way explains `splits[i]` tokens from `first_token[i]` on; its anchors are those from
    `first_anchor[i]` on. Those that must act come first. `queue` holds, by row, the next anchors that must and may.
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
    """The next anchor of a row in a node that must act, or may; -1: none is left."""
    at = following[token]
    # what an earlier node left
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
    """Give tokens that are left to anchors of their row that are left nearby: code moved from one node to another.

    `near[k]` is the token where the way stands at anchor k. `waiting` by row is the first anchor
    that is left, `following` by anchor the next one of its row.
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
