"""What functions change outside themselves is seen, however deep it lies; what they only read is no change."""

import collections
import io
import itertools
import random
import sys
import types

import numpy as np
import pytest

from kernbench.safety.processes.outside import Outside

COUNTS = collections.Counter()
SETTINGS = {"inner": {"seen": [0]}}
MODULE = types.ModuleType("somebodys_module")
MODULE.total = [1000.5]
MODULE.number = 10**9


class Slotted:
    __slots__ = ("count", "unset")

    def __init__(self):
        self.count = 10**9


class Kept:
    total = 0

    def __init__(self):
        self.inner = types.SimpleNamespace(table={"a": [Slotted()]}, dice=random.Random(1), text=io.StringIO())
        self.recent = collections.deque(maxlen=4)
        self.array = np.zeros(4)
        self.turns = itertools.count()

    def note(self):
        Kept.total += 1

    def deep(self):
        self.inner.table["a"][0].count += 1


def counts():
    COUNTS["a"] += 1


def sets():
    SETTINGS["inner"]["seen"][0] += 1


def module_list():
    MODULE.total[0] += 1


def module_number():
    MODULE.number += 1


def calls_another():
    sets()


def keeps_on_itself():
    keeps_on_itself.calls = getattr(keeps_on_itself, "calls", 0) + 1


def default(kept=[]):  # noqa: B006
    kept.append(1)


def closing(action):
    """A function that closes over an object with a method that closes over nothing."""
    held = Kept()

    def kernel():
        action(held)

    return kernel


CHANGES = {
    "a counter": counts,
    "a list in a dictionary in a dictionary": sets,
    "a list of a module": module_list,
    "a number of a module": module_number,
    "through another function": calls_another,
    "an attribute of the function": keeps_on_itself,
    "a default": default,
    "a class, by a method": closing(Kept.note),
    "a slot of an object in a list in a dictionary of an attribute": closing(Kept.deep),
    "random numbers of an object": closing(lambda held: held.inner.dice.random()),
    "a text": closing(lambda held: held.inner.text.write("a")),
    "a ring": closing(lambda held: held.recent.append(1)),
    "an array": closing(lambda held: held.array.__setitem__(0, 1.0)),
    "an iterator": closing(lambda held: next(held.turns)),
    "a partial": __import__("functools").partial(closing(Kept.deep)),
    "a method": closing(Kept.deep).__call__,
}


@pytest.fixture(autouse=True)
def own_module(monkeypatch):
    monkeypatch.setitem(sys.modules, MODULE.__name__, MODULE)


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_is_seen(what):
    outside = Outside()
    outside.add([CHANGES[what]])
    CHANGES[what]()
    assert outside.changed()


def reads(tile, held={"a": [1.0, float("nan"), 10**12]}):  # noqa: B006
    total = sum(SETTINGS["inner"]["seen"]) + MODULE.number + COUNTS["a"] + len(held)
    return np.full(4, total) + tile


class Plain:
    """Has no iterator and no file."""

    def __init__(self):
        self.table = {"a": np.arange(5), 2: (1, 2)}

    def use(self):
        return self.table["a"].sum() + Kept.total


def test_what_is_only_read_is_no_change():
    plain = Plain()
    COUNTS["a"] += 1
    outside = Outside()
    outside.add([reads, plain.use, lambda: plain.use()])
    reads(np.ones(4))
    plain.use()
    # numbers that are made again are the same numbers
    MODULE.number = int(str(MODULE.number))
    assert not outside.changed()


def test_more_than_is_looked_at_counts_as_changed(monkeypatch):
    monkeypatch.setattr("kernbench.safety.processes.outside._MOST_OBJECTS", 10)
    many = [[i] for i in range(20)]
    outside = Outside()
    outside.add([lambda: many])
    assert outside.changed()
