"""What warps wait for in the engine: barriers, phases of mbarriers, groups of copies and products."""

from kernbench.common.compiled import part
from kernbench.ptx.time.engine import codes as c
from kernbench.ptx.time.engine.agenda import look_by
from kernbench.ptx.time.engine.memory import served


@part
def contribute(cta, sync, when, lag, state, constants):  # type: ignore[no-untyped-def]
    """One arrival towards a completion, at `when`; the last one releases all waiters `lag` later."""
    warps, ctas, remaining, done, agenda = state[0], state[1], state[2], state[3], state[5]
    remaining[cta, sync] -= 1
    if when > done[cta, sync]:
        done[cta, sync] = when
    if remaining[cta, sync] > 0:
        return
    first, per_sm = ctas[cta, c.C_FIRST], constants[c.PER_SM]
    for w in range(first, first + ctas[cta, c.C_WARPS]):
        if warps[w, c.W_STATE] == c.BLOCKED and warps[w, c.W_BLOCKED_ON] == sync:
            wake = max(warps[w, c.W_READY], done[cta, sync] + lag)
            warps[w, c.W_STATE] = c.RUNS
            warps[w, c.W_READY] = wake
            for counter in range(c.W_COUNTER, c.W_COUNTER + c.COUNTERS):
                if warps[w, counter] == c.NEVER:
                    warps[w, counter] = wake
            sub = w // per_sm * c.SUB_CORES + w % per_sm % c.SUB_CORES
            look_by(sub, wake, agenda)


@part
def join_group(w, kind, when, warps):  # type: ignore[no-untyped-def]
    """Add work to the warp's open (uncommitted) group."""
    warps[w, c.W_OPEN + kind] = max(warps[w, c.W_OPEN + kind], when)


@part
def commit(w, kind, warps, rings):  # type: ignore[no-untyped-def]
    """Commit the open group: it is done when all groups before it and its own work are."""
    count = warps[w, c.W_GROUPS + kind]
    before = rings[w, kind, (count - 1) % c.GROUPS] if count > 0 else 0
    rings[w, kind, count % c.GROUPS] = max(before, warps[w, c.W_OPEN + kind])
    warps[w, c.W_GROUPS + kind] = count + 1


@part
def wait_group(w, sub, needed, kind, now, warps, rings, pipe_free):  # type: ignore[no-untyped-def]
    """When the first `needed` groups are done.

    wgmma products are delayed by the time that other instructions took from the tensor core since they were issued.
    """
    committed = warps[w, c.W_GROUPS + kind]
    if needed <= 0 or committed == 0:
        return now
    done = rings[w, kind, (min(needed, committed) - 1) % c.GROUPS]
    if kind == c.WGMMA_GROUP:
        warps[w, c.W_TAKEN] = pipe_free[sub, c.TAKEN]
        done += pipe_free[sub, c.TAKEN]
    return max(now, done)


@part
def barrier(what, w, sm, sync, now, state, servers, constants):  # type: ignore[no-untyped-def]
    """bar.sync and bar.arrive; returns the completion that the warp waits for, or -1."""
    warps, remaining, done = state[0], state[2], state[3]
    cta = warps[w, c.W_CTA]
    begin = served(servers[1][sm], c.BARRIERS, now, constants[c.BARRIER_WARP])
    servers[4][sm, c.BARRIERS] += constants[c.BARRIER_WARP]
    if sync < 0:
        return -1
    contribute(cta, sync, begin, constants[c.BARRIER], state, constants)
    if what == c.BARRIER_ARRIVE:
        return -1
    if remaining[cta, sync] > 0:
        return sync
    warps[w, c.W_READY] = done[cta, sync] + constants[c.BARRIER]
    return -1


@part
def wait(w, sm, sync, now, state, servers, constants):  # type: ignore[no-untyped-def]
    """try_wait on an mbarrier; returns when it succeeds, or NEVER if that is not known yet."""
    warps, remaining, done = state[0], state[2], state[3]
    cta = warps[w, c.W_CTA]
    begin = served(servers[1][sm], c.MBARRIERS, now, constants[c.MBARRIER])
    servers[4][sm, c.MBARRIERS] += constants[c.MBARRIER]
    if sync >= 0 and remaining[cta, sync] > 0:
        return c.NEVER
    lasts = begin + constants[c.TRY_WAIT]
    return max(lasts, done[cta, sync] + constants[c.WAKE]) if sync >= 0 else lasts


@part
def arrive(what, w, sm, cta, sync, now, state, servers, constants):  # type: ignore[no-untyped-def]
    """An arrival at a CTA's mbarrier, by the warp or by its copies; later if the CTA is another one."""
    warps = state[0]
    begin = served(servers[1][sm], c.MBARRIERS, now, constants[c.MBARRIER])
    servers[4][sm, c.MBARRIERS] += constants[c.MBARRIER]
    if what == c.COPY_ARRIVE:
        begin = max(begin, warps[w, c.W_OPEN + c.CP_GROUP])
    if cta != warps[w, c.W_CTA]:
        begin += constants[c.ONE_WAY]
    if sync >= 0:
        contribute(cta, sync, begin, constants[c.WAKE], state, constants)
