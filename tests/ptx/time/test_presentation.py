"""What is shown of a timed launch: causes that add up, CTAs on slots, lines with what warps waited for there."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.ptx.time import made
from tests.ptx.time.made import Op, Pipe

from kernbench.ptx.machine.model import load
from kernbench.ptx.sass.join.making import UNJOINED
from kernbench.ptx.sass.streams import Unjoined
from kernbench.ptx.time import presentation
from kernbench.ptx.time.causes import ENGINES, GAPS, LAUNCH, REASONS, REST, TAIL, UNITS, explain
from kernbench.ptx.time.chip.occupancy import Occupancy
from kernbench.ptx.time.engine.reasons import Reason
from kernbench.ptx.time.result import CtaSpans, LaunchTime, Stalls, Traffic, Unit
from kernbench.result.launches import joined_metrics
from kernbench.result.run import Run, Status
from kernbench.result.timeline import Lane

GPU = load("h200")


def launch_time(stalls, cycles=1000.0, overhead_ns=500.0, floors=None, spans=None):
    issued = np.ones(len(stalls), np.int64)
    # two SM groups, of 100 and 32 SMs; the second has nothing more to do after half of the time
    spans = spans or CtaSpans(
        np.array([0, 1, 2]), np.array([0, 1, 0]), np.array([0, 0, 0]), np.array([0.0, 0.0, cycles / 2]),
        np.array([cycles / 2, cycles / 2, cycles]), np.array([100, 32, 100]),
    )  # fmt: skip
    return LaunchTime(
        "h200", cycles, 2000.0, overhead_ns, Occupancy(2, 16, 64, "shared memory"), {Unit.HBM: 0.5, Unit.ISSUE: 0.1},
        floors if floors is not None else {Unit.HBM: 2e-7, Unit.ISSUE: 1e-7}, Traffic(1, 2, 2000, 3),
        Stalls(stalls, issued), spans, "expansion of PTX", 0.0, 10, 10, "validated",
    )  # fmt: skip


def test_causes_and_floor_are_the_time():
    stalls = np.zeros((2, len(Reason)))
    stalls[0, Reason.GLOBAL], stalls[1, Reason.BARRIER], stalls[1, Reason.ISSUED] = 300.0, 100.0, 900.0
    found = presentation.measure(launch_time(stalls))
    # 500 ns of launch and 1000 cycles at 2 GHz
    assert found["time_ps"] == 1_000_000
    assert (found["bound"], found["floors_ps"]["hbm"]) == ("hbm", 200_000)
    assert found["floor_ratio"] == pytest.approx(5)
    # 32 of 132 SMs are idle for half of 500 ns
    tail = round(32 / 132 * 250_000)
    rest = 1_000_000 - 200_000 - 500_000 - tail
    assert found["gap_ps"] == {
        LAUNCH: 500_000, TAIL: tail,
        REASONS[Reason.GLOBAL]: round(rest * 0.75), REASONS[Reason.BARRIER]: round(rest / 4),
    }  # fmt: skip
    assert found["rates"]["hbm"]["peak"] == pytest.approx(2000 / 2e-7)
    assert sum(found["critical_path_ps"].values()) == found["time_ps"]


@pytest.mark.parametrize(
    ("busy", "overhead_ns", "name", "why"),
    [
        (0.5, 500.0, "latency", "the busiest unit is hbm: 50 % of the cycles that CTAs run"),
        (0.9, 500.0, "hbm", "the busiest unit is hbm: 90 % of the cycles that CTAs run"),
        # half a microsecond of cycles behind two of a launch
        (0.9, 2000.0, "launch", "the launch itself takes 80 % of the time"),
    ],
)
def test_what_bounds_a_launch_is_what_works_for_most_of_the_time(busy, overhead_ns, name, why):
    time = replace(launch_time(np.ones((1, len(Reason))), overhead_ns=overhead_ns), busy={Unit.HBM: busy})
    found = presentation.measure(time)
    assert (found["limited_by"], found["time_facts"][0]) == (name, why)
    # the largest floor is another question
    assert found["bound"] == "hbm"


def test_of_several_launches_the_longest_says_what_bounds_them():
    short, long = (presentation.measure(launch_time(np.ones((1, len(Reason))), cycles)) for cycles in (100.0, 9000.0))
    assert (short["limited_by"], long["limited_by"]) == ("launch", "latency")
    assert joined_metrics([long, short])["limited_by"] == "latency"


def test_a_floor_that_is_most_of_the_time_bounds_it():
    time = launch_time(np.ones((1, len(Reason))), floors={Unit.HBM: 8e-7, Unit.ISSUE: 1e-7})
    found = presentation.measure(replace(time, busy={Unit.HBM: 0.1, Unit.ISSUE: 0.2}))
    assert (found["limited_by"], found["time_facts"][0]) == ("hbm", "the floor of hbm is 80 % of the time")


def test_tables_say_that_a_time_is_without_machine_code():
    time = launch_time(np.ones((1, len(Reason))))
    assert presentation.measure(time)["caveat"] == "without machine code"
    joined = replace(time, source="SASS of ptxas 13.0", joined=1.0)
    assert presentation.measure(joined)["caveat"] == ""
    # a step or two that were not found change little
    assert presentation.measure(replace(joined, joined=0.97))["caveat"] == ""
    assert presentation.measure(replace(joined, joined=0.29))["caveat"] == "71 % without machine code"


def test_a_time_without_machine_code_says_why_there_is_none():
    reason = "ptxas: line 1: Unsupported .version 9.4; current version is '9.0'\n    .version 9.4"
    found = presentation.measure(replace(launch_time(np.ones((1, len(Reason)))), no_code=reason))
    assert "no machine code: ptxas: line 1: Unsupported .version 9.4; current" in found["time_note"]
    assert "missing" not in found["time_note"]


def test_a_time_of_which_nothing_was_found_in_the_machine_code_does_not_pass_for_one_by_it():
    time = replace(launch_time(np.ones((1, len(Reason)))), source=UNJOINED)
    found = presentation.measure(time)
    assert found["caveat"] == "without machine code"
    assert "expansion of PTX" in found["time_note"]
    assert "nothing of the launch was found in its machine code" in found["time_note"]
    assert "missing" not in found["time_note"]


def test_one_cta_is_no_plural():
    held = Occupancy(1, 4, 64, "grid")
    found = presentation.measure(replace(launch_time(np.ones((1, len(Reason)))), occupancy=held))
    assert "an SM holds 1 CTA, 4 of 64 warps, limited by the grid" in found["time_facts"]


@given(st.lists(st.floats(0, 1e12), min_size=len(Reason), max_size=len(Reason)), st.floats(1, 1e9), st.floats(0, 1e6))
def test_they_always_add_up(waited, cycles, overhead):
    time = launch_time(np.array([waited]), cycles, overhead)
    found = presentation.measure(time)
    floor = found["floors_ps"][found["bound"]]
    assert floor + sum(found["gap_ps"].values()) == found["time_ps"]
    assert set(found["gap_ps"]) <= set(GAPS)
    if found["time_ps"] >= floor:
        assert all(cause > 0 for cause in found["gap_ps"].values())


def test_without_any_wait_nothing_explains_it():
    found = presentation.measure(launch_time(np.zeros((1, len(Reason))), floors={}))
    assert (found["bound"], found["floor_ratio"]) == ("issue", None)
    assert set(found["gap_ps"]) == {LAUNCH, TAIL, REST}


def test_every_cause_has_a_sentence():
    assert all(explain(cause) for cause in GAPS)
    assert explain("no cause") == ""
    assert set(UNITS) == set(Unit)
    assert set(REASONS) == set(Reason)
    assert set(ENGINES) <= set(UNITS.values())


def test_ctas_lie_on_their_slots_behind_the_launch():
    drawn = presentation.timeline(launch_time(np.zeros((1, len(Reason)))), "kernel")
    assert [(lane.group, lane.name) for lane in drawn.lanes] == [
        ("GPU", "launch"), ("SM 0, like 99 others", "slot 0"), ("SM 1, like 31 others", "slot 0"),
    ]  # fmt: skip
    assert drawn.total == 1_000_000
    assert drawn.start.tolist() == [0, 500_000, 500_000, 750_000, 1_000_000]
    assert [(step.name, step.waited_for) for step in drawn.critical_path] == [
        ("launch", ""), ("CTA 0", "launch"), ("CTA 2", "a free slot"),
    ]  # fmt: skip


def test_a_run_keeps_what_it_had():
    run = Run({}, [], ("races",), Status.FINISHED, metrics={"warp_instructions": 7}, views={"mine": 1})
    again = made.again([[made.load(), Op(Pipe.FMA, wait=1)]])
    drawn = presentation.timed(run, again)
    assert drawn.metrics["warp_instructions"] == 7
    assert set(drawn.views) == {"mine", "stalls"}
    assert drawn.timeline.lanes[-1] == Lane("CTA 0: warps", "warp 0")
    assert drawn.timeline is not None
    assert presentation.timed(run, again, drawn=False).timeline is None


def test_what_was_not_found_in_machine_code_is_counted_and_said():
    again = made.again([[made.load(), Op(Pipe.FMA, wait=1)]])
    streams = replace(again.streams, joined=0.5, unjoined=(Unjoined("no counterpart", 3),), events_without_op=2)
    metrics = presentation.timed(Run({}, [], (), Status.FINISHED), replace(again, streams=streams)).metrics
    assert metrics["unjoined"] == [{"reason": "no counterpart", "steps": 3}]
    assert metrics["events_without_code"] == 2
    assert "3 steps timed by the expansion of PTX: no counterpart" in metrics["time_facts"]
    assert "2 accesses of paths were merged or removed by ptxas" in metrics["time_facts"]
