"""Deadlocks: who waits where for whom, the cycle, and what would let it go on."""

import numpy as np
import pytest
from tests.mesh.planted import D, S, at, launch, only
from tests.work import work

from kernbench import mesh
from kernbench.result import Status


def both_receive_first(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S, D))
    side = "E" if tl.program_id(0) == 0 else "W"
    y = tl.recv(dir=side, shape=(S, D), dtype="f32")
    tl.send(dir=side, src=x)
    tl.store(o_ptr, y)


def test_deadlock_names_waiters_and_cycle():
    run = launch(both_receive_first)
    assert run.status is Status.DEADLOCKED
    assert run.safe is False
    finding = only(run, "deadlock")
    at(finding, both_receive_first, "tl.recv")
    assert finding.ranks == (0, 1)
    assert "rank 0: receive from E waits for a message" in finding.message
    assert "wait-for cycle: rank 0 -> rank 1 -> rank 0" in finding.message
    assert "rank 0 could go on if rank 1 sent W" in finding.message
    assert "matching send" in finding.hint


def test_a_deadlock_needs_no_data():
    assert only(launch(both_receive_first, shapes_only=True), "deadlock")


def send_two_then_receive(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S, D))
    side = "E" if tl.program_id(0) == 0 else "W"
    for _ in range(2):
        tl.send(dir=side, src=x)
    for _ in range(2):
        y = tl.recv(dir=side, shape=(S, D), dtype="f32")
    tl.store(o_ptr, y)


@pytest.mark.parametrize("schedule", ["canonical", "reversed", 7])
def test_depth_one_deadlocks_and_says_which_depth_would_do(schedule):
    run = launch(send_two_then_receive, overrides={"ipcq.depth": 1}, schedule=schedule)
    finding = only(run, "deadlock")
    at(finding, send_two_then_receive, "tl.send")
    assert "depth 2 or more (now 1" in finding.hint
    assert launch(send_two_then_receive, overrides={"ipcq.depth": 2}, schedule=schedule).safe


def waits_for_nobody(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S, D))
    if tl.program_id(0) > 0:
        x = tl.recv(dir="W", shape=(S, D), dtype="f32")
    tl.store(o_ptr, x)


def test_deadlock_on_a_rank_that_returned():
    finding = only(launch(waits_for_nobody, 5), "deadlock")
    assert "ranks 1-4: receive from W waits for a message" in finding.message
    assert "rank 1 could go on if rank 0 sent E, but rank 0 has returned" in finding.message


def test_a_large_deadlock_is_found_with_work_that_grows_with_the_ranks():
    def waiting(ranks):
        host = mesh.Host("large", ranks=ranks)
        q, o = host.shard(np.zeros((ranks * S, D), np.float32)), host.empty((ranks * S, D), "f32", axis=0)
        runs = []
        count = work(lambda: runs.append(host.launch(waits_for_nobody, q, o)))
        assert f"ranks 1-{ranks - 1}: receive from W" in only(runs[0], "deadlock").message
        return count

    assert waiting(64) < 6 * waiting(16)


def test_a_finally_of_a_blocked_kernel_hides_no_deadlock():
    def cleans_up(q_ptr, o_ptr, *, tl):
        side = "E" if tl.program_id(0) == 0 else "W"
        try:
            x = tl.recv(dir=side, shape=(S, D), dtype="f32")
        finally:
            tl.send(dir=side, src=tl.load(q_ptr, shape=(S, D + 1)))
        tl.store(o_ptr, x)

    run = launch(cleans_up)
    assert run.status is Status.DEADLOCKED
    finding = only(run, "deadlock")
    at(finding, cleans_up, "tl.recv")
    assert "wait-for cycle: rank 0 -> rank 1 -> rank 0" in finding.message
    assert "matching send" in finding.hint


def test_a_deadlock_is_told_at_the_wait_that_the_others_hang_on():
    def one_message_short(q_ptr, o_ptr, *, tl):
        x = tl.load(q_ptr, shape=(S, D))
        if tl.program_id(0) + 1 < tl.num_programs(0):
            first = tl.recv(dir="E", shape=(S, D), dtype="f32")
            x = x + first + tl.recv(dir="E", shape=(S, 1), dtype="f32")
        if tl.program_id(0):
            tl.send(dir="W", src=x)
        tl.store(o_ptr, x)

    finding = only(launch(one_message_short, 4), "deadlock")
    at(finding, one_message_short, "shape=(S, 1)")
    assert finding.ranks == (0, 1, 2)
    assert [o.role for o in finding.others] == ["ranks 0-1 receive from E waits for a message"]
