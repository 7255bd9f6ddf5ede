"""Messages: no neighbour, another shape or type, never received, never waited for, changed on the way."""

import numpy as np
import pytest
from tests.mesh.planted import D, S, at, launch, line_of, only

from kernbench.common.pe_commands import TensorHandle
from kernbench.result import Status


def sends_into_nothing(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S, D))
    tl.send(dir="N", src=x)
    tl.store(o_ptr, x)


def receives_from_nothing(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S, D))
    if tl.program_id(0) == 0:
        x = tl.recv(dir="W", shape=(S, D), dtype="f32")
    tl.store(o_ptr, x)


def test_send_without_a_neighbour():
    finding = only(launch(sends_into_nothing, 3), "no-neighbour")
    at(finding, sends_into_nothing, "tl.send")
    assert finding.ranks == (0, 1, 2)
    assert finding.count == 3
    assert "send N: rank 0 has no neighbour there; installed directions: E" in finding.message
    assert "install another wiring" in finding.hint


def test_receive_without_a_neighbour_gives_poison_and_goes_on():
    run = launch(receives_from_nothing)
    finding = only(run, "no-neighbour")
    at(finding, receives_from_nothing, "tl.recv")
    assert run.status is Status.FINISHED
    assert np.isnan(run.outputs["o"][:S]).all()
    assert not np.isnan(run.outputs["o"][S:]).any()


def receives_other_shape(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S, D))
    if tl.program_id(0) == 0:
        tl.send(dir="E", src=x)
    else:
        x = tl.recv(dir="W", shape=(D, S), dtype="f32")
    tl.store(o_ptr, tl.reshape(x, (S, D)))


def receives_other_type(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S, D))
    if tl.program_id(0) == 0:
        tl.send(dir="E", src=x.to("f16"))
    else:
        x = tl.recv(dir="W", shape=(S, D), dtype="bf16")
    tl.store(o_ptr, x)


@pytest.mark.parametrize(
    ("kernel", "wanted", "sent"),
    [(receives_other_shape, "8x4 f32", "4x8 f32"), (receives_other_type, "4x8 bf16", "4x8 f16")],
)
def test_message_mismatch_shows_both_sides(kernel, wanted, sent):
    finding = only(launch(kernel), "message-mismatch")
    at(finding, kernel, "tl.recv")
    assert f"expects {wanted}, but the message from rank 0 is {sent}" in finding.message
    (other,) = finding.others
    assert other.where.line == line_of(kernel, "tl.send")


def sends_too_often(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S, D))
    if tl.program_id(0) == 0:
        tl.send(dir="E", src=x)
        tl.send(dir="E", src=x)  # once too often
    else:
        x = tl.recv(dir="W", shape=(S, D), dtype="f32")
    tl.store(o_ptr, x)


def test_message_never_received():
    finding = only(launch(sends_too_often), "message-unreceived")
    at(finding, sends_too_often, "once too often")
    assert "sent E by rank 0, was never received by rank 1" in finding.message


def forgets_to_wait(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S, D))
    if tl.program_id(0) == 0:
        tl.send_async(dir="E", src=x)
    else:
        x = tl.recv(dir="W", shape=(S, D), dtype="f32")
    tl.store(o_ptr, x)


def overwrites_in_flight(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S, D))
    if tl.program_id(0) == 0:
        pending = tl.send_async(dir="E", src=x)
        x = tl.mul(x, 2.0, out=x)
        pending.wait()
    else:
        x = tl.recv(dir="W", shape=(S, D), dtype="f32")
    tl.store(o_ptr, x)


def waits_then_overwrites(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S, D))
    if tl.program_id(0) == 0:
        pending = tl.send_async(dir="E", src=x)
        pending.wait()
        x = tl.mul(x, 2.0, out=x)
    else:
        arriving = tl.recv_async(dir="W", shape=(S, D), dtype="f32")
        x = tl.wait(arriving)
    tl.store(o_ptr, x)


def uses_before_wait(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S, D))
    if tl.program_id(0) == 0:
        tl.send(dir="E", src=x)
    else:
        arriving = tl.recv_async(dir="W", shape=(S, D), dtype="f32")
        x = x + arriving
    tl.store(o_ptr, x)


def test_missing_wait():
    finding = only(launch(forgets_to_wait), "missing-wait")
    at(finding, forgets_to_wait, "tl.send_async")


def test_overwriting_the_source_of_a_send_in_flight_is_a_race():
    finding = only(launch(overwrites_in_flight), "race")
    at(finding, overwrites_in_flight, "tl.mul")
    assert finding.others[0].where.line == line_of(overwrites_in_flight, "tl.send_async")


@pytest.mark.parametrize("schedule", ["canonical", "reversed", 3, 4])
def test_waiting_first_is_clean_and_carries_the_old_value(schedule):
    run = launch(waits_then_overwrites, schedule=schedule)
    assert run.safe, run.findings
    x = np.arange(S * D, dtype=np.float32).reshape(S, D)
    np.testing.assert_array_equal(run.outputs["o"], np.concatenate([2 * x, x]))


def writes_into_a_receive(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S, D))
    if tl.program_id(0) == 0:
        tl.send(dir="E", src=x)
    else:
        arriving = tl.recv_async(dir="W", shape=(S, D), dtype="f32")
        early = TensorHandle(addr=arriving.handle.addr, shape=(S, D), dtype="f32")
        x = tl.exp(x, out=early)
        arriving.wait()
    tl.store(o_ptr, x)


def test_writing_where_a_receive_will_land_is_a_race():
    finding = launch(writes_into_a_receive).findings[0]
    assert finding.kind == "race"
    at(finding, writes_into_a_receive, "tl.exp")


def test_a_receive_cannot_be_used_before_its_wait():
    run = launch(uses_before_wait)
    finding = only(run, "misuse")
    at(finding, uses_before_wait, "x + arriving")
    assert "wait for an asynchronous receive" in finding.hint
    assert run.status is Status.FAILED


def async_both_ways(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S, D))
    side = "E" if tl.program_id(0) == 0 else "W"
    arriving = [tl.recv_async(dir=side, shape=(S, D), dtype="f32") for _ in range(4)]
    leaving = [tl.send_async(dir=side, src=x + float(i)) for i in range(4)]
    received = tl.wait(*arriving)
    tl.wait(*leaving)
    tl.store(o_ptr, received[0] + received[1] + received[2] + received[3])


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_async_needs_no_depth(depth):
    run = launch(async_both_ways, overrides={"ipcq.depth": depth})
    assert run.safe, run.findings
    x = np.arange(2 * S * D, dtype=np.float32).reshape(2, S, D)[::-1]
    np.testing.assert_array_equal(run.outputs["o"], (4 * x + 6).reshape(-1, D))
