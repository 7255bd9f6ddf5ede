"""Everything a loop's next iteration can depend on, taken down so that two moments can be compared.

The state is what the frame of the loop can reach: its variables, what containers and objects among them hold, the
variables of functions and methods it calls, and the globals and attributes of modules that those name. Handles are
taken down by number, so that two moments may be alike up to a shift: the same variables, with handles made as many
commands later. If they are, the iteration that follows is like the one between them, by induction. Where something
cannot be looked into (an iterator, an object of a C type), nothing is known, and `UnknownStateError` says so.
"""

import re
import sys
from collections import deque
from enum import Enum
from functools import cache, partial
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

import numpy as np

from kernbench.common.pe_commands import NO_BLOCK, TensorHandle
from kernbench.triton_emu.affine import Affine

__kernbench_internal__ = True

MOST_MARKS = 20_000
MOST_ELEMENTS = 4096
_PLAIN = (int, float, complex, bool, str, bytes, type(None), range, type(Ellipsis), type(NotImplemented))
# what classes of C types are made of
_BY_C = (BuiltinFunctionType, MethodDescriptorType, WrapperDescriptorType)
# what Python adds to classes: slots and attributes of its own, caches of abstract classes
_OF_CLASSES = (GetSetDescriptorType, MemberDescriptorType, *_BY_C)
_UNUSED = ("__", "_abc_impl")
# compared by identity; the last is what functions of NumPy are
_NAMES = (type, ModuleType, Enum, re.Pattern, np.dtype, np.ufunc, type(np.sum))
# their functions and classes keep nothing: where they do (random), it is in an object of a C type
_LIBRARIES = frozenset(sys.stdlib_module_names | {"numpy", "ml_dtypes", "kernbench"})
_BENCHES = "kernbench.benches"


class UnknownStateError(Exception):
    """Something that a loop can reach cannot be compared."""


class State:
    """What was found. `marks` holds all that must be equal; `handles` and `indices` what may be shifted."""

    def __init__(self, frame: FrameType, opaque: type):
        """`opaque`: objects that are looked after by somebody else (the context)."""
        self.marks: list[Any] = []
        self.handles: list[TensorHandle] = []
        self.indices: list[Affine] = []
        self._met: dict[int, int] = {}
        self._opaque = opaque
        # modules, names that some code looks up, and which of those were looked for in which module
        self._modules: list[ModuleType] = []
        self._names: dict[str, None] = {}
        self._asked: set[tuple[int, str]] = set()
        known = frame.f_locals
        variables = dict(known)
        if type(known) is dict:
            # up to Python 3.12 the frame would keep this copy, and handles in it alive
            known.clear()
        self._pairs(variables.items())
        self._globals(frame.f_code, frame.f_globals)
        while self._attributes_of_modules():
            pass

    def _walk(self, value: Any) -> None:
        kind = type(value)
        if kind in _PLAIN:
            self.marks += (kind, value)
            return
        known = len(self._met)
        number = self._met.setdefault(id(value), known)
        self.marks += (kind, number)
        if number != known:
            return
        if len(self.marks) > MOST_MARKS:
            raise UnknownStateError("too much to look at")
        if kind is TensorHandle:
            self._handle(value)
        elif kind is Affine:
            self.indices.append(value)
        elif not isinstance(value, (*_NAMES, self._opaque)):
            self._inside(kind, value)
        else:
            self.marks.append(value)
            if isinstance(value, type):
                self._class(value)
            elif isinstance(value, ModuleType):
                self._modules.append(value)

    def _class(self, value: type) -> None:
        """What a class keeps for all its objects, and what its methods can reach."""
        if _is_library(value.__module__):
            return
        for name, held in list(vars(value).items()):
            if isinstance(held, property):
                self._several((held.fget, held.fset))
            elif isinstance(held, (staticmethod, classmethod)):
                self._walk(held.__func__)
            elif isinstance(held, FunctionType) or not (isinstance(held, _OF_CLASSES) or name.startswith(_UNUSED)):
                self.marks.append(name)
                self._walk(held)

    def _attributes_of_modules(self) -> bool:
        """Take down what code can name of the modules it can reach; whether there was something new."""
        before = len(self._asked)
        for module in list(self._modules):
            for name in [name for name in self._names if (id(module), name) not in self._asked]:
                self._asked.add((id(module), name))
                if name in vars(module):
                    self.marks.append(name)
                    self._walk(vars(module)[name])
        return len(self._asked) != before

    def _handle(self, value: TensorHandle) -> None:
        if value.type < 0 or (value.block is not NO_BLOCK and value.block.live_in is None):
            raise UnknownStateError("a handle that the context does not know, or that was replaced")
        self.handles.append(value)

    def _inside(self, kind: type, value: Any) -> None:
        if isinstance(value, (tuple, list, deque)):
            self._several(value)
        elif isinstance(value, dict):
            self._pairs(value.items())
        elif isinstance(value, (set, frozenset)):
            self._set(value)
        elif isinstance(value, FunctionType):
            self._function(value)
        elif isinstance(value, BuiltinFunctionType):
            # a method of an object is one, too: what it changes is there
            self._walk(value.__self__)
            return
        elif isinstance(value, MethodType):
            self._several((value.__self__, value.__func__))
        elif isinstance(value, partial):
            self._several((value.func, value.args, value.keywords))
        elif isinstance(value, (np.ndarray, np.generic)):
            self._array(value)
            return
        elif not _is_python(kind):
            raise UnknownStateError(f"an object of type {kind.__name__}")
        self._attributes(kind, value)

    def _attributes(self, kind: type, value: Any) -> None:
        attributes = getattr(value, "__dict__", None)
        if attributes:
            self._pairs(list(attributes.items()))
        for base in kind.__mro__:
            self._walk(base)
            slots = base.__dict__.get("__slots__", ())
            for name in (slots,) if isinstance(slots, str) else slots:
                if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                    self._walk(getattr(value, name))

    def _several(self, values: Any) -> None:
        self.marks.append(len(values))
        for value in values:
            self._walk(value)

    def _pairs(self, items: Any) -> None:
        self.marks.append(len(items))
        for key, value in items:
            self._walk(key)
            self._walk(value)

    def _set(self, values: Any) -> None:
        if any(type(value) not in _PLAIN for value in values):
            raise UnknownStateError("a set of more than plain values")
        self.marks.append(frozenset(values))

    def _array(self, values: Any) -> None:
        if values.size > MOST_ELEMENTS or values.dtype.hasobject:
            raise UnknownStateError("a large array")
        self.marks += (values.dtype, values.shape, values.tobytes())

    def _function(self, function: FunctionType) -> None:
        self.marks.append(function)
        if _is_library(function.__module__):
            return
        for cell in function.__closure__ or ():
            try:
                held = cell.cell_contents
            except ValueError:
                continue
            self._walk(held)
        self._several(function.__defaults__ or ())
        self._pairs((function.__kwdefaults__ or {}).items())
        self._globals(function.__code__, function.__globals__)

    def _globals(self, code: CodeType, known: dict[str, Any]) -> None:
        names = _names_in(code)
        self._names.update(dict.fromkeys(names))
        for name in names:
            if name in known:
                self.marks.append(name)
                self._walk(known[name])


@cache
def _is_library(module: str | None) -> bool:
    """Whether a module belongs to Python itself, to NumPy, or to kernbench but for its benches."""
    if module is None or module.startswith(_BENCHES):
        return False
    return module.partition(".")[0] in _LIBRARIES


@cache
def _is_python(kind: type) -> bool:
    """Whether a class and all it comes from are written in Python, so that their objects hide nothing."""
    return all(
        base is object or not any(isinstance(held, _BY_C) for held in vars(base).values()) for base in kind.__mro__
    )


_NAMED: dict[CodeType, tuple[str, ...]] = {}


def _names_in(code: CodeType) -> tuple[str, ...]:
    """Names that a piece of code, and what is defined in it, looks up outside."""
    found = _NAMED.get(code)
    if found is None:
        inner = [name for part in code.co_consts if isinstance(part, CodeType) for name in _names_in(part)]
        found = _NAMED[code] = tuple(dict.fromkeys((*code.co_names, *inner)))
    return found
