"""The pipeline view and the swimlane: roles, rings of stages, phases, and what is stuck."""

import numpy as np
import pytest
from rich.console import Console
from tests.ptx.emulator.asynchronous.test_tensor_pipeline import pipeline

from kernbench.ptx.emulator.asynchronous import journal
from kernbench.report import pipeline_text, trace_bytes


def rings(run):
    return run.views["pipeline"]["rings"]


def test_roles_and_rings_of_two_stages(bench):
    view = bench.pipe().views["pipeline"]
    assert view["block"] == "block (0, 0, 0)"
    assert view["complete"]
    assert [role["name"] for role in view["roles"]] == ["warp 0 (copies in)", "warps 1-4"]
    full, empty = view["rings"]
    assert (len(full["stages"]), full["arrivals"], empty["arrivals"]) == (2, 1, 4)
    assert {(u["role"], u["how"]) for u in full["completed_by"]} == {
        ("warp 0 (copies in)", "arrive"),
        ("warp 0 (copies in)", "bytes"),
    }
    assert [u["role"] for u in empty["waited_on_by"]] == ["warp 0 (copies in)"]


def test_phases_and_bytes_of_each_stage(bench):
    full, empty = rings(bench.pipe(tiles=8))
    for stage in full["stages"]:
        assert stage["completed"] == 4
        assert stage["bytes"] == [4096]
        assert stage["waits"]["warps 1-4"]["phases"] == [0, 3]
    for stage in empty["stages"]:
        wait = stage["waits"]["warp 0 (copies in)"]
        assert wait["fresh"]
        assert wait["passed"] == 4
        assert wait["stuck_in"] == []


def test_what_is_stuck_is_said(bench):
    run = bench.pipe(("init.shared::cta.b64 [%r3], 4", "init.shared::cta.b64 [%r3], 5"))
    stuck = [w for ring in rings(run) for stage in ring["stages"] for w in stage["waits"].values() if w["stuck_in"]]
    assert len(stuck) == 2
    assert "never passes 'empty'+0 (0x2030) phase 0" in run.timeline.names


def test_the_roles_of_a_tensor_pipeline():
    run = pipeline()[0]
    names = [role["name"] for role in run.views["pipeline"]["roles"]]
    assert any("copies in" in name for name in names)
    assert any("tcgen05.mma" in name for name in names)
    assert any("reads tensor memory" in name for name in names)
    hows = {user["how"] for ring in rings(run) for user in ring["completed_by"]}
    assert hows == {"arrive", "bytes", "commit"}
    assert {"tensor core", "copies"} <= {lane.name for lane in run.timeline.lanes}


def test_the_swimlane_is_an_order(bench):
    timeline = bench.pipe().timeline
    assert timeline.unit == "order"
    for lane in range(len(timeline.lanes)):
        here = np.flatnonzero(timeline.lane == lane)
        order = here[np.argsort(timeline.start[here], kind="stable")]
        assert (timeline.start[order[1:]] >= timeline.finish[order[:-1]]).all(), timeline.lanes[lane]
    source, target = timeline.flows.T
    assert (timeline.start[source] < timeline.finish[target]).all()
    waits = [i for i in range(len(timeline.start)) if timeline.names[timeline.name[i]].startswith("waits for 'full'")]
    assert waits
    assert set(waits) <= set(target.tolist())


def test_the_trace_says_that_it_is_no_time(bench):
    pytest.importorskip("perfetto")
    content = trace_bytes(bench.pipe().timeline)
    assert b"logical order, not time" in content
    assert b"start_ps" not in content


def test_nothing_to_show_without_barriers_or_checks(bench):
    assert bench.pipe(checks=False).timeline is None


def test_the_text(bench):
    console = Console(width=160, markup=False, highlight=False, force_terminal=False)
    with console.capture() as captured:
        console.print(pipeline_text(bench.pipe().views["pipeline"]))
    text = captured.get()
    assert "ring 0: 2 stages, 1 arrival a phase" in text
    assert "waited on by warps 1-4, line 73" in text
    assert "passes the fresh barrier, phases 0 to 2" in text


def test_entries_are_the_same_whenever_they_are_made(monkeypatch):
    late = pipeline()[0].views["pipeline"]
    monkeypatch.setattr(journal, "_MANY", 1)
    assert pipeline()[0].views["pipeline"] == late
    monkeypatch.setattr(journal, "MOST", 12)
    early = pipeline()[0].views["pipeline"]
    assert not early["complete"]
    monkeypatch.setattr(journal, "_MANY", 1 << 12)
    assert pipeline()[0].views["pipeline"] == early
