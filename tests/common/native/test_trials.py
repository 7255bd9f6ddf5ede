"""Loops that are translated quickly at first: the same results, and optimised when they have run for long."""

import time

import numpy as np
import pytest
from tests.sampled import some

from kernbench.common import native_loops
from kernbench.common.compiled import COMPILE, part
from kernbench.common.kept import Numba
from kernbench.common.native.entry import layout_is_known
from kernbench.common.native.kinds import NotPlain
from kernbench.common.native.trials import Trial
from kernbench.common.native_loops import NativeLoop, RowLoop, native_loop, patient_loop
from kernbench.ptx.numerics.floats import arithmetic, half
from kernbench.ptx.numerics.integers import arithmetic as integers

pytestmark = pytest.mark.skipif(
    not layout_is_known(), reason="objects of this Python lie in memory otherwise than they are read: numba compiles"
)


@part
def _mean(left, right):
    return (left + right) / 2


def _smooth(values, means):
    for at in range(len(values) - 1):
        means[at] = _mean(values[at], values[at + 1])
    return len(values), values[0] // 3


def _divide(values, by):
    for at in range(len(values)):
        values[at] = values[at] // by


@pytest.fixture(autouse=True)
def patient(monkeypatch):
    monkeypatch.delenv(COMPILE, raising=False)


@pytest.fixture
def kept_here(monkeypatch, tmp_path):
    """Makes loops, as of several processes, that are kept in a folder of the test and loaded by each of them."""

    def make(function, kind=patient_loop):
        loop: Numba = kind(function)
        monkeypatch.setattr(loop._room, "path", lambda name, suffix=".loop": tmp_path / f"{name}{suffix}")
        return loop

    return make


@pytest.fixture
def clock(monkeypatch):
    """Seconds that each call takes of the time of its thread."""
    cost = [0.0]
    passed = [0.0]

    def thread_time():
        passed[0] += cost[0] / 2
        return passed[0]

    monkeypatch.setattr(time, "thread_time", thread_time)
    return cost


def smoothed(loop):
    values, means = np.arange(5) * 7, np.zeros(5)
    return loop(values, means), means.tolist()


def is_on_trial(loop):
    (entry,) = loop.entries
    return isinstance(entry, Trial)


EXPECTED = (5, 0), [3.5, 10.5, 17.5, 24.5, 0.0]


def test_a_loop_is_on_trial_until_it_has_run_for_long(kept_here, clock, tmp_path):
    loop = kept_here(_smooth)
    assert (smoothed(loop), is_on_trial(loop)) == (EXPECTED, True)
    assert [path.name[:11] for path in tmp_path.glob("*.loop")] == ["quick_loop_"]
    clock[0] = 10.0
    assert (smoothed(loop), is_on_trial(loop)) == (EXPECTED, False)
    assert smoothed(loop) == EXPECTED
    assert sorted(path.name[:5] for path in tmp_path.glob("*.loop")) == ["loop_", "quick"]
    assert not is_on_trial(again := called(kept_here(_smooth)))
    assert smoothed(again) == EXPECTED


def called(loop):
    assert smoothed(loop) == EXPECTED
    return loop


def test_processes_count_together(kept_here, clock, monkeypatch):
    monkeypatch.setattr("kernbench.common.native.trials._OPTIMISING", 1.0)
    monkeypatch.setattr("kernbench.common.native.trials._PART", 1e-5)
    clock[0], runs = 0.006, 0
    while is_on_trial(called(kept_here(_smooth))):
        runs += 1
    # what quick code of this loop may run is some hundredths of a second; each run is a process of its own
    assert 2 < runs < 30


def test_where_nothing_is_kept_a_process_counts_for_itself(monkeypatch, clock):
    monkeypatch.setattr("kernbench.common.compiled.folder", lambda: "")
    loop, clock[0] = patient_loop(_smooth), 10.0
    assert (smoothed(loop), is_on_trial(loop)) == (EXPECTED, False)
    assert smoothed(loop) == EXPECTED


def test_all_is_optimised_at_once_where_that_is_wanted(kept_here, monkeypatch):
    monkeypatch.setenv(COMPILE, "always")
    assert not is_on_trial(called(kept_here(_smooth)))


def test_other_loops_are_not_on_trial(kept_here):
    assert not is_on_trial(called(kept_here(_smooth, native_loop)))


def test_what_cannot_be_optimised_stays(kept_here, clock, monkeypatch):
    def broken(text, **options):
        raise RuntimeError("no machine code")

    loop, clock[0] = kept_here(_smooth), 10.0
    monkeypatch.setattr(native_loops, "translated", broken)
    assert (smoothed(loop), smoothed(loop), is_on_trial(loop)) == (EXPECTED, EXPECTED, True)


def test_what_cannot_be_translated_quickly_is_optimised(kept_here, monkeypatch):
    def broken(text):
        raise RuntimeError("Symbols not found: [ __multi3 ]")

    monkeypatch.setattr(native_loops, "quickly_translated", broken)
    assert not is_on_trial(called(kept_here(_smooth)))


def test_a_loop_over_rows_that_numba_has_to_compile_is_not_on_trial(kept_here, monkeypatch):
    def unknown(self, *given):
        raise NotPlain("something")

    monkeypatch.setattr(native_loops.Module, "called", unknown)
    made = []
    monkeypatch.setattr(native_loops.NumbaLoop, "_made", lambda self, *given: made.append(given) or unknown(self))
    loop = kept_here(_smooth, lambda function: RowLoop(function, {}))
    with pytest.raises(NotPlain):
        loop._optimised("loop_name", ())
    with pytest.raises(NotPlain):
        loop._made("loop_name", (), quickly=True)
    # numba was asked once: for the optimised one
    assert made == [("loop_name", ())]


def test_a_division_by_zero_raises_in_quick_code(kept_here):
    loop, values = kept_here(_divide), np.arange(3)
    loop(values, 1)
    assert is_on_trial(loop)
    with pytest.raises(ZeroDivisionError):
        loop(values, 0)


def test_arguments_of_other_kinds_are_another_trial(kept_here):
    loop = kept_here(_smooth)
    assert smoothed(loop) == EXPECTED
    means = np.zeros(5, np.float32)
    loop(np.arange(5, dtype=np.int16), means)
    assert means.tolist() == [0.5, 1.5, 2.5, 3.5, 0.0]
    assert [isinstance(entry, Trial) for entry in loop.entries] == [True, True]


LANES = 500
ROWS = {
    "fma.rm.f32": (lambda: arithmetic.arithmetic("fma", "f32", "rm"), (32, 32, 32, 32)),
    "sqrt.rz.f32": (lambda: arithmetic.arithmetic("sqrt", "f32", "rz"), (32, 32)),
    "div.u32": (lambda: integers.divide("div", "u32"), (32, 32, 32)),
    "mad.hi.s32": (lambda: integers.multiply_add("s32", "hi", sat=True), (32, 32, 32, 32)),
    "fma.bf16": (lambda: half.arithmetic("fma", "bf16", relu=True), (16, 16, 16, 16)),
    "fma.f16": (lambda: half.arithmetic("fma", "f16"), (16, 16, 16, 16)),
}


@pytest.mark.parametrize("name", some(list(ROWS), 3))
def test_instructions_give_the_same_bits_on_trial_and_optimised(name, kept_here, monkeypatch):
    make, bits = ROWS[name]
    plain = make()
    assert isinstance(plain, NativeLoop)
    rng = np.random.default_rng(len(name))
    rows = [rng.integers(0, 1 << width, LANES, np.uint64).astype(f"u{width // 8}") for width in bits]
    quick = kept_here(plain.py_func, lambda function: RowLoop(function, {"error_model": "numpy"}))
    monkeypatch.setattr(quick, "_name", plain._name)
    results = []
    for loop in (quick, plain):
        if loop is plain:
            monkeypatch.setenv(COMPILE, "always")
        results.append(np.zeros_like(rows[-1]))
        loop(*rows[:-1], results[-1])
    assert is_on_trial(quick)
    assert np.array_equal(*results)


def test_a_trial_whose_end_is_interrupted_ends_later(clock):
    settled = []

    def settle(trial):
        settled.append(trial)
        if len(settled) == 1:
            raise KeyboardInterrupt

    trial = Trial(lambda: 7, 1, None, settle)
    clock[0] = 1.0
    with pytest.raises(KeyboardInterrupt):
        trial()
    assert [trial(), trial()] == [7, 7]
    assert settled == [trial, trial]
