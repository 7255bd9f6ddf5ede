"""The event pass over chains: their durations, their events, and then the times of their nodes."""

from typing import NamedTuple

import numpy as np

from kernbench.common.compiled import part
from kernbench.common.deferred import deferred
from kernbench.timing.chains import NO_LAG, Chains, Numbers, Played, in_order_of
from kernbench.timing.engine import Times, check_done
from kernbench.timing.graph import Ints, Small
from kernbench.timing.servers import NEVER, Rates, begin, complete, insert, server_room, set_due, start_tree

# largest in-degree that is counted in a byte
_FEW = 127
# earlier than any time
_EVER = -(1 << 62)


class Steps(NamedTuple):
    """The time of each chain from when its predecessors are done, and from the end of its hub; and its bytes.

    By position.
    """

    own: Ints
    after_hub: Ints
    nbytes: Ints


class _Outcome(NamedTuple):
    """For each chain.

    When its predecessors (except its hub) were done, its finish, and the edge it waited for longest.
    """

    ready: Ints
    finish: Ints
    cause: Small


def in_order_of_time(chains: Chains, rates: Rates) -> Chains:
    """The same chains, stored in the order in which they are played at these rates."""
    order = np.empty(chains.count, np.uint32)
    _play_all(chains, rates, steps_of(chains, rates), order)
    return in_order_of(chains, order)


def steps_of(chains: Chains, rates: Rates) -> Steps:
    """The durations of chains, which do not depend on the bandwidth of servers."""
    steps = Steps(*(np.empty(chains.count, np.int64) for _ in range(3)))
    rows, lags = (chains.first, chains.nodes, chains.lags), (rates.dispatch, rates.latency)
    _measure(rows, chains.server, chains.position, (rates.duration, rates.nbytes), lags, steps)
    return steps


def run_chains(chains: Chains, rates: Rates, steps: Steps | None = None) -> Times:
    """Time the graph by events, with fair sharing of servers; `rates` are those of the nodes. `steps`, if known."""
    outcome = _play_all(chains, rates, steps_of(chains, rates) if steps is None else steps, np.empty(0, np.uint32))
    nodes = len(chains.nodes)
    times = Times(np.empty(nodes, np.int64), np.empty(nodes, np.int64), np.empty(nodes, np.int32))
    rows = chains.first, chains.nodes, chains.lags
    known = chains.before, chains.looked_up, chains.hub, chains.server
    lags = rates.dispatch, rates.latency
    _spread(rows, known, rates.duration, lags, outcome, (times.start, times.finish, times.cause))
    return times


def _play_all(chains: Chains, rates: Rates, steps: Steps, order: Numbers) -> _Outcome:
    """The outcome of all chains, by number; `order` receives their positions as they finish, if it is not empty."""
    count, played = chains.count, chains.played
    outcome, reached = _room(count), _room(count)
    reached.ready[:], reached.cause[:] = -1, -1
    given = rates.bytes_per_ps, rates.dispatch, rates.latency
    done = _play(played, given, steps, reached, _work(played, order), *server_room(rates), outcome)
    check_done(done, count)
    return outcome


def _room(count: int) -> _Outcome:
    """Arrays for an outcome; the extra entry stands for the hub of chains without one, done before any time."""
    finish = np.empty(count + 1, np.int64)
    finish[count] = _EVER
    return _Outcome(np.empty(count, np.int64), finish, np.empty(count, np.int32))


def _work(played: Played, order: Numbers) -> tuple[object, ...]:
    """The in-degrees of chains, as bytes if possible; a stack; and the order of completion."""
    few = played.indegree.max(initial=0) <= _FEW
    return played.indegree.astype(np.int8 if few else np.int32), np.empty(len(played.hub), np.uint32), order


@part
def _lag(lag, dispatch, latency):  # type: ignore[no-untyped-def]
    return lag * dispatch if lag >= 0 else latency[-lag - 1]


@deferred(lambda rows, *_: len(rows[1]))
def _measure(rows, server, position, given, rates, steps):  # type: ignore[no-untyped-def]
    """The duration of each chain."""
    first, nodes, lags = rows
    duration, nbytes = given
    dispatch, latency = rates
    for k in range(len(first) - 1):
        own, after_hub = np.int64(0), np.int64(_EVER)
        for i in range(first[k], first[k + 1]):
            time = duration[nodes[i]]
            if lags[i] != NO_LAG:
                after_hub = max(after_hub, _lag(lags[i], dispatch, latency))
            own += time
            after_hub += time
        at = position[k]
        steps.own[at], steps.after_hub[at] = own, after_hub
        if server[k] >= 0:
            steps.nbytes[at] = nbytes[nodes[first[k]]]


@part
def _release(k, end, played, rates, reached, waiting, stack, top):  # type: ignore[no-untyped-def]
    """As `engine.release`, for chains."""
    for e in range(played.offsets[k], played.offsets[k + 1]):
        v = played.targets[e]
        t = end + _lag(played.lags[e], rates[1], rates[2])
        before, known = reached.ready[v], reached.cause[v]
        reached.ready[v] = t if t > before else before
        reached.cause[v] = played.edges[e] if t > before else known
        left = waiting[v] - 1
        waiting[v] = left
        stack[top] = v
        top += 1 if left == 0 else 0
    return top


@deferred(lambda played, *_: len(played.offsets) + len(played.targets))
def _play(played, rates, steps, reached, work, transfers, servers, tree, outcome):  # type: ignore[no-untyped-def]
    """As `engine._events`, for chains; returns how many are done."""
    waiting, stack, order = work
    begin_time, begin_chain, goal, member = transfers
    due = servers[4]
    leaves = len(tree) >> 1
    start_tree(tree, due, leaves)
    top = 0
    for i in range(len(played.roots)):
        reached.ready[played.roots[i]] = 0
        stack[top] = played.roots[i]
        top += 1
    done = 0
    first_begin, begins = 0, 0
    while True:
        while top:
            top -= 1
            k = stack[top]
            if played.server[k] < 0 or waiting[k] == 0:
                by_hub = reached.finish[played.hub[k]] + steps.after_hub[k]
                end = max(reached.ready[k] + steps.own[k], by_hub)
                if played.server[k] >= 0:
                    insert(begin_time, begin_chain, first_begin, begins, end, k, played.number)
                    begins += 1
                    continue
                reached.finish[k] = end
            else:
                end = reached.finish[k]
            if len(order):
                order[done] = k
            done += 1
            number = played.number[k]
            outcome.ready[number], outcome.finish[number] = reached.ready[k], end
            outcome.cause[number] = reached.cause[k]
            top = _release(k, end, played, rates, reached, waiting, stack, top)
        s = tree[1]
        now = due[s] if s >= 0 else NEVER
        if first_begin < begins and begin_time[first_begin] < now:
            now = begin_time[first_begin]
            k = begin_chain[first_begin]
            first_begin += 1
            s = played.server[k]
            begin(k, s, now, steps.nbytes, rates[0], goal, member, servers, played.number)
        elif now == NEVER:
            break
        else:
            top = complete(s, now, rates[0], goal, member, servers, reached.finish, waiting, stack, top)
        set_due(s, now, rates[0], goal, servers, tree, leaves)
    return done


@deferred(lambda rows, *_: len(rows[1]))
def _spread(rows, known, duration, rates, outcome, times):  # type: ignore[no-untyped-def]
    """The times and causes of nodes, from those of their chains."""
    first, nodes, lags = rows
    before, looked_up, hub, server = known
    dispatch, latency = rates
    starts, ends, causes = times
    for k in range(len(first) - 1):
        time, reason = outcome.ready[k], outcome.cause[k]
        released = outcome.finish[hub[k]]
        for i in range(first[k], first[k + 1]):
            u = nodes[i]
            if i > first[k]:
                reason = before[i]
            if lags[i] != NO_LAG:
                looked = released + _lag(lags[i], dispatch, latency)
                if looked >= time:
                    time, reason = looked, looked_up[i]
            starts[u], causes[u] = time, reason
            time += duration[u]
            ends[u] = time if server[k] < 0 else outcome.finish[k]
