"""Mesh kernels in time: closed forms, exact small timelines, SimPy on the same model, and the rules of any timing."""

import os
import subprocess
import sys

import numpy as np
import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled

from kernbench import machine, mesh
from kernbench.bench import find, run_bench
from kernbench.benches.gqa_attention.limits import (
    Problem,
    every_partial,
    limits,
    on_line,
    round_cycle,
    rows_then_columns,
    through_root,
)
from kernbench.common.errors import MachineError
from kernbench.mesh.time import critical_path, retime, summary, time_recording
from kernbench.mesh.time.costs import gemm_ps, math_ps
from kernbench.mesh.time.measure import sensitivity, timeline
from kernbench.timing import graph

REFERENCE = machine.load("reference")
BENCH = find("milestone_gqa_llama70b")
RATES_UP = {
    "pe.clock": 2.0,
    "hbm.bandwidth": 1024,
    "link.bandwidth": 256,
    "cube_link.bandwidth": 512,
}
LATENCIES = ("hbm.latency", "link.latency", "cube_link.latency")


def record(kernel, ranks=1, described=REFERENCE, tensors=1):
    host = mesh.Host(described, ranks=ranks, shapes_only=True)
    arguments = [host.empty((ranks * 64, 64), "f32", axis=0) for _ in range(tensors)]
    run = host.launch(kernel, *arguments)
    assert run.safe, run.findings
    return run


def total(kernel, ranks=1, described=REFERENCE):
    return time_recording(record(kernel, ranks, described).recording, described).total_ps


@pytest.mark.parametrize(("m", "n", "k", "cycles"), [(512, 512, 128, 6112), (2048, 2048, 128, 97792), (1, 1, 1, 255)])
def test_gemm_closed_form(m, n, k, cycles):
    big = REFERENCE.override({"gemm.rows": 128, "gemm.columns": 128})
    assert gemm_ps(big, ((m, k), "f16", "scratch"), ((k, n), "f16", "scratch")) == cycles * 1000


def test_gemm_rates_follow_the_narrowest_operand():
    def cycles(a, b):
        return gemm_ps(REFERENCE, ((64, 128), a, ""), ((128, 64), b, "")) // 1000

    assert cycles("f16", "bf16") == 126 + 128
    assert cycles("f8e4m3", "f8e5m2") == 126 + 64
    assert cycles("f16", "f32") == 126 + 512


def test_math_rates():
    assert math_ps(REFERENCE, "simple", 1280) == 10_000
    assert math_ps(REFERENCE, "exp", 1280) == 80_000
    assert math_ps(REFERENCE, "softmax", 1280) == 3 * 10_000 + 2 * 80_000
    assert math_ps(REFERENCE, "simple", 0) == math_ps(REFERENCE, "exp", 0) == 0


def test_a_load_is_dispatch_latency_and_bytes():
    def one_load(x_ptr, *, tl):
        tl.load(x_ptr, shape=(64, 64), dtype="f32")

    assert total(one_load) == 8_000 + 300_000 + 64 * 64 * 4 * 1_000 // 512


def test_engines_overlap_but_each_is_in_order():
    def two(x_ptr, *, tl):
        a = tl.zeros((64, 64))
        return tl.exp(a), tl.dot(a, a)

    # zeros at 8 ns for 32 cycles; exp (256 cycles) and dot (126 + 256 cycles) side by side after it
    assert total(two) == (8 + 32 + 382) * 1000


def test_a_message_is_bytes_and_a_hop():
    def pass_on(x_ptr, *, tl):
        if tl.program_id(0) == 0:
            tl.send(dir="E", src=tl.zeros((64, 64)))
        else:
            tl.recv(dir="W", shape=(64, 64), dtype="f32")

    assert total(pass_on, 2) == (8 + 32 + 128 + 20) * 1000


def test_scratch_is_not_written_while_it_is_read():
    def reuse(x_ptr, *, tl):
        for _ in range(4):
            x = tl.load(x_ptr, shape=(64, 64), dtype="f32")
            y = tl.exp(x)
            del x, y

    small = REFERENCE.override({"pe.scratch": 64 * 64 * 4 * 2})
    one_at_a_time = total(reuse, 1, small)
    # each load waits for the exp that reads the space before it
    load, exp = 300_000 + 32_000, 256_000
    assert one_at_a_time >= 4 * (load + exp)


def token_ring(rounds):
    def kernel(x_ptr, *, tl):
        rank, n = tl.program_id(0), tl.num_programs(0)
        token = tl.zeros((64, 64))
        for turn in range(rounds):
            if rank > 0 or turn > 0:
                token = tl.recv(dir="W", shape=(64, 64), dtype="f32")
            token = token + 1.0
            if rank < n - 1 or turn < rounds - 1:
                tl.send(dir="E", src=token)

    return kernel


def simpy_ring(ranks, rounds, dispatch, work, bytes_time, latency, hops):
    """The same ring as processes: dispatch, work, a link that carries one message at a time, a hop."""
    env = simpy.Environment()
    boxes = [simpy.Store(env) for _ in range(ranks)]
    ends = []

    def deliver(to, delay):
        yield env.timeout(delay)
        boxes[to].put("token")

    def program(rank):
        # zeros, then in each turn: receive, add, send; the CPU waits for both messages, not for the adder
        yield env.timeout(dispatch)
        adder = env.now + work
        for turn in range(rounds):
            if rank > 0 or turn > 0:
                yield env.timeout(dispatch)
                yield boxes[rank].get()
            yield env.timeout(dispatch)
            adder = max(adder, env.now) + work
            if rank < ranks - 1 or turn < rounds - 1:
                yield env.timeout(dispatch)
                yield env.timeout(max(0, adder - env.now))
                yield env.timeout(bytes_time)
                to = (rank + 1) % ranks
                env.process(deliver(to, latency * hops[rank]))
            ends.append(max(adder, env.now))

    for rank in range(ranks):
        env.process(program(rank))
    env.run()
    return max(ends)


@pytest.mark.parametrize(("ranks", "rounds"), [(2, 1), (4, 3), (8, 5)])
def test_token_ring_takes_exactly_what_simpy_says(ranks, rounds):
    host = mesh.Host(REFERENCE, ranks=ranks, install="ring", shapes_only=True)
    run = host.launch(token_ring(rounds), host.empty((ranks, 1), "f32", axis=0))
    assert run.safe, run.findings
    ours = time_recording(run.recording, REFERENCE).total_ps
    hops = [host._grid.distance(r, (r + 1) % ranks) for r in range(ranks)]
    assert ours == simpy_ring(ranks, rounds, 8_000, 32_000, 128_000, 20_000, hops)


# Rules any timing must pass


@pytest.fixture(scope="module")
def panels():
    small = {"context": 48, "d_head": 32, "h_q": 8, "h_kv": 2, "lengths": ()}
    return {name: run_bench(BENCH, name, small).recording for name in BENCH.panels}


PANELS = list(BENCH.panels)


@pytest.mark.parametrize("panel", PANELS)
def test_never_faster_than_the_floor(panels, panel):
    run = retime(run_bench(BENCH, panel, {"context": 48, "d_head": 32, "h_q": 8, "h_kv": 2, "lengths": ()}), REFERENCE)
    floors = run.metrics["floors_ps"]
    assert run.metrics["time_ps"] >= max(floors.values())
    assert run.metrics["floor_ratio"] >= 1
    assert all(0 <= u <= 1 for u in run.metrics["utilisation"].values())


@pytest.mark.parametrize("panel", PANELS)
def test_the_critical_path_accounts_for_every_picosecond(panels, panel):
    timing = time_recording(panels[panel], REFERENCE)
    path = critical_path(timing)
    assert sum(path.shares.values()) == timing.total_ps
    assert path.steps[-1].finish == timing.total_ps
    for before, after in zip(path.steps, path.steps[1:], strict=False):
        assert before.finish <= after.start
    assert all(s.where is not None for s in path.steps if s.name != "start")


@pytest.mark.parametrize("panel", PANELS)
def test_half_the_rates_and_twice_the_latencies_take_twice_as_long(panels, panel):
    slow = REFERENCE.override({"pe.clock": 0.5} | {k: v / 4 for k, v in RATES_UP.items() if k != "pe.clock"})
    slow = slow.override({k: 2 * _value(REFERENCE, k) for k in LATENCIES})
    once, twice = (time_recording(panels[panel], m).total_ps for m in (REFERENCE, slow))
    # every transfer is rounded up to a whole picosecond by itself
    assert abs(twice - 2 * once) <= 2 * len(panels[panel].streams) * 100


def _value(described, key):
    table, name = key.split(".")
    return getattr(getattr(described, table), name)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("panel", PANELS)
@pytest.mark.parametrize("key", [*RATES_UP, *LATENCIES])
def test_faster_is_not_slower_here(panels, panel, key):
    value = RATES_UP.get(key, 0.0 if key in LATENCIES else None)
    faster = REFERENCE.override({key: value})
    assert time_recording(panels[panel], faster).total_ps <= time_recording(panels[panel], REFERENCE).total_ps


def test_topology_matters(panels):
    far = REFERENCE.override({"cube_link.latency": 5000})
    assert (
        time_recording(panels["multi_user_decode"], far).total_ps
        > time_recording(panels["multi_user_decode"], REFERENCE).total_ps
    )
    assert (
        time_recording(panels["single_user_decode"], far).total_ps
        == time_recording(panels["single_user_decode"], REFERENCE).total_ps
    )


def test_conservation_of_bytes(panels):
    timing = time_recording(panels["single_user_prefill"], REFERENCE)
    sent = sum(c.nbytes for s in panels["single_user_prefill"].streams for c in s if c.op == "send")
    received = sum(c.nbytes for s in panels["single_user_prefill"].streams for c in s if c.op == "recv")
    assert int(timing.lowered.pieces.nbytes.sum()) == sent == received


def test_zero_work_takes_no_engine_time():
    def nothing(x_ptr, *, tl):
        tl.exp(tl.zeros((0, 64)))
        tl.load(x_ptr, shape=(0, 64), dtype="f32")

    assert total(nothing) == 3 * 8_000


@settings(max_examples=sampled.examples(10, 20))
@given(st.integers(1, 6), st.integers(1, 6))
def test_deeper_queues_are_not_slower_where_nothing_is_shared(depth, more):
    def kernel(x_ptr, *, tl):
        for i in range(6):
            if tl.program_id(0) == 0:
                tl.send(dir="E", src=tl.zeros((64, 64)))
            else:
                tl.exp(tl.recv(dir="W", shape=(64, 64), dtype="f32") * float(i))

    shallow, deep = (REFERENCE.override({"ipcq.depth": d}) for d in (depth, depth + more))
    assert total(kernel, 2, deep) <= total(kernel, 2, shallow)


@pytest.mark.programs
def test_the_same_digits_on_any_hash_seed():
    script = (
        "from kernbench.bench import find, run_bench\n"
        "from kernbench.mesh.time import retime\n"
        "from kernbench.machine import load\n"
        "b = find('milestone_gqa_llama70b')\n"
        "small = {'context': 24, 'd_head': 16, 'h_q': 4, 'h_kv': 2}\n"
        "print([retime(run_bench(b, p, small), load('reference')).metrics['time_ps']"
        " for p in ('single_user_prefill', 'single_user_decode')])\n"
    )
    outputs = set()
    for seed in ("1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": seed}
        done = subprocess.run(
            [sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True
        )
        outputs.add(done.stdout)
    assert len(outputs) == 1


def test_retiming_with_other_rates_needs_no_new_graph(panels):
    timing = time_recording(panels["single_user_decode"], REFERENCE)
    fast = REFERENCE.override({"hbm.bandwidth": 2048})
    assert timing.again(fast).lowered is timing.lowered
    assert timing.again(fast).total_ps == time_recording(panels["single_user_decode"], fast).total_ps


RATES = {
    "pe.clock": (1, 3),
    "pe.dispatch_cycles": (0, 7),
    "gemm.rows": (16, 64),
    "math.lanes": (8, 64),
    "math.per_cycle.exp": (1, 16),
    "hbm.bandwidth": (64, 512),
    "hbm.latency": (0, 300),
    "link.bandwidth": (8, 128),
    "link.latency": (0, 20),
    "dma.channels": (1, 2),
}


@settings(max_examples=10)
@given(st.lists(st.dictionaries(st.sampled_from(list(RATES)), st.integers(0, 1), max_size=3), min_size=2, max_size=5))
def test_what_is_known_of_one_timing_is_right_for_the_next(panels, steps):
    """Timing again and again keeps what did not change; each time is that of a timing of its own."""
    recording = panels["single_user_decode"]
    timing = time_recording(recording, REFERENCE)
    for step in steps:
        changed = REFERENCE.override({key: RATES[key][which] for key, which in step.items()})
        timing = timing.again(changed)
        assert summary(timing) == summary(time_recording(recording, changed))


def test_a_wrong_or_unsafe_run_gets_no_time():
    run = run_bench(
        BENCH, "single_user_prefill", {"context": 24, "d_head": 16, "h_q": 4, "h_kv": 2, "machine.ipcq.depth": 1}
    )
    assert "time_ps" not in retime(run, REFERENCE).metrics


def test_timeline_spans_do_not_overlap_on_a_lane(panels):
    run = run_bench(BENCH, "single_user_decode", {"context": 48, "d_head": 32, "h_q": 8, "h_kv": 2})
    line = retime(run, REFERENCE).timeline
    assert line.unit == "ps"
    order = np.lexsort((line.start, line.lane))
    same = line.lane[order][1:] == line.lane[order][:-1]
    assert (line.start[order][1:][same] >= line.finish[order][:-1][same]).all()


def test_every_span_knows_what_it_waited_for(panels):
    line = timeline(time_recording(panels["single_user_decode"], REFERENCE))
    waits = line.waits
    works = np.array([lane.group != "links" and lane.name.split()[0] in ("gemm", "math", "dma") for lane in line.lanes])
    known = (waits.after >= 0) & works[line.lane]
    # the others waited for their dispatch, or for what took no time
    assert known.sum() > 0.5 * works[line.lane].sum()
    # nothing that works begins before what it waited for has ended, and the engine's order is that of its lane
    assert (line.finish[waits.after[known]] <= line.start[known]).all()
    order = known & (waits.kind == waits.kinds.index("engine order"))
    assert order.any()
    np.testing.assert_array_equal(line.lane[waits.after[order]], line.lane[order])
    # the critical path says the same of its steps
    told = {
        (line.lanes[lane], start): waits.kinds[kind]
        for lane, start, kind in zip(line.lane, line.start.tolist(), waits.kind, strict=True)
    }
    steps = [step for step in line.critical_path if step.finish > step.start and step.lane.name in ("gemm", "math")]
    assert [told[step.lane, step.start] for step in steps] == [step.waited_for for step in steps]


def test_sensitivity_says_what_would_help():
    def one_load(x_ptr, *, tl):
        tl.load(x_ptr, shape=(64, 64), dtype="f32")

    gains = retime(record(one_load), REFERENCE).metrics["sensitivity"]
    assert gains["HBM latency"] == pytest.approx(300 / 11 / 340, abs=1e-3)
    assert gains["dispatch"] == pytest.approx(8 / 340, abs=1e-3)
    assert gains["link bandwidth"] == 0


def test_full_size_without_data():
    run = run_bench(BENCH, "single_user_decode", {"context": 32768, "block_kv": 512}, timed=True, shapes_only=True)
    assert run.safe
    assert run.right is None
    assert run.metrics["time_ps"] > run.metrics["floors_ps"]["hbm"]
    # K and V once: 2 x 32768 x 8 x 128 x 2 bytes, Q 8 times, O 8 times
    assert run.metrics["load_bytes"] == 2 * 32768 * 8 * 128 * 2 + 8 * 64 * 128 * 2


def test_counters_stay_within_what_the_machine_has():
    run = run_bench(BENCH, "single_user_prefill", {"context": 48, "d_head": 32, "h_q": 8, "h_kv": 2}, timed=True)
    queues = {n: s for n, s in run.timeline.counters.items() if n.startswith("slots")}
    assert len(queues) == 14
    for _, used in queues.values():
        assert used.min() == 0 == used[-1]
        assert 1 <= used.max() <= REFERENCE.ipcq.depth
    times, bandwidth = run.timeline.counters["HBM of cube 0, GB/s"]
    assert set(bandwidth) == {0.0, 512.0}
    # the area under the bandwidth is the bytes that moved, but for the rounding of each transfer's end
    moved = (np.diff(times) * bandwidth[:-1]).sum() / 1000
    total_bytes = run.metrics["load_bytes"] + run.metrics["store_bytes"]
    assert total_bytes <= moved <= total_bytes + run.metrics["commands"]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("panel", PANELS)
@pytest.mark.parametrize("ranks", [1, 3, 8])
def test_never_faster_than_physics(panel, ranks):
    run = run_bench(BENCH, panel, {"context": 64, "n_ranks": ranks, "h_q": 16, "h_kv": 2, "lengths": ()}, timed=True)
    assert run.metrics["time_ps"] >= max(run.metrics["limits_ps"].values())
    assert run.metrics["limit_ratio"] >= 1
    # what the kernel did is never less than what had to be done
    for name in ("compute", "exp", "hbm"):
        assert run.metrics["floors_ps"][name] >= run.metrics["limits_ps"][name] * 0.999


def test_limits_are_those_of_the_papers():
    problem = Problem(1024, (1024,), 64, 8, 128, "f16", True, 8, 0)
    found = limits(problem, REFERENCE, on_line(problem))
    pairs = 1024 * 1025 // 2
    assert found["compute"] == 2 * 64 * 128 * pairs * 1000 // (8 * 4096)
    assert found["exp"] == 64 * pairs * 1000 // (8 * 16)
    chunk = 2 * 128 * 8 * 128 * 2
    assert found["link"] == 7 * chunk * 1000 // 128
    assert found["latency"] == 7 * 20_000
    assert limits(problem, REFERENCE, round_cycle(problem))["link"] == found["link"] // 2
    decode = Problem(1, (4096,) * 4, 64, 8, 128, "f16", True, 8, 1)
    partial = 4 * 64 * 130 * 4 * 1000 // 256
    ways = [every_partial(decode), through_root(decode, 4), rows_then_columns(decode, 4)]
    found = [limits(decode, REFERENCE, way) for way in ways]
    assert [f["link"] for f in found] == [7 * partial, partial, partial]
    # a line of 8; twice the way from the corner of 2 x 4 to its middle; one row and one column
    assert [f["latency"] for f in found] == [700_000, 600_000, 400_000]


def test_many_live_values_and_tensors_are_all_followed():
    def hoard(x_ptr, *, tl):
        spaces = [tl.workspace((64,), "f32") for _ in range(41)]
        kept = [tl.full((16,), 1.0) for _ in range(600)]
        for space in spaces:
            tl.store(space, tl.zeros((64,)))
        # GEMM writes where MATH wrote before: each waits for the value it takes over
        for i in range(600):
            kept[i] = tl.dot(tl.reshape(kept[i], (4, 4)), tl.reshape(kept[i], (4, 4)), out=kept[i])
        for space in spaces:
            tl.load(space, shape=(64,), dtype="f32")

    kinds = time_recording(record(hoard).recording, REFERENCE).lowered.graph.kinds
    # an odd number of stores puts each tensor's load on the other channel than its store
    assert (kinds == graph.MEMORY).sum() == 41
    assert (kinds == graph.SPACE).sum() >= 600


def test_a_machine_too_slow_for_64_bits_is_refused():
    slow = {"pe.clock": 0.001, "gemm.rows": 1, "gemm.columns": 1, "gemm.macs_per_cell_cycle.f32": 0.001}

    def products(x_ptr, *, tl):
        a = tl.zeros((256, 256))
        for _ in range(600):
            tl.dot(a, a)

    with pytest.raises(MachineError, match="so slow that this run could take"):
        time_recording(record(products).recording, REFERENCE.override(slow))


def test_the_fastest_machine_has_a_sensitivity_too():
    def load(x_ptr, *, tl):
        tl.load(x_ptr, shape=(16,))

    timing = time_recording(record(load).recording, REFERENCE.override({"hbm.bandwidth": 1_000_000, "pe.clock": 100}))
    assert "HBM bandwidth" not in sensitivity(timing)


def test_a_timed_run_knows_its_messages():
    def relay(x_ptr, *, tl):
        block = tl.load(x_ptr, shape=(64, 64), dtype="f32")
        if tl.program_id(0) > 0:
            block = tl.recv(dir="W", shape=(64, 64), dtype="f32")
        if tl.program_id(0) < 2:
            tl.send(dir="E", src=block)

    run = retime(record(relay, ranks=3), REFERENCE)
    held, links = run.views["messages"], run.views["mesh"]["links"]
    taken = [links[number] for number in held["link"]]
    order = np.argsort(held["start"])
    assert [(taken[n][1], taken[n][2], taken[n][4]) for n in order] == [(0, "E", 1), (1, "E", 2)]
    start, sent, received = (held[key][order] for key in ("start", "sent", "received"))
    # the second leaves when the first has come
    assert (sent - start == REFERENCE.link.transfer_ps(64 * 64 * 4)).all()
    assert (received == sent + REFERENCE.link.latency_ps).all()
    assert start[1] >= received[0]
