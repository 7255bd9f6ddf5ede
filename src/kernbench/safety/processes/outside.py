"""Which state outside themselves functions can change: a launch divided over processes would lose such changes.

All that a user function can reach is compared: its closure, globals and module attributes that it names, its defaults,
and their contents (elements of containers, attributes of objects and of their classes, what their methods can reach).
Of libraries only the attributes that the function names are compared, not what library code reaches. What cannot be
compared (an iterator, an open file, or anything too large) counts as changed.
"""

import io
import os
import random
import sys
from collections import deque
from collections.abc import Collection, Iterable, Iterator
from functools import partial
from itertools import islice
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)

import numpy as np

_LIBRARY = os.path.dirname(os.__file__)
# limits: objects per function, elements of a container, and bytes of an array
_MOST_OBJECTS, _MOST, _MOST_BYTES = 1 << 17, 1 << 16, 1 << 24
_PLAIN = (int, float, complex, str, bytes, bool, type(None), range, np.generic, np.dtype)
# descriptors that Python itself adds to a class
_OF_CLASSES = (GetSetDescriptorType, MemberDescriptorType)
# the content of a library's attribute is compared if it is one of these; otherwise its identity
_CONTAINERS = (dict, list, set, deque, np.ndarray)
# ways to access attributes by names that are strings
_BY_TEXT = frozenset(("setattr", "delattr", "vars", "__dict__"))
State = dict[tuple[object, ...], object]
Named = list[tuple[object, object]]


class Outside:
    """A snapshot of all state that the added functions could change."""

    def __init__(self) -> None:
        # by id; the functions are kept alive, so that no id is reused
        self._functions: dict[int, object] = {}
        self._before: State = {}

    def add(self, functions: Iterable[object]) -> None:
        """Take a snapshot for some functions, unless they are known."""
        for function in functions:
            if id(function) not in self._functions:
                self._functions[id(function)] = function
                self._before |= {key: state for key, state in _state(function).items() if key not in self._before}

    def changed(self) -> bool:
        """Whether anything differs from the snapshot."""
        now: State = {}
        for function in self._functions.values():
            now |= _state(function)
        return now != self._before


def _state(function: object) -> State:
    found: State = {}
    waiting, seen = [function], set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, (*_PLAIN, ModuleType)) or _is_library(one):
            continue
        seen.add(id(one))
        if len(seen) > _MOST_OBJECTS:
            found["more than is looked at",] = object()
            return found
        own, held = _contents(one)
        found[id(one),] = own
        for name, value in held:
            found[id(one), name] = _mark(value)
            waiting.append(value)
    return found


def _mark(value: object) -> object:
    """What is compared of a reference: the value of a plain one, otherwise its identity."""
    # by its repr, so that NaN equals NaN, and 1 differs from 1.0
    return (type(value), repr(value)) if isinstance(value, _PLAIN) else id(value)


def _contents(one: object) -> tuple[object, Named]:
    """The state of an object itself, and its references by name."""
    if isinstance(one, (dict, list, tuple, set, frozenset, deque)):
        return _elements(one)
    if isinstance(one, np.ndarray) and one.dtype == object:
        return _elements(one.ravel().tolist())
    if isinstance(one, (partial, MethodType, FunctionType, type)):
        return _code(one)
    return _own(one), _attributes(one)


def _code(one: "partial[object] | MethodType | FunctionType | type") -> tuple[object, Named]:
    if isinstance(one, FunctionType):
        return id(one.__code__), _named(one)
    if isinstance(one, type):
        return None, [pair for pair in vars(one).items() if not isinstance(pair[1], _OF_CLASSES)]
    if isinstance(one, partial):
        return None, [("func", one.func), ("args", one.args), ("keywords", one.keywords)]
    return None, [("func", one.__func__), ("self", one.__self__)]


def _own(one: object) -> object:
    """The state of an object besides its attributes."""
    if isinstance(one, random.Random):
        return hash(one.getstate())
    if isinstance(one, np.random.RandomState):
        return repr(one.get_state(legacy=False))
    if isinstance(one, np.random.Generator):
        return repr(one.bit_generator.state)
    if isinstance(one, np.random.BitGenerator):
        return repr(one.state)
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "Generator") and isinstance(one, torch.Generator):
        return hash(one.get_state().numpy().tobytes())
    # never equal to an earlier one
    return object() if isinstance(one, (Iterator, io.IOBase)) else _bytes(one)


def _bytes(one: object) -> object:
    """A hash of the bytes of an array or another object with a buffer; None for other objects."""
    if isinstance(one, np.ndarray):
        return hash(one.tobytes()) if one.nbytes <= _MOST_BYTES and not one.dtype.hasobject else object()
    try:
        view = memoryview(one)  # type: ignore[arg-type]
    except (TypeError, ValueError, BufferError):
        return _numbers(one) if hasattr(type(one), "__array__") else None
    with view:
        return hash(view.tobytes()) if view.nbytes <= _MOST_BYTES else object()


def _numbers(one: object) -> object:
    """A hash of the content of a torch tensor, or of another array that NumPy can read."""
    torch = sys.modules.get("torch")
    try:
        if torch is not None and isinstance(one, torch.Tensor):
            # by bytes: NumPy lacks some types
            small = one.device.type == "cpu" and one.numel() * one.element_size() <= _MOST_BYTES
            return _bytes(one.detach().reshape(-1).contiguous().view(torch.uint8).numpy()) if small else object()
        return _bytes(np.asarray(one))
    except Exception:  # somebody else's code, which says no in many ways
        return object()


def _elements(one: Collection[object]) -> tuple[object, Named]:
    """The size of a container, and its first elements; of a dictionary keys and values."""
    if isinstance(one, dict):
        pairs = list(islice(one.items(), _MOST))
        keys: Named = [(("key", i), key) for i, (key, _) in enumerate(pairs)]
        return _count(one), [*keys, *((("value", i), value) for i, (_, value) in enumerate(pairs))]
    # an unchanged set keeps its iteration order
    return _count(one), list(enumerate(islice(one, _MOST)))


def _count(one: Collection[object]) -> object:
    # too large to compare: never equal to an earlier one
    return len(one) if len(one) <= _MOST else object()


def _attributes(one: object) -> Named:
    """The attributes of an object, including slots, and its class."""
    held: Named = list(getattr(one, "__dict__", {}).items())
    for base in type(one).__mro__:
        for name, slot in vars(base).items():
            if isinstance(slot, MemberDescriptorType) and hasattr(one, name):
                held.append((name, slot.__get__(one, type(one))))
    return [*held, ("its class", type(one))]


def _named(function: FunctionType) -> Named:
    """What a function refers to outside itself, by name; of user modules the attributes that it names."""
    cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=False)
    held: Named = [(name, _cell(cell)) for name, cell in cells]
    held += [("defaults", function.__defaults__), ("keyword defaults", function.__kwdefaults__)]
    held += [(("attribute", name), value) for name, value in vars(function).items()]
    # sorted, so that names are visited in the same order
    names = _names(function.__code__)
    known = function.__globals__ if "globals" in names else names
    held += [(name, function.__globals__[name]) for name in known if name in function.__globals__]
    # modules imported inside the function are no globals
    imported = [sys.modules[name] for name in names if name in sys.modules]
    return held + _of_modules([*(value for _, value in held), *imported], names)


def _names(code: CodeType) -> list[str]:
    """The names of globals and attributes in a function, sorted so that they are visited in the same order."""
    codes = _codes(code)
    names = {name for one in codes for name in one.co_names}
    if names & _BY_TEXT:
        names |= {text for one in codes for text in one.co_consts if isinstance(text, str)}
    return sorted(names)


def _of_modules(values: list[object], names: list[str]) -> Named:
    """The attributes with these names of modules and library code among some values, and of modules in those."""
    held: Named = []
    waiting, seen = values, set()
    while waiting:
        holder = waiting.pop()
        is_library = isinstance(holder, (ModuleType, type, FunctionType)) and _is_library(holder)
        if id(holder) in seen or not (is_library or isinstance(holder, ModuleType)):
            continue
        seen.add(id(holder))
        found = [(name, vars(holder)[name]) for name in names if name in vars(holder)]
        waiting += [value for _, value in found]
        if is_library:
            found = [(name, _seen_of(value)) for name, value in found if not _is_natural(name, value)]
        held += [((id(holder), name), value) for name, value in found]
    return held


def _seen_of(value: object) -> object:
    """What is compared of a library's value: its content if plain or a container, otherwise its identity."""
    return value if isinstance(value, (*_CONTAINERS, *_PLAIN)) else f"at {id(value)}"


def _is_natural(name: str, value: object) -> bool:
    """Whether library code is bound to its own name, perhaps only since a lazy import."""
    own = str(getattr(value, "__name__", ""))
    is_code = isinstance(value, (ModuleType, type, FunctionType, BuiltinFunctionType))
    return is_code and own.rpartition(".")[2] == name and _is_library(value)


def _cell(cell: object) -> object:
    try:
        return cell.cell_contents  # type: ignore[attr-defined]
    except ValueError:
        return None


def _codes(code: CodeType) -> list[CodeType]:
    inner = [one for one in code.co_consts if isinstance(one, CodeType)]
    return [code, *(deeper for one in inner for deeper in _codes(one))]


def _is_library(value: object) -> bool:
    """Whether a value is code of Python, an installed package or kernbench (not a bench), or an object of kernbench.

    Containers and other objects of a library's classes belong to the user: their contents are compared.
    """
    if isinstance(value, ModuleType):
        module = value.__name__
    elif isinstance(value, (type, FunctionType, BuiltinFunctionType)):
        module = str(value.__module__)
    else:
        module = type(value).__module__
        if not module.startswith("kernbench."):
            return False
    return is_library(module)


def is_library(module: str) -> bool:
    """Whether a module belongs to Python, an installed package or kernbench, except benches."""
    if module.startswith("kernbench."):
        return not module.startswith("kernbench.benches.")
    if module in (*sys.builtin_module_names, "kernbench") or module.split(".")[0] == "numpy":
        return True
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return "site-packages" in file or file.startswith((_LIBRARY + os.sep, "<frozen"))
