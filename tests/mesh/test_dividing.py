"""Launches with data in several processes: the same outcome to the last bit as in one, whatever programs do."""

import json
import mmap
import os
import signal
import threading
import time
from functools import partial

import numpy as np
import pytest
from benchmarks.mesh_jobs import everything

from kernbench import mesh
from kernbench.mesh.dividing import division, own_programs
from kernbench.mesh.dividing.exchange import Exchange
from kernbench.safety.budget import Budget

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
RANKS, ROWS = 4, 8
LOG: list[int] = []


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Every launch is divided before its first turn."""
    monkeypatch.setattr(division, "AFTER", -1.0)
    monkeypatch.setenv("KERNBENCH_START_METHOD", "fork")


def launched(kernel, jobs, monkeypatch, install="line", **options):
    """The run of a kernel on one input and one output, and how it was divided."""
    monkeypatch.setenv("KERNBENCH_JOBS", str(jobs))
    host = mesh.Host("small", ranks=RANKS, install=install)
    x = host.shard(np.arange(RANKS * ROWS * 4, dtype=np.float32).reshape(RANKS * ROWS, 4))
    run = host.launch(kernel, x, host.empty((RANKS * ROWS, 4), "f32", axis=0), **options)
    return run, host.division


def alike(kernel, monkeypatch, **options):
    """The run in one process, and how it was divided over two and sixteen, where it must be the same."""
    first, _ = launched(kernel, 1, monkeypatch, **options)
    divisions = []
    for jobs in (2, 16):
        run, how = launched(kernel, jobs, monkeypatch, **options)
        assert everything(run) == everything(first)
        assert run.views == first.views
        divisions.append(how)
    return first, divisions


def summed(x, y, *, tl):
    """Each rank sends what it has east, and adds what comes from the west; they meet lines and types unalike."""
    rank = tl.program_id(0)
    value = tl.load(x, shape=(ROWS, 4))
    if rank % 2:
        value = tl.exp(value * 0.01)
    if rank == 2:
        value = tl.trans(tl.trans(value)) + tl.sum(value, axis=1)
    if rank:
        value = value + tl.recv(dir="W", shape=(ROWS, 4), dtype="f32")
    if rank < RANKS - 1:
        tl.send(dir="E", src=value)
    tl.store(y, value)


@pytest.mark.parametrize("schedule", ["canonical", "reversed"])
def test_ranks_that_talk_are_divided(monkeypatch, schedule):
    run, divisions = alike(summed, monkeypatch, schedule=schedule)
    assert run.safe
    assert [how.parts for how in divisions] == [2, RANKS]


def test_a_random_order_is_not_divided(monkeypatch):
    _, divisions = alike(summed, monkeypatch, schedule=7)
    assert [how.why for how in divisions] == ["its order is a random one"] * 2


def asynchronous(x, y, *, tl):
    """A ring of requests that are under way while others are made."""
    value = tl.load(x, shape=(ROWS, 4))
    for _ in range(6):
        coming = tl.recv_async(dir="W", shape=(ROWS, 4), dtype="f32")
        going = tl.send_async(dir="E", src=value)
        more = tl.send_async(dir="E", src=value * 2)
        again = tl.recv_async(dir="W", shape=(ROWS, 4), dtype="f32")
        value = value + coming.wait() + again.wait()
        tl.wait(going, more)
    tl.store(y, value)


@pytest.mark.parametrize("after", range(5))
def test_requests_under_way_go_on(monkeypatch, after):
    """Divided after some turns, with messages in queues and programs in the midst of a wait."""
    turns = []
    monkeypatch.setattr(
        division.Division, "is_due", lambda self: self._is_due and (turns.append(0) or len(turns) > after)
    )
    launch = lambda jobs: turns.clear() or launched(asynchronous, jobs, monkeypatch, install="cycle")  # noqa: E731
    first, _ = launch(1)
    for jobs in (2, 4):
        run, how = launch(jobs)
        assert everything(run) == everything(first)
        assert how.parts == jobs
    assert first.safe


def growing(x, y, *, tl):
    """A ring of messages that wait for each other; each rank meets other types, views and patterns after each."""
    rank = tl.program_id(0)
    value = tl.load(x, shape=(ROWS, 4))
    for step in range(4):
        tl.send(dir="E", src=value)
        value = tl.recv(dir="W", shape=(ROWS, 4), dtype="f32")
        size = 1 + (3 * rank + step) % 7
        part = tl.trans(tl.load(x + 4 * step, shape=(size, 2), strides=(4, 1)))
        value = value + tl.sum(part * float(step)) + tl.sum(value[:size] + 1.0)
        if step == rank:
            value = value - 1.0
    tl.store(y, value)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("schedule", ["canonical", "reversed"])
@pytest.mark.parametrize("after", range(7))
def test_numbers_are_those_of_one_process(monkeypatch, after, schedule):
    """What a program meets has the number that it has in the order of turns of one process."""
    turns = []
    monkeypatch.setattr(
        division.Division, "is_due", lambda self: self._is_due and (turns.append(0) or len(turns) > after)
    )
    first, _ = launched(growing, 1, monkeypatch, install="cycle", schedule=schedule)
    for jobs in (2, 4):
        turns.clear()
        run, how = launched(growing, jobs, monkeypatch, install="cycle", schedule=schedule)
        assert everything(run) == everything(first)
        assert how.parts > 1, how.why


def alone(x, y, *, tl):
    """Programs that never give way."""
    value = tl.load(x, shape=(ROWS, 4))
    for number in range(400):
        value = value + number
    tl.store(y, value)


def test_a_program_is_divided_between_two_commands(monkeypatch):
    asked = []

    def is_due(self):
        asked.append(0)
        return self._is_due and len(asked) > 2

    monkeypatch.setattr(division.Division, "is_due", is_due)
    monkeypatch.setenv("KERNBENCH_JOBS", "1")
    first, _ = launched(alone, 1, monkeypatch)
    asked.clear()
    run, how = launched(alone, 4, monkeypatch)
    assert everything(run) == everything(first)
    assert how.parts == 4


def past_the_end(x, y, *, tl):
    tl.store(y, tl.load(x + 64 * tl.program_id(0), shape=(ROWS, 4)))


def printing(x, y, *, tl):
    tl.device_print("rank", tl.program_id(0))
    tl.store(y, tl.load(x, shape=(ROWS, 4)))


def remembering(x, y, *, tl):
    LOG.append(tl.program_id(0))
    tl.store(y, tl.load(x, shape=(ROWS, 4)) + len(LOG))


def counting_in_a_library(x, y, *, tl):
    json.kernbench_calls += 1
    tl.store(y, tl.load(x, shape=(ROWS, 4)) + json.kernbench_calls)


def failing(x, y, *, tl):
    if tl.program_id(0) == 3:
        raise ValueError("planted")
    tl.store(y, tl.load(x, shape=(ROWS, 4)))


def unreceived(x, y, *, tl):
    value = tl.load(x, shape=(ROWS, 4))
    if tl.program_id(0) == 0:
        tl.send(dir="E", src=value)
    tl.store(y, value)


def circular(x, y, *, tl):
    value = tl.recv(dir="W", shape=(ROWS, 4), dtype="f32")
    tl.send(dir="E", src=value)
    tl.store(y, value)


def crowding(x, y, *, tl):
    """Every rank sends more than a queue holds before it receives: endless queues would let them all through."""
    value = tl.load(x, shape=(ROWS, 4))
    for _ in range(40):
        tl.send(dir="E", src=value)
    for _ in range(40):
        value = value + tl.recv(dir="W", shape=(ROWS, 4), dtype="f32")
    tl.store(y, value)


@pytest.mark.parametrize(
    ("kernel", "kinds"),
    [
        (past_the_end, {"out-of-bounds"}),
        (failing, {"kernel-error"}),
        (unreceived, {"message-unreceived"}),
        (circular, {"deadlock"}),
        (crowding, {"deadlock"}),
        (printing, set()),
    ],
)
def test_what_one_process_must_settle_is_settled_there(monkeypatch, kernel, kinds):
    """Planted bugs: the outcome in copies does not count, and findings are those of one process, word for word."""
    run, divisions = alike(kernel, monkeypatch, install="cycle")
    assert {finding.kind for finding in run.findings} >= kinds
    assert [how.parts for how in divisions] == [1, 1]
    assert all(how.why for how in divisions)


def endless(x, y, is_busy, *, tl):
    """One rank sends for ever, and the next one waits for its other neighbour."""
    value, rank = tl.load(x, shape=(ROWS, 4)), tl.program_id(0)
    while rank == 1:
        tl.send(dir="E", src=value)
    while rank == 2 and is_busy():
        time.sleep(0.01)
    if rank == 2:
        value = tl.recv(dir="E", shape=(ROWS, 4), dtype="f32")
    tl.store(y, value)


@pytest.mark.parametrize("is_taken", [True, False])
def test_a_sender_that_nobody_receives_from_does_not_go_on_for_ever(monkeypatch, is_taken):
    """Queues between processes have no depth: it would go on until its steps or the memory are used up. What it sends
    may be taken by the receiver's process, or lie with the sender as that is busy.
    """
    monkeypatch.setattr(own_programs, "MOST_AHEAD", 1 << 20)
    sent, own = mmap.mmap(-1, 8), os.getpid()
    send = Exchange.send

    def counted(self, *message):
        sent[:] = (int.from_bytes(sent, "little") + 1).to_bytes(8, "little")
        send(self, *message)

    monkeypatch.setattr(Exchange, "send", counted)
    kernel = partial(endless, is_busy=lambda: not is_taken and os.getpid() != own)
    run, divisions = alike(kernel, monkeypatch, budget=Budget(steps=300_000))
    assert [finding.kind for finding in run.findings] == ["deadlock"]
    assert [how.parts for how in divisions] == [1, 1]
    assert 0 < int.from_bytes(sent, "little") < 200_000


def test_changes_outside_are_made_once(monkeypatch):
    outcomes = []
    for jobs in (1, 2, 16):
        LOG.clear()
        outcomes.append(everything(launched(remembering, jobs, monkeypatch)[0]))
        assert LOG == [0, 1, 2, 3]
    assert outcomes[1:] == outcomes[:1] * 2


def test_changes_of_a_librarys_attributes_are_made_once(monkeypatch):
    outcomes = []
    for jobs in (1, 2, 16):
        monkeypatch.setattr(json, "kernbench_calls", 0, raising=False)
        outcomes.append(everything(launched(counting_in_a_library, jobs, monkeypatch)[0]))
        assert json.kernbench_calls == 4
    assert outcomes[1:] == outcomes[:1] * 2


def test_changes_of_a_tensor_are_made_once(monkeypatch):
    torch = pytest.importorskip("torch")
    outcomes = []
    for jobs in (1, 2, 16):
        held = torch.zeros(3, dtype=torch.bfloat16)

        def keeping(x, y, *, tl, held=held):
            held[1] += 1
            tl.store(y, tl.load(x, shape=(ROWS, 4)) + float(held[1]))

        outcomes.append(everything(launched(keeping, jobs, monkeypatch)[0]))
        assert held.tolist() == [0, 4, 0]
    assert outcomes[1:] == outcomes[:1] * 2


def test_a_copy_that_dies_is_no_error(monkeypatch):
    own = os.getpid()

    def dying(x, y, *, tl):
        if os.getpid() != own and tl.program_id(0) == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        tl.store(y, tl.load(x, shape=(ROWS, 4)))

    run, divisions = alike(dying, monkeypatch)
    assert run.safe
    assert [how.parts for how in divisions] == [1, 1]


def with_an_end(x, y, *, tl):
    """What is left of a program here must not store once more."""
    value = tl.load(x, shape=(ROWS, 4))
    try:
        for _ in range(3):
            tl.send(dir="E", src=value)
            value = value + tl.recv(dir="W", shape=(ROWS, 4), dtype="f32")
        tl.store(y, value)
    except BaseException:
        tl.store(y, value * 0)
        raise


def test_what_is_left_of_programs_reaches_nothing(monkeypatch):
    turns = []
    monkeypatch.setattr(division.Division, "is_due", lambda self: self._is_due and (turns.append(0) or len(turns) > 4))
    first, _ = launched(with_an_end, 1, monkeypatch, install="cycle")
    run, how = launched(with_an_end, 4, monkeypatch, install="cycle")
    assert how.parts > 1
    assert everything(run) == everything(first)


def test_short_launches_and_those_without_data_stay_in_one_process(monkeypatch):
    monkeypatch.setattr(division, "AFTER", 60.0)
    assert launched(summed, 4, monkeypatch)[1].why == "it took less time"
    monkeypatch.setattr(division, "AFTER", -1.0)
    assert launched(summed, 4, monkeypatch, shapes_only=True)[1].why == "it may use one process"


def test_seconds_of_all_processes_count(monkeypatch):
    budget = Budget(total_seconds=1e-6)
    run, how = launched(summed, 4, monkeypatch, budget=budget)
    assert how.why == "it goes beyond its budget"
    assert everything(run) == everything(launched(summed, 1, monkeypatch, budget=budget)[0])


@pytest.mark.parametrize("room", [1 << 26, 5000, 0])
def test_a_message_larger_than_a_socket_holds_arrives(room, monkeypatch):
    monkeypatch.setattr("kernbench.mesh.dividing.exchange.SHARED", room)
    exchange = Exchange(2, {(0, 1)})
    found = []
    ends = [Exchange(2, set()), Exchange(2, set())]
    (one, other) = exchange._pairs[0, 1]
    for me, end in enumerate(ends):
        end._pairs = {(0, 1): (one.dup(), other.dup())}
        end._memory = exchange._memory
        end.begin(me)
    exchange.close()
    sent = [np.arange(1 << 20, dtype=np.float32).reshape(1024, 1024), np.zeros((0, 3), np.int32), np.array(True)]
    reader = threading.Thread(
        target=lambda: [
            ends[1].wait(lambda *what: found.append(what), lambda: None) for _ in iter(lambda: len(found) < 3, False)
        ]
    )
    reader.start()
    for number, (data, dtype) in enumerate(zip(sent, ("f32", "i32", "i1"), strict=True)):
        ends[0].send(1, number, data, dtype)
    ends[0].finish(lambda: None)
    reader.join()
    assert ends[1]._taken.tolist() == ends[0]._sent.tolist() == [[0, 3], [0, 0]]
    for end in ends:
        end.close()
    assert [(number, dtype) for number, _, dtype in found] == [(0, "f32"), (1, "i32"), (2, "i1")]
    for data, (_, got, _) in zip(sent, found, strict=True):
        assert got.shape == data.shape
        assert got.tobytes() == data.tobytes()


def passing(x, y, *, tl):
    """Each rank sends large tiles east before it receives any, more than a socket holds, and small ones between."""
    rank, n = tl.program_id(0), tl.num_programs(0)
    tile = tl.broadcast_to(tl.load(x, shape=(1, 4)).reshape(4, 1), (4, 4096)) * 1.5
    total = tl.zeros((4, 4096))
    for step in range(6):
        if rank < n - 1:
            tl.send(dir="E", src=tile + step)
            tl.send(dir="E", src=(tile + step)[:, :8].to("f16"))
        if rank:
            total = total + tl.recv(dir="W", shape=(4, 4096), dtype="f32")
            total = total + tl.sum(tl.recv(dir="W", shape=(4, 8), dtype="f16").to("f32"), axis=1)
            tile = total
    for row in (0, 4):
        tl.store(y + row * 16, total[:, :4])


@pytest.mark.parametrize("room", [1 << 26, 200_000, 0])
def test_values_come_through_shared_memory_as_far_as_there_is_any(room, monkeypatch):
    monkeypatch.setattr("kernbench.mesh.dividing.exchange.SHARED", room)
    run, divisions = alike(passing, monkeypatch)
    assert run.ok
    assert [how.parts > 1 for how in divisions] == [True, True]


def test_processes_are_stuck_only_if_nothing_is_under_way():
    exchange = Exchange(2, set())
    exchange._idle[:] = 1
    exchange._sent[0, 1] = 1
    assert [exchange.is_stuck(), exchange.is_stuck()] == [False, False]
    exchange._taken[0, 1] = 1
    assert [exchange.is_stuck(), exchange.is_stuck()] == [False, True]
    # all have ended: what is left is their answers
    exchange._idle[:] = 2
    assert [exchange.is_stuck(), exchange.is_stuck()] == [False, False]
    exchange.close()
