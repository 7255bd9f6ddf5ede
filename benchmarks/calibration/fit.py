"""Figures from results, in order: a later fit takes what earlier ones found as given, and changes none of it.

Each fit is a function of the results and of the figures so far. What it finds is a `Fitted`; where its rows are missing
it finds nothing, and the figure of the file stays.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import exp, log
from statistics import median

from kernbench.ptx.machine import Gpu

from .contended import (
    beside_products,
    contended_atomics,
    lines_of_l2,
    missed_atomics,
    pieces_of_memory,
    product_clock,
    rewritten_sectors,
    under_load,
)
from .results import (
    Results,
    Row,
    bytes_per_ns,
    clock,
    line,
    per_turn,
    per_work,
    spread,
)
from .steps import Fitted, Known, found_from

PIPES = ("fma", "integer", "multiply", "minmax", "half2", "double", "convert", "mufu", "shuffle")
# instructions of a loop around what is measured (addition, comparison, branch) that go through the pipe itself
LOOP_ON_PIPE = {"fma": 3, "integer": 1, "minmax": 1, "convert": 1}
# cycles that warps wait by the control fields of the machine code: a turn of `branch.back`, all of it; from the last
# instruction before a loop's branch to the first after it; a turn of `barrier.own` without what is waited for
BRANCH_TURN, BRANCH_STALL, OWN_TURN = 25.0, 6.0, 20.0
# and those between a product and the end of the wait for it
WAIT_STALLS = 15.0
# launches that lay further apart than this were not all alike
STEADY = 0.01
WARP_BYTES = 128
STEPS_OF_SUMS = 2000
REACHED = 0.9


def pipe_latencies(results: Results, known: Known) -> Iterator[Fitted]:
    """Cycles a turn against instructions a turn: the slope is the latency."""
    for pipe in PIPES:
        benchmark = f"latency.{pipe}"
        found = results.of(benchmark)
        if len(found) < 2:
            continue
        slope, _, _ = line([(float(row["work"]), per_turn(row)) for row in found])
        yield found_from(f"pipes.{pipe}.latency", [slope], found, benchmark)


def branches(results: Results, known: Known) -> Iterator[Fitted]:
    """A turn of a loop with nearly nothing in it, less the stalls that its machine code says."""
    row = results.one("branch.back")
    yield found_from(
        "issue.branch_back", [max(per_turn(row) - BRANCH_TURN, 0.0)], [row], "branch.back, less its stalls"
    )


def loop_end(known: Known) -> float:
    """Cycles from the last instruction of a turn to the first of the next."""
    return known["issue.branch_back"] + BRANCH_STALL


def pipe_intervals(results: Results, known: Known) -> Iterator[Fitted]:
    """The least time an instruction takes a sub-core, over counts of warps whose launches were alike; the loop's own
    instructions count where they go through the same pipe.
    """
    for pipe in PIPES:
        benchmark = f"throughput.{pipe}"
        rows = [row for row in results.of(benchmark) if spread(row) <= STEADY]
        if not rows:
            continue
        best = min(rows, key=per_work)
        slots = float(best["work"]) + LOOP_ON_PIPE.get(pipe, 0) * best["parameters"]["warps"] / 4
        interval = per_turn(best) / slots
        yield found_from(f"pipes.{pipe}.interval", [interval], [best], benchmark)
        if pipe == "fma":
            yield found_from("issue.interval", [interval], [best], benchmark)


def wide_products(results: Results, known: Known) -> Iterator[Fitted]:
    """Multiplications whose products have 64 bits, or their high halves: both kinds take the same."""
    kinds = ("multiply_high", "multiply_wide")
    chains = [results.of(f"opcode_latency.{kind}") for kind in kinds]
    found = [line([(float(row["work"]), per_turn(row)) for row in rows])[0] for rows in chains if len(rows) > 1]
    every = [row for rows in chains for row in rows]
    yield found_from("pipes.wide.latency", found, every, "opcode_latency.multiply_high, .multiply_wide")
    best = [min(results.of(f"opcode.{kind}"), key=per_work) for kind in kinds]
    values = [per_work(row) for row in best]
    yield found_from("pipes.wide.interval", values, best, "opcode.multiply_high, .multiply_wide")


def code(results: Results, known: Known) -> Iterator[Fitted]:
    """The largest loop whose instructions take no longer than those of the smallest."""
    sizes = [(size, per_work(row), row) for size, row in results.varied("code", "bytes")]
    least = min(cost for _, cost, _ in sizes)
    held = [size for size, cost, _ in sizes if cost <= 1.2 * least]
    beyond = [size for size, cost, _ in sizes if cost > 1.2 * least and size > max(held)]
    high = float(min(beyond, default=max(held)))
    rows = [row for _, _, row in sizes]
    yield Fitted("issue.instruction_cache", float(max(held)), float(max(held)), high, "code", 0.0, len(rows))


def shared_memory(results: Results, known: Known) -> Iterator[Fitted]:
    """Chases less the turn's end; the address of a load is added to for nothing, that of ldmatrix takes an addition.
    Conflicts as a line over ways.
    """
    step = known["pipes.integer.latency"]
    found: dict[str, float] = {}
    for name, less in (("latency", 0.0), ("ldmatrix_latency", step)):
        row = results.one(f"shared.{name}")
        value = found[f"shared.{name}"] = (per_turn(row) - loop_end(known)) / row["work"] - less
        yield found_from(f"shared.{name}", [value], [row], f"shared.{name}, less what else a turn takes")
    points = [(float(ways), per_work(row)) for ways, row in results.varied("shared.conflict", "ways", warps=16)]
    rows = results.of("shared.conflict", warps=16)
    slope, _, at = line(points)
    off = max(abs(at(x) - y) / y for x, y in points)
    yield found_from("shared.conflict", [slope], rows, "shared.conflict", off)
    widths = dict(results.varied("shared.width", "width", warps=16))
    rates = [WARP_BYTES * width / 4 / per_work(row) for width, row in widths.items()]
    best = max(rates)
    yield found_from("shared.bytes_per_cycle", [best], list(widths.values()), "shared.width", 1 - min(rates) / best)
    alone = results.one("shared.ldmatrix", warps=1)
    # four times a turn the warp waits for the last of eight
    waits = 4 * found["shared.ldmatrix_latency"]
    value = 4 * WARP_BYTES / max((per_turn(alone) - waits) / alone["work"], 1.0)
    yield found_from("shared.sub_core_bytes_per_cycle", [value], [alone], "shared.ldmatrix of one warp, less its waits")
    for name in ("ldmatrix", "stmatrix"):
        best = min(results.of(f"shared.{name}"), key=per_work)
        yield found_from(f"shared.{name}", [per_work(best)], [best], f"shared.{name}, the best of 1 to 8 warps")


def barriers(results: Results, known: Known) -> Iterator[Fitted]:
    """What a turn of the loop itself costs is known."""
    loop = loop_end(known)
    points = [
        (float(warps) - 1, (per_turn(row) - loop) / row["work"])
        for warps, row in results.varied("barrier.sync", "warps")
    ]
    slope, rest, at = line(points)
    rows = results.of("barrier.sync")
    off = max(abs(at(x) - y) / y for x, y in points)
    yield found_from("barriers.sync", [rest], rows, "barrier.sync", off)
    yield found_from("barriers.sync_warp", [max(slope, 0.0)], rows, "barrier.sync", off)
    for name, benchmark in (("named_hop", "barrier.named"), ("wake", "barrier.hop")):
        row = results.one(benchmark)
        yield found_from(f"barriers.{name}", [(per_turn(row) - loop) / 2], [row], f"{benchmark}, less the loop")
    own = results.one("barrier.own")
    yield found_from("barriers.try_wait", [per_turn(own) - OWN_TURN - loop], [own], "barrier.own, less its stalls")
    row = results.one("barrier.parked")
    yield found_from("barriers.parked", [per_turn(row) / clock(row) * 1e3], [row], "barrier.parked")
    row = results.one("shared.proxy_fence", stores=0)
    yield found_from("barriers.proxy_fence", [per_turn(row) - loop], [row], "shared.proxy_fence, less the loop")


def arrivals(results: Results, known: Known) -> Iterator[Fitted]:
    """How often a warp, and how often an SM, can arrive at mbarriers."""
    alone, crowd = results.one("barrier.arrive", warps=1), results.one("barrier.arrive", warps=16)
    yield found_from("barriers.arrive", [per_work(alone)], [alone], "barrier.arrive of one warp")
    yield found_from("barriers.interval", [per_work(crowd) / 16], [crowd], "barrier.arrive of 16 warps")


def global_latency(results: Results, known: Known) -> Iterator[Fitted]:
    """Chases less their address: a 64-bit addition is two dependent instructions."""
    step = 2 * known["pipes.integer.latency"]

    def chased(low: int, high: int, cache: str) -> tuple[list[float], list[Row]]:
        rows = [row for size, row in results.varied("latency.global", "bytes", cache=cache, stride=128)
                if low <= size <= high]  # fmt: skip
        return [per_work(row) - step for row in rows], rows

    for name, low, high, cache in (
        ("l1.latency", 0, 64 << 10, "ca"),
        ("l2.latency", 1 << 20, 16 << 20, "cg"),
        ("hbm.latency", 512 << 20, 4 << 30, "cg"),
    ):
        values, rows = chased(low, high, cache)
        yield found_from(name, values, rows, f"latency.global by .{cache}, less the address")


def far_half(results: Results, known: Known) -> Iterator[Fitted]:
    """Latencies of lines as SMs see them, as two groups: how far their medians lie apart."""
    row = results.one("latency.l2_map")
    values = sorted(float(cycles) for line_of_sm in row["map"]["cycles"] for cycles in line_of_sm)
    near, far = two_groups(values)
    gap = median(far) - median(near)
    quarter = (far[len(far) * 3 // 4] - far[len(far) // 4] + near[len(near) * 3 // 4] - near[len(near) // 4]) / 2
    yield Fitted(
        "l2.far", gap, max(gap - quarter, 0), gap + quarter, "latency.l2_map", quarter / max(gap, 1), len(values)
    )


def two_groups(values: list[float]) -> tuple[list[float], list[float]]:
    """Sorted values cut where the sum of squared distances to both groups' means is least."""
    total, squares = sum(values), sum(value * value for value in values)
    best, cut = float("inf"), 1
    head = head_squares = 0.0
    for index, value in enumerate(values[:-1], 1):
        head += value
        head_squares += value * value
        rest = len(values) - index
        apart = head_squares - head * head / index + (squares - head_squares) - (total - head) ** 2 / rest
        if apart < best - 1e-9:
            best, cut = apart, index
    return values[:cut], values[cut:]


def atomics(results: Results, known: Known) -> Iterator[Fitted]:
    """The latency of one."""
    row = results.one("atomic.latency")
    step = 2 * known["pipes.integer.latency"]
    yield found_from("l2.atomic_latency", [per_work(row) - step], [row], "atomic.latency, less two steps")


def copies(results: Results, known: Known) -> Iterator[Fitted]:
    """Bulk copies from L2: a line over bytes, less the latency of a load; and issue by difference."""
    sizes = [(float(size), per_turn(row)) for size, row in results.varied("bulk.latency", "bytes", **{"from": "l2"})]
    rows = results.of("bulk.latency", **{"from": "l2"})
    slope, rest, at = line(sizes)
    off = max(abs(at(x) - y) / y for x, y in sizes)
    known_part = known["l2.latency"] + loop_end(known)
    yield found_from("copies.bulk_extra", [max(rest - known_part, 0.0)], rows, "bulk.latency from L2, less a load", off)
    yield found_from("copies.bulk_bytes_per_cycle", [1 / slope], rows, "bulk.latency from L2, by bytes", off)
    few, many = (results.one("bulk.issue", bytes=128, count=count) for count in (1, 16))
    yield found_from(
        "copies.bulk_issue", [(per_turn(many) - per_turn(few)) / 15], [few, many], "bulk.issue of 128 bytes"
    )


def clusters(results: Results, known: Known) -> Iterator[Fitted]:
    """A chase through another CTA's shared memory."""
    row = results.one("cluster.latency", where="other")
    value = per_work(row) - known["pipes.integer.latency"]
    yield found_from("cluster.latency", [value], [row], "cluster.latency, less an addition")


def between_ctas(results: Results, known: Known) -> Iterator[Fitted]:
    """Hops between mbarriers of two CTAs, less what a wait itself takes; the cluster's barrier; one copy for several
    CTAs against a copy of each; and bytes a cycle of an SM whose shared memory another one reads.

    An arrival that releases to the cluster has a fence to all of the GPU before it in machine code: as long as L2 is.
    """
    fence = known["l2.latency"]
    row = results.one("cluster.hop")
    hop = (per_turn(row) - loop_end(known)) / 2 - known["barriers.try_wait"] - fence
    yield found_from("cluster.one_way", [max(hop, 0.0)], [row], "cluster.hop, less the loop, a wait and a fence")
    rows = results.of("cluster.barrier")
    values = [max(per_work(row) - known["barriers.sync_warp"] - fence, 0.0) for row in rows]
    yield found_from("cluster.barrier", values, rows, "cluster.barrier of 2 to 8 CTAs, less a fence")
    rows = results.of("cluster.multicast", bytes=1024)
    more = [
        per_turn(results.one("cluster.multicast", bytes=1024, ctas=size, by="multicast"))
        - per_turn(results.one("cluster.multicast", bytes=1024, ctas=size, by="own"))
        for size in sorted({row["parameters"]["ctas"] for row in rows})
    ]
    yield found_from(
        "cluster.multicast", [max(one, 0.0) for one in more], rows, "cluster.multicast less a copy of each"
    )
    rows = results.of("cluster.bandwidth", where="all")
    yield found_from(
        "cluster.bytes_per_cycle", [1 / per_work(row) for row in rows], rows, "cluster.bandwidth on all SMs"
    )


def products(results: Results, known: Known) -> Iterator[Fitted]:
    """The rate of long chains of wide products, and what a lone one takes beyond its share of that."""
    rows = [row for row in results.of("wgmma.rate") if row["parameters"]["n"] in (128, 256)
            and row["parameters"]["chain"] * row["parameters"]["warpgroups"] >= 8]  # fmt: skip
    best = min(rows, key=lambda row: per_work(row) / row["parameters"]["n"])
    rate = 2 * 64 * 16 * best["parameters"]["n"] / per_work(best)
    yield found_from("tensor.wgmma", [rate], [best], "wgmma.rate, the best of N 128 and 256")
    lone = results.of("wgmma.rate", chain=1, groups=0, operands="ss")
    other = loop_end(known) + WAIT_STALLS
    tails = [per_turn(row) - 2 * 64 * 16 * row["parameters"]["n"] / rate - other for row in lone]
    benchmark = "wgmma.rate of one product and a wait, less their stalls"
    yield found_from("tensor.wgmma_tail", [max(tail, 0.0) for tail in tails], lone, benchmark)
    chained = results.one("mma.rate", chains=1)
    yield found_from("tensor.mma_latency", [per_work(chained)], [chained], "mma.rate of one chain")
    best = min(results.of("mma.rate", chains=8), key=per_work)
    yield found_from("tensor.mma", [2 * 16 * 8 * 16 / per_work(best)], [best], "mma.rate, the best of 4 to 16 warps")


def cache_bandwidth(results: Results, known: Known) -> Iterator[Fitted]:
    """L1 and one SM's share of L2 by cycles; all SMs' by events and the clock that was read."""
    row = results.one("bandwidth.l1")
    yield found_from("l1.bytes_per_cycle", [1 / per_work(row)], [row], "bandwidth.l1")
    one = results.one("bandwidth.l2", sms=1)
    yield found_from("l2.sm_bytes_per_cycle", [1 / per_work(one)], [one], "bandwidth.l2 of one SM")
    rows = [row for size, row in results.varied("bandwidth.l2", "bytes", sms="all") if size <= 32 << 20]
    rates = [float(row["work"]) * float(row["ctas"]) / per_turn(row) for row in rows]
    yield found_from("l2.bytes_per_cycle", [max(rates)], rows, "bandwidth.l2", 1 - min(rates) / max(rates))


def _cold_rate(results: Results) -> float:
    """Bytes a nanosecond by which a kernel that reads more takes longer."""
    last = sorted((row["parameters"]["bytes"], row["ns"]) for row in results.of("cold.read", flushed_by="reads"))[-2:]
    (few, sooner), (many, later) = last
    return float((many - few) / (later - sooner))


def memory_bandwidth(results: Results, known: Known) -> Iterator[Fitted]:
    """Shares of the data sheet's bandwidth, and how much must be under way for most of it."""
    peak = known["hbm.bandwidth"]
    reached = [_cold_rate(results) / peak]
    flying: list[float] = []
    rows: list[Row] = []
    for way in ("ld", "cp.async", "bulk"):
        curve = [(size, bytes_per_ns(row), row) for size, row in results.varied("bandwidth.hbm", "flying", by=way)]
        if not curve:
            continue
        best = max(rate for _, rate, _ in curve)
        # launches lie apart, and the best of many is too good
        reached.append(median(rate for _, rate, _ in curve if rate >= REACHED * best) / peak)
        flying.append(float(next(size for size, rate, _ in curve if rate >= REACHED * best)))
        rows += [row for _, _, row in curve]
    if not flying:
        raise LookupError("no rows of bandwidth.hbm")
    share = median(reached)
    off = max(abs(one / share - 1) for one in reached)
    yield Fitted("hbm.read_share", share, min(reached), max(reached), "bandwidth.hbm, cold.read", off, len(rows) + 2)
    yield found_from("hbm.in_flight", flying, rows, "bandwidth.hbm, nine tenths of its most")
    for way, reads in (("write", 0), ("copy", 1)):
        rows = [results.one("bandwidth.hbm", by=way), *results.of("hbm.mix", reads=reads, writes=1)]
        yield found_from(f"hbm.{way}_share", [bytes_per_ns(row) / peak for row in rows], rows, "bandwidth.hbm, hbm.mix")


def writes(results: Results, known: Known) -> Iterator[Fitted]:
    """Stores to lines that L2 holds; and how much longer a kernel reads when L2 was flushed by writing."""
    row = results.one("strided.store", stride=4)
    value = bytes_per_ns(row) * WARP_BYTES / clock(row) * 1e3
    yield found_from("l2.write_bytes_per_cycle", [value], [row], "strided.store of words side by side")
    most = max(row["parameters"]["bytes"] for row in results.of("cold.read"))
    longer = {size: _longer(results, size) for size in (most // 16, most // 4, most)}
    # what a kernel brings in throws out what was there at random: 1 - exp(-brought / turnover) of it
    left = [-size / log(1 - longer[size] / longer[most]) for size in (most // 16, most // 4)]
    yield Fitted("l2.turnover", median(left), min(left), max(left), "cold.read by size, flushed by writes", 0.0, 6)
    share = dirty(longer[most], float(most), median(left), known) / median(left)
    yield Fitted("l2.dirty", share, share, share, "cold.read, flushed by writes less by reads", 0.0, 2)


def _longer(results: Results, size: int) -> float:
    """Nanoseconds by which a kernel reads longer when L2 was flushed by writing."""
    ns = {flush: results.one("cold.read", bytes=size, flushed_by=flush)["ns"] for flush in ("writes", "reads")}
    return float(max(ns["writes"] - ns["reads"], 1.0))


def written_back(begun: float, brought: float, turnover: float, known: Known) -> tuple[float, float]:
    """Bytes that are written back while so many are brought in, of L2 that begins with `begun` dirty ones, and the
    nanoseconds that this takes: more where reads and writes are mixed, as the model has it.
    """
    peak = known["hbm.bandwidth"]
    read, write, copy = (1 / (peak * known[f"hbm.{way}_share"]) for way in ("read", "write", "copy"))
    mixed = 4 * max(2 * copy - read - write, 0.0)
    written = taken = 0.0
    step = brought / STEPS_OF_SUMS
    for number in range(STEPS_OF_SUMS):
        leaves = (begun - written) * step / turnover
        written += leaves
        share = written / (written + step * (number + 1))
        taken += leaves * (write + mixed * share * (1 - share))
    return written, taken


def dirty(longer: float, brought: float, turnover: float, known: Known) -> float:
    """Dirty bytes that L2 begins with, if bringing in so many takes so many nanoseconds longer."""
    low, high = 0.0, 10 * turnover
    for _ in range(60):
        middle = (low + high) / 2
        enough = written_back(middle, brought, turnover, known)[1] > longer
        low, high = (low, middle) if enough else (middle, high)
    return (low + high) / 2


def waits_for_writes(results: Results, known: Known) -> Iterator[Fitted]:
    """Kernels with little under way take longer if L2 was flushed by writing, though memory has time to write: each of
    their loads by the share of the time in which memory writes.
    """
    begun = known["l2.dirty"] * known["l2.turnover"]
    values: list[float] = []
    rows = [row for row in results.of("cold.sparse", act="read", flushed_by="writes") if row["parameters"]["mib"] >= 64]
    for row in rows:
        given = {**row["parameters"], "flushed_by": "reads"}
        block, ctas, loads = (int(given[name]) for name in ("block", "ctas", "loads"))
        piece = 16 * block * ctas * loads
        turns = int(given["mib"]) * (1 << 20) // piece
        alone = float(results.one("cold.sparse", **given)["ns"])
        each = (alone - known["launch.empty"]) / turns
        written, _ = written_back(begun, float(piece * turns), known["l2.turnover"], known)
        busy = written / (known["hbm.bandwidth"] * known["hbm.write_share"])
        # loads of a turn that wait for each other take as long as the last
        values.append((float(row["ns"]) - alone) / busy * each * known["clock.most"] / 1e3)
    if not values:
        raise LookupError("no rows of cold.sparse")
    middle = median(values)
    yield Fitted(
        "hbm.writing", middle, min(values), max(values), "cold.sparse, flushed by writes less by reads",
        max(abs(one / middle - 1) for one in values), 2 * len(values),
    )  # fmt: skip


def launches(results: Results, known: Known) -> Iterator[Fitted]:
    """Gaps as they were measured; a CTA's start by the difference of two grids."""

    def gap(where: str, grid: int) -> float:
        return float(results.one("launch.gap", grid=grid, block=32, **{"in": where})["ns"])

    for name, value in (("gap", gap("stream", 1)), ("graph_gap", gap("graph", 1))):
        yield Fitted(f"launch.{name}", value, value, value, "launch.gap", 0.0, 1)
    empty = float(results.one("launch.cold", grid=1)["ns"])
    yield Fitted("launch.empty", empty, empty, empty, "launch.cold: an empty kernel right after another one", 0.0, 1)
    each = max((gap("stream", 10_000) - gap("stream", 132)) / (10_000 - 132), 0.0)
    yield Fitted("launch.cta", each, each, each, "launch.gap by grid", 0.0, 2)


def early_launches(results: Results, known: Known) -> Iterator[Fitted]:
    """The gap between kernels that begin before the one before has ended."""
    value = float(results.one("launch.gap", grid=1, block=32, **{"in": "dependent"})["ns"])
    yield Fitted("launch.dependent_gap", value, value, value, "launch.gap", 0.0, 1)


def starts(results: Results, known: Known) -> Iterator[Fitted]:
    """What the first CTAs take beyond a load."""
    least = min(row["parameters"]["bytes"] for row in results.of("cold.read"))
    read = results.one("cold.read", bytes=least, flushed_by="reads")["ns"] - known["launch.empty"]
    turn = per_turn(results.one("bandwidth.hbm", by="ld", flying=8192))
    value = max(read * known["clock.most"] / 1e3 - turn, 0.0)
    yield Fitted("launch.first", value, value, value, "cold.read of the least bytes, less a load's turn", 0.0, 2)


def turnover(results: Results, known: Known) -> Iterator[Fitted]:
    """From a CTA's end to the start of the next in its place: empty CTAs of 1024 threads, of which an SM holds two."""
    few, many = (results.one("launch.turnover", block=1024, ctas=each) for each in (16, 128))
    between = (many["ns"] - few["ns"]) / (128 - 16) * 2
    value = max(between * known["clock.most"] / 1e3, 0.0)
    yield Fitted("launch.slot_reuse", value, value, value, "launch.turnover of 1024 threads", 0.0, 2)


def clocks(results: Results, known: Known) -> Iterator[Fitted]:
    """The clock of light work, and those under load."""
    seen = [row["clock_after_mhz"] for row in results.rows if row.get("clock_after_mhz")]
    if seen:
        yield Fitted(
            "clock.most", median(seen), min(seen), max(seen), "the warp alone after each benchmark", 0.0, len(seen)
        )
    row = results.one("clock.streaming")
    yield found_from("clock.streaming", [clock(row)], [row], "clock.streaming")
    row = results.one("clock.tensor", data="numbers")
    yield found_from("clock.tensor", [clock(row)], [row], "clock.tensor on numbers that look random")


def power(results: Results, known: Known) -> Iterator[Fitted]:
    """The clock of launches of two lengths that do nothing but multiply: it begins at that of products and falls the
    less the longer it has fallen. How low, and in what time, is what explains both means.
    """
    row = results.one("clock.tensor", data="numbers")
    found = [(float(one["event_ns"]), float(one["clock_mhz"])) for one in row["samples"]]
    (short, first), (long, second) = found[0], found[-1]
    begins = known["clock.products"]

    def fallen(length: float, lasts: float) -> float:
        return 1 - lasts / length * (1 - exp(-length / lasts))

    low, high = long * 1e-4, long * 10
    for _ in range(60):
        lasts = (low + high) / 2
        ends = begins - (begins - second) / fallen(long, lasts)
        too_slow = begins - (begins - ends) * fallen(short, lasts) > first
        low, high = (low, lasts) if too_slow else (lasts, high)
    apart = spread(row) * ends / 2
    yield Fitted("clock.settled", ends, ends - apart, ends + apart, "clock.tensor of two lengths", 0.0, 2)
    yield Fitted("clock.settles", lasts, lasts / 2, lasts * 2, "clock.tensor of two lengths", 0.0, 2)


STEPS: tuple[Callable[[Results, Known], Iterator[Fitted]], ...] = (
    pipe_latencies,
    branches,
    pipe_intervals,
    wide_products,
    code,
    shared_memory,
    barriers,
    arrivals,
    global_latency,
    far_half,
    atomics,
    copies,
    clusters,
    between_ctas,
    products,
    beside_products,
    cache_bandwidth,
    memory_bandwidth,
    writes,
    clocks,
    product_clock,
    power,
    lines_of_l2,
    contended_atomics,
    pieces_of_memory,
    under_load,
    launches,
    early_launches,
    starts,
    turnover,
    waits_for_writes,
    missed_atomics,
    rewritten_sectors,
)


@dataclass(frozen=True)
class Fit:
    """What was found, and for each step that found less than it could, why."""

    fitted: list[Fitted]
    missing: dict[str, str]


def fit(results: Results, gpu: Gpu) -> Fit:
    """All steps in order, from the figures of `gpu`."""
    known: dict[str, float] = {name: float(figure) for name, figure in gpu.figures().items()}
    found: list[Fitted] = []
    missing: dict[str, str] = {}
    for step in STEPS:
        try:
            for one in step(results, dict(known)):
                found.append(one)
                known[one.name] = one.value
        except (LookupError, ValueError, ZeroDivisionError) as error:
            missing[step.__name__] = str(error)
    return Fit(found, missing)
