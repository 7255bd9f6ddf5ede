"""Several launches in one Run: findings, outputs, counts, times and memory of all of them."""

import json
from dataclasses import dataclass

import numpy as np
import pytest

from kernbench import mesh, npu, ptx
from kernbench.bench import Bench, Expected, param, run_bench
from kernbench.common.errors import BenchError
from kernbench.npu import IN, MTE2, MTE3, OUT, UB, V
from kernbench.report import launches_table, time_text
from kernbench.report.compare.difference import difference
from kernbench.report.page import page_html
from kernbench.result import load_runs
from kernbench.result.acknowledged import Entry, fingerprint
from kernbench.result.finding import SourceLocation
from kernbench.result.launches import LAUNCHES, OTHERWISE, joined, joined_metrics
from kernbench.result.run import Run, Status
from kernbench.result.timeline import Lane, Timeline
from kernbench.sweep.planning.plan import Group
from kernbench.sweep.planning.points import time_points

N, RANKS = 16, 4


@dataclass(frozen=True)
class OnMesh:
    fault: str = param("", "what is wrong")
    machine: str = param("reference", "machine")


@dataclass(frozen=True)
class OnNpu:
    fault: str = param("", "what is wrong")
    chip: str = param("a2a3", "chip")


def inputs(p, rng):
    return {"x": rng.standard_normal((RANKS * N, N)).astype(np.float32)}


def golden(p, x):
    y = x["x"].astype(np.float64) * 2
    z = np.concatenate([part @ part for part in y.reshape(RANKS, N, N)])
    return {"y": Expected(y), "z": Expected(z, reduction=N)}


def double(x_ptr, y_ptr, fault, *, tl):
    x = tl.load(x_ptr, shape=(N, N))
    rows = N // 2 if fault == "half" else N
    if fault != "unread":
        tl.store(y_ptr, tl.load(x_ptr, shape=(rows, N)) * (3.0 if fault == "wrong" else 2.0))
    if fault == "outside":
        tl.load(x_ptr + 4 * N, shape=(N, N))
    tl.device_print("doubled")
    tl.send(dir="E", src=x) if tl.program_id(0) == 0 else None
    tl.recv(dir="W", shape=(N, N), dtype="f32") if tl.program_id(0) == 1 else None


def square(y_ptr, z_ptr, *, tl):
    y = tl.load(y_ptr, shape=(N, N))
    tl.store(z_ptr, tl.dot(y, y))
    tl.send(dir="W", src=y) if tl.program_id(0) == 2 else None
    tl.recv(dir="E", shape=(N, N), dtype="f32") if tl.program_id(0) == 1 else None


def launch_on_mesh(p, x, *, torch):
    given = torch.shard(x["x"], 0, name="x")
    y, z = (torch.empty((RANKS * N, N), "f32", axis=0, name=name) for name in "yz")
    torch.launch(double, given, y, p.fault)
    return torch.launch(square, y, z)


def on_mesh(fault="", timed=True, **more):
    bench = Bench("two", "two launches", OnMesh, inputs, golden, lambda p, m: mesh.Host(m, RANKS), launch_on_mesh)
    return run_bench(bench, None, {"fault": fault, **more}, timed=timed)


def twice(core, x, y):
    half = N // 2
    mine = slice(half * core.sub_block_id, half * (core.sub_block_id + 1))
    tile = core.alloc(UB, (half, N), "f32", name="tile")
    core.tload(tile, x[mine])
    core.set_flag(MTE2, V, 0)
    core.wait_flag(MTE2, V, 0)
    core.tmuls(tile, tile, 2.0)
    core.set_flag(V, MTE3, 0)
    core.wait_flag(V, MTE3, 0)
    core.tstore(y[mine], tile)
    core.pipe_sync()


def first_part(rt, x, y):
    rt.submit(aiv=twice, args=[IN(x), OUT(y)])


def second_part(rt, y, z):
    rt.submit(aiv=twice, args=[IN(y), OUT(z)])


def test_one_run_of_all_launches():
    run = on_mesh()
    assert run.right
    assert run.safe
    assert [launch.origin["kernel"] for launch in run.launches] == ["double", "square"]
    assert {one.name for one in run.comparison} == {"y", "z"}
    assert run.metrics["commands"] == sum(launch.metrics["commands"] for launch in run.launches)
    assert len(run.views["printf"]) == RANKS


def test_their_time_is_one_after_the_other():
    run = on_mesh()
    first, second = run.launches
    begin = first.metrics["time_ps"]
    assert run.metrics["time_ps"] == begin + second.metrics["time_ps"] == run.timeline.total
    assert run.metrics["floors_ps"][run.metrics["bound"]] + sum(run.metrics["gap_ps"].values()) == run.timeline.total
    assert sum(run.metrics["critical_path_ps"].values()) == run.timeline.total
    line = run.timeline
    lane = line.lanes.index(LAUNCHES)
    shown = [(line.names[line.name[i]], line.start[i], line.finish[i]) for i in np.flatnonzero(line.lane == lane)]
    assert shown == [("double", 0, begin), ("square", begin, line.total)]
    assert {step.start >= begin for step in line.critical_path} == {True, False}
    if line.waits is not None:
        inside = line.waits.after >= len(run.launches)
        assert len(line.waits.after) == len(line.start)
        assert ((line.start[line.waits.after[inside]] >= begin) == (line.start[inside] >= begin)).all()
    # what was sent in each, over links of each
    sources = line.start[line.flows[:, 0]]
    assert [(time >= begin) for time in sorted(sources)] == [False, True]
    links = run.views["mesh"]["links"]
    assert sorted(links[n][2] for n in run.views["messages"]["link"]) == ["E", "W"]


def test_what_any_launch_finds_is_found():
    run = on_mesh("outside")
    assert [finding.kind for finding in run.findings] == ["out-of-bounds"]
    assert [len(launch.findings) for launch in run.launches] == [1, 0]
    assert run.safe is False
    assert "time_ps" not in run.metrics


def test_memory_is_what_the_launch_before_left():
    kinds = {finding.kind for finding in on_mesh("half").findings}
    assert "output-unwritten" in kinds
    assert "uninitialised-read" in {finding.kind for finding in on_mesh("unread").findings}


def test_an_output_of_the_first_launch_is_judged_and_a_wrong_run_has_no_time():
    run = on_mesh("wrong")
    assert {one.name: one.passed for one in run.comparison} == {"y": False, "z": False}
    assert run.timeline is None
    assert "time_ps" not in run.metrics


def lost(x_ptr, y_ptr, fault, *, tl):
    x = tl.load(x_ptr, shape=(N, N))
    tl.store(y_ptr, x * 2.0)
    tl.send(dir="N", src=x)


def test_where_one_launch_cannot_be_timed_the_whole_has_no_time(monkeypatch, tmp_path):
    monkeypatch.setitem(globals(), "double", lost)
    (finding,) = on_mesh().findings
    entry = Entry(finding.kind, fingerprint(finding), "known")
    bench = Bench("two", "two launches", OnMesh, inputs, golden, lambda p, m: mesh.Host(m, RANKS), launch_on_mesh)
    run = run_bench(bench, timed=True, baseline=[entry])
    assert run.right
    assert run.safe
    assert ["time_ps" in launch.metrics for launch in run.launches] == [False, True]
    assert not {"time_ps", "bound", "floors_ps", "utilisation"} & set(run.metrics)
    assert run.timeline is None
    assert run.metrics["commands"] == sum(launch.metrics["commands"] for launch in run.launches)
    assert "its messages do not pair up" in run.metrics["no_time"]
    assert time_text(run).plain == ""
    run.save(tmp_path / "run.json")
    (again,) = load_runs(tmp_path / "run.json").runs
    assert again.to_dict() == run.to_dict()
    assert difference(run, again).numbers
    assert page_html("two", [("two", again)])


def test_it_is_kept_shown_and_compared(tmp_path):
    run = on_mesh()
    run.save(tmp_path / "run.json")
    (again,) = load_runs(tmp_path / "run.json").runs
    assert [launch.metrics["time_ps"] for launch in again.launches] == [
        launch.metrics["time_ps"] for launch in run.launches
    ]
    assert again.to_dict() == run.to_dict()
    assert "2 launches one after the other: double " in time_text(again).plain
    table = launches_table("two", again)
    assert [str(cell) for cell in table.columns[0].cells] == ["double", "square"]
    assert [str(cell) for cell in table.columns[5].cells] == ["y", "y, z"]
    names = [number.name for number in difference(run, again).numbers]
    assert {"time of double", "time of square"} <= set(names)
    assert '"launches":[{"status":"finished"' in page_html("two", [("two", again)])


def test_a_file_without_launches_is_read(tmp_path):
    run = on_mesh(timed=False)
    data = run.to_dict()
    del data["launches"]
    (tmp_path / "old.json").write_text(json.dumps(data))
    assert load_runs(tmp_path / "old.json").runs[0].launches == []


def test_one_launch_is_none_of_several():
    def launch(p, x, *, torch):
        given = torch.shard(x["x"], 0, name="x")
        y = torch.empty((RANKS * N, N), "f32", axis=0, name="y")
        return torch.launch(double, given, y, p.fault)

    bench = Bench(
        "one",
        "one launch",
        OnMesh,
        inputs,
        lambda p, x: {"y": golden(p, x)["y"]},
        lambda p, m: mesh.Host(m, RANKS),
        launch,
    )
    run = run_bench(bench, timed=True)
    assert run.launches == []
    assert LAUNCHES not in run.timeline.lanes


def test_metrics_of_launches_that_something_else_bounds():
    parts = [
        {"time_ps": 100, "floors_ps": {"a": 60, "b": 10}, "bound": "a", "gap_ps": {"c": 40}, "utilisation": {"x": 0.5}},
        {
            "time_ps": 300,
            "floors_ps": {"a": 20, "b": 90},
            "bound": "b",
            "gap_ps": {"c": 210},
            "utilisation": {"x": 0.1},
        },
    ]
    found = joined_metrics(parts)
    assert (found["time_ps"], found["bound"], found["floor_ratio"]) == (400, "b", 4.0)
    assert found["gap_ps"] == {"c": 250, OTHERWISE: 50}
    assert found["utilisation"]["x"] == pytest.approx(0.2)


def test_a_clock_or_a_share_is_no_sum_and_what_must_be_known_of_one_launch_is_of_all():
    known = {"floors_ps": {"a": 1}, "bound": "a", "predictions": "validated", "caveat": "", "time_note": "by the book"}
    short = known | {"time_ps": 100, "clock_mhz": 1000.0, "joined": 1.0, "occupancy": {"ctas": 8}, "time_facts": ["s"]}
    long = known | {"time_ps": 300, "clock_mhz": 2000.0, "joined": 0.5, "occupancy": {"ctas": 2}, "time_facts": ["l"]}
    long |= {"predictions": "not validated", "caveat": "not validated, lower bound", "time_note": "a guess"}
    found = joined_metrics([long, short])
    assert (found["clock_mhz"], found["joined"], found["occupancy"]) == (1750.0, 0.625, {"ctas": 2})
    assert (found["predictions"], found["caveat"]) == ("not validated", "not validated, lower bound")
    assert (found["time_note"], found["time_facts"]) == ("a guess; and by the book", ["l"])
    assert joined_metrics([short, short])["time_note"] == "by the book"


def test_a_sweep_times_all_launches():
    run = on_mesh(timed=False)
    whole = on_mesh()
    rows = list(time_points(Group({}, {}, ({}, {"machine.hbm.latency": "1 ns"})), run))
    assert rows[0]["time_ps"] == whole.metrics["time_ps"]
    assert rows[1]["time_ps"] < rows[0]["time_ps"]


def test_npu_launches_one_after_the_other():
    def launch(p, x, *, torch):
        empty = np.zeros((N, N), np.float32)
        y = torch.launch(first_part, x["x"], empty).outputs["y"]
        return torch.launch(second_part, y, empty)

    bench = Bench(
        "npu",
        "two",
        OnNpu,
        lambda p, rng: {"x": rng.standard_normal((N, N)).astype(np.float32)},
        lambda p, x: {"y": Expected(x["x"] * 2.0), "z": Expected(x["x"] * 4.0)},
        lambda p, chip: npu.Chip(chip),
        launch,
    )
    run = run_bench(bench, timed=True)
    assert run.right
    assert run.safe, run.findings
    assert [launch.origin["kernel"] for launch in run.launches] == ["first_part", "second_part"]
    assert run.timeline.total == run.metrics["time_ps"] == sum(one.metrics["time_ps"] for one in run.launches)
    assert [task["task"] for task in run.views["tasks"]] == [0, 1]
    assert run.views["tasks"][1]["start_ps"] > run.launches[0].metrics["time_ps"]


def fill(value, name):
    def program(ctx):
        ctx.store(ctx.pointer("x", "f32"), ctx.load(ctx.pointer("y", "f32"), ctx.tid_x) + value, ctx.tid_x)

    return ptx.PtxKernel(name).param("u64", "x").param("u64", "y").build(program)


@pytest.mark.parametrize("whole", [True, False])
def test_ptx_launches_and_what_the_first_leaves_unwritten(whole):
    @dataclass(frozen=True)
    class Parameters:
        pass

    def launch(p, x, *, torch):
        a, b, c = torch.array(np.ones(64, np.float32), "a"), torch.empty(64, "f32", "b"), torch.empty(64, "f32", "c")
        torch.launch(fill(1.0, "first"), 1, 64 if whole else 32, [b, a])
        return torch.launch(fill(2.0, "second"), 1, 64, [c, b], outputs=[c])

    bench = Bench(
        "fills",
        "two",
        Parameters,
        lambda p, rng: {},
        lambda p, x: {"c": np.full(64, 4.0)},
        lambda p, m: ptx.Host(),
        launch,
    )
    run = run_bench(bench)
    assert [launch.origin["kernel"] for launch in run.launches] == ["first", "second"]
    assert run.metrics["warp_instructions"] == sum(one.metrics["warp_instructions"] for one in run.launches)
    assert run.safe is whole
    if not whole:
        assert "uninitialised-read" in {finding.kind for finding in run.launches[1].findings}


def test_orders_follow_one_another_and_launches_without_one_are_left_out():
    def part(kernel, steps):
        lane, site, start = [Lane("block", "warp 0")], [SourceLocation("k.ptx", 1)], np.arange(steps)
        zeros, flows = np.zeros(steps, np.int64), np.empty((0, 2), np.int64)
        line = Timeline("order", lane, ["runs"], site, zeros, zeros, zeros, start, start + 1, flows) if steps else None
        return Run({}, [], (), Status.FINISHED, timeline=line, origin={"kernel": kernel})

    parts = [part("first", 3), part("plain", 0), part("last", 2)]
    line = joined(parts[2], parts).timeline
    assert (line.unit, line.total) == ("order", 5)
    assert [line.names[n] for n in line.name] == ["first", "last", *["runs"] * 5]
    assert line.start.tolist() == [0, 3, 0, 1, 2, 3, 4]
    assert line.finish.tolist() == [3, 5, 1, 2, 3, 4, 5]
    # those that have none at all have none together
    assert joined(parts[1], [parts[1], parts[1]]).timeline is None


def test_an_output_that_no_launch_gives_is_missed():
    @dataclass(frozen=True)
    class Parameters:
        pass

    def launch(p, x, *, torch):
        a, c = torch.array(np.ones(64, np.float32), "a"), torch.empty(64, "f32", "c")
        return torch.launch(fill(1.0, "k"), 1, 64, [c, a], outputs=[])

    given = (Parameters, lambda p, rng: {}, lambda p, x: {"c": np.full(64, 2.0)}, lambda p, m: ptx.Host(), launch)
    with pytest.raises(BenchError, match="golden names output 'c'; the launch gave none: outputs are what"):
        run_bench(Bench("missing", "none", *given))
