"""Whether code may ask for the type of a number: an index that stands for a number has another one.

The code itself is looked at, and what it can call by a name or is given: functions, those of other files, methods of
classes. Functions of libraries that need a plain number raise an error instead.
"""

from collections.abc import Iterator
from types import CodeType, FrameType, FunctionType, MethodType, ModuleType
from typing import NamedTuple

from kernbench.triton_emu.repeating.libraries import Held, library_module
from kernbench.triton_emu.repeating.names import globals_in, names_in
from kernbench.triton_emu.repeating.reached_code import contents, functions_of, is_a

__kernbench_internal__ = True
# methods of frozen data classes, which Python writes: they ask for the type of the object itself
_OF_FROZEN = frozenset(("__setattr__", "__delattr__"))


class _Piece(NamedTuple):
    """Code with its global variables."""

    code: CodeType
    known: dict[str, Held]


def frame_asks_for_types(frame: FrameType) -> bool:
    """Whether the code of a frame may, or what its variables hold."""
    known = frame.f_locals
    held = list(known.values())
    if type(known) is dict:
        # up to Python 3.12 the frame would keep this copy, and handles in it alive
        known.clear()
    return _asks([_Piece(frame.f_code, frame.f_globals), *held])


def function_asks_for_types(function: Held) -> bool:
    """Whether a function may."""
    return _asks([function])


def _asks(waiting: list[Held]) -> bool:
    # what was met, by identity; held so that no other object gets it
    met: dict[int, Held] = {}
    while waiting:
        value = waiting.pop()
        if id(value) not in met:
            met[id(value)] = value
            if type(value) is _Piece and "type" in globals_in(value.code):
                return True
            waiting += _next(value)
    return False


def _next(value: Held) -> Iterator[Held]:
    """What an object may call, or hold."""
    if type(value) is _Piece:
        yield from _named(value)
    elif type(value) is FunctionType:
        if library_module(value) is None:
            yield _Piece(value.__code__, value.__globals__)
            yield from (*(value.__defaults__ or ()), *(value.__kwdefaults__ or {}).values())
            yield from (contents(cell) for cell in value.__closure__ or ())
    elif is_a(value, type):
        if library_module(value) is None:
            yield from (one for name, one in vars(value).items() if name not in _OF_FROZEN)
            yield from value.__bases__
    elif is_a(value, MethodType):
        yield from (value.__func__, value.__self__)
    else:
        yield from functions_of(value) or (type(value),)


def _named(piece: _Piece) -> Iterator[Held]:
    """Global variables that code names, and those of modules among them."""
    names = names_in(piece.code)
    for name in names:
        value = piece.known.get(name)
        if not is_a(value, ModuleType):
            yield value
        elif library_module(value) is None:
            yield from (vars(value).get(attribute) for attribute in names)
