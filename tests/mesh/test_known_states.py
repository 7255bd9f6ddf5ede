"""What a routine can depend on is not taken down again while it is what it was, and every change of it is noticed."""

import sys
from dataclasses import dataclass, field
from typing import NamedTuple

import pytest
from tests.mesh.both_ways import launched, same

from kernbench.triton_emu.repeating import routines, witness
from kernbench.triton_emu.repeating.loop_state import State

ROW = 768 * 4
CALLS = 24


@pytest.fixture(autouse=True)
def short_ones_too(monkeypatch):
    monkeypatch.setattr("kernbench.triton_emu.repeating.routines.FEWEST_COMMANDS", 1)


@pytest.fixture
def looks(monkeypatch):
    """The values that states were taken from, one entry for each."""
    taken = []

    def looked(frame, opaque, values, own):
        taken.append(values)
        return State(frame, opaque, values, own)

    monkeypatch.setattr(routines, "State", looked)
    return taken


class Tile(NamedTuple):
    rows: int
    first: int


@dataclass
class Plan:
    """What a function is handed."""

    times: int = 1
    sizes: list[int] = field(default_factory=lambda: [1, 2])
    named: dict[str, int] = field(default_factory=lambda: {"times": 1})


@dataclass
class OtherPlan(Plan):
    """One with a method that gives something else."""


def worked(tl, times, x, y):
    """Load, compute so many times, and store."""
    value = tl.load(x, shape=(16, 16))
    for _ in range(times):
        value = tl.exp(value)
    tl.store(y, value)


def test_a_state_is_taken_down_once(looks):
    def by_plan(tl, plan, tile, sizes, x, y):
        worked(tl, plan.times + tile.rows + sizes[0], x, y)

    plan = Plan()

    def kernel(x, y, tl):
        for i in range(CALLS):
            # tuples made anew are equal, and as good
            sizes = (i // 12, 2)
            tl.routine(by_plan, tl, plan, Tile(i // 12, 0), sizes, at=(x + i * ROW, y + i * ROW))

    launched(kernel)
    # of each of two kinds, on each of two ranks: before the call that is kept and after it
    assert len(looks) <= 2 * 2 * 3 < 2 * CALLS
    same(kernel)


def times_of(plan):
    return plan.times


TIMES = 1
SHARED = {"times": 1}


def by_attribute(tl, plan, x, y):
    worked(tl, plan.times, x, y)


def by_list(tl, plan, x, y):
    worked(tl, sum(plan.sizes), x, y)


def by_mapping(tl, plan, x, y):
    worked(tl, plan.named.get("more", plan.named["times"]), x, y)


def by_class(tl, plan, x, y):
    worked(tl, 2 if type(plan) is OtherPlan else 1, x, y)


def by_global(tl, plan, x, y):
    worked(tl, TIMES, x, y)


def by_shared(tl, plan, x, y):
    worked(tl, SHARED["times"], x, y)


def by_function(tl, plan, x, y):
    worked(tl, times_of(plan), x, y)


def by_default(tl, plan, x, y, times=1):
    worked(tl, times, x, y)


def by_context(tl, plan, x, y):
    worked(tl, getattr(tl, "extra", 1), x, y)


def replaced_attributes(plan, n):
    plan.__dict__ = dict(vars(Plan()), times=n)


def another_class(plan, n):
    plan.__class__ = OtherPlan if n > 1 else Plan


def another_global(plan, n):
    sys.modules[__name__].TIMES = n


def another_function(plan, n):
    sys.modules[__name__].times_of = lambda plan: n


CHANGES = {
    "an attribute": (by_attribute, lambda plan, n: setattr(plan, "times", n)),
    "all attributes": (by_attribute, replaced_attributes),
    "an element": (by_list, lambda plan, n: plan.sizes.__setitem__(0, n)),
    "one element more": (by_list, lambda plan, n: plan.sizes.append(n)),
    "a value": (by_mapping, lambda plan, n: plan.named.update(times=n)),
    "one key more": (by_mapping, lambda plan, n: plan.named.update({"more": n} if n > 1 else {})),
    "the class": (by_class, another_class),
    "a global variable": (by_global, another_global),
    "what a global variable holds": (by_shared, lambda plan, n: SHARED.update(times=n)),
    "a function": (by_function, another_function),
    "defaults": (by_default, lambda plan, n: setattr(by_default, "__defaults__", (n,))),
}


@pytest.mark.parametrize("name", CHANGES)
def test_what_changes_between_calls_is_noticed(name, monkeypatch):
    function, change = CHANGES[name]
    for known in ("TIMES", "times_of"):
        monkeypatch.setattr(sys.modules[__name__], known, globals()[known])
    monkeypatch.setattr(by_default, "__defaults__", (1,))

    def kernel(x, y, tl):
        plan = Plan()
        change(plan, 1)
        for i in range(CALLS):
            if i % 6 == 5:
                change(plan, 1 + i // 6 % 3)
            tl.routine(function, tl, plan, at=(x + i * ROW, y + i * ROW))

    assert same(kernel).recording.commands > 2 * 3 * CALLS


def test_what_a_kernel_adds_to_its_context_is_noticed():
    def kernel(x, y, tl):
        for i in range(CALLS):
            if i % 6 == 5:
                tl.extra = 1 + i // 6
            tl.routine(by_context, tl, None, at=(x + i * ROW, y + i * ROW))

    same(kernel)


def test_a_tuple_that_something_else_holds_too_is_another():
    def compared(tl, held, sizes, x, y):
        worked(tl, 3 if held[0] is sizes else 1, x, y)

    def kernel(x, y, tl):
        held = [(len("a"), 2)]
        for i in range(CALLS):
            tl.routine(compared, tl, held, held[0] if i > 8 else (len("a"), 2), at=(x + i * ROW, y + i * ROW))

    same(kernel)


def test_equal_numbers_of_other_types_are_others():
    def typed(tl, number, x, y):
        worked(tl, {bool: 1, int: 2}[type(number)], x, y)

    def kernel(x, y, tl):
        for i in range(CALLS):
            tl.routine(typed, tl, True if i > 8 else 1, at=(x + i * ROW, y + i * ROW))

    same(kernel)


def test_what_cannot_be_witnessed_is_looked_at_each_time(looks):
    def by_slot(tl, held, x, y):
        worked(tl, held.times, x, y)

    class Slotted:
        __slots__ = ("times",)

    def kernel(x, y, tl):
        held = Slotted()
        for i in range(CALLS):
            held.times = 1 + i % 2
            tl.routine(by_slot, tl, held, at=(x + i * ROW, y + i * ROW))

    same(kernel)
    assert len(looks) >= 2 * CALLS


def test_states_are_not_kept_without_end(monkeypatch):
    monkeypatch.setattr(witness, "MOST_STATES", 3)
    kept = []
    keep = witness.KnownStates.keep

    def counted(self, values, state):
        keep(self, values, state)
        kept.append(len(self._known))

    monkeypatch.setattr(witness.KnownStates, "keep", counted)

    def kernel(x, y, tl):
        plans = [Plan(n) for n in range(6)]
        for i in range(CALLS):
            tl.routine(by_attribute, tl, plans[i % 6], at=(x + i * ROW, y + i * ROW))

    same(kernel)
    assert max(kept) <= 3
