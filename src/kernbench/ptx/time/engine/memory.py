"""Accesses to memory in the engine: L1, L2 and HBM as servers, atomics and bulk copies."""

from kernbench.common.compiled import part
from kernbench.ptx.time.engine import codes as c


@part
def served(free, which, arrival, cost):  # type: ignore[no-untyped-def]
    """A server takes what arrives after all it took before; gives when it begins, and is busy for `cost`."""
    begin = max(arrival, free[which])
    free[which] = begin + cost
    return begin


@part
def missed(w, hbm, share, warps):  # type: ignore[no-untyped-def]
    """What memory gives of an access that has `hbm` of it on average, of which a `share` waits for memory: of these so
    much more, of the others nothing. Those that wait lie evenly among all of a warp, and among warps. In which order
    warps come has no say in who waits, or more bandwidth could make a launch slower.
    """
    if hbm <= 0 or share >= c.TICK:
        return hbm
    warps[w, c.W_DRAWS] = (warps[w, c.W_DRAWS] + c.ROOT) % c.TICK
    return hbm * c.TICK // share if warps[w, c.W_DRAWS] < share else 0


@part
def levels(sm, weight, begin, needs, servers, constants, server, base):  # type: ignore[no-untyped-def]
    """What misses L1 goes through the SM's port, L2 and memory; gives when all of it is there.

    SMs of a group do the same at the same time: L2 and memory serve what all of them ask for.
    """
    _, sm_free, gpu_free, _, sm_busy, gpu_busy, memory = servers
    port, l2, hbm = needs
    out = served(sm_free[sm], server, begin, port)
    sm_busy[sm, server] += port
    stores = server == c.STORES
    unit = c.L2_WRITES if stores else c.L2
    at_l2 = served(gpu_free, unit, out, l2 * weight)
    gpu_busy[unit] += l2 * weight
    done = max(out + port, at_l2 + l2 * weight) + base
    if hbm > 0:
        cost = traffic(hbm * weight, stores, memory, constants)
        at_hbm = served(gpu_free, c.HBM, at_l2, cost)
        gpu_busy[c.HBM] += cost
        if not stores:
            more = constants[c.LATENCY_HBM] - constants[c.LATENCY_L2]
            more += _loaded(at_hbm, cost, at_hbm - at_l2, memory, constants)
            done = max(done, at_hbm + cost + base + more)
    return done


@part
def spread(w, wider, warps):  # type: ignore[no-untyped-def]
    """How much earlier or later than others a load is answered: banks and ways differ. One after the other they lie
    evenly between the most and the least, in steps of the golden section, so that their mean is 0.
    """
    warps[w, c.W_STEPS] = (warps[w, c.W_STEPS] + c.GOLDEN) % c.TICK
    return (warps[w, c.W_STEPS] - c.TICK // 2) * wider // c.TICK


@part
def _loaded(now, cost, queued, memory, constants):  # type: ignore[no-untyped-def]
    """How much longer memory takes to answer because it works: by the cube of its load over the last window, and by the
    share of it in which it wrote: loads wait until a part of memory that writes has written. What was `queued` that
    long has waited already.
    """
    elapsed = now - memory[c.WINDOW_BEGAN]
    if elapsed >= c.WINDOW:
        memory[c.BUSY_SHARE] = min(memory[c.WINDOW_BUSY] * c.FULL // elapsed, c.FULL)
        memory[c.WRITE_SHARE] = min(memory[c.WINDOW_WROTE] * c.FULL // elapsed, c.FULL)
        memory[c.WINDOW_BEGAN] = now
        memory[c.WINDOW_BUSY] = 0
        memory[c.WINDOW_WROTE] = 0
    memory[c.WINDOW_BUSY] += cost
    share = memory[c.BUSY_SHARE]
    more = constants[c.LATENCY_LOADED] * (share * share // c.FULL * share // c.FULL) // c.FULL
    return more + max(constants[c.LATENCY_WRITING] * memory[c.WRITE_SHARE] // c.FULL - queued, 0)


@part
def traffic(amount, stores, memory, constants):  # type: ignore[no-untyped-def]
    """Ticks of the memory for an amount that L2 does not hold, and for what must leave L2 to make room for it.

    What leaves is any line, dirty in proportion to all that is. Stores make lines dirty; they fetch nothing. Writing
    between reads takes longer than writing alone: the more the more evenly they are mixed, and the more is written.
    """
    leaves = amount * (memory[c.DIRTY] >> 8) // (constants[c.L2_CAPACITY] >> 8)
    memory[c.DIRTY] -= leaves
    if stores:
        memory[c.DIRTY] = min(memory[c.DIRTY] + amount, constants[c.L2_CAPACITY])
        amount = 0
    memory[c.HAS_READ] += amount
    memory[c.HAS_WRITTEN] += leaves
    cost = amount * constants[c.READ_COST] >> c.COST_SHIFT
    if leaves > 0:
        every = memory[c.HAS_READ] + memory[c.HAS_WRITTEN]
        writes = memory[c.HAS_WRITTEN] * c.FULL // every
        mixed = constants[c.WRITE_MIXED] * writes // c.FULL * (c.FULL - writes) // c.FULL
        cost += leaves * (constants[c.WRITE_COST] + mixed) >> c.COST_SHIFT
        memory[c.WINDOW_WROTE] += leaves * constants[c.WRITE_COST] >> c.COST_SHIFT
    return cost


@part
def written_through(amount, at_l2, servers, constants):  # type: ignore[no-untyped-def]
    """Sectors that are stored in part and are not there: memory reads them and writes them at once; gives when."""
    _, _, gpu_free, _, _, gpu_busy, memory = servers
    cost = traffic(amount, False, memory, constants)
    memory[c.HAS_WRITTEN] += amount
    writes = memory[c.HAS_WRITTEN] * c.FULL // (memory[c.HAS_READ] + memory[c.HAS_WRITTEN])
    mixed = constants[c.WRITE_MIXED] * writes // c.FULL * (c.FULL - writes) // c.FULL
    cost += amount * (constants[c.WRITE_COST] + mixed) >> c.COST_SHIFT
    memory[c.WINDOW_WROTE] += amount * constants[c.WRITE_COST] >> c.COST_SHIFT
    gpu_busy[c.HBM] += cost
    return served(gpu_free, c.HBM, at_l2, cost) + cost


@part
def copy(sm, there, event, now, weight, hbm, server, events, servers, constants):  # type: ignore[no-untyped-def]
    """A bulk copy, of which memory gives or takes `hbm`: issued in turn by the unit of its SM; gives when its bytes are
    there, in that SM or another.
    """
    begin = served(servers[1][sm], c.TMA, now, constants[c.BULK_ISSUE])
    servers[4][sm, c.TMA] += constants[c.BULK_ISSUE]
    needs = events[event, c.E_PORT], events[event, c.E_L2], hbm
    base = constants[c.LATENCY_L2] + constants[c.BULK_EXTRA] + events[event, c.LATER]
    return levels(there, weight, begin, needs, servers, constants, server, base)
