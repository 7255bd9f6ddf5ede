"""Everything a loop's next iteration can depend on, taken down so that two moments can be compared.

The state is what the frame of the loop can reach: its variables, what containers and objects among them hold, the
variables of functions and methods it calls, and the globals and attributes of modules that those name. Handles are
taken down by number, so that two moments may be alike up to a shift: the same variables, with handles made as many
commands later. If they are, the iteration that follows is like the one between them, by induction. Where something
cannot be looked into (an iterator, an object of a C type), nothing is known, and `UnknownStateError` says so.
"""

import gc
from collections import deque
from functools import cache, lru_cache, partial
from types import BuiltinFunctionType, FrameType, FunctionType, MethodType, ModuleType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from kernbench.common.pe_commands import NO_BLOCK, TensorHandle
from kernbench.triton_emu.affine import Affine
from kernbench.triton_emu.reached_code import (
    BY_C,
    PLAIN,
    UNCHANGING,
    Root,
    TooMuchError,
    functions_of,
    is_library,
    is_value,
    lives_with_its_module,
    own_names,
    reached_from,
)

__kernbench_internal__ = True

MOST_MARKS = 20_000
MOST_ELEMENTS = 4096
PLAIN_TYPES = frozenset(PLAIN)
# functions with a cache
Cached = type(lru_cache(maxsize=1)(len))


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
        self._roots: list[Root] = [(frame.f_code, frame.f_globals)]
        known = frame.f_locals
        variables = dict(known)
        if type(known) is dict:
            # up to Python 3.12 the frame would keep this copy, and handles in it alive
            known.clear()
        self._pairs(variables.items())
        self._code()

    def _code(self) -> None:
        """What the code that was met can name; that may lead to more code."""
        seen = 0
        while seen != len(self._roots):
            seen = len(self._roots)
            try:
                reached = reached_from(self._roots)
            except TooMuchError:
                raise UnknownStateError("too much to look at") from None
            self.marks.append(reached)
            for value in reached.changing():
                self._walk(value)

    def _walk(self, value: Any) -> None:
        kind = type(value)
        if kind in PLAIN:
            self.marks += (kind, value)
            return
        if isinstance(value, tuple) and PLAIN_TYPES.issuperset(map(type, value)):
            # two equal ones are the same to whoever looks, but for 1 and 1.0
            self.marks += (kind, value, *map(type, value))
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
        elif isinstance(value, type):
            self._class(value)
        elif isinstance(value, (*UNCHANGING, self._opaque)):
            self.marks.append(value)
        elif isinstance(value, ModuleType):
            self._root(value)
        else:
            self._inside(kind, value)

    def _root(self, value: Any) -> None:
        """Code that lives with its module, which need not be looked into here."""
        self.marks.append(value)
        self._roots.append(value)

    def _class(self, value: type) -> None:
        """What a class keeps for all its objects, and what its methods can reach."""
        if is_library(value.__module__):
            self.marks.append(value)
        elif lives_with_its_module(value):
            self._root(value)
        else:
            self.marks.append(value)
            for name in own_names(value):
                self.marks.append(name)
                self._walk(vars(value)[name])
            self._several(value.__bases__)

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
        elif isinstance(value, Cached):
            self._cache(value)
        elif isinstance(value, (np.ndarray, np.generic)):
            self._array(value)
            return
        elif (functions := functions_of(value)) is not None:
            self._several(functions)
            return
        elif not _is_python(kind):
            raise UnknownStateError(f"an object of type {kind.__name__}")
        self._attributes(kind, value)

    def _attributes(self, kind: type, value: Any) -> None:
        attributes = getattr(value, "__dict__", None)
        if attributes:
            self._pairs(list(attributes.items()))
        self._walk(kind)
        for name in _slots(kind):
            if hasattr(value, name):
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
        if any(type(value) not in PLAIN for value in values):
            raise UnknownStateError("a set of more than plain values")
        self.marks.append(frozenset(values))

    def _array(self, values: Any) -> None:
        if values.size > MOST_ELEMENTS or values.dtype.hasobject:
            raise UnknownStateError("a large array")
        self.marks += (values.dtype, values.shape, values.tobytes())

    def _function(self, function: FunctionType) -> None:
        self.marks.append(function)
        if is_library(function.__module__):
            return
        self._roots.append((function.__code__, function.__globals__))
        for cell in function.__closure__ or ():
            try:
                held = cell.cell_contents
            except ValueError:
                continue
            self._walk(held)
        self._several(function.__defaults__ or ())
        self._pairs((function.__kwdefaults__ or {}).items())

    def _cache(self, function: Any) -> None:
        """A function with `lru_cache`: the results it keeps hide nothing as long as nobody can change them."""
        self._walk(function.__wrapped__)
        info = function.cache_info()
        self.marks += (info.currsize, info.maxsize)
        if _VALUES_ONLY.get(function) != info.misses:
            for held in gc.get_referents(function):
                # keys and results stand side by side, or in a dictionary if the cache has no limit
                unlimited = info.maxsize is None and type(held) is dict and held is not function.__dict__
                kept = held.values() if unlimited else () if type(held) in _OF_CACHES else (held,)
                if not all(map(is_value, kept)):
                    raise UnknownStateError("a cache of objects that can change")
            _VALUES_ONLY[function] = info.misses


# cached functions, and up to how many misses all they keep was found to be plain values
_VALUES_ONLY: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
# what the cache itself consists of
_OF_CACHES = (FunctionType, type, dict, object)


@cache
def _is_python(kind: type) -> bool:
    """Whether a class and all it comes from are written in Python, so that their objects hide nothing."""
    return all(
        base is object or not any(isinstance(held, BY_C) for held in vars(base).values()) for base in kind.__mro__
    )


@cache
def _slots(kind: type) -> list[str]:
    """Names of attributes that objects of a class have beside their dictionary."""
    found = [vars(base).get("__slots__", ()) for base in kind.__mro__]
    names = [name for slots in found for name in ((slots,) if isinstance(slots, str) else slots)]
    return [name for name in names if name not in ("__dict__", "__weakref__")]
