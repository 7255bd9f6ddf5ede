"""Kernels that do not end well: over their budget, or with an error of their own."""

import json
from contextlib import suppress

import numpy as np
import pytest
from tests.mesh.planted import D, S, at, clean, launch, only

from kernbench.result import Status
from kernbench.safety.budget import Budget


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
            n = 0
            while True:
                n += 1
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
    run = launch(kernel, 1, budget=budget)
    assert run.status is Status.OVER_BUDGET


def test_no_limit_is_a_limit_too():
    assert launch(clean, budget=Budget(seconds=float("inf"))).safe


@pytest.mark.parametrize("kernel", [counts_for_ever, catches_everything])
def test_step_budget(kernel):
    run = launch(kernel, budget=Budget(steps=1000))
    assert run.status is Status.OVER_BUDGET
    finding = only(run, "over-budget")
    at(finding, kernel, "x = x + 1.0")
    assert (
        "dispatched 1,001 commands and had not returned (its budget is 1,000: given with the launch)" in finding.message
    )
    assert "Budget(steps=" in finding.hint


@pytest.mark.parametrize("kernel", [spins_in_python, spins_and_swallows])
def test_wall_clock_budget(kernel):
    run = launch(kernel, budget=Budget(seconds=0.3))
    assert run.status is Status.OVER_BUDGET
    finding = only(run, "over-budget")
    assert "went 0.3 s without a command" in finding.message
    assert finding.where.file == __file__


def test_after_an_abandoned_program_python_still_recovers_from_deep_recursion():
    run = launch(spins_and_swallows, budget=Budget(seconds=0.1))
    assert run.status is Status.OVER_BUDGET
    with pytest.raises(RecursionError):
        json.loads("[" * 200_000)


def test_a_long_kernel_is_fine_within_its_budget():
    def long(q_ptr, o_ptr, *, tl):
        x = tl.load(q_ptr, shape=(S, D))
        for _ in range(9000):
            x = x * 1.0
        tl.store(o_ptr, x)

    run = launch(long)
    assert run.safe
    assert run.metrics["commands"] == 2 * 9002


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


def catches(q_ptr, o_ptr, *, tl):
    x = tl.load(q_ptr, shape=(S, D))
    with suppress(Exception):
        x = tl.dot(x, x)
    tl.store(o_ptr, x)


def test_what_the_kernel_catches_is_a_finding_all_the_same():
    run = launch(catches)
    assert run.status is Status.FINISHED
    finding = only(run, "shape")
    at(finding, catches, "tl.dot")
    assert "8 columns meet 4 rows (the kernel caught the error and went on)" in finding.message
    assert finding.ranks == (0, 1)


def test_an_error_raised_for_another_leaves_both():
    def wraps(q_ptr, o_ptr, *, tl):
        try:
            bad_shapes(q_ptr, o_ptr, tl=tl)
        except Exception as error:
            raise ValueError("no") from error

    run = launch(wraps)
    assert [f.kind for f in run.findings] == ["shape", "kernel-error"]


def yields(q_ptr, o_ptr, *, tl):
    tl.store(o_ptr, tl.load(q_ptr, shape=(S, D)))
    yield


async def awaits(q_ptr, o_ptr, *, tl):
    tl.store(o_ptr, tl.load(q_ptr, shape=(S, D)))


@pytest.mark.parametrize(("kernel", "why"), [(yields, "has a yield in it"), (awaits, "is async")])
@pytest.mark.parametrize("wrapped", [False, True])
def test_a_kernel_whose_call_runs_nothing_is_told(kernel, why, wrapped):
    run = launch((lambda q_ptr, o_ptr, *, tl: kernel(q_ptr, o_ptr, tl=tl)) if wrapped else kernel)
    assert run.status is Status.FAILED
    finding = only(run, "misuse")
    at(finding, kernel, "def ")
    assert f"the kernel {why}, so that calling it ran none of its lines" in finding.message
