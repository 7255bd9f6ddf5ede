"""Queues: in order, bounded, never losing or inventing a message, whatever the sizes, depths and schedules."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled

from kernbench import machine, mesh
from kernbench.mesh.programs.queues import Message, Queue, Receive
from kernbench.result import SourceLocation

HERE = SourceLocation(__file__, 1)


class Model:
    """A queue and the programs waiting on it, driven step by step."""

    def __init__(self, depth):
        self.queue = Queue(0, 1, "E", depth, 64, ("rank 0", "rank 1"))
        self.sent, self.received, self.woken = [], [], []

    def send(self, pieces):
        message = Message(len(self.sent), None, (pieces * 16,), "f32", pieces, HERE, self.queue)
        self.sent.append(message)
        self.queue.offer(message, self.woken.append)

    def receive(self):
        receive = Receive(f"r{len(self.received)}", (1,), "f32", HERE, self.queue)
        self.received.append(receive)
        self.queue.post(receive, self.woken.append)

    def check(self):
        queue = self.queue
        held = sum(m.arrived - m.taken for m in self.sent)
        assert 0 <= queue.free <= queue.depth
        assert queue.free + held == queue.depth
        delivered = [r.message for r in self.received if r.done]
        assert [m.sender for m in delivered] == list(range(len(delivered)))
        assert all(r.done for r in self.received[: len(delivered)])
        # work conserving: nothing waits that could move
        assert not (queue.free and queue.outbox)
        assert not (queue.posted and any(m.arrived > m.taken for m in queue.arriving))


@given(st.integers(1, 5), st.lists(st.one_of(st.integers(1, 7), st.just("r")), max_size=60))
def test_queue_invariants(depth, script):
    model = Model(depth)
    for action in script:
        model.receive() if action == "r" else model.send(action)
        model.check()
    for _ in range(len(model.sent)):
        model.receive()
        model.check()
    assert all(m.done for m in model.sent)
    assert not model.queue.unreceived


@given(st.integers(1, 4), st.integers(1, 9))
def test_wanted_depth_would_let_the_sends_through(depth, count):
    model = Model(depth)
    for _ in range(count):
        model.send(2)
    wanted = model.queue.wanted_depth
    assert wanted == max(2 * count, 0)
    roomy = Model(wanted)
    for _ in range(count):
        roomy.send(2)
    assert all(m.done for m in roomy.sent)


def relay(q_ptr, o_ptr, sizes, *, tl):
    """Rank 0 sends vectors of these sizes east; every rank passes them on; the last sums them."""
    rank, n = tl.program_id(0), tl.num_programs(0)
    total = tl.zeros((1,))
    for i, size in enumerate(sizes):
        x = tl.full((size,), float(i + 1)) if rank == 0 else tl.recv(dir="W", shape=(size,), dtype="f32")
        if rank + 1 < n:
            tl.send(dir="E", src=x)
        total = total + tl.sum(x, axis=0)
    tl.store(o_ptr, total)


@settings(max_examples=sampled.examples(20, 40))
@given(
    st.lists(st.integers(0, 200), max_size=12),
    st.integers(1, 4),
    st.integers(2, 6),
    st.one_of(st.sampled_from(["canonical", "reversed"]), st.integers(0, 1000)),
)
def test_a_pipeline_gives_the_same_under_every_depth_and_schedule(sizes, depth, ranks, schedule):
    described = machine.load("reference").override({"ipcq.depth": depth, "ipcq.slot": 64})
    host = mesh.Host(described, ranks=ranks)
    q, o = host.shard(np.zeros(ranks, np.float32)), host.empty((ranks,), "f32", axis=0)
    run = host.launch(relay, q, o, tuple(sizes), schedule=schedule)
    assert run.safe, run.findings
    assert set(host.gather(o)) == {float(sum((i + 1) * n for i, n in enumerate(sizes)))}


def test_a_message_larger_than_the_queue_flows_in_pieces():
    host = mesh.Host(machine.load("reference").override({"ipcq.depth": 2, "ipcq.slot": 64}), ranks=2)
    q, o = host.shard(np.zeros(2, np.float32)), host.empty((2,), "f32", axis=0)
    assert host.launch(relay, q, o, (1000, 1000)).safe


@pytest.mark.parametrize("depth", [1, 2, 3, 4])
def test_two_large_messages_sent_head_on_deadlock_until_the_depth_holds_them(depth):
    def head_on(o_ptr, *, tl):
        side = "E" if tl.program_id(0) == 0 else "W"
        tl.send(dir=side, src=tl.full((48,), 1.0))
        tl.store(o_ptr, tl.recv(dir=side, shape=(48,), dtype="f32"))

    host = mesh.Host(machine.load("reference").override({"ipcq.depth": depth, "ipcq.slot": 64}), ranks=2)
    run = host.launch(head_on, host.empty((96,), "f32", axis=0))
    if depth >= 3:
        assert run.safe
    else:
        assert [f.kind for f in run.findings] == ["deadlock"]
        assert "depth 3" in run.findings[0].hint
