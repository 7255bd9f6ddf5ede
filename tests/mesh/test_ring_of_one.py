"""A ring of one: the next rank is the same one, and its queue is a queue like any other."""

import numpy as np
import pytest

from kernbench import mesh
from kernbench.machine import load
from kernbench.mesh.time import retime

X = np.arange(16, dtype=np.float32).reshape(4, 4)


def passed_round(x_ptr, o_ptr, count, direction, *, tl):
    x = tl.load(x_ptr, shape=(4, 4))
    for step in range(count):
        tl.send(dir=direction, src=x + step)
    back = {"E": "W", "W": "E"}[direction]
    for _ in range(count):
        x = tl.recv(dir=back, shape=(4, 4), dtype=x.dtype)
    tl.store(o_ptr, x)


def in_the_background(x_ptr, o_ptr, count, direction, *, tl):
    x = tl.load(x_ptr, shape=(4, 4))
    coming = tl.recv_async(dir="W", shape=(4, 4), dtype=x.dtype)
    going = tl.send_async(dir="E", src=x)
    y = tl.wait(coming)
    tl.wait(going)
    tl.store(o_ptr, y)


def over_cubes(x_ptr, o_ptr, count, direction, *, tl):
    # only PE 0 of a cube has neighbours
    if tl.program_id(0) == 0:
        passed_round(x_ptr, o_ptr, count, direction, tl=tl)


def received_first(x_ptr, o_ptr, count, direction, *, tl):
    x = tl.recv(dir="W", shape=(4, 4), dtype="f32")
    tl.send(dir="E", src=x)
    tl.store(o_ptr, x)


def launched(kernel, count=1, direction="E", install="ring", rank_axis=0, schedule="canonical"):
    host = mesh.Host(load("reference").override({"ipcq.depth": 3}), ranks=1, install=install, rank_axis=rank_axis)
    run = host.launch(kernel, host.shard(X), host.empty((4, 4), "f32", axis=0), count, direction, schedule=schedule)
    return run, host


@pytest.mark.parametrize("schedule", ["canonical", "reversed", 1])
@pytest.mark.parametrize("direction", ["E", "W"])
@pytest.mark.parametrize("count", [1, 3])
def test_messages_to_oneself_arrive_in_order(count, direction, schedule):
    run, host = launched(passed_round, count, direction, schedule=schedule)
    assert run.ok, run.findings
    np.testing.assert_array_equal(run.outputs["o"], X + count - 1)
    assert retime(run, host.machine).metrics["time_ps"] > 0


def test_cubes_and_asynchronous_messages():
    for kernel, axis in ((over_cubes, 1), (in_the_background, 0)):
        run, host = launched(kernel, rank_axis=axis)
        assert run.ok, run.findings
        np.testing.assert_array_equal(run.outputs["o"], X)
        assert retime(run, host.machine).metrics["time_ps"] > 0


def test_a_full_queue_is_a_deadlock_with_oneself():
    (finding,) = launched(passed_round, 4)[0].findings
    assert finding.kind == "deadlock"
    assert "wait-for cycle: rank 0 -> rank 0" in finding.message
    assert "depth 4 or more (now 3" in finding.hint


def test_receiving_before_sending_is_a_deadlock():
    (finding,) = launched(received_first)[0].findings
    assert finding.kind == "deadlock"


def test_a_line_of_one_has_no_neighbour():
    run, _ = launched(passed_round, install="line")
    assert {finding.kind for finding in run.findings} == {"no-neighbour"}
