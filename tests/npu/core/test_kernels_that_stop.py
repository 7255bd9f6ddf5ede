"""Kernels that do not end, catch what should stop them, raise, or call what has no meaning: reported at their line."""

import json
import queue
import time

import numpy as np
import pytest
from greenlet import GreenletExit
from tests.npu.small import flag, kinds, line_of, run_kernel

from kernbench import npu
from kernbench.safety.budget import Budget

A = np.arange(128, dtype=np.float32).reshape(8, 16) / 64
OUT = np.zeros((8, 16), np.float32)


def found(run, kind):
    return next(f for f in run.findings if f.kind == kind)


def two_tiles(core):
    return core.tile("UB", (8, 16), "f32", 0, name="x"), core.tile("UB", (8, 16), "f32", 0x200, name="y")


def test_a_kernel_that_does_not_stop_is_stopped():
    def kernel(core, a, out):
        while True:
            core.pipe_barrier("V")

    run = run_kernel(kernel, A, out=OUT, budget=Budget(steps=1000, seconds=0.2))
    assert run.status == "over budget"
    assert "without an end in sight in task 0 (kernel)" in run.findings[0].message
    # it is stopped wherever it stands when the time is over
    assert run.findings[0].where.line in (line_of(kernel, "while True"), line_of(kernel, "pipe_barrier"))
    assert npu.Chip("a2a3").launch(lambda rt: None).status == "finished"


def test_a_loop_that_does_the_same_for_ever_ends_long_before_its_budget():
    def kernel(core, a, out):
        x, y = two_tiles(core)
        while True:
            core.tadd(y, x, x)
            core.pipe_barrier("V")

    run = run_kernel(kernel, A, out=OUT, budget=Budget(steps=10**9 // 5000, seconds=60))
    assert run.status == "over budget"
    assert "its last 10,000 rows are 2 operations again and again, all the same" in found(run, "over-budget").message
    assert "--max-steps" in found(run, "over-budget").hint


def test_rows_that_repeat():
    from kernbench.npu.recording.record import repeated

    assert repeated([b"a", b"b"] * 50, 100) == 2
    assert repeated([b"x", *[b"a"] * 100], 100) == 1
    assert repeated([b"x", *[b"a"] * 99], 100) == 0
    assert repeated([bytes([i]) for i in range(100)], 100) == 0


def test_a_launch_that_computes_for_too_long_is_stopped():
    def kernel(core, a, out):
        x, y = two_tiles(core)
        for number in range(10**9):
            core.tadds(y, x, float(number % 7))

    run = run_kernel(kernel, A, out=OUT, budget=Budget(seconds=60, total_seconds=0.01))
    assert run.status == "over budget"
    assert "0.01 s of computing are over" in found(run, "over-budget").message


def test_a_kernel_that_catches_what_would_stop_it_is_left_where_it_stands():
    def kernel(core, a, out):
        while True:
            try:
                rounds = 0
                while True:
                    rounds += 1
            except BaseException:
                pass

    run = run_kernel(kernel, A, out=OUT, budget=Budget(seconds=0.1))
    assert run.status == "over budget"
    # the loop is two lines
    assert line_of(kernel, "rounds += 1") - run.findings[0].where.line in (0, 1)


def test_a_kernel_whose_call_runs_nothing_is_told():
    def kernel(core, a, out):
        core.tload(core.tile("UB", (8, 16), "f32"), a)
        yield

    def orchestrate(rt, a):
        yield rt.submit(aiv0=kernel, args=[npu.IN(a)])

    run = run_kernel(kernel, A, out=OUT)
    assert run.status == "failed"
    assert (run.findings[0].kind, run.findings[0].where.line) == ("misuse", line_of(kernel, "def kernel"))
    assert "has a yield in it" in run.findings[0].message
    assert kinds(npu.Chip("a2a3").launch(orchestrate, A)) == ["misuse"]


def test_errors_of_the_kernel_itself_are_findings():
    def kernel(core, a, out):
        {}["missing"]

    run = run_kernel(kernel, A, out=OUT)
    assert run.status == "failed"
    assert kinds(run) == ["kernel-error"]
    assert run.findings[0].where.line == line_of(kernel, "missing")


def test_a_kernel_that_stops_half_way_is_not_blamed_for_its_flags():
    def kernel(core, a, out):
        core.set_flag("MTE2", "V", 0)
        raise RuntimeError("enough")

    assert kinds(run_kernel(kernel, A, out=OUT)) == ["kernel-error"]


def reduce_nothing(core):
    core.trowmax(core.alloc("UB", (8, 1), layout="col"), core.alloc("UB", (8, 16), valid=(8, 0)))


def gather_outside(core):
    values, indices = core.alloc("UB", (8, 16)), core.alloc("UB", (8, 16), "i32")
    core.texpands(values, 1.0)
    core.texpands(indices, 99)
    core.pipe_barrier("V")
    core.tgather(values, values, indices)


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (
            lambda core, a, out: core.tload(a, core.alloc("UB", (8, 16))),
            "tload(dst, tensor, pad=None, columns=1) got <Tensor",
        ),
        (lambda core, a, out: core.tadd(1, 2, 3), "tadd(dst, a, b) got 1 where something else is wanted"),
        (
            lambda core, a, out: core.tmuls(*[core.alloc("UB", (8, 16))] * 2, 1.0, 2.0),
            "it is called tmuls(dst, a, number)",
        ),
        (
            lambda core, a, out: core.tcmps(core.alloc("UB", (8, 32), "i8"), core.alloc("UB", (8, 32)), 1.0),
            "number, mode",
        ),
        (lambda core, a, out: core.alloc("UB", (8, 16), "f99"), "unknown element type 'f99'"),
        (lambda core, a, out: core.alloc("UB", (8.0, 16)), "a tile has two sizes from 1 on, whole numbers"),
        (lambda core, a, out: core.alloc("UB", (10**6, 10**6)), "larger than any memory"),
        (lambda core, a, out: core.nothing, "unknown operation of a core 'nothing'"),
        (lambda core, a, out: core.tlaod(1, 2), "Did you mean 'tload'?"),
        (lambda core, a, out: core.tile("UB", (8, 16), offset=32.0), "at a whole number of bytes; got offset 32.0"),
        (lambda core, a, out: core.texpands(core.alloc("UB", (8, 32), "i8"), 300), "300 is no number for a tile of i8"),
        (lambda core, a, out: core.tmuls(*[core.alloc("UB", (8, 16))] * 2, "x"), "'x' is no number for a tile of f32"),
        (lambda core, a, out: core.tand(*[core.alloc("UB", (8, 16))] * 3), "tand: its tiles hold whole numbers"),
        (lambda core, a, out: core.get(core.alloc("UB", (8, 16)), -1, 0), "get: element (-1, 0) of"),
        (lambda core, a, out: reduce_nothing(core), "trowmax: a row of no elements has no result"),
        (lambda core, a, out: gather_outside(core), "128 of 128 indices lie outside rows of 16 elements, 99 for one"),
        (lambda core, a, out: a[::-1], "goes forward, by steps from 1 on; got -1"),
        (lambda core, a, out: a[::0], "goes forward, by steps from 1 on; got 0"),
        (lambda core, a, out: core.read(a, 0), "an index for each axis"),
    ],
)
def test_calls_without_meaning_are_told_at_their_line(body, told):
    run = run_kernel(body, A, out=OUT)
    assert run.status == "failed"
    assert told in run.findings[0].message
    assert run.findings[0].where.file == __file__


def test_sizes_read_from_a_tensor_are_sizes():
    lengths = np.array([5], np.int32)

    def kernel(core, a, b, out):
        count = core.read(b, 0)
        x = core.alloc("UB", (8, 16), valid=(count, 16))
        core.tload(x, a[:count])
        flag(core, "MTE2", "MTE3")
        core.tstore(out[:count], x)
        core.pipe_sync()

    run = run_kernel(kernel, A, lengths, out=OUT)
    assert kinds(run) == ["output-unwritten"]
    assert np.array_equal(run.outputs["out"][:5], A[:5])


def test_a_mistake_in_a_function_of_the_kernel_says_which_call_it_was():
    def order(core, event):
        core.set_flag("MTE2", "V", event)
        core.wait_flag("MTE2", "V", event)

    def kernel(core, out):
        order(core, 0)
        order(core, 9)

    run = npu.Chip("a2a3").launch(
        lambda rt, out: rt.submit(aiv0=kernel, args=[npu.OUT(out)]), np.zeros((8, 8), np.float32)
    )
    finding = next(f for f in run.findings if f.kind == "misuse")
    assert finding.where.text.strip() == 'core.set_flag("MTE2", "V", event)'
    assert [(other.role, other.where.text.strip()) for other in finding.others] == [("called from", "order(core, 9)")]


def test_a_kernel_that_ends_its_own_coroutine_has_failed():
    def kernel(core, a, out):
        x, _ = two_tiles(core)
        core.tload(x, a)
        flag(core, "MTE2", "MTE3")
        core.tstore(out, x)
        raise GreenletExit
        core.pipe_sync()

    run = run_kernel(kernel, A, out=OUT)
    assert run.status == "failed"
    assert [(f.kind, f.message.split(" [")[0]) for f in run.findings] == [("kernel-error", "GreenletExit")]


def test_a_kernel_that_calls_itself_without_end_is_told_in_a_few_lines():
    def again(core):
        again(core)

    run = run_kernel(lambda core, a, out: again(core), A, out=OUT)
    finding = found(run, "kernel-error")
    assert "RecursionError" in finding.message
    assert 0 < len(finding.others) <= 8


def test_an_error_in_pythons_library_is_of_the_kernels_line():
    def kernel(core, a, out):
        json.loads("no json")

    finding = found(run_kernel(kernel, A, out=OUT), "kernel-error")
    assert finding.where.text.strip() == 'json.loads("no json")'
    assert finding.where.file == __file__


@pytest.mark.parametrize(
    "blocked", [lambda: queue.Queue().get(), lambda: time.sleep(600), lambda: [0 for _ in iter(int, 1)]]
)
def test_a_kernel_without_operations_is_stopped_at_its_line(blocked):
    def orchestrate(rt, out):
        rt.submit(aiv0=lambda core, out: blocked(), args=[npu.OUT(out)])

    run = npu.Chip("a2a3").launch(orchestrate, np.zeros((8, 8), np.float32), budget=Budget(seconds=0.05))
    assert run.status == "over budget"
    (finding,) = run.findings
    assert finding.kind == "over-budget"
    assert "the last 0.05 s went by without an operation" in finding.message
    assert finding.where.file == __file__
