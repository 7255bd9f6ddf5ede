"""Closures as references: the code that made them, and the values they hold.

A program is mostly closures over the emulator's own functions. Their code is in the sources already, so its location is
enough: the module-level function that contains it, and a path through constants of code objects. Other versions of the
sources have other locations, so such references are stored per version.
"""

import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from inspect import unwrap
from itertools import count
from pickle import PicklingError
from types import CellType, CodeType, FunctionType

# code and its globals
Origin = tuple[CodeType, dict[str, object]]
# closure values of a function, its defaults, keyword defaults, and attributes
State = tuple[tuple[object, ...], tuple[object, ...] | None, dict[str, object] | None, dict[str, object]]
_WITHIN = ".<locals>."
_PLAIN = (int, str, float, bytes, bool, type(None))


def named(module: str, path: str) -> object:
    """What a module calls by this name; a path goes into classes."""
    found: object = import_module(module)
    for name in path.split("."):
        found = getattr(found, name)
    return found


def origin(module: str, path: str, way: tuple[int, ...]) -> Origin:
    """The code at the end of a path."""
    code = _outer_code(module, path)
    for index in way:
        code = code.co_consts[index]
    return code, sys.modules[module].__dict__


def closure(found: Origin, held: tuple[object, ...]) -> FunctionType:
    """A function of code with these closure values."""
    return FunctionType(found[0], found[1], None, None, tuple(map(CellType, held)))


def hollow(found: Origin) -> FunctionType:
    """A function whose closure values are filled in later, since they contain the function itself."""
    return FunctionType(found[0], found[1], None, None, tuple(CellType() for _ in found[0].co_freevars))


def fill(function: FunctionType, state: State) -> None:
    """Set the closure values, defaults and attributes of a hollow function."""
    held, defaults, named_defaults, attributes = state
    for cell, value in zip(function.__closure__ or (), held, strict=True):
        cell.cell_contents = value
    function.__defaults__, function.__kwdefaults__ = defaults, named_defaults
    function.__dict__.update(attributes)


def counting_on(text: str) -> Iterator[int]:
    """A counter that continues where the one with this text stood."""
    return count(int(text[len("count(") : -1]))


class Referring:
    """Reduces functions to references, as for `Pickler.reducer_override`."""

    def __init__(self) -> None:
        # by the identity of code objects, which the functions keep alive; all closures of one code share a reference
        self._origins: dict[int, _Reference] = {}
        self._open: dict[int, bool] = {}

    def reduce(self, function: FunctionType) -> object:
        """How to recreate a function."""
        if _WITHIN not in function.__qualname__:
            return NotImplemented
        where = self._origins.get(id(function.__code__))
        if where is None:
            where = self._origins[id(function.__code__)] = _Reference(function)
        held = _held(function)
        if not self._may_hold_itself(function):
            return closure, (where, held)
        state = held, function.__defaults__, function.__kwdefaults__, function.__dict__
        return hollow, (where,), state, None, None, fill

    def _may_hold_itself(self, value: object) -> bool:
        """Whether a function may contain itself; numbers, texts and functions of such values do not."""
        if isinstance(value, tuple):
            return any(map(self._may_hold_itself, value))
        if not isinstance(value, FunctionType):
            return not isinstance(value, _PLAIN)
        known = self._open.get(id(value))
        if known is None:
            self._open[id(value)] = True
            plain = not (value.__defaults__ or value.__kwdefaults__ or value.__dict__)
            known = not plain or any(map(self._may_hold_itself, _held(value)))
            self._open[id(value)] = known
        return known


class _Reference:
    """The location of a function's code."""

    def __init__(self, function: FunctionType):
        path = function.__qualname__.partition(_WITHIN)[0]
        way = _way(_outer_code(function.__module__, path), function.__code__)
        if way is None:
            raise PicklingError(f"the code of {function.__qualname__} is not found")
        self._where = function.__module__, path, way

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return origin, self._where


def _held(function: FunctionType) -> tuple[object, ...]:
    return tuple(cell.cell_contents for cell in function.__closure__ or ())


@cache
def _outer_code(module: str, path: str) -> CodeType:
    """The code of a function at module or class level, without its decorators."""
    found = named(module, path)
    function = unwrap(found) if callable(found) else found
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if not isinstance(code, CodeType):
        raise PicklingError(f"{path} of {module} has no code")
    return code


def _way(outer: CodeType, wanted: CodeType) -> tuple[int, ...] | None:
    for index, constant in enumerate(outer.co_consts):
        if constant is wanted:
            return (index,)
        if isinstance(constant, CodeType):
            way = _way(constant, wanted)
            if way is not None:
                return index, *way
    return None
