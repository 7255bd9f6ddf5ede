"""Fits find the figures of a GPU that is made up, from rows such as a real one would give."""

import json
import re
from math import exp

import numpy as np
import pytest
from benchmarks.calibration.fit import (
    BRANCH_STALL,
    BRANCH_TURN,
    LOOP_ON_PIPE,
    OWN_TURN,
    PIPES,
    STEPS,
    WAIT_STALLS,
    fit,
    two_groups,
    written_back,
)
from benchmarks.calibration.registry import cases
from benchmarks.calibration.results import Results, ResultsError, line, read

from benchmarks.calibration import page as pages
from kernbench.ptx.machine import MEASURED, load

H200 = load("h200")
MACHINE = {"gpu": "NVIDIA H200", "driver": "1.2", "ptxas": "13", "cuda_of_driver": 13000, "emulated": False}
ALL = list(cases())
CLOCK = 1755.0
# every figure that a fit finds, unlike the file's
TRUTH = {
    "issue.interval": 1.0,
    "issue.branch_back": 17.0,
    "issue.instruction_cache": 32768,
    "shared.latency": 31.0,
    "shared.ldmatrix_latency": 35.0,
    "shared.conflict": 2.25,
    "shared.bytes_per_cycle": 120.0,
    "shared.ldmatrix": 8.5,
    "shared.sub_core_bytes_per_cycle": 50.0,
    "shared.stmatrix": 9.5,
    "barriers.sync": 21.0,
    "barriers.sync_warp": 1.5,
    "barriers.named_hop": 33.0,
    "barriers.wake": 57.0,
    "barriers.arrive": 9.0,
    "barriers.interval": 2.5,
    "barriers.try_wait": 39.0,
    "barriers.parked": 4100.0,
    "barriers.proxy_fence": 14.0,
    "l1.latency": 33.0,
    "l2.latency": 270.0,
    "hbm.latency": 640.0,
    "l2.far": 88.0,
    "l2.atomic_latency": 333.0,
    "l2.atomic_interval": 1.75,
    "copies.bulk_extra": 140.0,
    "copies.bulk_bytes_per_cycle": 51.0,
    "copies.bulk_issue": 44.0,
    "cluster.latency": 202.0,
    "cluster.one_way": 80.0,
    "cluster.barrier": 170.0,
    "cluster.multicast": 90.0,
    "cluster.bytes_per_cycle": 20.0,
    "tensor.wgmma": 4000.0,
    "tensor.wgmma_tail": 61.0,
    "tensor.mma": 2500.0,
    "tensor.mma_latency": 31.0,
    "tensor.beside_fma": 0.625,
    "tensor.beside_mufu": 0.5,
    "l1.bytes_per_cycle": 110.0,
    "l2.sm_bytes_per_cycle": 60.0,
    "l2.bytes_per_cycle": 4700.0,
    "hbm.read_share": 0.9,
    "hbm.write_share": 0.8,
    "hbm.copy_share": 0.85,
    "hbm.writing": 1500.0,
    "hbm.in_flight": 32768,
    "launch.gap": 2400.0,
    "launch.graph_gap": 1200.0,
    "launch.dependent_gap": 800.0,
    "launch.empty": 5100.0,
    "launch.cta": 1.5,
    "launch.first": 900.0,
    "launch.slot_reuse": 800.0,
    "l2.write_bytes_per_cycle": 2500.0,
    "l2.dirty": 0.5,
    "l2.turnover": 50e6,
    "hbm.loaded": 120.0,
    "clock.products": 1600.0,
    "l2.lines_per_cycle": 75.0,
    "l2.merged": 4.0,
    "l2.sm_write_bytes_per_cycle": 30.0,
    "l2.store_sector": 0.02,
    "l2.store_line": 0.01,
    "l2.atomic_float": 4.0,
    "l2.atomic_sector": 0.02,
    "l2.atomic_result": 0.03,
    "l2.atomic_missed": 0.05,
    "l2.atomic_lines": 5.0,
    "l2.atomic_units": 60.0,
    "l2.spread": 120.0,
    "hbm.granule": 64.0,
    "hbm.scattered": 0.8,
    "hbm.rewritten": 0.6,
    "hbm.spread": 300.0,
    "tensor.beside_minmax": 0.4,
    "tensor.taken_by_fma": 0.9,
    "clock.most": CLOCK,
    "clock.streaming": 1900.0,
    "clock.settled": 1450.0,
    "clock.settles": 400_000.0,
    "pipes.wide.latency": 9.0,
    "pipes.wide.interval": 4.0,
    **{f"pipes.{pipe}.latency": 4.5 + number for number, pipe in enumerate(PIPES)},
    **{f"pipes.{pipe}.interval": float(number or 1) for number, pipe in enumerate(PIPES)},
}


def under_power(length: float) -> float:
    """The clock on average over so many nanoseconds of nothing but products."""
    lasts, ends = TRUTH["clock.settles"], TRUTH["clock.settled"]
    return ends + (TRUTH["clock.products"] - ends) * lasts / length * (1 - np.exp(-length / lasts))


# a turn of what this does not name takes 100 cycles
TRUTH["clock.tensor"] = float(under_power(4800 + 30_000 * 100 / CLOCK * 1e3))
FLYING = {2048: 0.1, 4096: 0.2, 8192: 0.4, 16384: 0.7, 32768: 1.0, 65536: 1.0, 131072: 1.0}


def turn(case) -> float:
    """Cycles of a turn on the GPU that is made up."""
    t, p = TRUTH, case.parameters
    loop, step = t["issue.branch_back"] + BRANCH_STALL, t["pipes.integer.latency"]
    family, _, kind = case.benchmark.partition(".")
    if family == "latency" and kind in PIPES:
        return case.work * t[f"pipes.{kind}.latency"] + loop
    if family == "throughput" and kind in PIPES:
        interval, groups = t[f"pipes.{kind}.interval"], p["warps"] / 4
        return (case.work + LOOP_ON_PIPE.get(kind, 0) * groups) * interval
    if family.startswith("opcode") and kind in ("multiply_high", "multiply_wide"):
        return case.work * t["pipes.wide.latency" if family == "opcode_latency" else "pipes.wide.interval"]
    bulk = t["l2.latency"] + loop + t["copies.bulk_extra"]
    costs = {
        "branch.back": lambda: t["issue.branch_back"] + BRANCH_TURN,
        "code": lambda: case.work * (1 if p["bytes"] <= t["issue.instruction_cache"] else 1.7),
        "shared.latency": lambda: case.work * t["shared.latency"] + loop,
        "shared.ldmatrix_latency": lambda: case.work * (t["shared.ldmatrix_latency"] + step) + loop,
        "shared.conflict": lambda: case.work * (t["shared.conflict"] * p["ways"] - 1),
        "shared.width": lambda: case.work * 32 * p["width"] / t["shared.bytes_per_cycle"],
        "shared.ldmatrix": lambda: matrices(case),
        "shared.stmatrix": lambda: case.work * t["shared.stmatrix"],
        "shared.proxy_fence": lambda: t["barriers.proxy_fence"] + 4 * p["stores"] + loop,
        "barrier.sync": lambda: case.work * (t["barriers.sync"] + t["barriers.sync_warp"] * (p["warps"] - 1)) + loop,
        "barrier.named": lambda: 2 * t["barriers.named_hop"] + loop,
        "barrier.hop": lambda: 2 * t["barriers.wake"] + loop,
        "barrier.arrive": lambda: case.work * max(t["barriers.arrive"], t["barriers.interval"] * p["warps"]),
        "barrier.own": lambda: OWN_TURN + t["barriers.try_wait"] + loop,
        "barrier.parked": lambda: t["barriers.parked"] * CLOCK / 1e3,
        "latency.global": lambda: case.work * (chased(p["bytes"]) + 2 * step),
        "atomic.latency": lambda: case.work * (t["l2.atomic_latency"] + 2 * step),
        "bulk.latency": lambda: bulk + p["bytes"] / t["copies.bulk_bytes_per_cycle"],
        "bulk.issue": lambda: 500 + t["copies.bulk_issue"] * p["count"],
        "cluster.latency": lambda: case.work * (t["cluster.latency"] + step),
        "cluster.hop": lambda: 2 * (t["cluster.one_way"] + t["barriers.try_wait"] + t["l2.latency"]) + loop,
        "cluster.barrier": lambda: case.work * (t["cluster.barrier"] + t["barriers.sync_warp"] + t["l2.latency"]),
        "cluster.multicast": lambda: 900 + t["cluster.multicast"] * (p["by"] == "multicast"),
        "cluster.bandwidth": lambda: case.work / t["cluster.bytes_per_cycle"],
        "wgmma.rate": lambda: product(p) * case.work + tail(p),
        "mma.rate": lambda: case.work * (t["tensor.mma_latency"] if p["chains"] == 1 else 4096 / t["tensor.mma"]),
        "strided.load": lambda: shared_by_all(case) * 32 / t["l2.lines_per_cycle"],
        "strided.store": lambda: shared_by_all(case) * stored(p["stride"]),
        "scattered": lambda: scattered(case),
        "l2.shared": lambda: {1: 1000.0, 2: 500.0}.get(p["by"], 300.0),
        "l2.flying": lambda: 300 + t["l2.spread"] * (2 / 3 - 1 / 2) * (p["flying"] == 4096),
        "contention.global": lambda: shared_by_all(case) * contended(p),
        "contention.rows": lambda: shared_by_all(case) * sectors(p) * spread_out(p),
        "hbm.width": lambda: 700 + t["hbm.loaded"] * used(p) ** 3 + 0.3 * t["hbm.spread"] * (p["loads"] == 4),
        "bandwidth.l1": lambda: case.work / t["l1.bytes_per_cycle"],
        "bandwidth.l2": lambda: case.work / t["l2.sm_bytes_per_cycle"] if p["sms"] != "all"
        else shared_by_all(case) / t["l2.bytes_per_cycle"],
    }  # fmt: skip
    return costs.get(case.benchmark, lambda: 100.0)()


def shared_by_all(case) -> float:
    return float(case.work * case.ctas(132))


def stored(stride) -> float:
    """Cycles of a store of 32 words, each in a sector of its own."""
    return 32 * TRUTH["l2.store_sector"] + min(32, stride / 4) * TRUTH["l2.store_line"]


def scattered(case) -> float:
    p = case.parameters
    if p["sms"] == 1:
        return case.work * 128 / TRUTH["l2.sm_write_bytes_per_cycle"]
    if p["bytes"] == 16 << 20:
        return shared_by_all(case) * 32 / TRUTH["l2.lines_per_cycle"]
    return 1000.0 if p["stride"] == 32 else 2000.0 if p["stride"] == 64 else 2000 / TRUTH["hbm.scattered"]


def spread_out(p) -> float:
    return TRUTH["l2.atomic_result" if p["kind"] == "atom.u32" else "l2.atomic_sector"]


def sectors(p) -> int:
    return {"red.v2.f32": 8, "red.v4.f32": 16}.get(p["kind"], 4)


def contended(p) -> float:
    """Cycles of a warp's atomic."""
    if p["words"] == 1:
        return 32 * TRUTH["l2.atomic_float" if p["kind"] == "red.f32" else "l2.atomic_interval"]
    if p["words"] == 65536:
        return 32 * spread_out(p)
    units = min(p["words"] / TRUTH["l2.atomic_lines"], TRUTH["l2.atomic_units"])
    return 32 * TRUTH["l2.atomic_interval"] / units


def used(p) -> float:
    """Of the bandwidth, by what is under way."""
    return {8192: 0.6, 16384: 0.9}.get(p["width"] * p["warps"] * p["loads"] * 32, 0.3)


def matrices(case) -> float:
    """Of one warp its sub-core is what bounds it, and it waits four times a turn."""
    if case.parameters["warps"] == 1:
        return case.work * 512 / TRUTH["shared.sub_core_bytes_per_cycle"] + 4 * TRUTH["shared.ldmatrix_latency"]
    return case.work * TRUTH["shared.ldmatrix"]


def product(p) -> float:
    return 2 * 64 * 16 * p["n"] / TRUTH["tensor.wgmma"]


def tail(p) -> float:
    stalls = TRUTH["issue.branch_back"] + BRANCH_STALL + WAIT_STALLS
    return TRUTH["tensor.wgmma_tail"] + stalls if p["groups"] == 0 else 0.0


def chased(nbytes: float) -> float:
    level = "l1" if nbytes <= 128 << 10 else "l2" if nbytes <= 32 << 20 else "hbm"
    return TRUTH[f"{level}.latency"]


def nanoseconds(case) -> float:
    """Of a turn by events, of the whole GPU."""
    t, p = TRUTH, case.parameters
    moved = case.work * case.ctas(132)
    if case.benchmark == "bandwidth.hbm":
        share = t[f"hbm.{p['by']}_share"] if p["by"] in ("write", "copy") else t["hbm.read_share"] * FLYING[p["flying"]]
        return moved / (share * float(H200.hbm.bandwidth))
    if case.benchmark == "hbm.mix":
        named = {(0, 1): "write", (1, 0): "read"}
        return moved / (t[f"hbm.{named.get((p['reads'], p['writes']), 'copy')}_share"] * float(H200.hbm.bandwidth))
    if case.benchmark == "hbm.width":
        return moved / (used(p) * t["hbm.read_share"] * float(H200.hbm.bandwidth))
    if case.benchmark == "strided.store":
        return moved * 128 / (t["l2.write_bytes_per_cycle"] * CLOCK / 1e3)
    return turn(case) / CLOCK * 1e3


def row(case):
    clocks = {"clock.streaming": TRUTH["clock.streaming"]}
    clocks["clock.kind"] = CLOCK if case.parameters.get("kind") == "fma" else TRUTH["clock.products"]
    clock = clocks.get(case.benchmark, CLOCK)
    made = {
        "benchmark": case.benchmark,
        "parameters": dict(case.parameters),
        "work": case.work,
        "unit": case.unit,
        "ctas": case.ctas(132),
        "by_time": case.by_time,
        "clock_after_mhz": CLOCK,
        "samples": [
            {
                "turns": turns,
                "cycles": 71 + turns * turn(case),
                "event_ns": 4800 + turns * nanoseconds(case),
                "cycles_spread": 0.0,
                "event_spread": 0.0,
                "clock_mhz": clock
                if case.benchmark != "clock.tensor"
                else float(under_power(4800 + turns * nanoseconds(case))),
                "by_warp": [71 + turns * products_beside(case)] * 4 + [71 + turns * beside(case)] * 4,
            }
            for turns in dict.fromkeys(case.turns)
        ],
    }
    if case.benchmark == "latency.l2_map":
        made["map"] = {"cycles": [[250 + (line + sm) % 2 * TRUTH["l2.far"] for line in range(64)] for sm in range(132)]}
    return made


def products_beside(case) -> float:
    taken = case.parameters.get("beside") == "fma" and case.benchmark == "wgmma.beside"
    return 100 + TRUTH["tensor.taken_by_fma"] * case.parameters["instructions"] if taken else 100.0


def beside(case) -> float:
    pipe = case.parameters.get("beside")
    if pipe not in ("fma", "minmax", "mufu") or case.benchmark != "wgmma.beside":
        return 100.0
    alone = next(c for c in ALL if c.benchmark == f"throughput.{pipe}" and c.parameters["warps"] == 4)
    return turn(alone) / alone.work / TRUTH[f"tensor.beside_{pipe}"] * case.parameters["instructions"]


def gaps():
    for where, name in (("stream", "gap"), ("graph", "graph_gap"), ("dependent", "dependent_gap")):
        for grid in (1, 132, 10_000):
            ns = TRUTH[f"launch.{name}"] + (grid - 132) * TRUTH["launch.cta"] * (grid == 10_000)
            yield {"benchmark": "launch.gap", "parameters": {"in": where, "grid": grid, "block": 32}, "ns": ns}
    yield {"benchmark": "launch.cold", "parameters": {"grid": 1}, "ns": TRUTH["launch.empty"]}


def cold():
    """Reads of two sizes after both ways to flush; the least begins late and takes a turn of its loads."""
    rate = TRUTH["hbm.read_share"] * float(H200.hbm.bandwidth)
    known = {**{name: float(one) for name, one in H200.figures().items()}, **TRUTH}
    _, late = written_back(known["l2.dirty"] * known["l2.turnover"], float(1 << 28), known["l2.turnover"], known)
    by_loads = next(c for c in ALL if c.parameters.get("by") == "ld" and c.parameters["flying"] == 8192)
    begin = TRUTH["launch.empty"] + (TRUTH["launch.first"] + turn(by_loads)) / CLOCK * 1e3
    for size in (1 << 20, 1 << 24, 1 << 26, 1 << 27, 1 << 28):
        read = begin + (size - (1 << 20)) / rate
        # all that was there has left in the end
        left = 1.0 if size == 1 << 28 else 1 - exp(-size / known["l2.turnover"])
        for flush, ns in (("reads", read), ("writes", read + late * left)):
            yield {"benchmark": "cold.read", "parameters": {"bytes": size, "flushed_by": flush}, "ns": ns}


def sparse():
    """128 MiB with one warp an SM: what is written back makes each turn longer."""
    known = {**{name: float(one) for name, one in H200.figures().items()}, **TRUTH}
    piece, turns = 16 * 32 * 132, (128 << 20) // (16 * 32 * 132)
    begun, each = known["l2.dirty"] * known["l2.turnover"], 400.0
    written, _ = written_back(begun, float(piece * turns), known["l2.turnover"], known)
    busy = written / (float(H200.hbm.bandwidth) * TRUTH["hbm.write_share"])
    reads = TRUTH["launch.empty"] + turns * each
    longer = TRUTH["hbm.writing"] / CLOCK * 1e3 * busy / each
    for flush, ns in (("reads", reads), ("writes", reads + longer)):
        given = {"act": "read", "flushed_by": flush, "block": 32, "ctas": 132, "loads": 1, "mib": 128}
        yield {"benchmark": "cold.sparse", "parameters": given, "ns": ns}


def turnovers():
    """Empty CTAs of which an SM holds two."""
    for each in (16, 128):
        ns = TRUTH["launch.empty"] + each / 2 * TRUTH["launch.slot_reuse"] / CLOCK * 1e3
        yield {"benchmark": "launch.turnover", "parameters": {"block": 1024, "shared": 0, "ctas": each}, "ns": ns}


def missed():
    """Rows that reductions change, and words that are stored to tables larger than L2, with nothing in L2."""
    t, bandwidth = TRUTH, float(H200.hbm.bandwidth) * 1e3 / CLOCK
    for act in ("red.u32", "red.f32", "red.v4.f32"):
        for count, mib in ((1 << 14, 8), (1 << 17, 64), (1 << 17, 256)):
            ns = t["launch.empty"] + 16 * count * t["l2.atomic_missed"] / CLOCK * 1e3
            yield {"benchmark": "cold.rows", "parameters": {"act": act, "rows": count, "mib": mib}, "ns": ns}
    for mib in (64, 256):
        sectors = mib * (1 << 15)
        moved = sectors * (1 - exp(-(1 << 20) / sectors)) * t["hbm.granule"] / t["hbm.scattered"] / t["hbm.rewritten"]
        both = max(2 / t["hbm.copy_share"], 1 / t["hbm.read_share"] + 1 / t["hbm.write_share"])
        cycles = moved * both / bandwidth + t["l2.dirty"] * t["l2.turnover"] / (bandwidth * t["hbm.write_share"])
        ns = t["launch.empty"] + (t["launch.first"] + cycles) / CLOCK * 1e3
        yield {"benchmark": "cold.words", "parameters": {"act": "store", "words": 1 << 20, "mib": mib}, "ns": ns}


ROWS = [*map(row, ALL), *gaps(), *cold(), *sparse(), *turnovers(), *missed()]


def test_every_figure_that_is_fitted_is_found():
    found = fit(Results(MACHINE, ROWS), H200)
    assert found.missing == {}
    assert {one.name for one in found.fitted} == set(TRUTH)
    for one in found.fitted:
        assert one.value == pytest.approx(TRUTH[one.name], rel=1e-6), one.name
        assert one.low <= one.value <= one.high


def test_no_figure_is_fitted_twice():
    names = [one.name for one in fit(Results(MACHINE, ROWS), H200).fitted]
    assert len(names) == len(set(names))


def test_later_rows_change_no_earlier_fit():
    """Without what a step reads, all steps before it find the same."""
    whole = {one.name: one for one in fit(Results(MACHINE, ROWS), H200).fitted}
    early = [r for r in ROWS if r["benchmark"].startswith(("latency.", "throughput", "branch", "code", "shared"))]
    part = fit(Results(MACHINE, early), H200)
    assert {"barriers", "copies", "products", "launches"} <= set(part.missing)
    # the highest clock is that of whatever ran
    found = {one.name: one for one in part.fitted if one.name != "clock.most"}
    assert found == {name: whole[name] for name in found}
    assert len(found) > 20


def test_what_an_earlier_step_found_is_taken_off():
    """The same chase with slower additions is a shorter latency of ldmatrix."""
    slower = [dict(r, samples=doubled(r)) if r["benchmark"] == "latency.integer" else r for r in ROWS]
    found = {one.name: one.value for one in fit(Results(MACHINE, slower), H200).fitted}
    assert found["pipes.integer.latency"] == pytest.approx(2 * TRUTH["pipes.integer.latency"])
    assert found["shared.ldmatrix_latency"] == pytest.approx(
        TRUTH["shared.ldmatrix_latency"] - TRUTH["pipes.integer.latency"]
    )


def doubled(r):
    return [{**s, "cycles": 2 * s["cycles"]} for s in r["samples"]]


def test_figures_without_rows_keep_value_and_source():
    found = fit(Results(MACHINE, []), H200)
    assert set(found.missing) == {step.__name__ for step in STEPS} - {"pipe_latencies", "pipe_intervals"}
    assert found.fitted == []


def test_launches_that_lie_apart_widen_the_range():
    noisy = [dict(r, samples=[{**s, "cycles_spread": 0.1} for s in r.get("samples", ())]) for r in ROWS]
    found = {one.name: one for one in fit(Results(MACHINE, noisy), H200).fitted}["shared.latency"]
    assert (found.low, found.high) == (pytest.approx(0.95 * found.value), pytest.approx(1.05 * found.value))


def results_file(folder, machine=MACHINE, rows=ROWS):
    file = folder / "results.jsonl"
    file.write_text("\n".join(map(json.dumps, [{"machine": machine}, *rows])))
    return file


def test_the_machine_file_and_the_page_are_written(tmp_path):
    machine, out = tmp_path / "h200.toml", tmp_path / "page.md"
    machine.write_text("# Mine.\n" + H200.to_toml())
    pages.fit_files(results_file(tmp_path), machine, out)
    gpu = load(machine)
    assert gpu.l2.latency == TRUTH["l2.latency"]
    assert (gpu.l2.latency.source, gpu.chip.sms.source) == (MEASURED, "published")
    assert gpu.calibrated == "driver 1.2, ptxas 13"
    assert gpu.predictions == H200.predictions
    assert machine.read_text().startswith("# Mine.\n")
    text = out.read_text()
    assert f"| `l2.latency` | {H200.l2.latency:g} ({H200.l2.latency.source}) | 270 cycles" in text
    assert re.search(r"`l2.sm_bytes_per_cycle` .* 60 bytes/cycle ", text)
    assert not list(tmp_path.glob("*.new"))


@pytest.mark.parametrize(
    ("machine", "words"),
    [
        ({**MACHINE, "emulated": True}, "an emulated GPU ran these"),
        ({**MACHINE, "gpu": "NVIDIA A10"}, "measured on NVIDIA A10"),
    ],
)
def test_results_of_another_gpu_change_nothing(machine, words, tmp_path):
    file, out = tmp_path / "h200.toml", tmp_path / "page.md"
    file.write_text(H200.to_toml())
    with pytest.raises(ResultsError, match=words):
        pages.fit_files(results_file(tmp_path, machine), file, out)
    assert file.read_text() == H200.to_toml()
    assert not out.exists()


@pytest.mark.parametrize("text", ["", "{}", "no json", '{"benchmark": "x"}'])
def test_a_file_that_holds_no_results_is_refused(text, tmp_path):
    file = tmp_path / "results.jsonl"
    file.write_text(text)
    with pytest.raises(ResultsError, match=r"results\.jsonl: "):
        read(file)


def test_rows_that_failed_stand_on_the_page(tmp_path):
    failed = {"benchmark": "bulk.issue", "parameters": {"bytes": 128}, "error": "no time left"}
    measured = read(results_file(tmp_path, rows=[*ROWS, failed]))
    text = pages.page(H200, measured, fit(measured, H200))
    assert "`bulk.issue` {'bytes': 128}: no time left" in text


def test_a_figure_that_cannot_be_is_left_out():
    rows = [dict(r, samples=[{**s, "event_ns": s["event_ns"] / 9} for s in r["samples"]])
            if r["parameters"].get("by") == "copy" else r for r in ROWS]  # fmt: skip
    good, wrong = pages.accepted(H200, fit(Results(MACHINE, rows), H200))
    assert "hbm.copy_share" not in good
    assert "out of range" in wrong["hbm.copy_share"]


def test_two_groups_are_cut_where_they_lie_apart():
    assert two_groups([1, 2, 3, 100, 101]) == ([1, 2, 3], [100, 101])
    assert line([(0, 1), (2, 5)])[:2] == (2, 1)
    with pytest.raises(LookupError):
        line([(1, 1), (1, 2)])


def test_the_page_in_the_documents_is_what_is_generated():
    from pathlib import Path

    written = Path(__file__).parents[3] / "docs" / "gpu-calibration.md"
    measured = read(Path(pages.__file__).parent / "data" / "h200.jsonl")
    found = fit(measured, H200)
    text = written.read_text(encoding="utf-8")
    # what the file had before it was fitted is no longer known: all else is the same
    for one in found.fitted:
        figure = H200.figures()[one.name]
        assert figure.source == MEASURED, one.name
        assert figure == pytest.approx(one.figure(), rel=1e-3), one.name
        assert f"| `{one.name}` |" in text
    assert pages.sources(H200) in text
