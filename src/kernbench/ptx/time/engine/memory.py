"""Memory accesses in the engine: L1, L2 and HBM as servers, atomics and bulk copies."""

from kernbench.common.compiled import part
from kernbench.ptx.time.engine import codes as c


@part
def served(free, which, arrival, cost):  # type: ignore[no-untyped-def]
    """A FIFO server that is busy for `cost`; returns when it begins."""
    begin = max(arrival, free[which])
    free[which] = begin + cost
    return begin


@part
def missed(w, hbm, share, warps):  # type: ignore[no-untyped-def]
    """The bytes that memory supplies for this access, if `hbm` is the mean and a `share` of all accesses miss.

    Those that miss wait for `hbm / share`, the others for nothing. Misses are distributed evenly over the accesses of
    each warp, and over warps. They do not depend on the order of warps: otherwise more bandwidth could make a launch
    slower.
    """
    if hbm <= 0 or share >= c.TICK:
        return hbm
    warps[w, c.W_DRAWS] = (warps[w, c.W_DRAWS] + c.ROOT) % c.TICK
    return hbm * c.TICK // share if warps[w, c.W_DRAWS] < share else 0


@part
def levels(sm, weight, begin, needs, servers, constants, server, base):  # type: ignore[no-untyped-def]
    """The part of an access that misses L1: through the SM's port, L2 and memory; returns when all of it is there.

    The SMs of a group behave identically: L2 and memory serve the accesses of all of them.
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
    """How much earlier or later than the mean a load is answered, as banks and ways differ.

    The values are spread evenly over the range, in steps of the golden section; their mean is 0.
    """
    warps[w, c.W_STEPS] = (warps[w, c.W_STEPS] + c.GOLDEN) % c.TICK
    return (warps[w, c.W_STEPS] - c.TICK // 2) * wider // c.TICK


@part
def _loaded(now, cost, queued, memory, constants):  # type: ignore[no-untyped-def]
    """The additional latency of memory under load.

    It grows with the cube of the load in the last window, and with the share of the window spent on writes: a load
    waits until a part of memory that is writing has finished. Time that the access was already `queued` counts.
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
    """Memory ticks for bytes that L2 does not hold, and for evictions that make room for them.

    Any line may be evicted, so evicted lines are dirty in proportion to all lines. Stores make lines dirty, and fetch
    nothing. Writes mixed with reads take longer than writes alone: most if the shares are equal, and in proportion to
    what is written.
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
    """Partial stores to sectors that L2 does not hold: memory reads and writes them at once; returns when."""
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
    """A bulk copy, with `hbm` bytes from or to memory: issued by the copy unit of its SM, one after the other.

    Returns when its bytes have arrived, in SM `there`.
    """
    begin = served(servers[1][sm], c.TMA, now, constants[c.BULK_ISSUE])
    servers[4][sm, c.TMA] += constants[c.BULK_ISSUE]
    needs = events[event, c.E_PORT], events[event, c.E_L2], hbm
    base = constants[c.LATENCY_L2] + constants[c.BULK_EXTRA] + events[event, c.LATER]
    return levels(there, weight, begin, needs, servers, constants, server, base)
