"""Signals in device memory need a value before anybody adds to them or looks at them, and tasks that store into them
must be ordered with those that use them.
"""

import numpy as np
import pytest
from tests.npu.small import flag, kinds, line_of

from kernbench import npu
from kernbench.npu import CREATE, IN, INOUT, NO_DEP, OUT

SCHEDULES = ["canonical", "reversed", 1, 2]


def exchanges(core, s, op):
    core.tnotify(s[0, core.block_idx], 1, op)  # own
    core.twait(s[0:1, 1 - core.block_idx : 2 - core.block_idx], 1, "ge")  # the other's


def polls(core, s, op):
    if core.block_idx == 0:
        core.tnotify(s[0, 0], 1, op)  # own
    else:
        while core.poll(s[0, 0]) != 1:  # the other's
            pass


def zeros(core, s):
    tile = core.alloc("UB", (1, 8), "i32")
    core.texpands(tile, 0)
    flag(core, "V", "MTE3")
    core.tstore(s, tile)  # stored
    core.pipe_sync()


def launch(orchestrate, schedule):
    return npu.Chip("a2a3").launch(orchestrate, np.zeros((1, 8), np.int32), schedule=schedule)


def signals_of(kernel, made, op):
    def orchestrate(rt, y):
        rt.submit(aiv0=kernel, args=[INOUT(y) if made is None else made, op], block_num=2, sync_start=True)

    return orchestrate


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kernel", [exchanges, polls])
def test_a_wait_for_what_has_no_value_is_found_on_every_schedule(kernel, schedule):
    run = launch(signals_of(kernel, CREATE((1, 8), "i32", "s"), "set"), schedule)
    (finding,) = run.findings
    assert finding.kind == "uninitialised-read"
    assert finding.where.line == line_of(kernel, "# the other's")
    assert "'s' (1x8 i32)" in finding.message
    assert "initial_value=0" in finding.hint


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_adding_to_what_has_no_value_is_found(schedule):
    run = launch(signals_of(exchanges, CREATE((1, 8), "i32", "s"), "add"), schedule)
    lines = {finding.where.line for finding in run.findings if finding.kind == "uninitialised-read"}
    assert line_of(exchanges, "# own") in lines


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("kernel", [exchanges, polls])
@pytest.mark.parametrize("made", [CREATE((1, 8), "i32", "s", initial_value=0), None], ids=["created", "the host's"])
@pytest.mark.parametrize("op", ["set", "add"])
def test_signals_that_have_a_value_are_fine(kernel, made, op, schedule):
    assert launch(signals_of(kernel, made, op), schedule).findings == []


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_core_may_give_its_signal_a_value_before_others_surely_use_it(schedule):
    def kernel(core, s):
        if core.block_idx == 0:
            core.tnotify(s[0, 0], 0)
        core.pipe_barrier("ALL")
        core.ffts_cross_core_sync("MTE3", 0, mode=0)
        core.wait_flag_dev(0)
        core.tnotify(s[0, 0], 1, "add")
        core.twait(s[0:1, 0:1], 2, "ge")

    def orchestrate(rt, y):
        rt.submit(aiv=kernel, args=[CREATE((1, 8), "i32", "s")], block_num=2, sync_start=True)

    assert "uninitialised-read" not in kinds(launch(orchestrate, schedule))


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("how", [OUT, NO_DEP, INOUT, "deps"])
def test_a_task_that_stores_into_signals_comes_before_those_that_use_them(how, schedule):
    def orchestrate(rt, y):
        task = rt.submit(aiv0=zeros, args=[INOUT(y)])
        given = NO_DEP if how == "deps" else how
        rt.submit(
            aiv0=exchanges,
            args=[given(y), "add"],
            block_num=2,
            sync_start=True,
            deps=[task] if how == "deps" else [],
        )

    run = launch(orchestrate, schedule)
    if how in (INOUT, "deps"):
        assert run.findings == []
        return
    assert kinds(run) == ["missing-dependence"]
    lines = {line_of(exchanges, "# own"), line_of(exchanges, "# the other's"), line_of(zeros, "# stored")}
    assert {finding.where.line for finding in run.findings} <= lines
    assert all("nothing orders them" in finding.message for finding in run.findings)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("ordered", [True, False])
def test_a_task_that_loads_signals_comes_after_those_that_notify_them(ordered, schedule):
    def sets(core, s):
        for number in range(8):
            core.tnotify(s[0, number], number + 1)

    def loads(core, s, y):
        tile = core.alloc("UB", (1, 8), "i32")
        core.tload(tile, s)  # loaded
        flag(core, "MTE2", "MTE3")
        core.tstore(y, tile)
        core.pipe_sync()

    def orchestrate(rt, y, s):
        rt.submit(aiv0=sets, args=[INOUT(s)])
        rt.submit(aiv0=loads, args=[IN(s) if ordered else NO_DEP(s), OUT(y)])

    def made_by_the_runtime(rt, y):
        (s,) = rt.submit(aiv0=sets, args=[CREATE((1, 8), "i32", "s")]).outputs
        rt.submit(aiv0=loads, args=[IN(s), OUT(y)])

    chip, of_host = npu.Chip("a2a3"), np.zeros((1, 8), np.int32)
    run = chip.launch(orchestrate, of_host, of_host, schedule=schedule)
    assert kinds(run) == ([] if ordered else ["write-after-read" if schedule == "reversed" else "missing-dependence"])
    run = chip.launch(made_by_the_runtime, of_host, schedule=schedule)
    assert run.findings == []
    assert run.outputs["y"].tolist() == [[1, 2, 3, 4, 5, 6, 7, 8]]
