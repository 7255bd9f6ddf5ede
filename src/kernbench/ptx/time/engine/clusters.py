"""Interaction of a cluster's CTAs.

Distributed shared memory, remote arrivals, the cluster barrier, multicast copies.
"""

from kernbench.common.compiled import part
from kernbench.ptx.time.engine import codes as c
from kernbench.ptx.time.engine.memory import copy, missed, served, spread
from kernbench.ptx.time.engine.waiting import contribute


@part
def concerned(w, further, state):  # type: ignore[no-untyped-def]
    """The slot of the CTA whose rank is `further` above that of the warp's CTA, modulo the cluster size."""
    warps, ctas, seats = state[0], state[1], state[6]
    cta = warps[w, c.W_CTA]
    if not further:
        return cta
    size = seats.shape[1]
    return seats[ctas[cta, c.C_CLUSTER], (ctas[cta, c.C_RANK] + further) % size]


@part
def _sm_of(cta, state, servers):  # type: ignore[no-untyped-def]
    return cta // (len(state[1]) // len(servers[1]))


@part
def remote(what, w, event, passed, stage, now, events, state, servers, constants):  # type: ignore[no-untyped-def]
    """An access to another CTA's shared memory; returns when its result, or the stored data, is there.

    It uses the remote SM's banks right now, next to that SM's own accesses: its position in the queue does not change
    the total work.
    """
    warps = state[0]
    cta = concerned(w, events[event, c.FURTHER], state)
    there = _sm_of(cta, state, servers)
    cost = events[event, c.BYTES] * constants[c.NETWORK_BYTE]
    begin = served(servers[1][there], c.MIO, now, stage)
    servers[4][there, c.MIO] += stage
    arrives = served(servers[1][there], c.NETWORK, max(passed + constants[c.ONE_WAY], begin), cost)
    servers[4][there, c.NETWORK] += cost
    if what == c.REMOTE_LOAD:
        return arrives + max(constants[c.REMOTE_LATENCY] - constants[c.ONE_WAY], cost)
    done = arrives + cost
    warps[w, c.W_STORED] = max(warps[w, c.W_STORED], done)
    if events[event, c.SYNC] >= 0:
        contribute(cta, events[event, c.SYNC], done, constants[c.WAKE], state, constants)
    return done


@part
def cluster_arrive(w, sm, sync, now, state, servers, constants):  # type: ignore[no-untyped-def]
    """A warp arrives at the barrier of its cluster; each of its CTAs has a copy of the barrier."""
    ctas, seats = state[1], state[6]
    begin = served(servers[1][sm], c.BARRIERS, now, constants[c.BARRIER_WARP])
    servers[4][sm, c.BARRIERS] += constants[c.BARRIER_WARP]
    if sync < 0:
        return
    slot = ctas[state[0][w, c.W_CTA], c.C_CLUSTER]
    for rank in range(seats.shape[1]):
        contribute(seats[slot, rank], sync, begin, _hop(seats, constants), state, constants)


@part
def _hop(seats, constants):  # type: ignore[no-untyped-def]
    """Delay from the last arrival at a cluster barrier to the release; a cluster of one CTA stays within its SM."""
    return constants[c.CLUSTER_BARRIER] if seats.shape[1] > 1 else constants[c.BARRIER]


@part
def cluster_wait(w, sync, now, state, constants):  # type: ignore[no-untyped-def]
    """The completion of the cluster barrier that the warp has to wait for, or -1."""
    warps, remaining, done, seats = state[0], state[2], state[3], state[6]
    cta = warps[w, c.W_CTA]
    if sync < 0:
        return -1
    if remaining[cta, sync] > 0:
        return sync
    warps[w, c.W_READY] = max(now, done[cta, sync] + _hop(seats, constants))
    return -1


@part
def bulk_load(w, event, now, weight, events, state, servers, constants):  # type: ignore[no-untyped-def]
    """A bulk copy from global memory: L2 reads it once, and the port of each receiving SM transfers all of it."""
    last = event
    while last + 1 < len(events) and events[last + 1, c.E_WHAT] == c.MULTICAST:
        last += 1
    first = concerned(w, events[event, c.FURTHER], state)
    sm = _sm_of(state[0][w, c.W_CTA], state, servers)
    into = _sm_of(first, state, servers)
    hbm = missed(w, events[event, c.E_HBM], events[event, c.E_MISSES], state[0])
    there = copy(sm, into, event, now, weight, hbm, c.PORT, events, servers, constants)
    there += spread(w, events[event, c.WIDER], state[0])
    if last > event:
        there += constants[c.MULTICAST_EXTRA]
    for one in range(event, last + 1):
        cta = concerned(w, events[one, c.FURTHER], state)
        arrives = there
        if one > event:
            port, other = events[event, c.E_PORT], _sm_of(cta, state, servers)
            arrives = max(there, served(servers[1][other], c.PORT, now, port) + port)
            servers[4][other, c.PORT] += port
        if events[one, c.SYNC] >= 0:
            contribute(cta, events[one, c.SYNC], arrives, constants[c.WAKE], state, constants)


@part
def bulk_shared(w, sm, event, now, events, state, servers, constants):  # type: ignore[no-untyped-def]
    """A bulk copy from shared memory to another CTA of the cluster."""
    begin = served(servers[1][sm], c.TMA, now, constants[c.BULK_ISSUE])
    servers[4][sm, c.TMA] += constants[c.BULK_ISSUE]
    cta = concerned(w, events[event, c.FURTHER], state)
    there = _sm_of(cta, state, servers)
    cost = events[event, c.BYTES] * constants[c.NETWORK_BYTE]
    way = constants[c.ONE_WAY] + constants[c.BULK_EXTRA]
    done = served(servers[1][there], c.NETWORK, begin + way, cost) + cost
    servers[4][there, c.NETWORK] += cost
    if events[event, c.SYNC] >= 0:
        contribute(cta, events[event, c.SYNC], done, constants[c.WAKE], state, constants)
