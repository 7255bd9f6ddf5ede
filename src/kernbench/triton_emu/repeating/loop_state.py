"""Everything a loop's next iteration can depend on, taken down so that two moments can be compared.

The state is what the frame of the loop can reach: its variables, what containers and objects among them hold, the
variables of functions and methods it calls, and the globals and attributes of modules that those name. Handles are
taken down by number, so that two moments may be alike up to a shift: the same variables, with handles made as many
commands later. If they are, the iteration that follows is like the one between them, by induction. Where something
cannot be looked into (an iterator, an object of a C type), nothing is known, and `UnknownStateError` says so.
"""

import gc
from collections import OrderedDict, defaultdict, deque
from enum import Enum
from functools import lru_cache, partial
from types import BuiltinFunctionType, FrameType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from weakref import WeakKeyDictionary, ref

import numpy as np

from kernbench.common.pe_commands import NO_BLOCK, TensorHandle
from kernbench.triton_emu.repeating.affine import Affine
from kernbench.triton_emu.repeating.libraries import Held, library_module
from kernbench.triton_emu.repeating.reached_code import (
    BY_C,
    NUMPY_FUNCTION,
    OF_MODULES,
    PLAIN,
    Root,
    TooMuchError,
    functions_of,
    is_unchanging,
    lives_with_its_module,
    own_names,
    plain_mark,
    reached_from,
)
from kernbench.triton_emu.repeating.witness import Value, Witness, as_value

__kernbench_internal__ = True

MOST_MARKS = 20_000
MOST_ELEMENTS = 4096
MOST_CACHED = 256
# functions with a cache
Cached = type(lru_cache(maxsize=1)(len))


class UnknownStateError(Exception):
    """Something that a loop can reach cannot be compared."""


class _Same:
    """A mark that equals that of the same object only, and does not keep it alive."""

    __slots__ = ("_ref",)

    def __init__(self, value: Held):
        self._ref = ref(value)

    def __eq__(self, other: object) -> bool:
        # an object has one reference of this kind as long as it lives
        return isinstance(other, _Same) and self._ref is other._ref

    __hash__ = object.__hash__


class State:
    """What was found. `marks` holds all that must be equal; `handles` and `indices` what may be shifted."""

    def __init__(
        self, frame: FrameType | None, opaque: tuple[type, ...], values: tuple[object, ...] = (), own: Held = None
    ):
        """Of a frame, or else of some values. `opaque`: objects that somebody else looks after (the context, its engine
        and its parts); `own`: the one of them that is the same as another program's own.
        """
        self.marks: list[Held] = []
        self.handles: list[TensorHandle] = []
        self.indices: list[Affine] = []
        # by identity, in which order objects were met
        self.met: dict[int, int] = {}
        # what was looked at; a frame is never the same again
        self.witness = Witness() if frame is None else None
        self._number: int | None = None
        self._opaque, self._own = opaque, own
        self._roots: list[Root] = []
        # whether the code may look where values lie
        self.sees_addresses = False
        # whether it may look at what they are, or do what only a run does
        self.sees_values = False
        if frame is None:
            self._several(values)
        else:
            self._frame(frame)
        self._code()

    def _frame(self, frame: FrameType) -> None:
        self._roots.append((frame.f_code, frame.f_globals))
        known = frame.f_locals
        variables = dict(known)
        if type(known) is dict:
            # up to Python 3.12 the frame would keep this copy, and handles in it alive
            known.clear()
        self._pairs(variables.items())

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
            self.sees_addresses |= reached.sees_addresses
            self.sees_values |= reached.sees_values
            changing = list(reached.changing())
            if self.witness is not None:
                self.witness.of_code(reached, changing)
            for value in changing:
                self._walk(value)

    def _walk(self, value: Held) -> None:
        kind = type(value)
        # by identity: classes may have an equality of their own
        if id(kind) in _PLAIN:
            self.marks += (kind, plain_mark(value))
            return
        known = len(self.met)
        number = self.met.setdefault(id(value), known)
        self.marks += (kind if id(kind) in _LASTING else _Same(kind), number)
        if number != known:
            if self.witness is not None:
                self.witness.shared.add(id(value))
            return
        if len(self.marks) > MOST_MARKS:
            raise UnknownStateError("too much to look at")
        if kind is tuple and (mark := as_value(value)) is not None:
            self.marks.append(mark)
        elif kind is tuple:
            self._several(value)
        elif kind is list:
            if self.witness is not None:
                self.witness.of_list(value)
            self._several(value)
        elif kind is dict:
            self._mapping(value)
        elif kind is TensorHandle:
            self._handle(value)
        elif kind is Affine:
            self.indices.append(value)
        else:
            self._rare(kind, value)

    def _rare(self, kind: type, value: Held) -> None:
        if issubclass(kind, type):
            self._class(value)
        elif is_unchanging(value):
            self.marks.append(value)
        elif issubclass(kind, self._opaque):
            self._context(value)
        elif issubclass(kind, ModuleType):
            self._module(kind, value)
        else:
            self._inside(kind, value)

    def _context(self, value: Held) -> None:
        """What kernels have added to their context; the rest is looked after elsewhere."""
        self.marks.append("own" if value is self._own else _Same(value))
        made = getattr(value, "as_made", None)
        if made is not None:
            if self.witness is not None:
                self.witness.of_mapping(value.__dict__)
                self.witness.of_mapping(made)
            self._pairs([pair for pair in vars(value).items() if made.get(pair[0], made) is not pair[1]])

    def _root(self, value: Held) -> None:
        """Code that lives with its module, which need not be looked into here."""
        self.marks.append(_Same(value))
        self._roots.append(value)

    def _module(self, kind: type, value: ModuleType) -> None:
        if lives_with_its_module(value):
            self._root(value)
        else:
            self._unwitnessed()
            self.marks.append(_Same(value))
            self._pairs([pair for pair in vars(value).items() if pair[0] not in OF_MODULES])
            self._walk(kind)

    def _class(self, value: type) -> None:
        """What a class keeps for all its objects, and what its methods can reach."""
        if lives_with_its_module(value):
            self._root(value)
            return
        self._unwitnessed()
        self.marks.append(_Same(value))
        for name in own_names(value):
            self.marks.append(name)
            self._walk(vars(value)[name])
        self._several(value.__mro__[1:])
        self._walk(type(value))

    def _handle(self, value: TensorHandle) -> None:
        if value.type < 0 or (value.block is not NO_BLOCK and value.block.live_in is None):
            raise UnknownStateError("a handle that the context does not know, or that was replaced")
        self.handles.append(value)

    def _unwitnessed(self) -> None:
        """What comes now can only be compared by looking at it again."""
        if self.witness is not None:
            self.witness.is_whole = False

    def _mapping(self, value: Held) -> None:
        if self.witness is not None:
            self.witness.of_mapping(value)
        self._pairs(value.items())

    def _inside(self, kind: type, value: Held) -> None:
        if issubclass(kind, _CONTAINERS):
            self._container(kind, value)
        elif kind is FunctionType:
            self._function(value)
        elif kind is BuiltinFunctionType:
            # a method of an object is one, too: what it changes is there
            self.marks.append(value.__name__)
            self._walk(value.__self__)
            return
        elif kind is MethodType:
            self._several((value.__self__, value.__func__))
            return
        elif kind is partial:
            self._unwitnessed()
            self._several((value.func, value.args, value.keywords))
        elif kind is Cached:
            self._unwitnessed()
            self._cache(value)
        elif kind is NUMPY_FUNCTION:
            self._unwitnessed()
            self.marks.append(value)
            self._pairs([pair for pair in vars(value).items() if pair[0] != "__annotations__"])
            return
        elif issubclass(kind, (np.ndarray, np.generic)):
            self._unwitnessed()
            self._array(kind, value)
            return
        elif (functions := functions_of(value)) is not None:
            self._unwitnessed()
            self._several(functions)
            return
        elif not issubclass(kind, Enum) and not _is_python(kind):
            raise UnknownStateError(f"an object of type {kind.__name__}")
        if kind is FunctionType:
            self._mapping(value.__dict__)
        else:
            self._attributes(kind, value)

    def _container(self, kind: type, value: Held) -> None:
        if not _is_container(kind):
            raise UnknownStateError(f"an object of type {kind.__name__}")
        if not issubclass(kind, tuple):
            self._unwitnessed()
        if issubclass(kind, dict):
            self._pairs(dict.items(value) if kind is not OrderedDict else value.items())
            if issubclass(kind, defaultdict):
                self._walk(value.default_factory)
        elif issubclass(kind, (set, frozenset)):
            self._set(value)
        else:
            self._several(tuple(value))

    def _attributes(self, kind: type, value: Held) -> None:
        attributes = getattr(value, "__dict__", None)
        if self.witness is not None:
            self.witness.of_object(value, kind, attributes)
        if attributes:
            self._pairs(attributes.items())
        self._walk(kind)
        for slot in _slots(kind):
            self._unwitnessed()
            try:
                held = slot.__get__(value, kind)
            except AttributeError:
                continue
            self._walk(held)

    def _several(self, values: Held) -> None:
        """Values one after another. Most are plain and taken down here: a call for each would cost ten times that."""
        marks = self._counted(values)
        for value in values:
            if id(type(value)) in _AS_THEY_ARE:
                marks += (type(value), value)
            else:
                self._walk(value)

    def _pairs(self, items: Held) -> None:
        marks = self._counted(items)
        for key, value in items:
            if id(type(key)) in _AS_THEY_ARE:
                marks += (type(key), key)
            else:
                self._walk(key)
            if id(type(value)) in _AS_THEY_ARE:
                marks += (type(value), value)
            else:
                self._walk(value)

    @property
    def number(self) -> int:
        """A number that is the same for states that are alike, and seldom for others."""
        if self._number is None:
            self._number = hash(tuple([mark for mark in self.marks if type(mark) in _NUMBERED]))
        return self._number

    def _counted(self, values: Held) -> list[object]:
        """The marks, to which the number of some values was added."""
        if len(values) > MOST_MARKS:
            raise UnknownStateError("too much to look at")
        self.marks.append(len(values))
        return self.marks

    def _set(self, values: Held) -> None:
        if any(type(value) not in PLAIN for value in values):
            raise UnknownStateError("a set of more than plain values")
        # in their order, which depends on what else was in there before
        self._several(tuple(values))

    def _array(self, kind: type, values: Held) -> None:
        if values.size > MOST_ELEMENTS or values.dtype.hasobject or kind.__module__ != "numpy":
            raise UnknownStateError("a large array, or one that holds more than numbers")
        if not is_unchanging(values.dtype):
            raise UnknownStateError("an array of records")
        self.marks += (values.dtype, values.shape, values.strides, values.tobytes())
        base = values.base if kind is np.ndarray else None
        if base is not None:
            # whoever changes the one changes the other
            if type(base) is not np.ndarray:
                raise UnknownStateError("an array of somebody else's memory")
            self.marks.append(values.__array_interface__["data"][0] - base.__array_interface__["data"][0])
            self._walk(base)

    def _function(self, function: FunctionType) -> None:
        self.marks.append(_Same(function))
        if self.witness is not None:
            self.witness.of_function(function)
        if library_module(function) is not None:
            self._roots.append(function)
            return
        self._roots.append((function.__code__, function.__globals__))
        self.marks.append(_Same(function.__code__))
        for cell in function.__closure__ or ():
            try:
                held = cell.cell_contents
            except ValueError:
                continue
            self._walk(held)
        self._several(function.__defaults__ or ())
        self._pairs((function.__kwdefaults__ or {}).items())

    def _cache(self, function: Held) -> None:
        """A function with `lru_cache`, and the results it keeps."""
        self._walk(function.__wrapped__)
        info = function.cache_info()
        self.marks += (info.currsize, info.maxsize)
        if info.currsize > MOST_CACHED:
            raise UnknownStateError("a large cache")
        for held in gc.get_referents(function):
            # keys and results stand side by side, or in a dictionary if the cache has no limit
            if type(held) is dict and held is not function.__dict__:
                for key, result in held.items() if info.maxsize is None else ():
                    self._walk_key(key)
                    self._walk(result)
            elif type(held) not in _OF_CACHES:
                self._walk_key(held)

    def _walk_key(self, key: Held) -> None:
        """Arguments of a cached function: a tuple of a type of its own if there are several."""
        if isinstance(key, tuple):
            self._several(key)
        else:
            self._walk(key)


# by the identity of their types: plain values, those that are equal only if nothing distinguishes them, and values of
# types that last as long as Python runs
_PLAIN = frozenset(map(id, PLAIN))
_AS_THEY_ARE = frozenset(map(id, (int, bool, str, bytes, type(None))))
_LASTING = frozenset(map(id, (tuple, list, dict, set, frozenset, FunctionType, MethodType, TensorHandle, Affine)))
# marks that are the same for states that are alike, and say most of what distinguishes others
_NUMBERED = frozenset((int, Value))
# what the cache itself consists of
_OF_CACHES = (FunctionType, type, dict, object)
_CONTAINERS = (tuple, list, deque, set, frozenset, dict, OrderedDict, defaultdict)
# by class: whether all of it is written in Python, so that its objects hide nothing, and the slots they have
_PYTHON: WeakKeyDictionary[type, bool] = WeakKeyDictionary()
_SLOTS: WeakKeyDictionary[type, list[MemberDescriptorType]] = WeakKeyDictionary()
# by class of a container: whether it comes from one of Python's own through classes that are written in Python
_HOLDS_ELEMENTS: WeakKeyDictionary[type, bool] = WeakKeyDictionary()


def _is_python(kind: type) -> bool:
    """Whether a class and all it comes from are written in Python."""
    found = _PYTHON.get(kind)
    if found is None:
        found = _PYTHON[kind] = all(base is object or _has_python_only(base) for base in kind.__mro__)
    return found


def _is_container(kind: type) -> bool:
    """Whether all that an object of a class holds are its elements and attributes."""
    found = _HOLDS_ELEMENTS.get(kind)
    if found is None:
        written_in_c = next(base for base in kind.__mro__ if not _has_python_only(base))
        found = _HOLDS_ELEMENTS[kind] = written_in_c in _CONTAINERS
    return found


def _has_python_only(base: type) -> bool:
    return not any(isinstance(held, BY_C) for held in vars(base).values())


def _slots(kind: type) -> list[MemberDescriptorType]:
    """Attributes that objects of a class have beside their dictionary."""
    found = _SLOTS.get(kind)
    if found is None:
        held = [one for base in kind.__mro__ if _has_python_only(base) for one in vars(base).values()]
        found = _SLOTS[kind] = [one for one in held if isinstance(one, MemberDescriptorType)]
    return found
