"""Calls through `tl.routine` that send and receive are recorded, and end, as if each had run."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled
from tests.mesh import both_ways

from kernbench import mesh
from kernbench.machine import load
from kernbench.safety.budget import Budget
from kernbench.triton_emu.repeating.routines import Known

ROW = 768 * 4
RANKS = 3


@pytest.fixture(autouse=True, scope="module")
def short_ones_too():
    """Short calls repeat, so that small kernels show what long ones do."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("kernbench.triton_emu.repeating.routines.FEWEST_COMMANDS", 1)
        yield


def launched(kernel, *args, **options):
    return both_ways.launched(kernel, *args, ranks=RANKS, **options)


def same(kernel, *args, **options):
    return both_ways.same(kernel, *args, ranks=RANKS, **options)


def step(tl, sends, receives, shape, kind, x, y):
    """A value goes in some directions, one comes from some, and each that came is stored."""
    tile = tl.load(x, shape=shape)
    for direction in sends:
        tl.send(dir=direction, src=tile)
    for direction in receives:
        tl.store(y, tl.recv(dir=direction, shape=shape, dtype=kind) + tile)


def to_the_east(tl, x, y, times, shape=(16, 16), kind="f32"):
    """A chain, of which every rank but the last passes on what the one before it sent; how often is up to the rank."""
    rank = tl.program_id(0)
    sends, receives = ("E",) * (rank < RANKS - 1), ("W",) * (rank > 0)
    for i in range(times[rank]):
        tl.routine(step, tl, sends, receives, shape, kind, at=(x + i * ROW, y + i * ROW))


@pytest.mark.parametrize("schedule", ["canonical", "reversed", 7])
@pytest.mark.parametrize("depth", [1, 4])
def test_what_is_sent_and_received_goes_again(schedule, depth, repeats):
    def kernel(x, y, tl):
        to_the_east(tl, x, y, (12, 12, 12))

    run = same(kernel, schedule=schedule, depth=depth)
    assert run.safe, run.findings
    # once for each kind of rank a call is watched, and another one checked
    assert len(repeats) >= 3 * 12 - 3 * 2 * 2


@pytest.mark.parametrize("times", [(12, 11, 11), (11, 12, 12), (12, 12, 9), (9, 12, 12), (3, 12, 1)])
@pytest.mark.parametrize("depth", [1, 2, 16])
def test_who_waits_for_ever_is_found_with_all_that_was_recorded(times, depth, repeats):
    def kernel(x, y, tl):
        to_the_east(tl, x, y, times)

    run = same(kernel, depth=depth)
    assert {f.kind for f in run.findings} <= {"deadlock", "message-unreceived"}
    assert run.findings
    assert repeats


def test_a_message_of_another_shape_is_found_as_often(repeats):
    def kernel(x, y, tl):
        rank = tl.program_id(0)
        for i in range(9):
            if rank == 0:
                tl.send(dir="E", src=tl.load(x, shape=(16, 16) if i % 3 else (8, 16)))
            elif rank == 1:
                tl.routine(step, tl, (), ("W",), (16, 16), "f32", at=(x + i * ROW, y))

    run = same(kernel)
    assert [(f.kind, f.count) for f in run.findings] == [("message-mismatch", 3)]
    assert repeats


def test_where_nobody_is_a_message_is_refused_as_often(repeats):
    def kernel(x, y, tl):
        if tl.program_id(0) == 0:
            for i in range(6):
                tl.routine(step, tl, ("W",), (), (16, 16), "f32", at=(x + i * ROW, y))

    run = same(kernel)
    assert [(f.kind, f.count) for f in run.findings] == [("no-neighbour", 6)]
    assert repeats


def test_what_comes_without_a_type_may_be_another_one_each_time(repeats):
    def kernel(x, y, tl):
        rank = tl.program_id(0)
        for i in range(8):
            if rank == 0:
                value = tl.load(x, shape=(16, 16))
                tl.send(dir="E", src=tl.cast(value, "f16") if i > 4 else value)
            elif rank == 1:
                tl.routine(step, tl, (), ("W",), (16, 16), None, at=(x + i * ROW, y))

    assert same(kernel).safe
    assert not repeats


def number_from_the_west(tl, y):
    number = tl.recv(dir="W", shape=(1,), dtype="i32")
    tl.store(y, tl.load(y, shape=(4, 4)))
    return number


@pytest.mark.parametrize("schedule", ["canonical", "reversed", 7])
def test_whole_numbers_that_come_with_their_values_later_are_looked_at(schedule, repeats):
    table = np.arange(16, dtype=np.int32)

    def kernel(x, y, numbers, tl):
        rank = tl.program_id(0)
        for i in range(9):
            if rank == 0:
                known = tl.load(numbers + 4 * i, shape=(1,))
                tl.send(dir="E", src=known if i > 4 else tl.cast(tl.load(x, shape=(1,)), "i32"))
            elif rank == 1:
                number = tl.routine(number_from_the_west, tl, at=(y + i * ROW,))
                tl.device_assert(number < 6, "small")

    run = same(kernel, schedule=schedule, further=table)
    assert [(f.kind, f.count) for f in run.findings] == [("kernel-error", 3)]
    assert repeats


def test_one_program_watches_a_kind_of_call_while_others_run_theirs(monkeypatch, repeats):
    kept, keep = [], Known.keep
    monkeypatch.setattr(Known, "keep", lambda self, key, kind: kept.append(key) or keep(self, key, kind))

    def kernel(x, y, tl):
        rank = tl.program_id(0)
        for i in range(8):
            if rank < RANKS - 1:
                tl.send(dir="E", src=tl.load(x, shape=(16, 16)))
            if rank:
                tl.routine(step, tl, (), ("W",), (16, 16), "f32", at=(x + i * ROW, y))

    # the last rank comes first, and waits in its routine while the one before it comes to the same
    assert same(kernel, schedule="reversed").safe
    assert len(kept) == 1
    assert repeats


def apart(tl, x, ahead, y):
    tl.store(y, tl.load(x + 2 * ahead, shape=(16, 16)))


def test_an_address_may_move_with_two_of_the_numbers(repeats):
    def kernel(x, y, tl):
        for i in range(8):
            tl.routine(apart, tl, at=(x + i * ROW, i * i * ROW, y))

    assert same(kernel).safe
    assert repeats


def asynchronous(tl, x, y):
    tl.send_async(dir="E", src=tl.load(x, shape=(16, 16))).wait()
    tl.store(y, tl.load(x, shape=(16, 16)))


def test_what_is_waited_for_later_is_not_repeated(repeats):
    def kernel(x, y, tl):
        rank = tl.program_id(0)
        for i in range(8):
            if rank == 0:
                tl.routine(asynchronous, tl, at=(x + i * ROW, y))
            elif rank == 1:
                tl.recv(dir="W", shape=(16, 16), dtype="f32")

    assert same(kernel).safe
    assert not repeats


def test_an_error_after_repeated_messages_leaves_what_others_recorded(repeats):
    def kernel(x, y, tl):
        to_the_east(tl, x, y, (9, 9, 9))
        if tl.program_id(0) == 0:
            raise ValueError("enough")
        to_the_east(tl, x, y, (0, 9, 9))

    run = same(kernel)
    assert run.status == "failed"
    assert repeats


def test_a_launch_that_is_run_again_begins_with_the_whole_numbers_that_were_given(repeats):
    def kernel(x, y, numbers, tl):
        tl.device_print("number", number := tl.load(numbers, shape=(1,)))
        tl.store(numbers, tl.load(numbers + 4, shape=(1,)))
        to_the_east(tl, x, y, (12, 12, 9))
        for _ in range(int(number)):
            tl.store(y, tl.load(x, shape=(4, 4)))
        if tl.program_id(0) == 2:
            tl.recv(dir="W", shape=(1, 1), dtype="f32")
            tl.recv(dir="E", shape=(1, 1), dtype="f32")
            raise ValueError("enough")

    run = same(kernel, further=np.array([3, 7, 9], np.int32))
    assert run.status == "failed"
    assert repeats


def test_the_time_of_a_launch_ends_where_calls_repeat():
    def kernel(x, y, tl):
        for _ in range(20_000):
            tl.routine(step, tl, (), (), (16, 16), "f32", at=(x, y))

    assert launched(kernel, budget=Budget(steps=10**9, total_seconds=1e-9)).status == "over budget"


def test_an_error_that_does_not_come_again_is_not_lost(repeats):
    ends = []

    def kernel(x, y, tl):
        to_the_east(tl, x, y, (9, 9, 9))
        if tl.program_id(0) == 1:
            ends.append(1)
            if len(ends) == 1:
                raise ValueError("not set up")

    run = launched(kernel)
    assert (run.status, [f.message for f in run.findings]) == ("failed", ["ValueError: not set up"])
    assert repeats
    assert len(ends) == 2


def as_often_as_it_says(tl, box, x, y):
    tile = tl.recv(dir="W", shape=(4, 4), dtype="f32")
    for _ in range(box[0]):
        tl.store(y, tl.load(x, shape=(4, 4)))
    tl.store(y, tile)


def test_what_another_program_changes_behind_a_receive_is_noticed(repeats):
    def run(folds):
        box = [1]

        def kernel(x, y, tl):
            for i in range(12):
                if tl.program_id(0) == 0:
                    tl.recv(dir="E", shape=(1,), dtype="f32")
                    box[0] = 1 if i < 6 else 3
                    tl.send(dir="E", src=tl.load(x, shape=(4, 4)))
                elif tl.program_id(0) == 1:
                    tl.send(dir="W", src=tl.load(x, shape=(1,)))
                    tl.routine(as_often_as_it_says, tl, box, at=(x + i * ROW, y))

        return launched(kernel, folds=folds)

    folded, full = run(True), run(False)
    assert repeats
    assert [len(rows) for rows in folded.recording.streams] == [len(rows) for rows in full.recording.streams]


def test_checkpoints_of_a_launch_that_dies_are_taken_once():
    taken = []
    host = mesh.Host(load("reference"), ranks=RANKS, shapes_only=True, install="line")
    host.checkpoints = taken.append
    x, y = (host.replicate(np.broadcast_to(np.float32(0), (512, 768))) for _ in range(2))
    numbers = host.replicate(np.array([3, 7, 9], np.int32))

    def kernel(x, y, numbers, tl):
        tl.checkpoint("numbers", tl.load(numbers, shape=(3,), dtype="i32"))
        to_the_east(tl, x, y, (9, 9, 9))
        if tl.program_id(0) == 1:
            raise ValueError("enough")

    assert host.launch(kernel, x, y, numbers).status == "failed"
    assert len(taken) == RANKS


PLAN = st.tuples(
    st.sampled_from([(), ("E",), ("W",), ("E", "W"), ("W", "E")]), st.sampled_from([(16, 16), (8, 32), (48, 16)])
)


def in_turn(x, y, plans, order, tl):
    """Every rank takes the same steps; what it sends over an edge, and what would come from there, is left out."""
    rank = tl.program_id(0)
    there = {"E": rank < RANKS - 1, "W": rank > 0}
    for i, which in enumerate(order):
        directions, shape = plans[which]
        sends = tuple(one for one in directions if there[one])
        receives = tuple(other for one, other in (("E", "W"), ("W", "E")) if one in directions and there[other])
        tl.routine(step, tl, sends, receives, shape, "f32", at=(x + (i % 64) * ROW, y + (which % 64) * ROW))
        tl.device_print("turn", i)
        if which % 3 == 1:
            tl.store(y, tl.exp(tl.load(x, shape=(16, 16))))


@settings(max_examples=sampled.examples(15, 150), deadline=None, derandomize=True)
@given(
    plans=st.lists(PLAN, min_size=1, max_size=3),
    order=st.lists(st.integers(0, 2), min_size=4, max_size=30),
    depth=st.sampled_from([1, 2, 3, 8]),
    schedule=st.sampled_from(["canonical", "reversed", 3]),
)
def test_random_routines_that_send_are_recorded_as_if_each_had_run(plans, order, depth, schedule):
    same(in_turn, plans, [which % len(plans) for which in order], depth=depth, schedule=schedule)
