"""The compiled model: warps of some SMs issue their instruction streams, and contend for pipes, memory and each other.

It is event-driven, not cycle-stepped: a sub-core is examined when one of its warps may issue. All times are integer
ticks, and ties go to the lower number, so equal inputs give exactly equal outputs. Tables are arrays with a row for
each instruction, event, warp and CTA slot; `codes` names their columns.
"""

from kernbench.common.compiled import part
from kernbench.common.native_loops import native_loop
from kernbench.ptx.time.engine import codes as c
from kernbench.ptx.time.engine.agenda import first_due, look_next
from kernbench.ptx.time.engine.clusters import bulk_load, bulk_shared, cluster_arrive, cluster_wait, concerned, remote
from kernbench.ptx.time.engine.dispatch import finish_warp, start_cluster
from kernbench.ptx.time.engine.memory import copy, levels, missed, served, spread, traffic, written_through
from kernbench.ptx.time.engine.reasons import WAIT_BY_THEMSELVES, Reason
from kernbench.ptx.time.engine.tensor import beside_operands, tensor_step
from kernbench.ptx.time.engine.waiting import arrive, barrier, commit, join_group, wait, wait_group

_ISSUED, _FIXED, _PIPE, _QUEUE = int(Reason.ISSUED), int(Reason.FIXED), int(Reason.PIPE), int(Reason.QUEUE)
_NOT_SELECTED, _BRANCH = int(Reason.NOT_SELECTED), int(Reason.BRANCH)
_BY_THEMSELVES = tuple(map(int, WAIT_BY_THEMSELVES))


@part
def _needs(op, event, ops, events):  # type: ignore[no-untyped-def]
    """Ticks of the SM's stage, and of the port, L2 and memory; if an access is split, the share of this instruction."""
    stage, port, l2, hbm = (
        events[event, c.STAGE],
        events[event, c.E_PORT],
        events[event, c.E_L2],
        events[event, c.E_HBM],
    )
    nbytes, share = events[event, c.BYTES], ops[op, c.WIDTH] * events[event, c.LANES]
    if 0 < share < nbytes:
        stage, port, l2, hbm = (
            stage * share // nbytes, port * share // nbytes, l2 * share // nbytes, hbm * share // nbytes,
        )  # fmt: skip
    return stage, (port, l2, hbm)


@part
def _atomic(w, sm, weight, begin, event, needs, events, warps, servers, constants):  # type: ignore[no-untyped-def]
    """An atomic or a reduction, performed in L2; returns when it is done."""
    _, sm_free, gpu_free, _, _, gpu_busy, memory = servers
    port, _, hbm = needs
    hbm = missed(w, hbm, events[event, c.E_MISSES], warps)
    out = served(sm_free[sm], c.STORES, begin, port)
    cost = events[event, c.EXTRA] * weight
    at = served(gpu_free, c.ATOMICS, out, cost)
    gpu_busy[c.ATOMICS] += cost
    done = at + cost + constants[c.LATENCY_ATOMIC]
    if hbm > 0:
        cost = traffic(hbm * weight, False, memory, constants)
        memory[c.DIRTY] = min(memory[c.DIRTY] + hbm * weight, constants[c.L2_CAPACITY])
        done = max(done, served(gpu_free, c.HBM, at, cost) + cost)
        gpu_busy[c.HBM] += cost
        done += constants[c.LATENCY_HBM] - constants[c.LATENCY_L2]
    warps[w, c.W_STORED] = max(warps[w, c.W_STORED], done)
    return done


@part
def _access(what, w, sub, sm, op, event, now, weight, tables, state, servers, constants):  # type: ignore[no-untyped-def]
    """An instruction of the memory pipeline: the sub-core's address unit, the SM's stage, then L1, L2 and memory.

    Returns when its operands were read and when its result is there.
    """
    ops, events, address_free, queue = tables
    warps, sm_free, sm_busy = state[0], servers[1], servers[4]
    stage, needs = ops[op, c.COST], (0, 0, 0)
    if event >= 0:
        stage, needs = _needs(op, event, ops, events)
        if ops[op, c.TOGETHER] and what == c.SHARED:
            stage = events[event, c.EXTRA]
    through = max(constants[c.ADDRESS], ops[op, c.WIDTH] * constants[c.SUB_CORE_BYTE])
    accepted = served(address_free, sub, now, through)
    if event >= 0 and events[event, c.E_TAGS]:
        accepted = served(sm_free[sm], c.TAGS, accepted, events[event, c.E_TAGS])
        sm_busy[sm, c.TAGS] += events[event, c.E_TAGS]
    sm_busy[sm, c.MIO] += stage
    stage = beside_operands(sm, accepted, stage, sm_free)
    begin = served(sm_free[sm], c.MIO, accepted, stage)
    depth = queue.shape[1] - 1
    slot = queue[sub, depth]
    queue[sub, slot] = begin
    queue[sub, depth] = (slot + 1) % depth
    passed = begin + stage
    if what == c.SHARED:
        if ops[op, c.WRITE] >= c.COUNTERS:
            # only a fence waits for it
            warps[w, c.W_SHARED] = passed + ops[op, c.LATENCY]
        return passed, passed + ops[op, c.LATENCY]
    if what in (c.REMOTE_LOAD, c.REMOTE_STORE):
        return passed, remote(what, w, event, passed, stage, now, events, state, servers, constants)
    if what in (c.ATOMIC, c.REDUCTION):
        return passed, _atomic(w, sm, weight, begin, event, needs, events, warps, servers, constants)
    done = passed + constants[c.LATENCY_L1]
    if what == c.STORE:
        if needs[0]:
            done = levels(sm, weight, begin, needs, servers, constants, c.STORES, constants[c.LATENCY_STORE])
            if events[event, c.E_THROUGH]:
                done = max(done, written_through(events[event, c.E_THROUGH] * weight, begin, servers, constants))
        warps[w, c.W_STORED] = max(warps[w, c.W_STORED], done)
    elif needs[0]:
        base = constants[c.LATENCY_L2] + events[event, c.LATER]
        needs = needs[0], needs[1], missed(w, needs[2], events[event, c.E_MISSES], warps)
        answered = levels(sm, weight, begin, needs, servers, constants, c.PORT, base)
        done = max(done, answered + spread(w, events[event, c.WIDER], warps))
    return passed, done


@part
def _next_ready(w, op, following, ops, warps, constants):  # type: ignore[no-untyped-def]
    """When a warp's next instruction may issue, as far as its own dependences go: fixed stalls and scoreboards."""
    fixed = warps[w, c.W_ISSUED] + ops[op, c.STALL]
    why = _FIXED
    if ops[op, c.WHAT] == c.BRANCH and following != op + 1:
        fixed += constants[c.BRANCH_LOST]
        why = _BRANCH
    warps[w, c.W_FIXED] = fixed
    when = fixed
    mask = ops[following, c.WAITS]
    if mask:
        for counter in range(c.COUNTERS):
            if mask >> counter & 1 and warps[w, c.W_COUNTER + counter] > when:
                when = warps[w, c.W_COUNTER + counter]
                why = warps[w, c.W_COUNTER_WHY + counter]
    warps[w, c.W_READY] = when
    warps[w, c.W_WHY] = why


@part
def _taken_until(sub, op, ops, pipe_free, queue, constants):  # type: ignore[no-untyped-def]
    """When the unit that an instruction needs for issue becomes free."""
    what, pipe = ops[op, c.WHAT], ops[op, c.PIPE]
    if what == c.WGMMA:
        return pipe_free[sub, c.TENSOR] - constants[c.TENSOR_QUEUE] * ops[op, c.COST]
    if ops[op, c.QUEUED]:
        # the oldest queued access must have left the queue
        return queue[sub, queue[sub, queue.shape[1] - 1]]
    if pipe == c.NO_PIPE:
        return 0
    if pipe == c.EITHER:
        return min(pipe_free[sub, c.HEAVY], pipe_free[sub, c.LITE])
    return pipe_free[sub, pipe]


@part
def _take_pipe(sub, pipe, now, cost, free, busy, constants):  # type: ignore[no-untyped-def]
    if pipe == c.NO_PIPE:
        return
    if pipe == c.EITHER:
        pipe = c.LITE if free[sub, c.LITE] <= free[sub, c.HEAVY] else c.HEAVY
    if pipe <= c.XU and free[sub, c.PRODUCTS] > now:
        cost = _beside_products(sub, pipe, cost, free, constants)
    free[sub, pipe] = max(now, free[sub, pipe]) + cost
    busy[sub, pipe] += cost


@part
def _beside_products(sub, pipe, cost, free, constants):  # type: ignore[no-untyped-def]
    """The pipe time of an instruction while the tensor core works on wgmma products, which use the same registers.

    Instructions of the FMA pipe have priority, and delay the products.
    """
    if pipe == c.ALU:
        return cost * constants[c.BESIDE_ALU] // c.TICK
    if pipe == c.XU:
        return cost * constants[c.BESIDE_MUFU] // c.TICK
    free[sub, c.PRODUCTS] += constants[c.TAKEN_BY_FMA]
    free[sub, c.TENSOR] += constants[c.TAKEN_BY_FMA]
    free[sub, c.TAKEN] += constants[c.TAKEN_BY_FMA]
    return cost * constants[c.BESIDE_FMA] // c.TICK


@part
def _multiply(w, sub, sm, op, now, ops, warps, rings, servers, constants):  # type: ignore[no-untyped-def]
    """A wgmma product.

    Done when its operands were read from shared memory, and the tensor core has done all earlier ones.
    """
    pipe_free, passes = servers[0], ops[op, c.LATENCY]
    read = served(servers[1][sm], c.MIO, now, passes) + passes
    servers[4][sm, c.MIO] += passes
    pipe_free[sub, c.TENSOR] = max(pipe_free[sub, c.TENSOR], read)
    pipe_free[sub, c.PRODUCTS] = pipe_free[sub, c.TENSOR]
    tail = constants[c.TENSOR_TAIL] - pipe_free[sub, c.TAKEN]
    join_group(w, c.WGMMA_GROUP, pipe_free[sub, c.TENSOR] + tail, warps)
    if ops[op, c.CLOSES]:
        commit(w, c.WGMMA_GROUP, warps, rings)


@part
def _bulk_store(w, sm, event, now, weight, events, warps, servers, constants):  # type: ignore[no-untyped-def]
    """A bulk copy to global memory: done when it has arrived; its source has been read when it has left the SM."""
    there = copy(sm, sm, event, now, weight, events[event, c.E_HBM], c.STORES, events, servers, constants)
    there += spread(w, events[event, c.WIDER], warps)
    join_group(w, c.BULK_GROUP, there, warps)
    join_group(w, c.READ_GROUP, servers[1][sm, c.STORES] + constants[c.BULK_EXTRA], warps)
    warps[w, c.W_STORED] = max(warps[w, c.W_STORED], there)


@part
def _fence(w, op, now, ops, warps):  # type: ignore[no-untyped-def]
    """A fence; returns when earlier stores have arrived."""
    done = now + ops[op, c.LATENCY]
    if ops[op, c.COST]:
        # GPU scope: earlier stores have arrived
        done = max(done, warps[w, c.W_STORED])
    elif ops[op, c.LATENCY]:
        # proxy fence: it begins when earlier stores to shared memory have arrived
        done = max(now, warps[w, c.W_SHARED]) + ops[op, c.LATENCY]
    if ops[op, c.WRITE] >= c.COUNTERS:
        warps[w, c.W_READY] = done
    return done


@part
def _execute(w, sub, sm, op, event, now, tables, state, servers, constants):  # type: ignore[no-untyped-def]
    """Execute an instruction at issue; returns the completion that its warp then waits for, or -1."""
    ops, events, _, _ = tables
    warps, ctas, rings = state[0], state[1], state[4]
    what = ops[op, c.WHAT]
    if event >= 0 and events[event, c.E_WHAT] != c.NOTHING:
        what = events[event, c.E_WHAT]
    weight = ctas[warps[w, c.W_CTA], c.C_WEIGHT]
    done, taken, waits = now + ops[op, c.LATENCY], now, -1
    _take_pipe(sub, ops[op, c.PIPE], now, ops[op, c.COST], servers[0], servers[3], constants)
    if what in (c.PLAIN, c.VARIABLE, c.BRANCH, c.MMA):
        pass
    elif what <= c.CP_ASYNC:
        taken, done = _access(what, w, sub, sm, op, event, now, weight, tables, state, servers, constants)
        if what == c.CP_ASYNC:
            join_group(w, c.CP_GROUP, done, warps)
    elif what in (c.BARRIER_SYNC, c.BARRIER_ARRIVE):
        waits = barrier(what, w, sm, events[event, c.SYNC], now, state, servers, constants)
    elif what == c.WAIT:
        done = wait(w, sm, events[event, c.SYNC], now, state, servers, constants)
        waits = events[event, c.SYNC] if done == c.NEVER else -1
    elif what in (c.ARRIVE, c.COPY_ARRIVE):
        cta = concerned(w, events[event, c.FURTHER], state)
        arrive(what, w, sm, cta, events[event, c.SYNC], now, state, servers, constants)
    elif what == c.CLUSTER_ARRIVE:
        cluster_arrive(w, sm, events[event, c.SYNC], now, state, servers, constants)
    elif what == c.CLUSTER_WAIT:
        waits = cluster_wait(w, events[event, c.SYNC], now, state, constants)
    elif what == c.WGMMA:
        _multiply(w, sub, sm, op, now, ops, warps, rings, servers, constants)
    elif what == c.COMMIT:
        commit(w, events[event, c.EXTRA], warps, rings)
        if events[event, c.EXTRA] == c.BULK_GROUP:
            commit(w, c.READ_GROUP, warps, rings)
    elif what == c.WAIT_GROUP:
        done = wait_group(w, sub, events[event, c.PHASE], events[event, c.EXTRA], now, warps, rings, servers[0])
        warps[w, c.W_READY] = done
    elif what == c.BULK_LOAD:
        bulk_load(w, event, now, weight, events, state, servers, constants)
    elif what == c.BULK_SHARED:
        bulk_shared(w, sm, event, now, events, state, servers, constants)
    elif what == c.BULK_STORE:
        _bulk_store(w, sm, event, now, weight, events, warps, servers, constants)
    elif what == c.SLEEP:
        warps[w, c.W_READY] = now + events[event, c.EXTRA]
    elif what >= c.PRODUCT:
        taken, done = tensor_step(what, w, sub, event, now, done, events, state, servers, constants)
    elif what == c.FENCE:
        done = _fence(w, op, now, ops, warps)
    _count(w, op, done, taken, ops, warps)
    return waits


@part
def _count(w, op, done, taken, ops, warps):  # type: ignore[no-untyped-def]
    """Update the warp's scoreboards: when the result is there, and when the operands were read."""
    write, read = ops[op, c.WRITE], ops[op, c.READ]
    if write < c.COUNTERS:
        warps[w, c.W_COUNTER + write] = max(warps[w, c.W_COUNTER + write], done)
        warps[w, c.W_COUNTER_WHY + write] = ops[op, c.REASON]
    if read < c.COUNTERS:
        warps[w, c.W_COUNTER + read] = max(warps[w, c.W_COUNTER + read], taken)
        warps[w, c.W_COUNTER_WHY + read] = _QUEUE


@part
def _waits_itself(op, why, ops):  # type: ignore[no-untyped-def]
    """Whether an instruction waits by itself, as a barrier does, so that the time after it is its own."""
    return why in _BY_THEMSELVES and ops[op, c.REASON] == why


@part
def _account(w, op, before, now, weight, warps, ops, stalls, issued, interval):  # type: ignore[no-untyped-def]
    """Attribute the time since the warp's last instruction, `before`, to reasons.

    It belongs to the instruction that waits: a barrier, a wait for copies, a fence; or to the one that needs a result.
    """
    since, why = warps[w, c.W_ISSUED], warps[w, c.W_WHY]
    issued[op] += weight
    if now <= since:
        return
    slot = min(interval, now - since)
    stalls[op, _ISSUED] += slot * weight
    stable = max(min(warps[w, c.W_FIXED], now) - since - slot, 0)
    stalls[op, _BRANCH if why == _BRANCH else _FIXED] += stable * weight
    depended = max(min(warps[w, c.W_READY], now) - max(warps[w, c.W_FIXED], since + slot), 0)
    stalls[before if _waits_itself(before, why, ops) else op, why] += depended * weight
    rest = now - since - slot - stable - depended
    if rest > 0:
        stalls[op, warps[w, c.W_HELD]] += rest * weight


@part
def _choose(sub, now, path_op, tables, warps, pipe_free, constants):  # type: ignore[no-untyped-def]
    """The warp to issue.

    The eligible one that issued longest ago; -1 if none, and when to examine the sub-core again.
    """
    ops, _, _, queue = tables
    per_sm = constants[c.PER_SM]
    sm = sub // c.SUB_CORES
    chosen, soonest = -1, c.NEVER
    for w in range(sm * per_sm + sub % c.SUB_CORES, (sm + 1) * per_sm, c.SUB_CORES):
        if warps[w, c.W_STATE] != c.RUNS:
            continue
        when = warps[w, c.W_READY]
        if when <= now and warps[w, c.W_TAKEN] >= 0:
            # other instructions delayed the tensor core while the warp waited for its products
            when += pipe_free[sub, c.TAKEN] - warps[w, c.W_TAKEN]
            warps[w, c.W_TAKEN] = pipe_free[sub, c.TAKEN] if when > now else -1
            warps[w, c.W_READY] = when
        if when <= now:
            when = _taken_until(sub, path_op[warps[w, c.W_AT]], ops, pipe_free, queue, constants)
            if when <= now:
                better = chosen < 0 or warps[w, c.W_ISSUED] < warps[chosen, c.W_ISSUED]
                if better and chosen >= 0:
                    warps[chosen, c.W_HELD] = _NOT_SELECTED
                if better:
                    chosen = w
                else:
                    warps[w, c.W_HELD] = _NOT_SELECTED
                continue
            warps[w, c.W_HELD] = _PIPE
        soonest = min(soonest, when)
    return chosen, soonest


@part
def _note(notes, row, w, op, now, warps, ctas):  # type: ignore[no-untyped-def]
    """Trace what a warp did since its last instruction, before the next one is executed."""
    notes[row, c.N_WARP] = w - ctas[warps[w, c.W_CTA], c.C_FIRST]
    notes[row, c.N_OP] = op
    notes[row, c.N_SINCE] = warps[w, c.W_ISSUED]
    notes[row, c.N_FIXED] = warps[w, c.W_FIXED]
    notes[row, c.N_READY] = warps[w, c.W_READY]
    notes[row, c.N_WHY] = warps[w, c.W_WHY]
    notes[row, c.N_HELD] = warps[w, c.W_HELD]
    notes[row, c.N_ISSUED] = now
    notes[row, c.N_BEGAN] = c.NOTHING


@part
def _note_unit(notes, row, w, sub, op, event, tables, state, servers):  # type: ignore[no-untyped-def]
    """Trace which asynchronous unit the instruction started (a copy or a product), and until when it works."""
    warps, done = state[0], state[3]
    what = tables[0][op, c.WHAT]
    if event >= 0 and tables[1][event, c.E_WHAT] != c.NOTHING:
        what = tables[1][event, c.E_WHAT]
    until = 0
    if what == c.BULK_LOAD and tables[1][event, c.SYNC] >= 0:
        until = done[concerned(w, tables[1][event, c.FURTHER], state), tables[1][event, c.SYNC]]
    elif what == c.BULK_STORE:
        until = warps[w, c.W_STORED]
    elif what == c.CP_ASYNC:
        until = warps[w, c.W_OPEN + c.CP_GROUP]
    elif what == c.WGMMA:
        until = servers[0][sub, c.TENSOR]
    elif what == c.PRODUCT:
        until = servers[1][sub // c.SUB_CORES, c.PRODUCT_UNIT]
    if until > 0:
        notes[row, c.N_BEGAN] = what
        notes[row, c.N_UNTIL] = until


@native_loop
def simulate(tables, path, grid, state, servers, constants, counts, stalls, issued, spans, notes):  # type: ignore[no-untyped-def]
    """Simulate all CTAs of the grid; returns when the last warp ends, in ticks, and two counts.

    The counts are the issued instructions, and the warps that are still blocked, on an event that never happens.
    `notes` has room for the trace of one CTA.
    """
    path_op, path_event = path
    warps, ctas, agenda = state[0], state[1], state[5]
    for slot in range(len(state[6])):
        start_cluster(slot, constants[c.WARP_START], grid, state, servers, constants, counts)
    count = 0
    end = 0
    while True:
        sub, now = first_due(agenda)
        if sub < 0:
            break
        w, soonest = _choose(sub, now, path_op, tables, warps, servers[0], constants)
        if w < 0:
            look_next(sub, soonest, agenda)
            continue
        at = warps[w, c.W_AT]
        op = path_op[at]
        event = path_event[at] + warps[w, c.W_EVENTS] if path_event[at] >= 0 else -1
        noted = counts[c.NOTED] if ctas[warps[w, c.W_CTA], c.C_NUMBER] == counts[c.FOLLOWED] else len(notes)
        if noted < len(notes):
            counts[c.NOTED] = noted + 1
            _note(notes, noted, w, op, now, warps, ctas)
        # a warp's first instruction has none before it, and waits for none
        before = path_op[max(at - 1, 0)]
        weight = ctas[warps[w, c.W_CTA], c.C_WEIGHT]
        _account(w, op, before, now, weight, warps, tables[0], stalls, issued, constants[c.ISSUE])
        warps[w, c.W_ISSUED] = now
        warps[w, c.W_AT] = at + 1
        count += 1
        look_next(sub, now + constants[c.ISSUE], agenda)
        sm = sub // c.SUB_CORES
        waits = _execute(w, sub, sm, op, event, now, tables, state, servers, constants)
        if noted < len(notes):
            _note_unit(notes, noted, w, sub, op, event, tables, state, servers)
        if at + 1 >= warps[w, c.W_END]:
            end = max(end, finish_warp(w, now, grid, state, servers, constants, counts, spans))
            continue
        resumes = warps[w, c.W_READY]
        _next_ready(w, op, path_op[at + 1], tables[0], warps, constants)
        if resumes > now:
            # a barrier, a group or a fence: the warp resumes no earlier
            warps[w, c.W_READY] = max(warps[w, c.W_READY], resumes)
            warps[w, c.W_WHY] = tables[0][op, c.REASON]
        if waits >= 0:
            warps[w, c.W_STATE] = c.BLOCKED
            warps[w, c.W_BLOCKED_ON] = waits
            warps[w, c.W_WHY] = tables[0][op, c.REASON]
            if warps[w, c.W_READY] >= c.NEVER:
                # its scoreboard is set when the warp wakes
                warps[w, c.W_READY] = now
    blocked = 0
    for w in range(len(warps)):
        if warps[w, c.W_STATE] == c.BLOCKED:
            blocked += 1
    return end, count, blocked
