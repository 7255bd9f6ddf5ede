"""Time: durations by the chip file to the picosecond, what overlaps, who waits for what and why."""

from itertools import pairwise
from math import ceil

import numpy as np
import pytest
from tests.npu.paged import FORMS, launch, problem
from tests.npu.small import flag, run_kernel

from kernbench import npu

GIB = 2**30
SUBMIT, DISPATCH = 1_000_000, 500_000
A = np.ones((64, 128), np.float32)


def timed(run, chip="a2a3", **changes):
    assert run.findings == [], [str(f) for f in run.findings]
    return npu.Chip(chip).retime(run, changes)


def spans(run, name):
    line = run.timeline
    here = [i for i in range(len(line.lane)) if line.names[line.name[i]] == name]
    return [(line.lanes[line.lane[i]].name, int(line.start[i]), int(line.finish[i])) for i in here]


def path_ps(nbytes, rate):
    return ceil(nbytes * 10**12 / rate)


def cycles_ps(cycles):
    return ceil(cycles * 1000 / 1.85)


def kernel(core, a, out):
    x = core.alloc("UB", (64, 128))
    core.tload(x, a)
    flag(core, "MTE2", "V")
    core.texp(x, x)
    flag(core, "V", "MTE3")
    core.tstore(out, x)
    core.pipe_sync()


def test_one_kernel_to_the_picosecond():
    run = timed(run_kernel(kernel, A, out=np.zeros_like(A)))
    size = A.nbytes
    load, store = path_ps(size, 100.9 * GIB), path_ps(size, 188.5 * GIB)
    exp = cycles_ps(size / 64)
    begin = SUBMIT + DISPATCH
    assert spans(run, "submit kernel") == [("orchestrator", 0, SUBMIT)]
    assert spans(run, "dispatch kernel") == [("scheduler 0", SUBMIT, begin)]
    assert spans(run, "tload") == [("aiv0 MTE2", begin, begin + load)]
    assert spans(run, "texp") == [("aiv0 V", begin + load, begin + load + exp)]
    assert spans(run, "tstore") == [("aiv0 MTE3", begin + load + exp, begin + load + exp + store)]
    assert run.metrics["time_ps"] == begin + load + exp + store
    assert run.metrics["critical_path_ps"] == {
        "vector": exp,
        "memory": load + store,
        "dispatch": DISPATCH,
        "submit": SUBMIT,
    }


def waited(run):
    """For each span that is told once: what it waited for, and the name of the span that had to end first."""
    line, waits = run.timeline, run.timeline.waits
    names = [line.names[n] for n in line.name]
    ends = [names[i] if i >= 0 else None for i in waits.after]
    return {name: (waits.kinds[k], end) for name, k, end in zip(names, waits.kind, ends, strict=True)}


def test_every_span_says_what_it_waited_for():
    run = timed(run_kernel(kernel, A, out=np.zeros_like(A)))
    assert waited(run) == {
        "submit kernel": ("orchestrator order", None),
        "dispatch kernel": ("submit", "submit kernel"),
        "kernel": ("dispatch", "dispatch kernel"),
        "tload": ("dispatch", "dispatch kernel"),
        "texp": ("flag", "tload"),
        "tstore": ("flag", "texp"),
    }
    assert [(step.name, step.waited_for) for step in run.timeline.critical_path][-2:] == [
        ("texp", "flag"),
        ("tstore", "flag"),
    ]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("issue", [0, 4])
def test_a_span_begins_when_what_it_waited_for_has_ended(form, issue):
    run = launch(form, problem([33, 5, 64], spare=0))
    line = timed(run, **{"clusters.issue": issue}).timeline
    after, start = line.waits.after, line.start
    told = after >= 0
    assert told.mean() > 0.9
    assert (line.finish[after[told]] <= start[told]).all()
    kinds = {line.waits.kinds[k] for k in line.waits.kind}
    assert {"issue"} <= kinds if issue else {"flag", "dispatch", "submit", "pipe order"} <= kinds
    if not issue:
        assert (line.finish[after[told]] == start[told]).all()


def test_pipes_overlap_and_rates_change_without_running_again():
    def two(core, a, out):
        x, y = core.alloc("UB", (64, 128)), core.alloc("UB", (64, 128))
        core.tload(x, a)
        core.texpands(y, 0.0)
        flag(core, "V", "MTE3")
        core.tstore(out, y)
        core.pipe_sync()

    run = run_kernel(two, A, out=np.zeros_like(A))
    fast = timed(run)
    (load,), (fill,) = spans(fast, "tload"), spans(fast, "texpands")
    assert load[1] == fill[1]
    slow = timed(run, **{"paths.gm_ub": "50.45 GiB/s"})
    (slower,) = spans(slow, "tload")
    assert slower[2] - slower[1] == pytest.approx(2 * (load[2] - load[1]), abs=2)


def test_products_by_type():
    def product(m, k, n, kind):
        def aic(core, a, b, out):
            a1, b1 = core.alloc("L1", (m, k), kind), core.alloc("L1", (k, n), kind)
            a0, b0 = core.alloc("L0A", (m, k), kind), core.alloc("L0B", (k, n), kind)
            c0 = core.alloc("L0C", (m, n), "f32")
            core.tload(a1, a)
            core.tload(b1, b)
            flag(core, "MTE2", "MTE1")
            core.tmov(a0, a1)
            core.tmov(b0, b1)
            flag(core, "MTE1", "M")
            core.tmatmul(c0, a0, b0)
            flag(core, "M", "FIX")
            core.tstore(out, c0)
            core.pipe_sync()

        dtype = {"f32": np.float32, "f16": np.float16}[kind]
        inputs = np.zeros((m, k), dtype), np.zeros((k, n), dtype)
        run = timed(run_kernel(aic, *inputs, out=np.zeros((m, n), np.float32), lane="aic"))
        (span,) = spans(run, "tmatmul")
        moves = sorted(end - start for _, start, end in spans(run, "tmov"))
        assert moves == sorted([path_ps(inputs[0].nbytes, 441 * GIB), path_ps(inputs[1].nbytes, 220.5 * GIB)])
        return span[2] - span[1]

    assert product(16, 128, 128, "f16") == cycles_ps(1 * 8 * 8)
    assert product(16, 64, 64, "f32") == cycles_ps(1 * 4 * 16)
    assert product(32, 32, 32, "f16") == cycles_ps(2 * 2 * 2)


def stream(core, a, out):
    x = core.alloc("UB", (64, 128))
    core.tload(x, a)
    flag(core, "MTE2", "MTE3")
    core.tstore(out[64 * core.block_idx : 64 * core.block_idx + 64], x)
    core.pipe_sync()


def test_cores_share_the_memory():
    blocks = 40
    run = run_kernel(stream, A, out=np.zeros((64 * blocks, 128), np.float32), blocks=blocks)
    free = {"memory.bandwidth": "100000 GB/s", "tasks.dispatch": "0 ns"}
    alone, together = timed(run, **free), timed(run, **{"tasks.dispatch": "0 ns"})
    load = path_ps(A.nbytes, 100.9 * GIB)
    assert all(end - start == load for _, start, end in spans(alone, "tload"))
    # 40 loads of 108 GB/s want more than 1,600 GB/s
    shared = [end - start for _, start, end in spans(together, "tload")]
    assert max(shared) == pytest.approx(blocks * A.nbytes / 1.6, rel=0.01)
    assert together.metrics["time_ps"] > alone.metrics["time_ps"]


def test_blocks_wait_for_cores_and_say_so():
    blocks = 60
    run = timed(
        run_kernel(stream, A, out=np.zeros((64 * blocks, 128), np.float32), blocks=blocks), **{"clusters.count": 2}
    )
    cores = {(run.timeline.lanes[i].group, run.timeline.lanes[i].name) for i in run.timeline.lane}
    assert ("cluster 1", "aiv1") in cores
    by_core = {}
    for lane, start, end in zip(run.timeline.lane, run.timeline.start, run.timeline.finish, strict=True):
        by_core.setdefault(int(lane), []).append((int(start), int(end)))
    for busy in by_core.values():
        ordered = sorted(busy)
        assert all(a[1] <= b[0] for a, b in pairwise(ordered))


def test_why_tasks_start_when_they_do():
    def pair(rt, a, out):
        (t,) = rt.submit(aiv0=copy, args=[npu.IN(a), npu.CREATE((64, 128), "f32", "t")]).outputs
        rt.submit(aiv0=copy, args=[npu.IN(t), npu.OUT(out)])

    def copy(core, source, target):
        x = core.alloc("UB", (64, 128))
        core.tload(x, source)
        flag(core, "MTE2", "MTE3")
        core.tstore(target, x)
        core.pipe_sync()

    run = npu.Chip("a2a3").launch(pair, A, np.zeros_like(A))
    quick = timed(run, **{"tasks.submit": "1 ns"})
    assert [(t["reason"], t["waited_for"]) for t in quick.views["tasks"]] == [("submit", None), ("dependence", 0)]
    assert len(quick.timeline.flows) == 1
    slow = timed(run, **{"tasks.submit": "1 ms"})
    assert [t["reason"] for t in slow.views["tasks"]] == ["submit", "submit"]


def test_full_rings_hold_the_orchestrator():
    def rounds(rt, a, out):
        for i in range(6):
            with rt.scope():
                rt.submit(aiv0=one, args=[npu.IN(a), npu.OUT(out[64 * i : 64 * i + 64])])

    def one(core, a, out):
        x = core.alloc("UB", (64, 128))
        core.tload(x, a)
        flag(core, "MTE2", "MTE3")
        core.tstore(out, x)
        core.pipe_sync()

    out = np.zeros((384, 128), np.float32)
    changes = {"tasks.window": 2, "tasks.submit": "1 ns"}
    chip = npu.Chip("a2a3", changes)
    run = chip.retime(chip.launch(rounds, A, out))
    assert run.findings == []
    assert [t["reason"] for t in run.views["tasks"]][:3] == ["submit", "submit", "ring full"]
    wide = npu.Chip("a2a3", {"tasks.submit": "1 ns"})
    assert wide.retime(wide.launch(rounds, A, out)).metrics["time_ps"] < run.metrics["time_ps"]


@pytest.mark.parametrize("form", FORMS)
def test_the_critical_path_adds_up_and_floors_hold(form):
    run = timed(launch(form, problem([33, 64, 48, 15], H=64, kv=4, D=64, page=32)))
    metrics = run.metrics
    assert sum(metrics["critical_path_ps"].values()) == metrics["time_ps"]
    assert all(floor <= metrics["time_ps"] for floor in metrics["floors_ps"].values())
    assert metrics["floors_ps"][metrics["bound"]] + sum(metrics["gap_ps"].values()) == metrics["time_ps"]


def test_an_unsafe_run_gets_no_time():
    def racy(core, a, out):
        x = core.alloc("UB", (64, 128))
        core.tload(x, a)
        core.tstore(out, x)
        core.pipe_sync()

    run = npu.Chip("a2a3").retime(run_kernel(racy, A, out=np.zeros_like(A)))
    assert run.timeline is None
    assert "time_ps" not in run.metrics


def test_time_does_not_depend_on_the_order_of_the_run():
    arguments = problem([33, 64], H=32, kv=2)
    times = {timed(launch("fused", arguments, schedule=s)).metrics["time_ps"] for s in ("canonical", "reversed", 1)}
    assert len(times) == 1


def test_the_trace_can_be_written():
    from kernbench.report import trace_bytes

    run = timed(launch("fused", problem([33])))
    assert len(trace_bytes(run.timeline)) > 1000


def test_sync_start_waits_for_all_cores():
    def long(core, a, out):
        x = core.alloc("UB", (64, 128))
        core.tload(x, a)
        flag(core, "MTE2", "V")
        for _ in range(50):
            core.texp(x, x)
            core.pipe_barrier("V")
        flag(core, "V", "MTE3")
        core.tstore(out, x)
        core.pipe_sync()

    def both(core, out):
        tile = core.alloc("UB", (8, 128))
        core.texpands(tile, 1.0)
        flag(core, "V", "MTE3")
        first = 16 * core.block_idx + 8 * core.sub_block_id
        core.tstore(out[first : first + 8], tile)
        core.pipe_sync()

    def orchestrate(rt, a, out, other):
        rt.submit(aiv0=long, args=[npu.IN(a), npu.OUT(out)])
        rt.submit(aiv=both, args=[npu.OUT(other)], block_num=2, sync_start=together)

    chip = npu.Chip("a2a3", {"clusters.count": 2})
    starts = {}
    for together in (True, False):
        run = chip.retime(chip.launch(orchestrate, A, np.zeros_like(A), np.zeros((32, 128), np.float32)))
        assert run.findings == []
        starts[together] = (run.views["tasks"][1]["reason"], run.views["tasks"][1]["start_ps"])
        finish = run.views["tasks"][0]["finish_ps"]
        assert (starts[together][1] >= finish) is together
    assert starts[True][0] == "sync_start"
    assert starts[False][0] == "submit"


def test_issue_and_latency_take_the_time_the_chip_file_says():
    def three(core, a, out):
        x = core.alloc("UB", (8, 8))
        core.tload(x, a)
        core.pipe_barrier("ALL")
        core.tstore(out, x)
        core.pipe_sync()

    small = np.ones((8, 8), np.float32)
    run = run_kernel(three, small, out=np.zeros_like(small))
    load, store = path_ps(256, 100.9 * GIB), path_ps(256, 188.5 * GIB)
    issue, latency = cycles_ps(37), 700_000
    begin = SUBMIT + DISPATCH
    assert timed(run).metrics["time_ps"] == begin + load + store
    slow = timed(run, **{"clusters.issue": 37})
    # the barrier is issued while the load goes on; the store is issued when the barrier is through, and the flag at the
    # end while the store goes on
    assert max(load, store) < issue
    assert slow.metrics["time_ps"] == begin + 5 * issue
    assert slow.metrics["critical_path_ps"]["issue"] == 5 * issue
    far = timed(run, **{"memory.latency": latency / 1000})
    assert far.metrics["time_ps"] == begin + load + store + 2 * latency


def test_a_value_read_from_device_memory_waits_for_its_latency():
    def kernel(core, table, a, out):
        x = core.alloc("UB", (8, 8))
        core.tload(x, a[core.read(table, 0) : 8])
        flag(core, "MTE2", "MTE3")
        core.tstore(out, x)
        core.pipe_sync()

    small = np.ones((8, 8), np.float32)
    run = run_kernel(kernel, np.zeros(1, np.int32), small, out=np.zeros_like(small))
    plain, far = timed(run).metrics["time_ps"], timed(run, **{"memory.latency": 700}).metrics["time_ps"]
    assert far == plain + 3 * 700_000


def test_a_ring_of_just_the_size_that_works_has_a_time():
    """A slot may be wanted by its own consumer, which cannot hold it before it is submitted."""
    arguments = problem([33, 17])
    sizes = {}
    for window in (3, 4, 5, 8, 16384):
        chip = npu.Chip("a2a3", {"tasks.window": window, "memory.latency": 5000})
        run = chip.launch(FORMS["staged"].orchestrate, *arguments)
        sizes[window] = chip.retime(run).metrics.get("time_ps")
        assert (window > 3) == run.safe
    assert sizes[3] is None
    assert sizes[4] > sizes[8] >= sizes[16384]
