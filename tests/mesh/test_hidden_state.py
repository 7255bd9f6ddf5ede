"""Loops whose body keeps state in unusual places: without data they are recorded as if every iteration had run.

In each the twelfth iteration differs, the first and the last do not, so that only the state itself can show it.
"""

import abc
import collections
import enum
import functools
import itertools
import math
import sys
import textwrap
import threading
import types
from typing import NamedTuple

import numpy as np
import pytest
from tests.mesh.test_folding import BYTES, same

pytestmark = pytest.mark.usefixtures("short_loops")


class Kept:
    count = 0


def step(*_):
    Kept.count += 1
    return Kept.count == 12


def attribute_of(make):
    """A counter in an attribute of what `make` gives."""

    def start():
        kept = make()
        kept.count = 0

        def ask(kept):
            kept.count += 1
            return kept.count == 12

        return kept, ask

    return start


def reached_by(kept, ask):
    """The counter of `Kept`, which only what `kept` calls can reach."""

    def start():
        Kept.count = 0
        return kept, ask

    return start


class Colour(enum.Enum):
    RED = 1


class Level(enum.IntEnum):
    LOW = 1


class Pair(tuple):
    pass


class Array(np.ndarray):
    pass


class Text(str):
    pass


class Point(NamedTuple):
    x: int

    def step(self):
        return step()


class Counted(type):
    def step(cls):
        return step()


class WithMetaclass(metaclass=Counted):
    pass


class Generic:
    __class_getitem__ = classmethod(types.GenericAlias)

    @classmethod
    def step(cls):
        return step()


class Called:
    __call__ = staticmethod(step)


class Property(property):
    def __get__(self, owner, kind=None):
        return step()


class WithProperty:
    asked = Property(lambda self: False)


class Module(types.ModuleType):
    asked = property(step)


class Pretending:
    __class__ = property(lambda self: np.ufunc)

    def __init__(self):
        self.count = 0

    def step(self):
        self.count += 1
        return self.count == 12


class PrivateSlot:
    __slots__ = ("__count",)

    def __init__(self):
        self.__count = 0

    def step(self):
        self.__count += 1
        return self.__count == 12


class Slots:
    __slots__ = iter(["count"])


@functools.wraps(math.sqrt)
def called_like_a_library(_):
    return step()


def empty_ranges():
    def ask(held):
        held[0] = range(held[0].start + 1, held[0].start + 1)
        return held[0].start == 12

    return [range(0)], ask


def signs_of_zeros():
    def ask(held):
        for i in range(4):
            held[i] = -held[i]
            if str(held[i]) == "-0.0":
                break
        return all(str(zero) == "-0.0" for zero in held)

    return [0.0] * 4, ask


def types_in_sets():
    def ask(held):
        for i in range(4):
            (value,) = held[i]
            held[i] = {int(value)} if type(value) is float else {float(value)}
            if type(value) is int:
                break
        return all(type(value) is float for values in held for value in values)

    return [{1}, {2.0}, {1.0}, {0}], ask


def factory_of_a_dict():
    drawn = itertools.chain([0] * 11, [1], itertools.repeat(0))

    def ask(held):
        found = held["a"]
        del held["a"]
        return found == 1

    return collections.defaultdict(lambda: next(drawn)), ask


@functools.lru_cache(maxsize=4)
def cached(key):
    return Kept.count


def results_of_a_cache():
    Kept.count = 0
    cached.cache_clear()
    cached(0)

    def ask(_):
        Kept.count = cached(0) + 1
        cached.cache_clear()
        found = cached(0)
        Kept.count = 0
        return found == 12

    return None, ask


class Drawing:
    draw = None


def method_in_a_class():
    Drawing.draw = ([False] * 28 + [True] + [False] * 11).pop
    return None, lambda _: Drawing.draw()


class Bases:
    kinds = tuple(type(f"Base{i}", (), {"v": i}) for i in range(10))


class Derived(Bases.kinds[0]):
    pass


def bases_of_a_class():
    Derived.__bases__ = (Bases.kinds[0],)

    def ask(derived):
        Derived.__bases__ = (Bases.kinds[(derived.v + 1) % 10],)
        return derived.v == 9

    return Derived(), ask


def memory_of_an_array():
    whole = np.zeros(10)

    def ask(held):
        held[0][0] = 1
        at = int(held[1].argmax())
        held[0][0] = 0
        held[0] = held[1][(at + 1) % 10 :][:1]
        return at == 9

    return [whole[:1], whole], ask


def registered():
    class Kind(abc.ABC):  # noqa: B024
        pass

    kinds = [type(f"kind{i}", (), {}) for i in range(50)]

    def ask(kind):
        kind.register(next(one for one in kinds if not issubclass(one, kind)))
        return issubclass(kinds[11], kind) and not issubclass(kinds[12], kind)

    return Kind, ask


def name_of_a_function():
    def named():
        pass

    named.__name__ = "0"

    def ask(named):
        named.__name__ = str(int(named.__name__) + 1)
        return named.__name__ == "12"

    return named, ask


COUNT = 0


def by_text():
    globals()["CO" + "UNT"] += 1
    return COUNT == 12


def variable_by_text():
    globals()["COUNT"] = 0
    return None, lambda _: by_text()


STATE = types.ModuleType("tests.mesh.state_of_a_test")


def imports():
    from tests.mesh import state_of_a_test

    state_of_a_test.count += 1
    return state_of_a_test.count == 12


def imported_where_it_is_used():
    sys.modules["tests.mesh.state_of_a_test"] = STATE
    STATE.count = 0
    return None, lambda _: imports()


def executed():
    sys.modules["tests.mesh.state_of_a_test"] = STATE
    STATE.count = 0

    def ask(_):
        exec("import tests.mesh.state_of_a_test as m; m.count += 1")
        return eval("__import__('sys').modules['tests.mesh.state_of_a_test'].count == 12")

    return None, ask


def state_of_numpy():
    np.setbufsize(16)

    def ask(_):
        np.setbufsize(np.getbufsize() + 16)
        return np.getbufsize() == 16 * 13

    return None, ask


def names_of_threads():
    def number():
        return int(threading.Thread(target=len).name.split("-")[1].split()[0])

    return number(), lambda first: number() == first + 12


HIDDEN = {
    "an enumeration's member": attribute_of(lambda: Colour.RED),
    "a member that is a number": attribute_of(lambda: Level.LOW),
    "a tuple": attribute_of(lambda: Pair((1, 2))),
    "an array": attribute_of(lambda: np.zeros(2).view(Array)),
    "a text": attribute_of(lambda: Text("a")),
    "slots named by an iterator": attribute_of(Slots),
    "a class made by types": attribute_of(lambda: types.new_class("New")),
    "a class of the library": attribute_of(lambda: collections.UserDict),
    "a function of the library": attribute_of(lambda: textwrap.dedent),
    "a function of NumPy": attribute_of(lambda: np.sum),
    "a method of a named tuple": reached_by(Point(1), lambda point: point.step()),
    "a metaclass": reached_by(WithMetaclass, lambda kind: kind.step()),
    "an alias of a type": reached_by(Generic[int], lambda alias: alias.step()),
    "a special method that is no function": reached_by(Called(), lambda called: called()),
    "a kind of property": reached_by(WithProperty(), lambda held: held.asked),
    "a kind of module": reached_by(Module("m"), lambda module: module.asked),
    "a function of NumPy that calls Python": reached_by(np.frompyfunc(step, 1, 1), lambda f: bool(f(0))),
    "a function that has a library's name": reached_by(None, lambda _: called_like_a_library(_)),
    "an object that pretends": lambda: (Pretending(), lambda held: held.step()),
    "a private slot": lambda: (PrivateSlot(), lambda held: held.step()),
    "empty ranges": empty_ranges,
    "signs of zeros": signs_of_zeros,
    "types in sets": types_in_sets,
    "the factory of a dictionary": factory_of_a_dict,
    "results of a cache": results_of_a_cache,
    "a method of a list in a class": method_in_a_class,
    "bases of a class": bases_of_a_class,
    "which memory an array shows": memory_of_an_array,
    "registered classes": registered,
    "the name of a function": name_of_a_function,
    "a variable found by a text": variable_by_text,
    "a module imported where it is used": imported_where_it_is_used,
    "a text that is executed": executed,
    "NumPy itself": state_of_numpy,
    "names of threads": names_of_threads,
}


def once(x, y, n, start, *, tl):
    hidden, ask = start()
    del start
    for j in tl.range(n):
        v = tl.load(x + j * BYTES, shape=(16, 16))
        tl.store(y + j * BYTES, tl.exp(v) if ask(hidden) else v)


def in_its_context(x, y, n, *, tl):
    tl.count = 0
    for j in tl.range(n):
        tl.count += 1
        v = tl.load(x + j * BYTES, shape=(16, 16))
        tl.store(y + j * BYTES, tl.exp(v) if tl.count == 12 else v)


def in_place_of_an_operation(x, y, n, *, tl):
    plain, calls = tl.exp, []

    def counted(value):
        calls.append(value.shape)
        return plain(value) if len(calls) == 12 else value

    tl.exp = counted
    for j in tl.range(n):
        tl.store(y + j * BYTES, tl.exp(tl.load(x + j * BYTES, shape=(16, 16))))


def by_another_name(x, y, n, *, tl):
    load, store, exp = tl.load, tl.store, tl.exp
    for j in tl.range(n):
        store(y + j * BYTES, exp(load(x + j * BYTES, shape=(16, 16))))


@pytest.mark.parametrize("where", HIDDEN)
def test_state_is_found_wherever_it_is_kept(where, folds):
    size = np.getbufsize()
    try:
        run = same(once, 40, HIDDEN[where])
    finally:
        np.setbufsize(size)
        sys.modules.pop("tests.mesh.state_of_a_test", None)
    assert run.ok
    assert not folds


def test_what_a_kernel_adds_to_its_context_is_state(folds):
    assert same(in_its_context, 40).ok
    assert not folds


def test_what_a_kernel_puts_in_place_of_an_operation_is_state(folds):
    assert same(in_place_of_an_operation, 40).ok
    assert not folds


def test_operations_under_names_of_the_kernel_are_no_state(folds):
    assert same(by_another_name, 40).ok
    assert folds


def in_a_class(x, y, n, *, tl):
    class Body:
        held = tl.load(x, shape=(16, 16))
        for j in tl.range(n):
            tl.store(y, tl.load(x + j * BYTES, shape=(16, 16)) + held)


def in_a_text(x, y, n, *, tl):
    text = "for j in tl.range(n):\n    tl.store(y, tl.load(x + j * size, shape=(16, 16)))\n"
    exec(text, {"tl": tl, "n": n, "x": x, "y": y, "size": BYTES})


@pytest.mark.parametrize("kernel", [in_a_class, in_a_text])
def test_variables_of_a_class_body_and_of_a_text_are_left_alone(kernel, folds):
    assert same(kernel, 40).ok
    assert not folds


def with_a_default(x, y, n, *, tl):
    for j in tl.range(n):

        def made(value=tl.load(x + j * BYTES, shape=(16, 16))):  # noqa: B008
            return value

        held = tl.exp(made())
        tl.store(y, held + held)


MADE = [None]


def with_a_default_elsewhere(x, y, n, *, tl):
    global MADE
    for j in tl.range(n):
        MADE = lambda value=tl.load(x + j * BYTES, shape=(16, 16)): value  # noqa: B008, E731
        held = tl.exp(MADE())
        tl.store(y, held + held)
    MADE = None
    value = tl.load(x, shape=(16, 16))
    tl.store(y, value + value)


def with_modules(x, y, n, *, tl):
    for _ in range(3):
        module = types.ModuleType("made")
        module.value = tl.load(x, shape=(16, 16))
        for _ in tl.range(n):
            tl.store(y, module.value + module.value)
        del module
    value = tl.load(x, shape=(16, 16))
    tl.store(y, value + value)


@pytest.mark.parametrize("kernel", [with_a_default, with_a_default_elsewhere, with_modules])
def test_values_live_as_long_as_they_would(kernel):
    assert same(kernel, 40).ok
