"""The code that a loop can run, and the variables that this code can name: what `loop_state` looks at, found once.

Functions, classes and modules lead to each other through globals, class attributes and attributes of modules. That
graph is large and hardly ever changes, while it has to be looked at between any two iterations that are compared. So it
is walked once and kept as two lists: variables that held code or a plain value, which must still hold the same (one
comparison each), and variables that hold anything else, whose values `loop_state` compares every time.

Only code that lives as long as its module is kept here. A function with a closure, or a class made in a function, may
hold tensors, which must not live longer than they would: `loop_state` looks into those.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, KeysView, Mapping
from functools import cached_property
from itertools import chain
from operator import attrgetter, getitem, is_
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GenericAlias,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    ModuleType,
    UnionType,
    WrapperDescriptorType,
)
from typing import NamedTuple, TypeVar, cast

import numpy as np

from kernbench.triton_emu.repeating.libraries import Held, is_found, keeps_state, library_module
from kernbench.triton_emu.repeating.names import globals_in, imports_in, looks_behind, names_in

__kernbench_internal__ = True

PLAIN = (int, float, complex, bool, str, bytes, type(None), range, type(Ellipsis), type(NotImplemented))
# objects that do not change
_UNCHANGING = (re.Pattern, UnionType, TypeVar)
# what functions of NumPy are
NUMPY_FUNCTION = type(np.sum)
# what classes of C types are made of
BY_C = (BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType)


class _Fields(NamedTuple):
    field: int


# what Python adds to classes: slots and attributes of its own, fields of named tuples
_OF_CLASSES = (
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    WrapperDescriptorType,
    type(vars(_Fields)["field"]),
)
# what only annotations, decorators of classes and abstract classes look at; from Python 3.14 on annotations are worked
# out by a function, which finds the names of the class in a cell
_OF_ANNOTATIONS = frozenset(
    (
        "__annotations__",
        "__annotations_cache__",
        "__annotate__",
        "__annotate_func__",
        "__classdictcell__",
        "__conditional_annotations__",
    )
)
_UNUSED = _OF_ANNOTATIONS | frozenset(
    (
        "__dataclass_fields__",
        "__dataclass_params__",
        "__orig_bases__",
        "__parameters__",
        "__abstractmethods__",
        "__slots__",
        "_abc_impl",
    )
)
# names of what finds variables by texts
_BY_TEXT = frozenset(
    (
        "globals",
        "vars",
        "getattr",
        "setattr",
        "delattr",
        "locals",
        "__dict__",
        "__globals__",
        "attrgetter",
        "methodcaller",
    )
)
# attributes of handles that say which value they are and where it lies, and of the context that say how far it is
_OF_HANDLES = frozenset(("addr", "block", "id", "number"))
_OF_PROGRAMS = frozenset(("commands", "pending", "refused", "scratch_peak", "steps", "stream"))
# what shows a kernel its values or holds them against something, without a command, and what people read
_OF_VALUES = frozenset(("assume", "checkpoint", "core", "data", "device_assert", "device_print", "parts", "print"))
# what Python keeps in a module
OF_MODULES = _OF_ANNOTATIONS | frozenset(
    ("__builtins__", "__loader__", "__spec__", "__path__", "__cached__", "__file__")
)
_IMMUTABLE_TYPE = 1 << 8
_MISSING = object()
MOST_VARIABLES = 50_000
_MOST_KEPT = 128

# where code starts: modules, classes, and code with its globals
Code = tuple[CodeType, dict[str, Held]]
Root = ModuleType | type | FunctionType | Code
Names = Mapping[str, Held]


class TooMuchError(Exception):
    """More code than is worth looking at, or code that keeps state where nobody can look."""


class Reached:
    """All code that lives as long as its module and can be reached from some roots, and what it can name."""

    def __init__(self, roots: Iterable[Root]):
        # objects are known by their addresses: the roots may not die while this is kept
        self._roots = list(roots)
        # variables by what they belong to: names that held code or a plain value, those that were not there, the rest
        self._fixed: dict[int, tuple[Names, dict[str, object]]] = {}
        self._lacked: dict[int, tuple[Names, set[str]]] = {}
        self._open: dict[tuple[int, str], Names] = {}
        # functions, and their code and defaults one after another; those whose defaults may change in place
        self._functions: tuple[list[FunctionType], list[object]] = ([], [])
        self._defaults: list[FunctionType] = []
        # functions by whether they have attributes
        self._bare: list[FunctionType] = []
        self._attributes: list[tuple[FunctionType, dict[str, object]]] = []
        self._cells: tuple[list[CellType], list[object]] = ([], [])
        self._classes: tuple[list[object], ...] = ([], [], [])
        # what is looked into by name: modules, and classes of libraries, to which anybody may add
        self._modules: list[ModuleType | type] = []
        self._whole: dict[int, tuple[Names, int]] = {}
        self._names: dict[str, None] = {"__getattr__": None}
        self._by_text = False
        self._asked: set[tuple[int, str]] = set()
        self._met: set[int] = set()
        self._waiting: list[Held] = list(self._roots)
        self._walk()

    # Finding

    def _walk(self) -> None:
        known = -1
        while known != len(self._asked) or self._waiting:
            known = len(self._asked)
            while self._waiting:
                self._enter(self._waiting.pop())
            self._attributes_of_modules()

    def _enter(self, value: Held) -> None:
        if isinstance(value, tuple):
            self._code(*value)
        elif id(value) not in self._met:
            self._met.add(id(value))
            if is_a(value, FunctionType):
                self._function(value)
            elif is_a(value, type):
                self._class(value)
            else:
                self._modules.append(value)
                self._waiting.append(type(value))

    def _function(self, function: FunctionType) -> None:
        module = library_module(function)
        if module is None or not module.startswith("kernbench"):
            self._function_attributes(function)
        if module is None:
            functions, parts = self._functions
            functions.append(function)
            parts += _PARTS(function)
            if not is_value(function.__defaults__) or function.__kwdefaults__ is not None:
                self._defaults.append(function)
            self._code(function.__code__, function.__globals__)
        elif keeps_state(module, function.__name__):
            raise TooMuchError

    def _function_attributes(self, function: FunctionType) -> None:
        attributes = function.__dict__
        if attributes:
            self._attributes.append((function, attributes))
            self._whole[id(attributes)] = attributes, len(attributes)
            for name in attributes:
                self._variable(id(attributes), attributes, name)
        else:
            self._bare.append(function)

    def _code(self, code: CodeType, known: dict[str, Held]) -> None:
        names = names_in(code)
        for name in names:
            self._names[name] = None
            self._variable(id(known), known, name)
        if looks_behind(code) or any(n not in known and keeps_state("builtins", n) for n in globals_in(code)):
            raise TooMuchError
        self._by_text |= not _BY_TEXT.isdisjoint(names)
        if "globals" in names or "__globals__" in names:
            self._all_of(known)
        for name, is_module in imports_in(code, known.get("__package__") or known.get("__name__", "")).items():
            if is_module and name not in sys.modules:
                raise TooMuchError
            self._variable(id(sys.modules), sys.modules, name)

    def _all_of(self, known: Names) -> None:
        """All variables of a module, where code may find them by a text that it puts together."""
        if id(known) not in self._whole:
            self._whole[id(known)] = known, len(known)
            for name in list(known):
                if name not in OF_MODULES:
                    self._variable(id(known), known, name)

    def _class(self, value: type) -> None:
        """What a class keeps for all its objects, and what its methods can reach."""
        if (module := library_module(value)) is not None:
            if keeps_state(module, value.__name__):
                raise TooMuchError
            if not value.__flags__ & _IMMUTABLE_TYPE:
                self._modules.append(value)
            return
        for column, one in zip(self._classes, (value, len(vars(value)), value.__mro__), strict=True):
            column.append(one)
        self._waiting += (*value.__mro__, type(value))
        known = vars(value)
        for name in own_names(value):
            self._variable(id(value), known, name)

    def _attributes_of_modules(self) -> None:
        """What code can name of the modules it can reach."""
        for module in list(self._modules):
            known = vars(module)
            if self._by_text and isinstance(module, ModuleType) and library_module(module) is None:
                self._all_of(known)
            for name in [name for name in self._names if (id(module), name) not in self._asked]:
                self._asked.add((id(module), name))
                if isinstance(module, ModuleType) or not is_a(known.get(name), _OF_CLASSES):
                    self._variable(id(module), known, name)

    def _variable(self, owner: int, known: Names, name: str) -> None:
        held = known.get(name, _MISSING)
        if not self._is_fixed(held):
            self._open[owner, name] = known
            return
        if held is _MISSING:
            self._lacked.setdefault(owner, (known, set()))[1].add(name)
            return
        self._fixed.setdefault(owner, (known, {}))[1][name] = held
        if len(self._fixed[owner][1]) > MOST_VARIABLES:
            raise TooMuchError

    def _is_fixed(self, held: Held) -> bool:
        """Whether a variable that holds this is compared by identity; code is entered."""
        if held is _MISSING or is_value(held) or is_unchanging(held):
            return True
        inner = functions_of(held)
        if inner is not None:
            # every one is entered
            return sum(self._is_fixed(function) for function in inner) == len(inner)
        if is_a(held, BuiltinFunctionType):
            return self._is_fixed_builtin(held)
        if is_a(held, FunctionType) and not self._is_fixed_function(held):
            return False
        if is_a(held, FunctionType) or lives_with_its_module(held):
            self._waiting.append(held)
            return True
        return False

    def _is_fixed_builtin(self, held: Held) -> bool:
        """Whether a function written in C depends on its arguments alone: one of a module, or what makes a tuple."""
        owner = held.__self__
        if isinstance(owner, ModuleType):
            if keeps_state(owner.__name__, held.__name__):
                raise TooMuchError
        elif held.__name__ != "__new__" or not _is_immutable(owner):
            return False
        self._waiting.append(owner)
        return True

    def _is_fixed_function(self, function: FunctionType) -> bool:
        """Whether a function that a module or class holds closes over nothing but code and values, as its defaults."""
        if library_module(function) is not None:
            return True
        defaults = (*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values())
        cells = [(cell, contents(cell)) for cell in function.__closure__ or ()]
        held = [*defaults, *(held for _, held in cells)]
        if not all(one is not function and self._is_fixed(one) for one in held):
            return False
        for cell, one in cells:
            self._cells[0].append(cell)
            self._cells[1].append(one)
        return True

    # Asking again

    @property
    def is_current(self) -> bool:
        """Whether all code is still what it was. Asked at every boundary: there are no loops of Python in it."""
        functions, parts = self._functions
        classes, sizes, orders = self._classes
        return (
            list(map(len, map(vars, classes))) == sizes
            and _same(map(_ORDER, classes), orders)
            and all(len(known) == size for known, size in self._whole.values())
            and self._closed_over_the_same()
            and _same(chain.from_iterable(map(_PARTS, functions)), parts)
            and not any(map(_ATTRIBUTES, self._bare))
            and all(function.__dict__ is known for function, known in self._attributes)
            and all(map(_LACKS, *self._absent))
            and (self._holds_the_same() or all(_unchanged(*variables) for variables in self._fixed.values()))
        )

    @cached_property
    def _absent(self) -> tuple[list[KeysView[str]], list[set[str]]]:
        """Names of what variables belong to, as they are now, and those that were not among them."""
        lacked = self._lacked.values()
        return [known.keys() for known, _ in lacked], [names for _, names in lacked]

    @cached_property
    def _present(self) -> tuple[list[Names], list[str], list[object]]:
        """Variables that held code or a plain value: what each belongs to, its name, and what it held."""
        found = [(known, name, held) for known, names in self._fixed.values() for name, held in names.items()]
        return [known for known, _, _ in found], [name for _, name, _ in found], [held for _, _, held in found]

    def _holds_the_same(self) -> bool:
        """Whether each variable holds the very object that it held."""
        belongs, names, held = self._present
        try:
            return _same(map(getitem, belongs, names), held)
        except KeyError:
            return False

    def _closed_over_the_same(self) -> bool:
        """Whether the variables of outer functions hold what they held."""
        cells, held = self._cells
        try:
            return _same(map(_CONTENTS, cells), held)
        except ValueError:
            # one holds nothing
            return _same(map(contents, cells), held)

    @cached_property
    def sees_addresses(self) -> bool:
        """Whether the code can name what differs from one place in scratch, or one moment of a program, to another."""
        return self._by_text or not (_OF_HANDLES | _OF_PROGRAMS).isdisjoint(self._names)

    @cached_property
    def sees_values(self) -> bool:
        """Whether the code can name what shows it values, or does what is seen outside of the program."""
        return self._by_text or not _OF_VALUES.isdisjoint(self._names)

    def changing(self) -> Iterator[object]:
        """What variables and functions hold now that may change without being replaced."""
        for (_, name), known in self._open.items():
            yield known.get(name)
        for function in self._defaults:
            yield function.__defaults__
            yield function.__kwdefaults__


_PARTS = attrgetter("__code__", "__defaults__", "__kwdefaults__")
_ORDER, _ATTRIBUTES, _CONTENTS = map(attrgetter, ("__mro__", "__dict__", "cell_contents"))
# of the shorter of two sets of names each is looked up in the other
_LACKS = cast(Callable[[KeysView[str], set[str]], bool], type({}.keys()).isdisjoint)


def _same(values: Iterable[object], others: Iterable[object]) -> bool:
    """Whether as many objects as there were are the very same."""
    return all(map(is_, values, others))


def _is_immutable(value: Held) -> bool:
    """Whether this is a class of Python itself that nobody can change."""
    return is_a(value, type) and library_module(value) is not None and bool(value.__flags__ & _IMMUTABLE_TYPE)


def contents(cell: CellType) -> object:
    """What a variable of an outer function holds, a mark of its own where it holds nothing."""
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING


def is_a(value: Held, kinds: type | tuple[type, ...]) -> bool:
    """`isinstance`, for objects that may say they are something else."""
    return issubclass(type(value), kinds)


def is_value(held: Held) -> bool:
    """Whether something cannot change: numbers, texts, and tuples of them."""
    return type(held) in PLAIN or (type(held) is tuple and all(map(is_value, held)))


def is_unchanging(held: Held) -> bool:
    """Whether an object can be compared by what it is, and hides nothing."""
    if type(held) is np.ufunc:
        # others call functions of Python, or may
        return vars(np).get(held.__name__) is held
    if is_a(held, np.dtype):
        return held.metadata is None and held.fields is None and held.base is held
    return is_a(held, _UNCHANGING)


def plain_mark(value: Held) -> object:
    """What is equal for two plain values of one type only if nothing distinguishes them."""
    kind = type(value)
    if kind is float:
        return value.hex()
    if kind is complex:
        return value.real.hex(), value.imag.hex()
    if kind is range:
        return value.start, value.stop, value.step
    return value


def _unchanged(known: Names, names: dict[str, object]) -> bool:
    for name, held in names.items():
        now = known.get(name, _MISSING)
        if now is held:
            continue
        if type(held) not in PLAIN or type(now) is not type(held) or plain_mark(now) != plain_mark(held):
            return False
    return True


_KEPT: dict[tuple[int, ...], Reached] = {}


def reached_from(roots: list[Root]) -> Reached:
    """What these roots reach now: the same object as the last time if nothing has changed since."""
    key = tuple(
        part for root in roots for part in ((id(root[0]), id(root[1])) if isinstance(root, tuple) else (id(root),))
    )
    found = _KEPT.get(key)
    if found is None or not found.is_current:
        _KEPT.pop(key, None)
        while len(_KEPT) >= _MOST_KEPT:
            del _KEPT[next(iter(_KEPT))]
        found = _KEPT[key] = Reached(roots)
    return found


def lives_with_its_module(value: Held) -> bool:
    """Whether this is code that no running function made, or can add to: it may be kept."""
    if is_a(value, type):
        if library_module(value) is not None:
            return True
        return "<locals>" not in value.__qualname__ and (value.__module__ not in sys.modules or is_found(value))
    return is_a(value, ModuleType) and sys.modules.get(vars(value).get("__name__", "")) is value


def functions_of(held: Held) -> tuple[object, ...] | None:
    """The functions that an attribute of a class wraps, and the types an alias names; None if it wraps none."""
    kind = type(held)
    if kind is property:
        return tuple(f for f in (held.fget, held.fset, held.fdel) if f is not None)
    if kind in (staticmethod, classmethod):
        return (held.__func__,)
    if kind is cached_property:
        # what it has worked out is an attribute of the object; up to Python 3.11 it has a lock, too
        return (held.func,)
    if kind is GenericAlias:
        return (held.__origin__, *held.__args__)
    return None


def own_names(value: type) -> list[str]:
    """The attributes of a class that were written there, and not added by Python."""
    return [name for name, held in vars(value).items() if not is_a(held, _OF_CLASSES) and name not in _UNUSED]
