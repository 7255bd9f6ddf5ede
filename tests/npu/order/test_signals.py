"""Flags between cores, and signals in device memory: what they order, and what goes wrong with them."""

import numpy as np
import pytest
from tests.npu.small import flag, kinds, line_of

from kernbench import npu
from kernbench.npu.order import stretches
from kernbench.npu.time.clock import time_recording

X = np.arange(16 * 16, dtype=np.float32).reshape(16, 16)
SCHEDULES = ["canonical", "reversed", 1, 2]


@pytest.fixture(autouse=True, params=[stretches.ROWS, 1], ids=["together", "each block by itself"])
def stretch(request, monkeypatch):
    """Posts carry the same to other blocks wherever a stretch of blocks ends."""
    monkeypatch.setattr(stretches, "ROWS", request.param)


def launch(orchestrate, *arrays, chip="a2a3", **options):
    return npu.Chip(chip).launch(orchestrate, *arrays, **options)


def timed_in_order(run, chip="a2a3"):
    """A safe run has a time, in which every wait ends after the posts that it rests on."""
    assert run.findings == []
    timing = time_recording(run.recording, npu.load(chip))
    posts, waits = run.recording.post_edges()
    assert len(posts)
    assert (timing.times.finish[posts] <= timing.times.start[waits]).all()
    return timing


# Flags between cores of a cluster


def mixed(chip, forward=True, back=True, post_pipe="FIX", rounds=2):
    """The AIC stores, both AIVs read it, and tell when they are done."""
    single = chip == "a5"

    def post(core, pipe, number):
        if not single:
            core.ffts_cross_core_sync(pipe, number)
        elif core.lane == 0:
            core.set_intra_block(pipe, number)
            core.set_intra_block(pipe, number + 16)
        else:
            core.set_intra_block(pipe, number)

    def wait(core, pipe, number):
        if not single:
            core.wait_flag_dev(number)
        elif core.lane == 0:
            core.wait_intra_block(pipe, number)
            core.wait_intra_block(pipe, number + 16)
        else:
            core.wait_intra_block(pipe, number)

    def cube(core, x, s, out):
        tile = core.alloc("L1", (16, 16))
        left, right, acc = core.alloc("L0A", (16, 16)), core.alloc("L0B", (16, 16)), core.alloc("L0C", (16, 16))
        core.tload(tile, x)
        flag(core, "MTE2", "MTE1")
        core.tmov(left, tile)
        core.tmov(right, tile)
        flag(core, "MTE1", "M")
        core.tmatmul(acc, left, right)
        flag(core, "M", "FIX")
        for turn in range(rounds):
            if turn and back:
                wait(core, "FIX", 1)
            core.tstore(s, acc)
            if forward:
                post(core, post_pipe, 0)
        if back:
            wait(core, "FIX", 1)
        core.pipe_sync()

    def vector(core, x, s, out):
        rows = slice(8 * core.sub_block_id, 8 * core.sub_block_id + 8)
        tile = core.alloc("UB", (8, 16))
        for turn in range(rounds):
            if forward:
                wait(core, "MTE2", 0)
            core.tload(tile, s[rows])
            if back:
                post(core, "MTE2", 1)
            flag(core, "MTE2", "MTE3")
            core.tstore(out[turn, rows], tile)
            flag(core, "MTE3", "MTE2")
        core.pipe_sync()

    def orchestrate(rt, x, out):
        s = rt.tensor((16, 16), "f32", "s")
        rt.submit(aic=cube, aiv=vector, args=[npu.IN(x), npu.INOUT(s), npu.INOUT(out)])

    return orchestrate


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("chip", ["a2a3", "a5"])
def test_flags_order_the_cores_of_a_cluster(chip, schedule):
    run = launch(mixed(chip), X, np.zeros((2, 16, 16), np.float32), chip=chip, schedule=schedule)
    timed_in_order(run, chip)
    np.testing.assert_allclose(run.outputs["out"], np.stack([X @ X] * 2), rtol=1e-5)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("chip", ["a2a3", "a5"])
def test_without_the_answer_the_cube_overwrites_what_is_read(chip, schedule):
    run = launch(mixed(chip, back=False), X, np.zeros((2, 16, 16), np.float32), chip=chip, schedule=schedule)
    assert "race" in kinds(run)


def test_a_post_of_another_pipe_does_not_cover_the_store():
    run = launch(mixed("a2a3", post_pipe="MTE2"), X, np.zeros((2, 16, 16), np.float32))
    assert "race" in kinds(run)


def test_a_wait_without_post_is_a_deadlock_that_says_who_is_missing():
    def cube(core, out):
        core.wait_flag_dev(3)

    def vector(core, out):
        if core.sub_block_id:
            core.ffts_cross_core_sync("MTE3", 3)

    run = launch(lambda rt, out: rt.submit(aic=cube, aiv=vector, args=[npu.INOUT(out)]) and None, X)
    assert run.status == "deadlocked"
    (finding,) = [f for f in run.findings if f.kind == "deadlock"]
    assert "flag 3 was not counted up by aiv0" in finding.message
    assert finding.where.line == line_of(cube, "wait_flag_dev")


def test_a_flag_that_nobody_waits_for_and_one_that_overflows_are_found():
    def cube(core, out):
        for _ in range(16):
            core.ffts_cross_core_sync("FIX", 2)

    run = launch(lambda rt, out: rt.submit(aic=cube, aiv0=lambda c, o: None, args=[npu.NO_DEP(out)]) and None, X)
    assert kinds(run) == ["flag-misuse"]
    told = " ".join(f.message for f in run.findings)
    assert "flag 2 is counted up 16 times and not waited for; a counter holds 15" in told
    assert "flag 2 is counted up and aiv0 never waits for it" in told


@pytest.mark.parametrize(
    ("chip", "attempt", "told"),
    [
        ("a5", lambda c: c.ffts_cross_core_sync("MTE3", 0), "its cores signal each other by set_intra_block"),
        ("a2a3", lambda c: c.set_intra_block("MTE3", 0), "its cores signal each other by ffts_cross_core_sync"),
        ("a2a3", lambda c: c.ffts_cross_core_sync("MTE3", 16), "flags are 0 to 15"),
        ("a2a3", lambda c: c.ffts_cross_core_sync("MTE3", 0), "no core of"),
        ("a2a3", lambda c: c.ffts_cross_core_sync("MTE3", 0, 3), "it is 0, 1 or 2"),
        ("a2a3", lambda c: c.tnotify(3, 1), "signals are elements of an i32 tensor"),
        ("a2a3", lambda c: c.wait_flag_dev(-1), "flags are 0 to 15"),
    ],
)
def test_what_has_no_meaning_is_refused(chip, attempt, told):
    run = launch(lambda rt, out: rt.submit(aiv0=lambda c, o: attempt(c), args=[npu.INOUT(out)]) and None, X, chip=chip)
    assert told in run.findings[0].message


# All blocks of a task


def exchange(post="add", wait=True, barrier=True, ring=False, sync_start=True, blocks=8, rounds=1):
    """Each block writes its row, and reads that of the next when all have."""

    def kernel(core, x, s, signal, out):
        tile = core.alloc("UB", (1, 16))
        for turn in range(rounds):
            core.tload(tile, x[core.block_idx : core.block_idx + 1])
            flag(core, "MTE2", "MTE3")
            core.tstore(s[turn, core.block_idx : core.block_idx + 1], tile)
            if barrier:
                core.pipe_barrier("ALL")
            core.tnotify(signal[0], 1, "add")
            if wait:
                core.twait(signal[0], blocks * (turn + 1), "ge")
            other = (core.block_idx + 1) % blocks
            core.tload(tile, s[turn, other : other + 1])
            flag(core, "MTE2", "MTE3", 1)
            core.tstore(out[core.block_idx : core.block_idx + 1], tile)
            core.pipe_barrier("ALL")

    def orchestrate(rt, x, out):
        s = rt.tensor((rounds, blocks, 16), "f32", "s")
        signal = rt.tensor((1,), "i32", "signal", initial_value=0)
        args = [npu.IN(x), npu.INOUT(s), npu.INOUT(signal), npu.INOUT(out)]
        rt.submit(aiv0=kernel, args=args, block_num=blocks, sync_start=sync_start)

    return orchestrate


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("rounds", [1, 3])
def test_blocks_meet_at_a_signal(schedule, rounds):
    run = launch(exchange(rounds=rounds), X[:8], np.zeros((8, 16), np.float32), schedule=schedule)
    timed_in_order(run)
    assert (run.outputs["out"] == np.roll(X[:8], -1, axis=0)).all()


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_a_notification_does_not_wait_for_the_store_before_it(schedule):
    run = launch(exchange(barrier=False), X[:8], np.zeros((8, 16), np.float32), schedule=schedule)
    assert "race" in kinds(run)
    found = next(f for f in run.findings if f.kind == "race")
    assert "no signal surely orders them" in found.message


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_without_the_wait_blocks_race(schedule):
    run = launch(exchange(wait=False), X[:8], np.zeros((8, 16), np.float32), schedule=schedule)
    assert {"race"} <= set(kinds(run)) <= {"race", "uninitialised-read"}


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_blocks_that_wait_for_each_other_must_start_together(schedule):
    run = launch(exchange(sync_start=False), X[:8], np.zeros((8, 16), np.float32), schedule=schedule)
    assert kinds(run) == ["deadlock"]
    assert "nothing makes that begin" in run.findings[0].message


def test_more_blocks_than_cores_that_wait_for_each_other_never_go_on():
    run = launch(exchange(sync_start=False, blocks=60), np.zeros((60, 16), np.float32), np.zeros((60, 16), np.float32))
    assert run.status == "deadlocked"
    assert "12 of 60 blocks of task 2 (kernel) have not begun" in run.findings[0].message


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_all_cores_of_a_kind_meet_at_a_flag(schedule):
    def kernel(core, x, s, out):
        tile = core.alloc("UB", (1, 16))
        core.tload(tile, x[core.block_idx : core.block_idx + 1])
        flag(core, "MTE2", "MTE3")
        core.tstore(s[core.block_idx : core.block_idx + 1], tile)
        core.ffts_cross_core_sync("MTE3", 11, 0)
        core.wait_flag_dev(11)
        other = (core.block_idx + 1) % 8
        core.tload(tile, s[other : other + 1])
        flag(core, "MTE2", "MTE3", 1)
        core.tstore(out[core.block_idx : core.block_idx + 1], tile)
        core.pipe_sync()

    def orchestrate(rt, x, out):
        s = rt.tensor((8, 16), "f32", "s")
        rt.submit(aiv0=kernel, args=[npu.IN(x), npu.INOUT(s), npu.OUT(out)], block_num=8, sync_start=True)

    run = launch(orchestrate, X[:8], np.zeros((8, 16), np.float32), schedule=schedule)
    timed_in_order(run)
    assert (run.outputs["out"] == np.roll(X[:8], -1, axis=0)).all()


# Signals that are set


def pair(first, second, sync_start=True, values=(0,)):
    """Two blocks with a signal for each way."""

    def kernel(core, x, s, signal, out):
        (first if core.block_idx == 0 else second)(core, x, s, signal, out)

    def orchestrate(rt, x, out):
        s = rt.tensor((1, 16), "f32", "s", initial_value=0)
        signal = rt.tensor((4,), "i32", "signal", initial_value=0)
        args = [npu.IN(x), npu.NO_DEP(s), npu.NO_DEP(signal), npu.NO_DEP(out)]
        rt.submit(aiv0=kernel, args=args, block_num=2, sync_start=sync_start)

    return orchestrate


def send(core, x, s, signal, value=1):
    tile = core.alloc("UB", (1, 16))
    core.tload(tile, x[0:1])
    flag(core, "MTE2", "MTE3")
    core.tstore(s, tile)
    flag(core, "MTE3", "S")
    core.tnotify(signal[0], value)
    core.pipe_sync()


def receive(core, s, signal, out, value=1, cmp="eq"):
    core.twait(signal[0], value, cmp)
    tile = core.alloc("UB", (1, 16))
    core.tload(tile, s)
    flag(core, "MTE2", "MTE3")
    core.tstore(out, tile)
    core.pipe_sync()


def outcome(first, second, schedule="canonical", **options):
    return launch(pair(first, second, **options), X, np.zeros((1, 16), np.float32), schedule=schedule)


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_one_block_tells_another(schedule):
    run = outcome(lambda c, x, s, g, o: send(c, x, s, g), lambda c, x, s, g, o: receive(c, s, g, o), schedule)
    timed_in_order(run)
    assert (run.outputs["out"] == X[0]).all()


def test_what_another_block_knew_of_its_pipes_says_nothing_of_ones_own():
    def waits(core, x, signal):
        tile = core.alloc("UB", (1, 16))
        core.tload(tile, x[0:1])
        core.twait(signal[0], 1)
        # the other block's load is over, not this one's
        core.texp(tile, tile)

    run = outcome(lambda c, x, s, g, o: send(c, x, s, g), lambda c, x, s, g, o: waits(c, x, g))
    assert [finding.message.split(",")[0].split(" of ")[0] for finding in run.findings if finding.kind == "race"] == [
        "texp on pipe V"
    ]


def test_a_wait_that_is_over_before_anybody_notifies_orders_nothing():
    run = outcome(lambda c, x, s, g, o: send(c, x, s, g), lambda c, x, s, g, o: receive(c, s, g, o, 0, "ge"))
    assert "race" in kinds(run)


def test_a_signal_that_is_never_sent_is_a_deadlock():
    run = outcome(lambda c, x, s, g, o: c.tnotify(g[1], 1), lambda c, x, s, g, o: c.twait(g[0], 1))
    assert run.status == "deadlocked"
    assert "1 of 1 signals of 'signal' (4 i32) are not eq 1, element 0 is 0; 0 notifications" in run.findings[0].message


def test_a_signal_that_is_set_to_what_it_is_tells_nobody():
    def twice(core, x, s, signal, out):
        core.tnotify(signal[0], 1)
        core.tnotify(signal[0], 1)

    run = outcome(twice, lambda c, x, s, g, o: c.twait(g[0], 1))
    assert kinds(run) == ["flag-misuse"]
    assert "is 1 already" in run.findings[0].message


def test_a_signal_that_is_replaced_before_it_was_seen_is_found():
    def twice(core, x, s, signal, out):
        core.tnotify(signal[0], 1)
        core.tnotify(signal[0], 2)

    run = outcome(twice, lambda c, x, s, g, o: c.twait(g[0], 2))
    assert run.findings == []
    # with an answer in between
    run = outcome(
        lambda c, x, s, g, o: c.tnotify(g[0], 1) or c.twait(g[1], 1) or c.tnotify(g[0], 2),
        lambda c, x, s, g, o: c.twait(g[0], 1) or c.tnotify(g[1], 1) or c.twait(g[0], 2),
    )
    assert run.findings == []
    # the other block may see only the second
    run = outcome(twice, lambda c, x, s, g, o: c.twait(g[0], 1, "eq"), schedule="reversed")
    assert "flag-misuse" in kinds(run) or run.status == "deadlocked"


def test_a_signal_that_is_used_again_after_a_reset():
    def first(core, x, s, signal, out):
        for turn in range(3):
            core.tnotify(signal[0], 1)
            core.twait(signal[1], turn + 1)

    def second(core, x, s, signal, out):
        for turn in range(3):
            core.twait(signal[0], 1)
            core.tnotify(signal[0], 0)
            core.tnotify(signal[1], turn + 1)

    for schedule in SCHEDULES:
        timed_in_order(outcome(first, second, schedule))


def test_two_blocks_that_set_one_signal_race():
    run = outcome(lambda c, x, s, g, o: c.tnotify(g[0], 1), lambda c, x, s, g, o: c.tnotify(g[0], 2))
    assert kinds(run) == ["race"]
    assert "two notifications of a signal of 'signal' (4 i32) that nothing orders" in run.findings[0].message


def add_twice(core, x, s, signal, out):
    core.tnotify(signal[0], 1, "add")
    core.tnotify(signal[0], 1, "add")


def test_an_exact_sum_may_be_run_past():
    for target, cmp, found in ((1, "eq", ["flag-misuse"]), (2, "eq", []), (1, "ge", [])):
        run = outcome(lambda c, x, s, g, o, t=target, m=cmp: c.twait(g[0], t, m), add_twice, schedule="reversed")
        if run.status != "deadlocked":
            assert kinds(run) == found
        else:
            assert found


def test_tasks_that_wait_for_each_other_need_a_dependence():
    def orchestrate(rt, x, out):
        signal = rt.tensor((1,), "i32", "signal", initial_value=0)
        rt.submit(aiv0=lambda c, g: c.tnotify(g[0], 1), args=[npu.NO_DEP(signal)], name="first")
        rt.submit(aiv0=lambda c, g: c.twait(g[0], 1), args=[npu.NO_DEP(signal)], name="second")

    run = launch(orchestrate, X, X)
    assert kinds(run) == ["deadlock"]
    assert "waits for task 1 (first), and nothing makes that begin" in run.findings[0].message


def told(core, gate, op):
    core.tnotify(gate[0], 1, op)


def ones(core, out):
    tile = core.alloc("UB", (1, 16))
    core.texpands(tile, 1.0)
    flag(core, "V", "MTE3")
    core.tstore(out, tile)
    core.pipe_sync()


@pytest.mark.parametrize("op", ["set", "add"])
@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("ordered", [True, False])
def test_a_predicate_that_looks_at_a_signal_needs_a_dependence(op, schedule, ordered):
    def orchestrate(rt, out):
        gate = rt.tensor((4,), "i32", "gate", initial_value=0)
        teller = rt.submit(aiv0=told, args=[npu.OUT(gate), op])
        deps = [teller] if ordered else []
        rt.submit(aiv0=ones, args=[npu.INOUT(out)], predicate=npu.PREDICATE(gate[0]), deps=deps)

    run = launch(orchestrate, np.zeros((1, 16), np.float32), schedule=schedule)
    assert kinds(run) == ([] if ordered else ["missing-dependence"])
    assert all("the predicate of task" in finding.message for finding in run.findings)
