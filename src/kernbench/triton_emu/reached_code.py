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
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from functools import cache, cached_property
from itertools import repeat
from operator import is_
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
from typing import Any, NamedTuple, TypeVar

import numpy as np

__kernbench_internal__ = True

PLAIN = (int, float, complex, bool, str, bytes, type(None), range, type(Ellipsis), type(NotImplemented))
# objects that do not change. Types as annotations name them (`list[int]`, `int | None`) are among them; the last is
# what functions of NumPy are
UNCHANGING = (Enum, re.Pattern, GenericAlias, UnionType, TypeVar, np.dtype, np.ufunc, type(np.sum))
# what classes of C types are made of
BY_C = (BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType)


class _Fields(NamedTuple):
    field: int


# what Python adds to classes: slots and attributes of its own, fields of named tuples, caches of abstract classes
_OF_CLASSES = (GetSetDescriptorType, MemberDescriptorType, type(vars(_Fields)["field"]), *BY_C)
_UNUSED = ("__", "_abc_impl")
# their functions and classes keep nothing: where they do (random), it is in an object of a C type
_LIBRARIES = frozenset(sys.stdlib_module_names | {"numpy", "ml_dtypes", "kernbench"})
_BENCHES = "kernbench.benches"
_MISSING = object()
MOST_VARIABLES = 50_000
_MOST_KEPT = 128

# where code starts: modules, classes, and code with its globals
Code = tuple[CodeType, dict[str, Any]]
Root = ModuleType | type | Code
Names = Mapping[str, Any]


class TooMuchError(Exception):
    """More code than is worth looking at."""


class Reached:
    """All code that lives as long as its module and can be reached from some roots, and what it can name."""

    def __init__(self, roots: Iterable[Root]):
        # objects are known by their addresses: the roots may not die while this is kept
        self._roots = list(roots)
        # variables by what they belong to: names that held code, a plain value or nothing, and those that did not
        self._fixed: dict[int, tuple[Names, dict[str, Any]]] = {}
        self._open: dict[tuple[int, str], Names] = {}
        self._functions: list[tuple[FunctionType, Any, Any]] = []
        self._cells: list[tuple[CellType, Any]] = []
        self._classes: list[tuple[type, int]] = []
        self._modules: list[ModuleType] = []
        self._names: dict[str, None] = {}
        self._asked: set[tuple[int, str]] = set()
        self._met: set[int] = set()
        self._waiting: list[Any] = list(self._roots)
        self._walk()

    # Finding

    def _walk(self) -> None:
        known = -1
        while known != len(self._asked) or self._waiting:
            known = len(self._asked)
            while self._waiting:
                self._enter(self._waiting.pop())
            self._attributes_of_modules()

    def _enter(self, value: Any) -> None:
        if isinstance(value, tuple):
            self._code(*value)
        elif id(value) not in self._met:
            self._met.add(id(value))
            if isinstance(value, FunctionType):
                self._function(value)
            elif isinstance(value, type):
                self._class(value)
            else:
                self._modules.append(value)

    def _function(self, function: FunctionType) -> None:
        if not is_library(function.__module__):
            self._functions.append((function, function.__defaults__, function.__kwdefaults__))
            self._code(function.__code__, function.__globals__)

    def _code(self, code: CodeType, known: dict[str, Any]) -> None:
        for name in names_in(code):
            self._names[name] = None
            self._variable(id(known), known, name)

    def _class(self, value: type) -> None:
        """What a class keeps for all its objects, and what its methods can reach."""
        if is_library(value.__module__):
            return
        self._classes.append((value, len(vars(value))))
        self._waiting += value.__mro__
        known = vars(value)
        for name in own_names(value):
            self._variable(id(value), known, name)

    def _attributes_of_modules(self) -> None:
        """What code can name of the modules it can reach."""
        for module in self._modules:
            known = vars(module)
            for name in [name for name in self._names if (id(module), name) not in self._asked]:
                self._asked.add((id(module), name))
                self._variable(id(known), known, name)

    def _variable(self, owner: int, known: Names, name: str) -> None:
        held = known.get(name, _MISSING)
        if not self._is_fixed(held):
            self._open[owner, name] = known
            return
        self._fixed.setdefault(owner, (known, {}))[1][name] = held
        if len(self._fixed[owner][1]) > MOST_VARIABLES:
            raise TooMuchError

    def _is_fixed(self, held: Any) -> bool:
        """Whether a variable that holds this is compared by identity; code is entered."""
        if held is _MISSING or is_value(held) or isinstance(held, UNCHANGING):
            return True
        inner = functions_of(held)
        if inner is not None:
            # every one is entered
            return sum(self._is_fixed(function) for function in inner) == len(inner)
        if isinstance(held, BuiltinFunctionType) and isinstance(held.__self__, ModuleType):
            self._waiting.append(held.__self__)
            return True
        if lives_with_its_module(held) or (isinstance(held, FunctionType) and self._has_fixed_closure(held)):
            self._waiting.append(held)
            return True
        return False

    def _has_fixed_closure(self, function: FunctionType) -> bool:
        """Whether a function that a module or class holds closes over nothing but code and values."""
        cells = [(cell, _contents(cell)) for cell in function.__closure__ or ()]
        if not all(held is not function and self._is_fixed(held) for _, held in cells):
            return False
        self._cells += cells
        return True

    # Asking again

    @property
    def is_current(self) -> bool:
        """Whether all code is still what it was."""
        return (
            all(vars(value).__len__() == size for value, size in self._classes)
            and all(_contents(cell) is held for cell, held in self._cells)
            and all(f.__defaults__ is first and f.__kwdefaults__ is second for f, first, second in self._functions)
            and all(_unchanged(known, names) for known, names in self._fixed.values())
        )

    def changing(self) -> Iterator[Any]:
        """What variables and functions hold now that may change without being replaced."""
        for (_, name), known in self._open.items():
            yield known.get(name)
        for function, defaults, by_name in self._functions:
            if defaults is not None or by_name is not None:
                yield defaults
                yield by_name
            if function.__dict__:
                yield function.__dict__


def _contents(cell: CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _MISSING


def is_value(held: Any) -> bool:
    """Whether something cannot change: numbers, texts, and tuples of them."""
    return type(held) in PLAIN or (isinstance(held, tuple) and all(map(is_value, held)))


def _unchanged(known: Names, names: dict[str, Any]) -> bool:
    if all(map(is_, map(known.get, names, repeat(_MISSING)), names.values())):
        return True
    for name, held in names.items():
        now = known.get(name, _MISSING)
        if now is not held and (type(held) not in PLAIN or type(now) is not type(held) or now != held):
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


def lives_with_its_module(value: Any) -> bool:
    """Whether this is code that no running function made, or can add to: it may be kept."""
    if isinstance(value, FunctionType):
        return not value.__closure__
    return isinstance(value, ModuleType) or (isinstance(value, type) and "<locals>" not in value.__qualname__)


def functions_of(held: Any) -> tuple[Any, ...] | None:
    """The functions that an attribute of a class wraps; None if it wraps none."""
    if isinstance(held, property):
        return tuple(f for f in (held.fget, held.fset, held.fdel) if f is not None)
    if isinstance(held, (staticmethod, classmethod)):
        return (held.__func__,)
    if isinstance(held, cached_property):
        # what it has worked out is an attribute of the object; up to Python 3.11 it has a lock, too
        return (held.func,)
    return None


def own_names(value: type) -> list[str]:
    """The attributes of a class that were written there, and not added by Python."""
    unused = (*_UNUSED, "_field_defaults") if issubclass(value, tuple) else _UNUSED
    return [
        name
        for name, held in vars(value).items()
        if isinstance(held, FunctionType) or not (isinstance(held, _OF_CLASSES) or name.startswith(unused))
    ]


@cache
def is_library(module: str | None) -> bool:
    """Whether a module belongs to Python itself, to NumPy, or to kernbench but for its benches."""
    if module is None or module.startswith(_BENCHES):
        return False
    return module.partition(".")[0] in _LIBRARIES


@cache
def names_in(code: CodeType) -> tuple[str, ...]:
    """Names that a piece of code, and what is defined in it, looks up outside."""
    inner = [name for part in code.co_consts if isinstance(part, CodeType) for name in names_in(part)]
    return tuple(dict.fromkeys((*code.co_names, *inner)))
