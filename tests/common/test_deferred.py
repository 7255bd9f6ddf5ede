"""Loops that run as Python while that is less work than to compile them: the same results, and compiled in time."""

from functools import partial

import numpy as np
import pytest

from kernbench.common import deferred as module
from kernbench.common.compiled import inlined, part
from kernbench.common.deferred import Deferred, compiled_at_once, deferred
from kernbench.safety.processes.threads import together


@inlined
def _twice(value):
    return value + value


@part
def _more(value, by):
    return _twice(value) + by


def _add_up(values, sums):
    total = 0
    for i in range(len(values)):
        total += _more(values[i], 1)
        sums[i] = total
    return total, len(values)


def _squares(values, sums):
    for i in range(len(values)):
        sums[i] = values[i] * values[i]
    return sums[0]


@pytest.fixture(autouse=True)
def deferring(monkeypatch):
    monkeypatch.delenv(module.COMPILE, raising=False)


@pytest.fixture
def loop(monkeypatch, tmp_path):
    """Makes a deferred loop of which nothing is kept, and whose seconds in Python are counted in a file of the test."""

    def make(function, **options):
        made = deferred(lambda values, *_: len(values), **options)(function)
        # as if nothing were kept before: what is, lies in a folder of the test
        monkeypatch.setattr(made._compiled._room, "path", lambda name, suffix=".loop": tmp_path / f"{name}{suffix}")
        return made

    return make


def is_compiled(made: Deferred) -> bool:
    return made._compiled.is_compiled


def called(made, values):
    sums = np.zeros(len(values), np.int64)
    return made(np.array(values, np.int32), sums), sums.tolist()


def test_few_rows_run_as_python_and_give_what_compiled_ones_do(loop):
    made = loop(_add_up)
    result, sums = called(made, [1, 2, 3])
    assert not is_compiled(made)
    assert (result, sums) == ((15, 3), [3, 8, 15])
    assert all(type(number) is int for number in result)
    with compiled_at_once():
        assert called(made, [1, 2, 3]) == ((15, 3), [3, 8, 15])
    assert is_compiled(made)


def test_many_rows_are_compiled(loop, monkeypatch):
    made = loop(_add_up)
    monkeypatch.setattr(module, "MOST_ROWS", 2)
    called(made, [1, 2])
    assert not is_compiled(made)
    called(made, [1, 2, 3])
    assert is_compiled(made)


def test_what_has_taken_long_in_python_is_compiled(loop, monkeypatch):
    clock = iter([0.0, 2.0, 10.0, 11.5])
    monkeypatch.setattr(module.time, "process_time", lambda: next(clock))
    first, second = loop(_add_up), loop(_add_up)
    called(first, [1])
    # another process, as it were: seconds are counted on disk
    called(second, [1])
    assert (first._spent(), is_compiled(second)) == (3.5, False)
    called(first, [1])
    assert is_compiled(first)


def test_what_is_kept_is_taken(loop):
    made, again = loop(_add_up), loop(_add_up)
    with compiled_at_once():
        called(made, [1])
    called(again, [1])
    assert is_compiled(again)


@pytest.mark.parametrize("values", [[3, 70_000], [70_000, 3]])
def test_integers_that_would_overflow_are_left_to_the_compiled_loop(loop, values):
    made = loop(_squares)
    assert called(made, [3, 4]) == (9, [9, 16])
    assert not is_compiled(made)
    result, sums = called(made, values)
    assert is_compiled(made)
    assert sums == [value * value for value in values]
    assert result == sums[0]


def test_hashes_may_wrap(loop):
    def mixed(values, sums):
        for i in range(len(values)):
            sums[i] = values[i] * np.uint64(0x9E3779B97F4A7C15)
        return 0

    made = loop(mixed, wraps=True)
    values, sums = np.full(3, 1 << 60, np.uint64), np.zeros(3, np.uint64)
    made(values, sums)
    assert not is_compiled(made)
    again = np.zeros(3, np.uint64)
    with compiled_at_once():
        made(values, again)
    assert (sums == again).all()


def test_errors_of_the_function_are_its_own(loop):
    def fails(values, sums):
        raise IndexError("mine")

    with pytest.raises(IndexError, match="mine"):
        called(loop(fails), [1])


@pytest.mark.parametrize("jobs", ["1", "2"])
def test_beside_other_threads_loops_are_compiled(loop, monkeypatch, jobs):
    """What Python put back after an overflow would undo what the others wrote."""
    monkeypatch.setenv("KERNBENCH_JOBS", jobs)
    made, sums = loop(_add_up), np.zeros((2, 1), np.int64)
    together(partial(made, np.array([number], np.int32), sums[number]) for number in range(2))
    assert sums.tolist() == [[1], [3]]
    assert is_compiled(made) == (jobs == "2")
    # the thread that asked works by itself again
    alone = loop(_squares)
    called(alone, [1])
    assert not is_compiled(alone)
