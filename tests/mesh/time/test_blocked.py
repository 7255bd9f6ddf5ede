"""Recordings timed with other queues than they were made with: a time, or the deadlock that a launch there finds."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled
from tests.mesh.planted import line_of

from kernbench import machine, mesh
from kernbench.common.errors import MachineError
from kernbench.mesh.time import clock, retime, summary, time_recording

REFERENCE = machine.load("reference")
SHAPE = (64, 64)
DEEP = 64


def described(depth, slot=None):
    return REFERENCE.override({"ipcq.depth": depth} | ({} if slot is None else {"ipcq.slot": slot}))


def launched(kernel, on, *arguments, ranks=3, **options):
    host = mesh.Host(on, ranks=ranks, shapes_only=True, **{"install": "ring", **options})
    x = host.empty((ranks * SHAPE[0], SHAPE[1]), "f32", axis=0)
    return host.launch(kernel, x, *arguments)


def two_ahead(x_ptr, *, tl):
    x = tl.load(x_ptr, SHAPE, "f32")
    for _ in range(2):
        tl.send("E", x)
    for _ in range(2):
        tl.recv("W", SHAPE, "f32")


WAYS_IN = {
    "retime": lambda recorded, made, on: retime(recorded, on),
    "a sweep's point": lambda recorded, made, on: retime(recorded, on, drawn=False),
    "time_recording": lambda recorded, made, on: time_recording(recorded.recording, on),
    "again": lambda recorded, made, on: time_recording(recorded.recording, made).again(on),
}


@pytest.mark.parametrize("shared", [True, False], ids=["events", "longest path"])
@pytest.mark.parametrize("way", WAYS_IN)
def test_queues_that_are_too_shallow_are_an_error_with_the_line_that_waits(way, shared, monkeypatch):
    monkeypatch.setattr(clock, "shares_servers", lambda lowered: shared)
    deep = described(DEEP)
    recorded = launched(two_ahead, deep)
    with pytest.raises(MachineError) as error:
        WAYS_IN[way](recorded, deep, described(1))
    said = str(error.value)
    assert "queues of depth 1" in said
    assert f"test_blocked.py:{line_of(two_ahead, 'tl.send')}" in said
    assert "wait-for cycle: rank 0 -> rank 1 -> rank 2 -> rank 0" in said
    assert "next: launch the kernel on this machine" in said


def test_smaller_slots_are_shallower_queues():
    recorded = launched(two_ahead, described(2))
    assert "time_ps" in retime(recorded, described(2)).metrics
    with pytest.raises(MachineError, match=r"queues of depth 2 with slots of 4,096 bytes"):
        retime(recorded, described(2, 4096))


def test_timing_again_with_other_queues_is_a_timing_of_its_own():
    recorded = launched(two_ahead, described(2)).recording
    timing = time_recording(recorded, described(2))
    for on in (described(3), described(16, 2048), described(2)):
        timing = timing.again(on)
        assert summary(timing) == summary(time_recording(recorded, on))


# Programs of all kinds: a launch with these queues is what counts


def taken(sender, toward, ranks):
    """Who takes what is sent, and from which side."""
    return ((sender + 1) % ranks, "W") if toward == "E" else ((sender - 1) % ranks, "E")


def steps_of_messages(draw, ranks):
    """Steps of each rank that end in deep enough queues: a message is taken after it was sent."""
    steps, under_way = [[] for _ in range(ranks)], []

    def take(which):
        taker, side = taken(*under_way.pop(which), ranks)
        steps[taker].append(("recv", side))

    for _ in range(draw(st.integers(4, 16))):
        # many are under way at once, so that shallow queues are full
        if under_way and draw(st.integers(0, 3)) == 0:
            take(draw(st.integers(0, len(under_way) - 1)))
        else:
            sender, toward = draw(st.integers(0, ranks - 1)), draw(st.sampled_from("EW"))
            steps[sender].append((draw(st.sampled_from(["send", "send_async"])), toward))
            under_way.append((sender, toward))
    while under_way:
        take(0)
    return steps


@st.composite
def programs(draw):
    """Steps of each rank; and after how many steps sends are waited for."""
    return steps_of_messages(draw, 2), draw(st.integers(0, 4))


def play(x_ptr, steps, patience, *, tl):
    x = tl.load(x_ptr, SHAPE, "f32")
    pending = []
    for number, (verb, side) in enumerate(steps[tl.program_id(0)]):
        if verb == "recv":
            tl.recv(side, SHAPE, "f32")
        elif verb == "send":
            tl.send(side, x)
        else:
            pending.append((number, tl.send_async(side, x + float(number))))
        while pending and number - pending[0][0] >= patience:
            pending.pop(0)[1].wait()
    tl.wait(*[request for _, request in pending])


def same_as_a_launch(recorded, again, on):
    """There is a time exactly where a launch ends; else the error says what the launch's deadlock says."""
    fresh = again(on)
    if fresh.safe:
        assert summary(time_recording(recorded.recording, on)) == summary(time_recording(fresh.recording, on))
        return "ends"
    (finding,) = fresh.findings
    assert finding.kind == "deadlock"
    with pytest.raises(MachineError, match=re.escape(finding.message)):
        time_recording(recorded.recording, on)
    return "waits for ever"


@settings(max_examples=sampled.examples(15, 50))
@given(programs())
def test_what_a_launch_with_these_queues_finds_is_what_is_said(drawn):
    steps, patience = drawn
    recorded = launched(play, described(DEEP), steps, patience, ranks=2)
    assert recorded.safe, recorded.findings
    for depth, slot in ((1, None), (2, None), (3, 8192)):
        same_as_a_launch(recorded, lambda on: launched(play, on, steps, patience, ranks=2), described(depth, slot))


def exchange(x_ptr, *, tl):
    """The first two PEs of each cube send each other two tiles before they take any; the others do nothing."""
    me = tl.program_id(0)
    if me > 1:
        return
    x = tl.load(x_ptr, SHAPE, "f32")
    side = "S" if me == 0 else "N"
    for _ in range(2):
        tl.send(side, x)
    tl.wait(tl.recv_async(side, SHAPE, "f32"), tl.recv_async(side, SHAPE, "f32"))


def test_programs_inside_ranks_go_by_their_own_names():
    def launch(on):
        return launched(exchange, on, ranks=2, rank_axis=1, install="line", inside="line")

    recorded = launch(described(DEEP))
    assert recorded.safe, recorded.findings
    assert same_as_a_launch(recorded, launch, described(2)) == "ends"
    assert same_as_a_launch(recorded, launch, described(1)) == "waits for ever"
