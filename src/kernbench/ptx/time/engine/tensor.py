"""tcgen05 in the engine: products and copies of an SM's tensor core in order, tensor memory, commits."""

from kernbench.common.compiled import part
from kernbench.ptx.time.engine import codes as c
from kernbench.ptx.time.engine.clusters import concerned
from kernbench.ptx.time.engine.memory import served
from kernbench.ptx.time.engine.waiting import contribute, join_group


@part
def _product(w, sm, event, now, events, warps, servers, constants):  # type: ignore[no-untyped-def]
    """A product, a copy into tensor memory or a shift: the SM's tensor core executes them in order.

    Each takes as long as its arithmetic or the reading of its operands from shared memory, whichever is longer. A
    product that adds to the same D as the one before takes at least the latency of the chain.
    """
    sm_free, sm_busy = servers[1], servers[4]
    work, passes, target = events[event, c.EXTRA], events[event, c.STAGE], events[event, c.PHASE]
    lasts = max(work, passes)
    if target >= 0 and target == sm_free[sm, c.LAST_TARGET] - 1:
        lasts = max(lasts, constants[c.PRODUCT_CHAIN])
    begin = served(sm_free[sm], c.PRODUCT_UNIT, now, lasts)
    sm_free[sm, c.LAST_TARGET] = target + 1
    sm_free[sm, c.PASSES_SHARE] = min(passes * c.TICK // max(lasts, 1), c.MOST_PASSES)
    sms = max(events[event, c.E_L2], 1)
    sm_busy[sm, c.PRODUCT_UNIT] += work * sms
    sm_busy[sm, c.MIO] += passes * sms
    join_group(w, c.PRODUCT_GROUP, begin + lasts, warps)


@part
def beside_operands(sm, now, stage, sm_free):  # type: ignore[no-untyped-def]
    """The stage time of an access: longer while operands of products are read from shared memory."""
    if sm_free[sm, c.PRODUCT_UNIT] <= now:
        return stage
    share = sm_free[sm, c.PASSES_SHARE]
    return stage + stage * share // (c.TICK - share)


@part
def _access(w, sub, event, now, events, warps, servers, constants):  # type: ignore[no-untyped-def]
    """tcgen05.ld or .st, through the sub-core's path to tensor memory.

    Returns when its bytes have passed (a store has then read its registers), and when its result is there.
    """
    cost = events[event, c.EXTRA]
    begin = served(servers[0][sub], c.TENSOR_MEMORY, now, cost)
    servers[3][sub, c.TENSOR_MEMORY] += cost
    done = begin + cost + constants[c.TENSOR_LATENCY]
    join_group(w, c.TENSOR_GROUP, done, warps)
    return begin + cost, done


@part
def _commit(w, event, now, events, state, constants):  # type: ignore[no-untyped-def]
    """Arrive at an mbarrier (with a multicast, at one in each named CTA) when all that the warp started is done."""
    under_way = state[0][w, c.W_OPEN + c.PRODUCT_GROUP]
    when = max(now, under_way + constants[c.PRODUCT_TAIL]) if under_way > 0 else now
    last = event
    while last + 1 < len(events) and events[last + 1, c.E_WHAT] == c.MULTICAST:
        last += 1
    for one in range(event, last + 1):
        if events[one, c.SYNC] >= 0:
            further = events[one, c.FURTHER]
            arrives = when + constants[c.ONE_WAY] if further else when
            contribute(concerned(w, further, state), events[one, c.SYNC], arrives, constants[c.WAKE], state, constants)


@part
def tensor_step(what, w, sub, event, now, done, events, state, servers, constants):  # type: ignore[no-untyped-def]
    """Execute an instruction of tcgen05; returns when its operands were read, and when its result is there."""
    warps, taken = state[0], now
    if what == c.PRODUCT:
        _product(w, sub // c.SUB_CORES, event, now, events, warps, servers, constants)
    elif what == c.TENSOR_ACCESS:
        taken, done = _access(w, sub, event, now, events, warps, servers, constants)
    elif what == c.TENSOR_COMMIT:
        _commit(w, event, now, events, state, constants)
    elif what == c.TENSOR_WAIT:
        done = max(now, warps[w, c.W_OPEN + c.TENSOR_GROUP])
        warps[w, c.W_READY] = done
    return taken, done
