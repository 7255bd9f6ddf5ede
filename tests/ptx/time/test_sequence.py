"""Launches in a row: gaps by how they are queued, and launches that begin before the one before has ended."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled
from tests.ptx.time.made import Op, Pipe, launch

from kernbench.ptx.machine import load
from kernbench.ptx.time.launch import time_launch
from kernbench.ptx.time.presentation import measure
from kernbench.ptx.time.sequence import TRIGGERS, WAITS, LaunchSequence, following_ps
from kernbench.report.time.explanation import row_text
from kernbench.result.following import DEPENDENT, GRAPH, STREAM, WAYS, in_a_row
from kernbench.result.launches import joined_metrics

H200 = load("h200")
END = Op(Pipe.CONTROL)
WORK = [Op(Pipe.FMA, stall=4)] * 2000


def timed(program, **given):
    return time_launch(*launch([program], **given), H200)


def test_a_launch_alone_takes_what_it_takes_alone():
    one = timed([*WORK, END])
    for way in WAYS:
        assert LaunchSequence((one,)).seconds(way) == pytest.approx(one.seconds, abs=1e-12)
    assert LaunchSequence(()).seconds(STREAM) == 0


def test_empty_kernels_in_a_row_lie_a_gap_apart():
    """As it was measured: 200 empty kernels queued behind each other."""
    empty = timed([END])
    for way, figure in ((STREAM, "gap"), (GRAPH, "graph_gap"), (DEPENDENT, "dependent_gap")):
        whole = LaunchSequence((empty,) * 201).seconds(way)
        each = (whole - empty.seconds) / 200
        assert each * 1e9 == pytest.approx(float(getattr(H200.launch, figure)), rel=0.01)


def test_what_follows_adds_its_gap_and_its_own_cycles_but_no_cold_start():
    first, second = timed([END]), timed([*WORK, END])
    whole = LaunchSequence((first, second)).seconds(STREAM)
    own = (second.cycles - float(H200.launch.first)) / (second.clock_mhz * 1e6)
    assert whole == pytest.approx(first.seconds + float(H200.launch.gap) * 1e-9 + own, rel=1e-6)
    assert own * second.clock_mhz * 1e6 == pytest.approx(8000, rel=0.01)


def named(program: list[Op], names: dict[int, str]) -> tuple:
    """A launch whose instructions have opcodes."""
    recording, streams = launch([program])
    rows = recording.instructions
    opcodes = tuple(names.get(number, "add.f32") for number in range(len(program)))
    count = np.zeros(len(program), np.int32)
    rows = replace(rows, opcode=opcodes, line=count + 1, block=count)
    return replace(recording, instructions=rows), streams


def test_a_launch_that_begins_early_runs_beside_the_one_before():
    """The first lets the next begin after a quarter of its work; that one computes before it waits."""
    work = [Op(Pipe.FMA, stall=4)] * 400
    trigger = named([*work[:100], Op(Pipe.CONTROL), *work[100:], END], {100: TRIGGERS})
    waits = named([*work[:150], Op(Pipe.CONTROL), *work, END], {150: WAITS})
    first, second = (time_launch(*one, H200) for one in (trigger, waits))
    assert first.after_trigger == pytest.approx(1200, abs=10)
    assert second.before_wait == pytest.approx(600, abs=10)
    row = LaunchSequence((first, second))
    hidden = 600 / (second.clock_mhz * 1e6)
    gaps = (float(H200.launch.gap) - float(H200.launch.dependent_gap)) * 1e-9
    assert row.seconds(STREAM) - row.seconds(DEPENDENT) == pytest.approx(hidden + gaps, rel=0.02)
    # the other way round nothing runs beside anything
    other = LaunchSequence((second, first))
    assert other.seconds(STREAM) - other.seconds(DEPENDENT) == pytest.approx(gaps, rel=1e-6)


ADDED = st.fixed_dictionaries(
    {STREAM: st.integers(0, 10**6), GRAPH: st.integers(0, 10**6), DEPENDENT: st.integers(0, 10**6)},
    optional={"before_wait": st.integers(0, 10**5), "after_trigger": st.integers(0, 10**5)},
)


@settings(max_examples=sampled.examples(30, 60), deadline=None, derandomize=True)
@given(st.lists(st.tuples(st.integers(0, 10**6), ADDED), min_size=1, max_size=8))
def test_more_launches_never_take_less(rows):
    alone, following = [one for one, _ in rows], [added for _, added in rows]
    whole, shorter = in_a_row(alone, following), in_a_row(alone[:-1], following[:-1])
    for way in WAYS:
        assert whole[way] >= shorter.get(way, 0)
        assert whole[way] >= alone[0]


def test_runs_of_several_launches_say_what_they_take_in_a_row():
    metrics = [measure(timed(program)) for program in ([*WORK, END], [END])]
    whole = joined_metrics(metrics)
    sequence = LaunchSequence((timed([*WORK, END]), timed([END])))
    for way in WAYS:
        assert whole["in_a_row_ps"][way] == round(sequence.seconds(way) * 1e12)
    assert whole["in_a_row_ps"][STREAM] < whole["time_ps"]
    assert "in a stream" in row_text(whole["in_a_row_ps"])
    assert following_ps(timed([END]))[STREAM] > following_ps(timed([END]))[GRAPH]
