"""Start and end of CTAs: the CTAs of a cluster start together, when all of them have room."""

from kernbench.common.compiled import part
from kernbench.ptx.time.engine import codes as c
from kernbench.ptx.time.engine.agenda import look_by
from kernbench.ptx.time.engine.memory import served
from kernbench.ptx.time.engine.reasons import Reason

_FIXED = int(Reason.FIXED)


@part
def start_cluster(slot, now, grid, state, servers, constants, counts):  # type: ignore[no-untyped-def]
    """Start the next clusters of the grid in a free slot: as many as its SM group represents."""
    sm_weight, order, numbers, _, _, kinds, _, _ = grid
    ctas, seats, clusters = state[1], state[6], state[7]
    size, at = seats.shape[1], counts[c.NEXT_CLUSTER]
    if at >= len(kinds):
        return
    sm = seats[slot, 0] // (len(ctas) // len(sm_weight))
    count = min(sm_weight[sm], len(kinds) - at)
    counts[c.NEXT_CLUSTER] = at + count
    if counts[c.FOLLOWED] < 0 and (at + count) * size > counts[c.FOLLOW_FROM]:
        counts[c.FOLLOWED] = numbers[at * size]
    begin = served(servers[2], c.DISPATCH, now, constants[c.CTA_INTERVAL] * count * size)
    clusters[slot, c.K_LEFT] = size
    clusters[slot, c.K_ENDS] = begin
    middle = at + count // 2
    for rank in range(size):
        cta = seats[slot, rank]
        ctas[cta, c.C_WEIGHT] = count
        ctas[cta, c.C_NUMBER] = numbers[at * size + rank]
        ctas[cta, c.C_CLUSTER] = slot
        ctas[cta, c.C_RANK] = rank
        _start_cta(cta, order[middle * size + rank], kinds[middle], begin, grid, state, constants)


@part
def _start_cta(cta, kind, of_cluster, begin, grid, state, constants):  # type: ignore[no-untyped-def]
    """Start a CTA of a class, in a cluster of a kind, in its slot."""
    class_paths, class_events, syncs, path_start = grid[3], grid[4], grid[6], grid[7]
    warps, ctas, remaining, done, agenda = state[0], state[1], state[2], state[3], state[5]
    ctas[cta, c.C_LEFT] = ctas[cta, c.C_WARPS]
    ctas[cta, c.C_STARTED] = begin
    ctas[cta, c.C_CLASS] = kind
    ctas[cta, c.C_ENDS] = begin
    for sync in range(syncs.shape[2]):
        remaining[cta, sync] = syncs[of_cluster, ctas[cta, c.C_RANK], sync]
        done[cta, sync] = 0
    for n in range(ctas[cta, c.C_WARPS]):
        w = ctas[cta, c.C_FIRST] + n
        for column in range(c.W_COUNTER, c.WARP_COLUMNS):
            warps[w, column] = 0
        warps[w, c.W_STATE] = c.RUNS
        warps[w, c.W_AT] = path_start[class_paths[kind, n]]
        warps[w, c.W_END] = path_start[class_paths[kind, n] + 1]
        warps[w, c.W_EVENTS] = class_events[kind, n]
        warps[w, c.W_READY] = begin
        warps[w, c.W_ISSUED] = begin
        warps[w, c.W_FIXED] = begin
        warps[w, c.W_WHY] = _FIXED
        warps[w, c.W_STORED] = 0
        warps[w, c.W_SHARED] = 0
        warps[w, c.W_TAKEN] = -1
        per_sm = constants[c.PER_SM]
        sub = w // per_sm * c.SUB_CORES + w % per_sm % c.SUB_CORES
        look_by(sub, begin, agenda)


@part
def finish_warp(w, now, grid, state, servers, constants, counts, spans):  # type: ignore[no-untyped-def]
    """A warp ends once no pending instruction writes its registers; returns when.

    The last warp of a cluster starts the next cluster.
    """
    warps, ctas, clusters = state[0], state[1], state[7]
    cta = warps[w, c.W_CTA]
    ends = now + constants[c.ISSUE]
    for counter in range(c.W_COUNTER, c.W_COUNTER + c.COUNTERS):
        ends = max(ends, warps[w, counter])
    warps[w, c.W_STATE] = c.EMPTY
    ctas[cta, c.C_LEFT] -= 1
    ctas[cta, c.C_ENDS] = max(ctas[cta, c.C_ENDS], ends)
    counts[c.LAST_STORE] = max(counts[c.LAST_STORE], warps[w, c.W_STORED])
    if ctas[cta, c.C_LEFT]:
        return ends
    over = ctas[cta, c.C_ENDS]
    row = counts[c.SPANS]
    if row < len(spans):
        spans[row, 0] = ctas[cta, c.C_NUMBER]
        spans[row, 1] = cta
        spans[row, 2] = ctas[cta, c.C_STARTED]
        spans[row, 3] = over
        spans[row, 4] = ctas[cta, c.C_WEIGHT]
    counts[c.SPANS] = row + 1
    slot = ctas[cta, c.C_CLUSTER]
    clusters[slot, c.K_LEFT] -= 1
    clusters[slot, c.K_ENDS] = max(clusters[slot, c.K_ENDS], over)
    if clusters[slot, c.K_LEFT] == 0:
        begin = clusters[slot, c.K_ENDS] + constants[c.SLOT_REUSE]
        start_cluster(slot, begin, grid, state, servers, constants, counts)
    return ends
