"""Closures as references: which code made them, and what they hold.

A program is mostly closures over the emulator's own functions. Their code is in the sources already, so it is enough to
say where: the function at the top of a module that it lies in, and the way from there through the constants of code.
Sources of another version lead elsewhere; who keeps such references keeps them by version.
"""

import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from inspect import unwrap
from itertools import count
from pickle import PicklingError
from types import CellType, CodeType, FunctionType

# code and the names it sees
Origin = tuple[CodeType, dict[str, object]]
# what a function holds, its defaults, those of keywords, its attributes
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
    """The code at the end of a way."""
    code = _outer_code(module, path)
    for index in way:
        code = code.co_consts[index]
    return code, sys.modules[module].__dict__


def closure(found: Origin, held: tuple[object, ...]) -> FunctionType:
    """A function of code that holds these values."""
    return FunctionType(found[0], found[1], None, None, tuple(map(CellType, held)))


def hollow(found: Origin) -> FunctionType:
    """A function whose values are filled in later, as they hold the function themselves."""
    return FunctionType(found[0], found[1], None, None, tuple(CellType() for _ in found[0].co_freevars))


def fill(function: FunctionType, state: State) -> None:
    """Give a hollow function what it holds, its defaults and its attributes."""
    held, defaults, named_defaults, attributes = state
    for cell, value in zip(function.__closure__ or (), held, strict=True):
        cell.cell_contents = value
    function.__defaults__, function.__kwdefaults__ = defaults, named_defaults
    function.__dict__.update(attributes)


def counting_on(text: str) -> Iterator[int]:
    """A counter that goes on where the one with this text stood."""
    return count(int(text[len("count(") : -1]))


class Referring:
    """Says of functions how to make them again, in the way of `Pickler.reducer_override`."""

    def __init__(self) -> None:
        # by the identity of code, which the functions hold; one reference is written for all closures of one code
        self._origins: dict[int, _Reference] = {}
        self._open: dict[int, bool] = {}

    def reduce(self, function: FunctionType) -> object:
        """How to make a function again."""
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
        """Whether a function, in what it holds, may be met again; numbers, texts and such functions are safe."""
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
    """Where the code of a function lies."""

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
    """The code of a function at the top of a module or class, without what decorators put around it."""
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
