"""What functions can change outside themselves: a launch that is divided over processes loses such changes.

Looked at are the variables that a function closes over, the globals that it names, and those of the functions of
somebody's own that it names in turn. Of what these hold, containers are looked into, and the attributes of objects.
"""

import os
import sys
from collections.abc import Iterable
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType

import numpy as np

_LIBRARY = os.path.dirname(os.__file__)
# elements of a container that are looked at, and bytes of an array
_MOST, _MOST_BYTES = 1 << 16, 1 << 20
_PLAIN = (int, float, str, bytes, bool, type(None), type, ModuleType)
State = dict[tuple[object, ...], object]


class Outside:
    """What functions that were added could change, as it was when they were."""

    def __init__(self) -> None:
        self._functions: dict[int, object] = {}
        self._before: State = {}

    def add(self, functions: Iterable[object]) -> None:
        """Look at some functions, unless they are known."""
        for function in functions:
            if id(function) not in self._functions:
                self._functions[id(function)] = function
                self._before |= {key: state for key, state in _state(function).items() if key not in self._before}

    def changed(self) -> bool:
        """Whether anything is not as it was."""
        now: State = {}
        for function in self._functions.values():
            now |= _state(function)
        return now != self._before


def _state(function: object) -> State:
    found: State = {}
    waiting, seen = [function], set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, partial):
            waiting += [one.func, *one.args, *one.keywords.values()]
        elif isinstance(one, MethodType):
            waiting += [one.__func__, one.__self__]
        elif isinstance(one, FunctionType):
            for name, value in _named(one):
                found[(id(one), name)] = id(value)
                waiting += [] if isinstance(value, _PLAIN) or _is_library(value) else [value]
        elif not isinstance(one, _PLAIN):
            found[(id(one),)] = _contents(one)
    return found


def _named(function: FunctionType) -> list[tuple[str, object]]:
    """What a function refers to outside itself, by name."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    held = [(name, _cell(cell)) for name, cell in cells]
    names = {name for code in _codes(function.__code__) for name in code.co_names}
    # sorted, so that the same names are met in the same order
    return held + [(name, function.__globals__[name]) for name in sorted(names) if name in function.__globals__]


def _cell(cell: object) -> object:
    try:
        return cell.cell_contents  # type: ignore[attr-defined]
    except ValueError:
        return None


def _codes(code: CodeType) -> list[CodeType]:
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    return [code, *(deeper for one in inner for deeper in _codes(one))]


def _is_library(value: object) -> bool:
    """Whether a function or an object comes from Python, an installed package or kernbench, but for its benches."""
    module = str(getattr(value, "__module__", None) or type(value).__module__)
    if module.startswith("kernbench."):
        return not module.startswith("kernbench.benches.")
    if module == "builtins":
        return not isinstance(value, (list, dict, set, bytearray))
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return module != "numpy" and ("site-packages" in file or file.startswith((_LIBRARY + os.sep, "<frozen")))


def _contents(held: object) -> object:
    """What an object holds, one step deep, to be compared later."""
    if isinstance(held, dict):
        return len(held), [(id(k), id(v)) for k, v, _ in zip(held, held.values(), range(_MOST), strict=False)]
    if isinstance(held, list):
        return len(held), [id(one) for one in held[:_MOST]]
    if isinstance(held, (set, bytearray)):
        return len(held), hash(frozenset(held) if isinstance(held, set) else bytes(held[:_MOST]))
    if isinstance(held, np.ndarray):
        return hash(held.tobytes()) if held.nbytes <= _MOST_BYTES and held.dtype != object else None
    attributes = getattr(held, "__dict__", None)
    return _contents(dict(attributes)) if attributes else None
