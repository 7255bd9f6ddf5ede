"""What functions change outside themselves is seen, however deep it lies; what they only read is no change."""

import array
import collections
import io
import itertools
import json
import random
import string
import sys
import textwrap
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
        self.inner = types.SimpleNamespace(table={"a": [Slotted()]}, dice=random.Random(1))
        self.recent = collections.deque(maxlen=4)
        self.array = np.zeros(4)
        self.objects = np.array([[1], None], object)
        self.large = np.zeros(1 << 18)
        self.numbers = array.array("d", [0.0])
        self.generator = np.random.default_rng(1)
        self.old_generator = np.random.RandomState(1)

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


NAMESPACE = {"__name__": "somebodys_module"}
exec("def by_name():\n    globals()['later'] = 1", NAMESPACE)


def library_number():
    json.kernbench_calls = getattr(json, "kernbench_calls", 0) + 1


def library_list():
    string.kernbench_calls.append(1)


def library_by_text():
    setattr(json, "kernbench_text", 1)  # noqa: B010


def module_inside_a_library():
    json.decoder.kernbench_calls = 1


def class_of_a_library():
    string.Template.idpattern = "x"


def imported_inside():
    import textwrap

    textwrap.kernbench_calls = 1


def code_of_a_library():
    json.dumps = json.loads


class Unlike(Kept):
    """Holds what is never equal to what it was."""

    def __init__(self):
        super().__init__()
        self.text, self.turns = io.StringIO(), itertools.count()


def closing(action, kind=Kept):
    """A function that closes over an object with a method that closes over nothing."""
    held = kind()

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
    "a text": closing(lambda held: held.text.write("a"), Unlike),
    "a ring": closing(lambda held: held.recent.append(1)),
    "an array": closing(lambda held: held.array.__setitem__(0, 1.0)),
    "an element of an array of objects": closing(lambda held: held.objects[0].append(1)),
    "the end of a large array": closing(lambda held: held.large.__setitem__(-1, 1.0)),
    "an array of Python's": closing(lambda held: held.numbers.__setitem__(0, 1.0)),
    "random numbers of NumPy's generator": closing(lambda held: held.generator.random()),
    "random numbers of NumPy's old generator": closing(lambda held: held.old_generator.random()),
    "a global by its name as text": NAMESPACE["by_name"],
    "an iterator": closing(lambda held: next(held.turns), Unlike),
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
    assert outside.changed() == (what in ("a text", "an iterator"))
    CHANGES[what]()
    assert outside.changed()


def reads(tile, held={"a": [1.0, float("nan"), 10**12]}):  # noqa: B006
    total = sum(SETTINGS["inner"]["seen"]) + MODULE.number + COUNTS["a"] + len(held)
    return np.full(4, total) + tile


class Plain:
    """Has no iterator and no file."""

    def __init__(self):
        self.table = {"a": np.arange(5), 2: (1, 2), "large": np.zeros(1 << 18), "generator": np.random.default_rng(1)}

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


@pytest.mark.parametrize("many", [list(range(20)), dict.fromkeys(range(20)), np.zeros(20), bytearray(20)])
def test_an_object_larger_than_is_looked_at_counts_as_changed(monkeypatch, many):
    monkeypatch.setattr("kernbench.safety.processes.outside._MOST", 10)
    monkeypatch.setattr("kernbench.safety.processes.outside._MOST_BYTES", 10)
    outside = Outside()
    outside.add([lambda: many])
    assert outside.changed()


LIBRARY_CHANGES = (
    library_number,
    library_list,
    library_by_text,
    module_inside_a_library,
    class_of_a_library,
    imported_inside,
    code_of_a_library,
)


@pytest.fixture
def libraries(monkeypatch):
    """What the functions change is put back."""
    for name in ("kernbench_calls", "kernbench_text", "dumps"):
        monkeypatch.setattr(json, name, getattr(json, name, 0), raising=False)
    monkeypatch.setattr(json.decoder, "kernbench_calls", 0, raising=False)
    monkeypatch.setattr(string, "kernbench_calls", [], raising=False)
    monkeypatch.setattr(string.Template, "idpattern", string.Template.idpattern)
    monkeypatch.setattr(textwrap, "kernbench_calls", 0, raising=False)


@pytest.mark.usefixtures("libraries")
@pytest.mark.parametrize("change", LIBRARY_CHANGES)
def test_a_change_of_a_librarys_attribute_is_seen(change):
    outside = Outside()
    outside.add([change])
    assert not outside.changed()
    change()
    assert outside.changed()


def names_much_of_libraries(path=sys.path):
    sys.stdout.flush()
    json.dumps({}), string.Template("a").safe_substitute(), np.linalg.norm(np.random.default_rng(1).random(3))
    return len(path), sys.version, np.add.reduce([np.pi]), json.decoder.JSONDecoder.decode


def test_what_libraries_do_themselves_is_no_change():
    outside = Outside()
    outside.add([names_much_of_libraries])
    names_much_of_libraries()
    assert not outside.changed()


def foreign_array(read):
    """An array of a library: NumPy can read it, and Python shows no attributes of it."""
    return type("Foreign", (), {"__slots__": (), "__module__": "json", "__array__": lambda self, *_, **__: read()})()


def test_arrays_of_other_libraries_are_read_by_numpy():
    data = np.zeros(3)
    foreign = foreign_array(lambda: data)
    outside = Outside()
    outside.add([lambda: foreign])
    assert not outside.changed()
    data[1] = 1
    assert outside.changed()


def test_an_array_that_cannot_be_read_counts_as_changed():
    foreign = foreign_array(lambda: 1 / 0)
    outside = Outside()
    outside.add([lambda: foreign])
    assert outside.changed()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "bool", "complex64"])
@pytest.mark.parametrize("part", [..., 0])
def test_a_change_of_a_tensor_is_seen(dtype, part):
    torch = pytest.importorskip("torch")
    held = {"a": [torch.zeros(4, 3, dtype=getattr(torch, dtype)).t()[part]]}
    outside = Outside()
    outside.add([lambda: held])
    assert not outside.changed()
    held["a"][0][-1] = True
    assert outside.changed()


def test_a_tensor_that_has_no_numbers_here_counts_as_changed():
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(4, device="meta")
    outside = Outside()
    outside.add([lambda: tensor])
    assert outside.changed()


def test_random_numbers_of_a_generator_of_torch_are_seen():
    torch = pytest.importorskip("torch")
    generator = torch.Generator()
    outside = Outside()
    outside.add([lambda: generator])
    assert not outside.changed()
    torch.rand(1, generator=generator)
    assert outside.changed()
