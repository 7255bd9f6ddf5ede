"""Loops of `tl.range` in launches without data are recorded row for row as if every iteration had run."""

import itertools
import math
import random
import sys
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import sampled
from tests.mesh import both_ways

from kernbench.result.run import Status
from kernbench.safety.budget import Budget

SHAPES = ((16, 16), (8, 32), (16, 1), (48, 16))
BYTES = 4 * 48 * 16
pytestmark = pytest.mark.usefixtures("small_heap", "short_loops")
OPERATIONS = st.tuples(
    st.sampled_from(["load", "store", "add", "inplace", "view", "move", "reduce", "drop"]),
    st.integers(0, 5),
    st.integers(0, 5),
    st.integers(0, 3),
)


ROWS = 4096


def launched(kernel, *args, rows=ROWS, **options):
    return both_ways.launched(kernel, *args, rows=rows, **options)


def same(kernel, *args, rows=ROWS, **options):
    return both_ways.same(kernel, *args, rows=rows, **options)


def softmax(x, y, n, step=BYTES, *, tl):
    m, l, o = tl.full((16, 1), -1e30), tl.zeros((16, 1)), tl.zeros((16, 16))
    for j in tl.range(n):
        k, v = tl.load(x + j * step, shape=(16, 16)), tl.load(y + step * j, shape=(16, 16))
        s = tl.dot(k, tl.trans(v))
        new = tl.maximum(m, tl.max(s, axis=1))
        p, shrink = tl.exp(s - new), tl.exp(m - new)
        l, m = l * shrink + tl.sum(p, axis=1), new
        o = tl.dot(p, v, acc=tl.mul(o, shrink, out=o), out=o)
    tl.store(y, o / l)


def test_the_loop_of_an_attention_kernel_is_folded_and_timed_alike(folds):
    assert same(softmax, 300).safe
    assert folds
    assert min(folds) > 290


def exchanging(x, y, n, *, tl):
    a, b, c = (tl.load(x + i * BYTES, shape=(16, 16)) for i in range(3))
    for j in tl.range(n):
        fresh = tl.load(x + j * BYTES, shape=(16, 16))
        total = a + c
        # two or three values end before the next command, each at another address than in the iteration before
        a, b, c = b, total, fresh
        del fresh, total
        tl.store(y + j * BYTES, a - b)
    tl.store(y, a + b + c)


def test_values_that_end_together_at_changing_addresses(folds):
    same(exchanging, 300)
    assert folds
    same(exchanging, 40, scratch="5 KiB")


def test_commands_of_a_folded_loop_are_made_on_demand(folds):
    folded, full = (launched(softmax, 40, folds=on).recording.streams[0] for on in (True, False))
    assert folds
    assert len(folded) == len(full)
    assert repr(folded[-7]) == repr(full[-7])
    assert list(map(repr, folded)) == list(map(repr, full))


def past_the_end(x, y, n, *, tl):
    for j in tl.range(n):
        tl.store(
            y + j * BYTES,
            tl.load(x, shape=(16, 16)),
        )


def test_the_thousandth_iteration_is_found_out_of_bounds_at_its_line(folds):
    run = same(past_the_end, 1001, rows=1000)
    assert max(folds) > 900
    [finding] = run.findings
    assert finding.kind == "out-of-bounds"
    assert "tl.store(" in finding.where.text or "y + j" in finding.where.text


def test_what_does_not_fit_is_found_in_a_loop_that_was_folded():
    same(softmax, 40, scratch="4 KiB")


def goes_on(x, y, n, *, tl):
    a = tl.load(x, shape=(16, 16))
    for _ in tl.range(n):
        a = a + 1.0


def test_an_endless_loop_is_stopped_at_its_budget(folds):
    run = same(goes_on, 10**12, budget=Budget(steps=3000))
    assert folds
    [finding] = run.findings
    assert finding.kind == "over-budget"
    assert finding.where.text.strip() == "a = a + 1.0"


@pytest.mark.parametrize("step", [0, 64, 2, -BYTES])
def test_any_step(step):
    same(softmax, 50, step)


def looks(x, y, n, *, tl):
    for j in tl.range(n):
        a = tl.load(x + j * BYTES, shape=(16, 16))
        if j % 7 == 3:
            a = a + 1.0
        tl.store(y, a)


def counts(x, y, n, *, tl):
    address = x
    for _ in tl.range(n):
        tl.store(y, tl.load(address, shape=(16, 16)))
        address += BYTES


def lists(x, y, n, *, tl):
    kept = []
    for j in tl.range(n):
        kept.append(tl.load(x + j * BYTES, shape=(16, 1)))
    for handle in kept:
        tl.store(y, handle)


def enumerates(x, y, n, *, tl):
    for i, j in enumerate(tl.range(n)):
        tl.store(y + i * BYTES, tl.load(x + j * BYTES, shape=(16, 16)))
    assert list(tl.range(3)) == [0, 1, 2]
    assert [j + 1 for j in tl.range(9)] == list(range(1, 10))


def draws(x, y, n, *, tl):
    dice = random.Random(1)
    for j in tl.range(n):
        a = tl.load(x + j * BYTES, shape=(16, 16))
        tl.store(y, a if dice.random() < 0.8 else a + 1.0)


class Counter:
    count = 0


def counts_in_a_class(x, y, n, *, tl):
    Counter.count = 0
    for j in tl.range(n):
        Counter.count += 1
        a = tl.load(x + j * BYTES, shape=(16, 16))
        tl.store(y, a + 1.0 if Counter.count == 20 else a)


def talks(x, y, n, *, tl):
    a = tl.load(x, shape=(16, 16))
    for _ in tl.range(n):
        if tl.program_id(0) == 0:
            tl.send("E", a)
        else:
            a = tl.recv("W", (16, 16))


@pytest.mark.parametrize("kernel", [looks, counts, lists, enumerates, draws, counts_in_a_class, talks])
def test_iterations_that_are_not_alike_all_run(kernel, folds):
    assert same(kernel, 40).ok
    assert not folds


def pipelined(x, y, n, *, tl):
    ahead = None
    for j in tl.range(n):
        s = tl.load(x + j * BYTES, shape=(16, 16))
        if ahead is not None:
            tl.store(y + j * BYTES - BYTES, ahead + 1.0)
        ahead = s
    tl.store(y + j * BYTES, ahead)


def rotates(x, y, n, *, tl):
    first, second = tl.load(x, shape=(16, 16)), tl.load(x, shape=(8, 32))
    third = tl.zeros((16, 16))
    for j in tl.range(2, 2 + 3 * n, 3):
        third = first + tl.load(x + (j - 2) * 64, shape=(16, 16))
        first, third = third, first
        tl.store(y + j * 64, second[0:4, 0:16])


@pytest.mark.parametrize("kernel", [pipelined, rotates])
def test_values_that_are_carried_over(kernel, folds):
    assert same(kernel, 60).ok
    assert max(folds) > 40


def nested(x, y, n, m, *, tl):
    for i in tl.range(n):
        total = tl.zeros((16, 16))
        for j in tl.range(m):
            total = total + tl.load(x + i * 64 * 8 + j * 64, shape=(16, 16))
        tl.store(y + i * BYTES, total)


def test_outer_loops_fold_what_inner_ones_have_folded(folds):
    assert same(nested, 30, 50).ok
    # on both ranks, a few inner loops and one outer
    assert len(folds) < 20


def hides(x, y, n, *, tl):
    for j in tl.range(n):
        # a counter that no object of Python holds
        sys.setswitchinterval(sys.getswitchinterval() + 1)
        a = tl.load(x + j * BYTES, shape=(16, 16))
        if sys.getswitchinterval() > 4:
            a = a + 1.0
        tl.store(y, a)


def heads(x, y, n, *, tl):
    for head in tl.range(n):
        o = tl.zeros((16, 16))
        for block in range(20):
            k = tl.load(x + head * BYTES + block * 64, shape=(16, 16))
            o = tl.dot(k, k, acc=o, out=o)
        tl.store(y + head * BYTES, o)


def test_a_few_long_iterations_fold(monkeypatch, folds):
    """Of eight heads that are long enough three run: two that are compared, and the last. On the second rank the loop
    is trusted, and its last iteration is repeated as well.
    """
    monkeypatch.setattr("kernbench.triton_emu.repeating.loops.FEWEST", 16)
    same(heads, 8)
    assert folds == []
    monkeypatch.setattr("kernbench.triton_emu.repeating.loops.LONG_BODY", 40)
    same(heads, 8)
    assert folds == [5, 6]
    same(heads, 4)
    assert folds == [5, 6]


def block_of(x, y, n, *, tl):
    """A loop statement that is entered again and again; its index and what was made of it are used after it."""
    for j in tl.range(n):
        a = tl.load(x + j * BYTES, shape=(16, 16))
        at = y + j * BYTES
        tl.store(at, a)
    tl.store(at + 64, a)
    tl.store(y + (j + 1) * BYTES, a if j == n - 1 and isinstance(j, int) and range(9, 99)[j] == 9 + j else a + a)
    return [a, j, j + 1]


def entered_again(x, y, n, times, *, tl):
    kept = []
    for i in range(times):
        kept.append(block_of(x + 64 * i, y, n, tl=tl))
        a, last, following = kept[-1]
        tl.store(y + last * 64, tl.full((16, following), 0.0) if following % 2 else a)


def test_the_last_iteration_of_a_loop_that_was_as_predicted_is_repeated(folds):
    """At the first entry it runs, at the fourth, and at the sixteenth, counted over all programs."""
    assert same(entered_again, 12, 10).ok
    run, repeated = 12 - 3, 12 - 2
    assert folds == [run if entry in (1, 4, 16) else repeated for entry in range(1, 21)]


class Schedule:
    """Says once, at a turn of an entry, that this one is different; how it counts is the loop's own state or hidden."""

    def __init__(self, turn):
        self.left = turn

    def is_now(self):
        self.left -= 1
        return self.left == 0


def turns(tl, v, given, x, y):
    """One entry of a loop whose body may differ in one turn, end early, or raise and catch an error."""
    body, count, kind, schedule = given
    i = 0
    for j in tl.range(count):
        for operation in body:
            apply(tl, v, operation, x + 64 * j, y + 64 * j)
        if kind == "plain":
            continue
        try:
            if kind == "index" and j == schedule.left:
                break
            if kind != "index" and schedule.is_now():
                if kind == "break":
                    break
                if kind == "raise":
                    tl.store(y + 64, v[0])
                    raise ValueError
                v[0] = v[1] + v[1]
        except ValueError:
            v[2] = tl.full(SHAPES[2], 2.0)
        i += 1
    else:
        tl.store(y + 128 * j, v[3])
    tl.store(y + 64 * i, v[4])
    return j


def several_entries(x, y, entries, *, tl):
    v = {i: tl.full(SHAPES[i % 4], 0.0) for i in range(6)}
    for body, count, kind, turn in entries:
        last = turns(tl, v, (body, count, kind, Schedule(turn)), x, y)
        tl.store(y + 64 * last, v[5])


def in_a_routine(x, y, entries, *, tl):
    for shift in (0, 64, 128, 192):
        tl.routine(several, tl, entries, at=(x + shift, y + shift))


def several(tl, entries, x, y):
    several_entries(x, y, entries, tl=tl)


@settings(max_examples=sampled.examples(8, 30), deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(
            st.lists(OPERATIONS, min_size=1, max_size=4).map(tuple),
            st.integers(1, 16),
            st.sampled_from(["plain", "plain", "plain", "index", "differs", "break", "raise"]),
            st.integers(1, 20),
        ),
        min_size=1,
        max_size=6,
    ).map(tuple),
    st.sampled_from([several_entries, in_a_routine]),
    st.sampled_from(["4 MiB", "40 KiB", "24 KiB"]),
)
def test_random_entries_of_one_loop_are_recorded_alike_both_ways(entries, kernel, scratch):
    same(kernel, entries, scratch=scratch)


def test_a_body_with_hidden_state_is_run_again_in_full(folds, monkeypatch):
    monkeypatch.setattr("kernbench.triton_emu.repeating.reached_code.keeps_state", lambda module, name: False)
    before = sys.getswitchinterval()
    try:
        run = launched(hides, 40)
    finally:
        sys.setswitchinterval(before)
    assert run.ok
    assert folds
    assert run.metrics["commands"] > 2 * 3 * 30


class Steps:
    """Counts in its class, which its objects show only through a method or a property."""

    count = 0
    drawn = iter(())

    def step(self):
        type(self).count += 1
        return type(self).count == 12

    @property
    def is_there(self):
        return self.step()


SCHEDULE = types.ModuleType("schedule")
exec("count = 0\ndef step():\n    global count\n    count += 1\n    return count == 12", vars(SCHEDULE))


def step_of(source):
    """A function that is true once, the twelfth time, and what it takes to ask it."""
    Steps.count = SCHEDULE.count = 0
    if source == "an attribute of a class":
        Steps.drawn = itertools.chain([False] * 11, [True], itertools.repeat(False))
        return Steps, lambda steps: next(steps.drawn)
    if source == "a method":
        return Steps(), lambda steps: steps.step()
    if source == "a property":
        return Steps(), lambda steps: steps.is_there
    if source == "a module's function":
        return SCHEDULE, lambda module: module.step()
    if source == "a method of a C type":
        return ([False] * 28 + [True] + [False] * 11).pop, lambda pop: pop()
    if source == "random numbers":
        return random.Random(1).random, lambda draw: draw() < 0.1

    def recursive():
        recursive.count += 1
        return recursive.count == 12

    recursive.count = 0
    return recursive, lambda function: function()


def once(x, y, n, source, *, tl):
    hidden, ask = step_of(source)
    for j in tl.range(n):
        v = tl.load(x + j * BYTES, shape=(16, 16))
        tl.store(y + j * BYTES, tl.exp(v) if ask(hidden) else v)


@pytest.mark.parametrize(
    "source",
    [
        "an attribute of a class",
        "a method",
        "a property",
        "a module's function",
        "a method of a C type",
        "random numbers",
        "its own attribute",
    ],
)
def test_an_iteration_in_the_middle_that_hidden_state_makes_different(source, folds):
    """First and last iterations are alike, so that only what the state holds can show it."""
    run = same(once, 40, source)
    assert run.status is Status.FINISHED
    assert not run.findings
    assert not folds


def names_its_module(x, y, n, *, tl):
    SCHEDULE.count = 0
    for j in tl.range(n):
        SCHEDULE.count += 1
        v = tl.load(x + j * BYTES, shape=(16, 16))
        tl.store(y + j * BYTES, tl.exp(v) if SCHEDULE.count == 12 else v)


def advances(x, y, n, *, tl):
    pointer = tl.make_block_ptr(x, (4096, 768), (768, 1), (0, 0), (16, 16))
    for j in tl.range(n):
        tl.store(y + j * BYTES, tl.load(pointer, boundary_check=(0, 1)))
        pointer = tl.advance(pointer, (16, 0))


def asks_what_its_index_is(x, y, n, *, tl):
    for j in tl.range(n):
        at = j.numerator + j.real + j.imag if j.denominator == 1 else 0
        size = 16 if isinstance(j, int) else 8
        tl.store(y + at * BYTES, tl.load(x + j * BYTES, shape=(size, size)))


@pytest.mark.parametrize("kernel", [names_its_module, advances, asks_what_its_index_is])
def test_state_and_indices_of_every_kind(kernel, folds):
    run = same(kernel, 40)
    assert run.status is Status.FINISHED
    assert not run.findings
    assert not folds


class Sizes:
    size = 16

    def twice(self):
        return 2 * self.size


def uses_an_object(x, y, n, *, tl):
    sizes = Sizes()
    for j in tl.range(n):
        wide = int(np.sqrt(256)) if isinstance(j, int) else 1
        v = tl.load(x + j * BYTES, shape=(sizes.twice(), wide))
        tl.store(y + j * BYTES, v * math.pi)


def test_objects_and_modules_that_stay_as_they_are_fold(folds):
    same(uses_an_object, 40)
    assert folds


def interpreted(x, y, body, inner, n, m, *, tl):
    v = {i: tl.full(SHAPES[i % 4], 0.0) for i in range(6)}
    for i in tl.range(n):
        for operation in body:
            apply(tl, v, operation, x + 64 * i, y + 64 * i)
        for j in tl.range(m):
            for operation in inner:
                apply(tl, v, operation, x + 128 * j + 64 * i, y + 64 * j)
    for handle in v.values():
        tl.store(y, handle)


def apply(tl, v, operation, x, y):
    name, a, b, shape = operation
    if name == "load":
        v[a] = tl.load(x, shape=SHAPES[shape])
    elif name == "store":
        tl.store(y + shape * 64, v[b])
    elif name == "add":
        v[a] = v[b] + v[b]
    elif name == "inplace":
        v[a] = tl.exp(v[b], out=v[b] if v[b].strides is None and v[b].nbytes == v[b].block.used else None)
    elif name == "view":
        v[a] = tl.trans(v[b])
    elif name == "move":
        v[a], v[b] = v[b], v[a]
    elif name == "reduce":
        v[a] = tl.sum(v[b], axis=1)
    else:
        v[a] = tl.full(SHAPES[shape], 1.0)


@settings(max_examples=sampled.examples(8, 30), deadline=None, derandomize=True)
@given(
    st.lists(OPERATIONS, max_size=5),
    st.lists(OPERATIONS, max_size=6),
    st.integers(1, 14),
    st.integers(1, 14),
    st.sampled_from(["4 MiB", "40 KiB", "24 KiB"]),
)
def test_random_loops_are_recorded_alike_both_ways(body, inner, n, m, scratch):
    same(interpreted, tuple(body), tuple(inner), n, m, scratch=scratch)


def routine_of_loops(x, y, *args, tl):
    for shift in (0, 64):
        tl.routine(part_of_loops, tl, *args, at=(x + shift, y + shift))


def part_of_loops(tl, body, inner, n, m, x, y):
    interpreted(x, y, body, inner, n, m, tl=tl)


@settings(max_examples=sampled.examples(10, 30), deadline=None, derandomize=True)
@given(
    st.lists(OPERATIONS, max_size=5),
    st.lists(OPERATIONS, min_size=1, max_size=6),
    st.integers(5, 14),
    st.integers(5, 14),
    st.sampled_from(["4 MiB", "40 KiB", "24 KiB"]),
)
def test_random_loops_in_a_routine_are_recorded_alike_both_ways(body, inner, n, m, scratch):
    """A routine notes what the allocator does in inner loops: an outer one folds where memory is nearly full."""
    same(routine_of_loops, tuple(body), tuple(inner), n, m, scratch=scratch)
