"""Every finding of the mesh: a planted bug makes it speak at the kernel's own line, a clean kernel leaves it silent."""

import inspect
import time
from contextlib import suppress

import numpy as np
import pytest

from kernbench import machine, mesh
from kernbench.common.pe_commands import TensorHandle
from kernbench.result import Status
from kernbench.safety.budget import Budget

S, D = 4, 8


def launch(kernel, ranks=2, *, rank_axis=0, install="line", overrides=None, out_axis=0, shapes_only=False, **options):
    """Run `kernel(q_ptr, o_ptr, tl=)` over a sharded input and an output of the same shape."""
    described = machine.load("reference").override(overrides or {})
    host = mesh.Host(described, ranks=ranks, rank_axis=rank_axis, install=install, shapes_only=shapes_only)
    q = host.shard(np.arange(ranks * S * D, dtype=np.float32).reshape(ranks * S, D))
    o = host.empty((ranks * S, D) if out_axis == 0 else (S, D), "f32", axis=out_axis)
    return host.launch(kernel, q, o, **options)


def only(run, kind):
    """The one finding of the run, which must be of this kind."""
    assert [f.kind for f in run.findings] == [kind], "\n".join(map(str, run.findings))
    return run.findings[0]


def line_of(kernel, text):
    """The line number of the one line of `kernel` that contains `text`."""
    lines, first = inspect.getsourcelines(kernel)
    (offset,) = [i for i, line in enumerate(lines) if text in line]
    return first + offset


def at(finding, kernel, text):
    assert finding.where.file == __file__
    assert finding.where.line == line_of(kernel, text)


def clean(q_ptr, o_ptr, *, tl):
    rank, n = tl.program_id(0), tl.num_programs(0)
    x = tl.load(q_ptr, shape=(S, D))
    total = x + 0.0
    if rank + 1 < n:
        tl.send(dir="E", src=x)
    if rank > 0:
        tl.send(dir="W", src=x)
        total = total + tl.recv(dir="W", shape=(S, D), dtype="f32")
    if rank + 1 < n:
        total = total + tl.recv(dir="E", shape=(S, D), dtype="f32")
    tl.store(o_ptr, total)


@pytest.mark.parametrize("ranks", [1, 2, 5, 8])
@pytest.mark.parametrize("schedule", ["canonical", "reversed", 0, 1])
def test_clean_kernel_is_silent(ranks, schedule):
    run = launch(clean, ranks, schedule=schedule)
    assert run.findings == []
    assert run.status is Status.FINISHED
    assert run.safe is True
    assert run.right is None
    assert run.ok
    x = np.arange(ranks * S * D, dtype=np.float32).reshape(ranks, S, D)
    neighbours = np.zeros_like(x)
    neighbours[1:] += x[:-1]
    neighbours[:-1] += x[1:]
    np.testing.assert_array_equal(run.outputs["o"], (x + neighbours).reshape(-1, D))


# Deadlock


def both_receive_first(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S, D))
    side = "E" if tl.program_id(0) == 0 else "W"
    y = tl.recv(dir=side, shape=(S, D), dtype="f32")
    tl.send(dir=side, src=x)
    tl.store(o_ptr, y)


def test_deadlock_names_waiters_and_cycle():
    began = time.perf_counter()
    run = launch(both_receive_first)
    assert time.perf_counter() - began < 1
    assert run.status is Status.DEADLOCKED
    assert run.safe is False
    finding = only(run, "deadlock")
    at(finding, both_receive_first, "tl.recv")
    assert finding.ranks == (0, 1)
    assert "rank 0: receive from E waits for a message" in finding.message
    assert "wait-for cycle: rank 0 -> rank 1 -> rank 0" in finding.message
    assert "rank 0 could go on if rank 1 sent W" in finding.message
    assert "matching send" in finding.hint


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


def test_large_deadlock_is_told_in_under_a_second():
    began = time.perf_counter()
    host = mesh.Host("large", ranks=64)
    q, o = host.shard(np.zeros((64 * S, D), np.float32)), host.empty((64 * S, D), "f32", axis=0)
    run = host.launch(waits_for_nobody, q, o)
    assert time.perf_counter() - began < 1
    assert "ranks 1-63: receive from W" in only(run, "deadlock").message


# Messages


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


# Asynchronous messages


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


# Memory


def loads_past_the_end(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr + 4 * D * 4 - 8, shape=(S, D))
    tl.store(o_ptr, x)


def stores_past_the_end(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S, D))
    tl.store(o_ptr, x)
    tl.store(o_ptr + D * 4, x)  # one row too far


def loads_before_the_start(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr - 4, shape=(S, D))
    tl.store(o_ptr, x)


def loads_nowhere(q_ptr, o_ptr, *, tl):
    x = tl.load(12345, shape=(S, D))
    tl.store(o_ptr, x)


def strided_past_the_end(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S, D), strides=(D + 1, 1))
    tl.store(o_ptr, x)


@pytest.mark.parametrize(
    ("kernel", "mark", "words"),
    [
        (
            loads_past_the_end,
            "tl.load",
            "120 bytes past its end; 'q' (4x8 f32) is valid in [0x10000000000, 0x10000000080)",
        ),
        (stores_past_the_end, "one row too far", "32 bytes past its end; 'o' (4x8 f32) is valid in"),
        (loads_before_the_start, "tl.load", "4 bytes before its start; 'q' (4x8 f32)"),
        (loads_nowhere, "tl.load", "no tensor lies there"),
        (strided_past_the_end, "tl.load", "12 bytes past its end; 'q'"),
    ],
)
def test_out_of_bounds(kernel, mark, words):
    run = launch(kernel)
    finding = only(run, "out-of-bounds")
    at(finding, kernel, mark)
    assert words in finding.message
    assert finding.ranks == (0, 1)
    if "load" in mark:
        assert np.isnan(run.outputs["o"]).all()
    else:
        assert not np.isnan(run.outputs["o"]).any()


def loads_misaligned(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr + 2, shape=(S - 1, D))
    tl.store(o_ptr, tl.cat(x, x[0:1]))


def stores_misaligned(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S, D))
    tl.store(o_ptr, x)
    tl.store(o_ptr + 1, x[0:2])  # odd


@pytest.mark.parametrize(("kernel", "mark"), [(loads_misaligned, "tl.load"), (stores_misaligned, "# odd")])
def test_misaligned(kernel, mark):
    finding = only(launch(kernel), "misaligned")
    at(finding, kernel, mark)
    assert "not a multiple of 4" in finding.message


def loads_the_output(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(2, D))
    tl.store(o_ptr, x)
    y = tl.load(o_ptr, shape=(S, D))
    tl.store(o_ptr, y)


def loads_a_fresh_workspace(q_ptr, o_ptr, *, tl):
    spill = tl.workspace((S, D), "f32")
    x = tl.load(spill, shape=(S, D))
    tl.store(o_ptr, x)


def spills_cleanly(q_ptr, o_ptr, *, tl):
    spill = tl.workspace((S, D), "f32")
    tl.store(spill, tl.load(q_ptr, shape=(S, D)))
    tl.store(o_ptr, tl.load(spill, shape=(S, D)))


def test_reading_what_nobody_wrote():
    run = launch(loads_the_output)
    finding = only(run, "uninitialised-read")
    at(finding, loads_the_output, "y = tl.load")
    assert "'o' (4x8 f32) reads 16 of 32 elements nobody wrote, the first at [2, 0]" in finding.message
    assert np.isnan(run.outputs["o"][2:S]).all()


def test_workspace_is_poisoned_until_written():
    assert "workspace of" in only(launch(loads_a_fresh_workspace), "uninitialised-read").message
    assert launch(spills_cleanly).safe


def reads_unwritten_bytes_as_another_type(q_ptr, o_ptr, *, tl):
    spill = tl.workspace((S * D * 4,), "i8")
    tl.store(spill, tl.zeros((4,), "i8"))
    tl.store(o_ptr, tl.load(spill, shape=(S, D), dtype="f32"))


def test_unwritten_bytes_are_seen_through_another_type():
    finding = only(launch(reads_unwritten_bytes_as_another_type), "uninitialised-read")
    assert "reads 31 of 32 elements nobody wrote, the first at [0, 1]" in finding.message


def reads_as_half(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S, D), dtype="f16")
    tl.store(o_ptr, x)


def test_reading_a_float_as_another_float():
    finding = only(launch(reads_as_half), "type-confusion")
    at(finding, reads_as_half, "tl.load")
    assert "reads 'q' (4x8 f32) as f16" in finding.message


def store_folds_onto_itself(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S, D))
    tl.store(o_ptr, x)
    tl.store(o_ptr, x, strides=(1, 1))


def test_strided_store_onto_itself_is_a_race():
    at(only(launch(store_folds_onto_itself), "race"), store_folds_onto_itself, "strides=(1, 1)")


# Outputs


def stores_half(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S, D))
    tl.store(o_ptr, x if tl.program_id(0) == 0 else x[0:1])


def stores_nothing(q_ptr, o_ptr, *, tl):
    tl.load(q_ptr, shape=(S, D))


def test_output_never_written():
    finding = only(launch(stores_half, 3), "output-unwritten")
    assert "48 elements of output 'o' were never written: 24 of them on rank 1, the first at [1, 0]" in finding.message
    assert finding.ranks == (1, 2)
    assert "64 elements" in only(launch(stores_nothing), "output-unwritten").message


def copies_differ(q_ptr, o_ptr, *, tl):
    x = tl.full((S, D), 1.0)
    tl.store(o_ptr, x + (0.5 if tl.program_id(0) == 2 else 0.0))


def copies_round_differently(q_ptr, o_ptr, *, tl):
    x = tl.full((S, D), 1.0)
    tl.store(o_ptr, x * (1.0 + tl.program_id(0) * 2.0**-22))


def test_copies_that_disagree():
    finding = only(launch(copies_differ, 4, out_axis=None), "output-disagreement")
    assert "32 elements between rank 0 and rank 2, by up to 0.5 at [0, 0] (unlike rank 0: rank 2)" in finding.message


def copies_hide_behind_infinity(q_ptr, o_ptr, *, tl):
    x = tl.full((S, D), 1.0 + tl.program_id(0))
    tl.store(o_ptr, tl.where(tl.arange(0, D) == 0, float("inf"), x))


def test_an_infinity_hides_no_difference():
    assert only(launch(copies_hide_behind_infinity, 2, out_axis=None), "output-disagreement")


def test_copies_that_differ_by_rounding_are_fine():
    assert launch(copies_round_differently, 4, out_axis=None).safe


# Scratch


def hoards(q_ptr, o_ptr, *, tl):
    kept = [tl.zeros((256, 1024)) for _ in range(3)]
    kept.append(tl.full((512, 1024), 1.0))  # the drop too many
    x = tl.load(q_ptr, shape=(S, D))
    tl.store(o_ptr, x)


def lets_go(q_ptr, o_ptr, *, tl):
    for _ in range(10):
        big = tl.zeros((512, 1024))
        del big
    tl.store(o_ptr, tl.load(q_ptr, shape=(S, D)))


def test_scratch_overflow_lists_what_fills_it():
    finding = only(launch(hoards), "scratch-overflow")
    at(finding, hoards, "the drop too many")
    assert "a value of 2 MiB does not fit the scratch memory: 3 MiB of 4 MiB are in use" in finding.message
    assert finding.message.count("256x1024 f32 (1 MiB)") == 3
    assert f":{line_of(hoards, 'for _ in range(3)')}" in finding.message
    assert launch(lets_go).safe


# Budgets


def counts_for_ever(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S, D))
    while True:
        x = x + 1.0


def spins_in_python(q_ptr, o_ptr, *, tl):
    n = 0
    while True:
        n += 1


def spins_and_swallows(q_ptr, o_ptr, *, tl):
    while True:
        try:
            while True:
                pass
        except BaseException:
            pass


def catches_everything(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S, D))
    while True:
        with suppress(Exception):
            x = x + 1.0


def swallows_every_stop(q_ptr, o_ptr, *, tl):
    while True:
        with suppress(BaseException):
            tl.load(q_ptr, shape=(S, D))


def recurses_for_ever(q_ptr, o_ptr, *, tl):
    def deeper():
        try:
            deeper()
        except RecursionError:
            deeper()

    deeper()


@pytest.mark.parametrize(
    ("kernel", "budget"), [(swallows_every_stop, Budget(steps=1000)), (recurses_for_ever, Budget(seconds=0.3))]
)
def test_what_will_not_stop_is_left_where_it_is(kernel, budget):
    began = time.perf_counter()
    run = launch(kernel, 1, budget=budget)
    assert time.perf_counter() - began < 10
    assert run.status is Status.OVER_BUDGET


def test_no_limit_is_a_limit_too():
    assert launch(clean, budget=Budget(seconds=float("inf"))).safe


@pytest.mark.parametrize("kernel", [counts_for_ever, catches_everything])
def test_step_budget(kernel):
    run = launch(kernel, budget=Budget(steps=1000))
    assert run.status is Status.OVER_BUDGET
    finding = only(run, "over-budget")
    at(finding, kernel, "x = x + 1.0")
    assert "dispatched 1001 commands and had not returned (its budget is 1000)" in finding.message
    assert "Budget(steps=" in finding.hint


@pytest.mark.parametrize("kernel", [spins_in_python, spins_and_swallows])
def test_wall_clock_budget(kernel):
    began = time.perf_counter()
    run = launch(kernel, budget=Budget(seconds=0.3))
    assert time.perf_counter() - began < 5
    assert run.status is Status.OVER_BUDGET
    finding = only(run, "over-budget")
    assert "went 0.3 s without a command" in finding.message
    assert finding.where.file == __file__


def test_a_long_kernel_is_fine_within_its_budget():
    def long(q_ptr, o_ptr, *, tl):
        x = tl.load(q_ptr, shape=(S, D))
        for _ in range(9000):
            x = x * 1.0
        tl.store(o_ptr, x)

    run = launch(long)
    assert run.safe
    assert run.metrics["commands"] == 2 * 9002


# The kernel's own errors


def raises(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S, D))
    tl.store(o_ptr, x)
    return {}["missing"]


def bad_shapes(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S, D))
    if tl.program_id(0) == 1:
        x = tl.dot(x, x)
    tl.store(o_ptr, x)


def test_an_error_of_the_kernel_is_a_finding_at_its_line():
    run = launch(raises)
    assert run.status is Status.FAILED
    finding = only(run, "kernel-error")
    at(finding, raises, "missing")
    assert finding.message == "KeyError: 'missing'"


def test_shapes_that_do_not_fit_stop_only_that_rank():
    run = launch(bad_shapes)
    finding = only(run, "shape")
    at(finding, bad_shapes, "tl.dot")
    assert finding.ranks == (1,)
    assert "8 columns meet 4 rows" in finding.message
    np.testing.assert_array_equal(run.outputs["o"][:S], np.arange(S * D, dtype=np.float32).reshape(S, D))


# Folding, shapes-only


def test_findings_fold_by_kind_and_place():
    def many(q_ptr, o_ptr, *, tl):
        for i in range(10):
            tl.load(q_ptr + i * 1000, shape=(S, D))
        tl.store(o_ptr, tl.load(q_ptr, shape=(S, D)))

    finding = only(launch(many, 4), "out-of-bounds")
    assert finding.count == 36
    assert finding.ranks == (0, 1, 2, 3)


def test_shapes_only_checks_what_needs_no_data():
    run = launch(clean, 4, shapes_only=True)
    assert run.safe
    assert run.outputs == {}
    assert "deadlock" in run.checked
    assert "uninitialised-read" not in run.checked
    assert only(launch(both_receive_first, shapes_only=True), "deadlock")
    assert only(launch(loads_past_the_end, shapes_only=True), "out-of-bounds")


def test_shapes_only_records_the_same_commands():
    with_data, without = launch(clean, 4), launch(clean, 4, shapes_only=True)
    for a, b in zip(with_data.recording.streams, without.recording.streams, strict=True):
        np.testing.assert_array_equal(a.rows.columns(), b.rows.columns())


def test_one_launch_may_be_shapes_only():
    host = mesh.Host("small", ranks=2)
    q, o = host.shard(np.ones((2 * S, D), np.float32)), host.empty((2 * S, D), "f32", axis=0)
    run = host.launch(clean, q, o, shapes_only=True)
    assert run.safe
    assert run.outputs == {}
    assert np.isnan(host.gather(o)).all()
    assert not np.isnan(host.launch(clean, q, o).outputs["o"]).any()
