"""Which code belongs to Python, NumPy or kernbench, and which of that keeps state where a kernel's loop cannot see it.

Code of a library is not looked into. That is right only for functions whose result depends on their arguments alone, so
modules of which that is known are listed, with the exceptions; a loop whose code reaches any other is not folded.
"""

import sys
from functools import cache
from types import FunctionType, ModuleType
from typing import Any

__kernbench_internal__ = True

# any object that a program can reach; what it is, only looking at it shows
Held = Any

_LIBRARIES = frozenset(sys.stdlib_module_names | {"numpy", "ml_dtypes", "kernbench"})
_BENCHES = "kernbench.benches"
_IMMUTABLE_TYPE = 1 << 8
# modules whose functions and classes depend on their arguments alone
_STATELESS = frozenset(
    (
        "abc",
        "_abc",
        "array",
        "bisect",
        "_bisect",
        "cmath",
        "collections",
        "_collections",
        "_collections_abc",
        "contextlib",
        "copy",
        "copyreg",
        "dataclasses",
        "enum",
        "fractions",
        "functools",
        "_functools",
        "heapq",
        "_heapq",
        "itertools",
        "json",
        "_json",
        "keyword",
        "kernbench",
        "math",
        "ml_dtypes",
        "numbers",
        "operator",
        "_operator",
        "re",
        "reprlib",
        "_sre",
        "string",
        "_string",
        "struct",
        "_struct",
        "textwrap",
        "types",
        "typing",
        "_typing",
    )
)
# modules of which that holds but for some names
_EXCEPTIONS = {
    "builtins": frozenset(("eval", "exec", "compile", "__import__", "breakpoint", "open", "input")),
    "numpy": frozenset(
        (
            "seterr",
            "geterr",
            "seterrcall",
            "geterrcall",
            "setbufsize",
            "getbufsize",
            "errstate",
            "set_printoptions",
            "get_printoptions",
            "printoptions",
            "fromfile",
            "memmap",
        )
    ),
}


@cache
def is_library(module: str | None) -> bool:
    """Whether a module belongs to Python itself, to NumPy, or to kernbench but for its benches."""
    if module is None or module.startswith(_BENCHES):
        return False
    return module.partition(".")[0] in _LIBRARIES


@cache
def keeps_state(module: str, name: str) -> bool:
    """Whether a function or class of a library may keep state, or read some, outside its arguments."""
    if module.startswith("numpy.random"):
        return True
    whole = module.partition(".")[0]
    return name in _EXCEPTIONS[whole] if whole in _EXCEPTIONS else whole not in _STATELESS


def library_module(value: Held) -> str | None:
    """The library that a function, class or module really comes from, whatever it says; None if from none."""
    if isinstance(value, ModuleType):
        return value.__name__ if is_library(value.__name__) else None
    if isinstance(value, FunctionType):
        return _of_function(value)
    found = is_library(value.__module__) and (value.__flags__ & _IMMUTABLE_TYPE or is_found(value))
    return value.__module__ if found else None


def _of_function(function: FunctionType) -> str | None:
    name = function.__globals__.get("__name__")
    module = sys.modules.get(name) if isinstance(name, str) and is_library(name) else None
    if module is None or vars(module) is not function.__globals__:
        return None
    # functions that a library makes for others close over what those gave
    return name if not function.__closure__ or is_found(function) else None


def is_found(value: Held) -> bool:
    """Whether a function or class is where its name says."""
    found: Held = sys.modules.get(value.__module__)
    for name in value.__qualname__.split("."):
        found = vars(found).get(name) if isinstance(found, (type, ModuleType)) else None
    return getattr(found, "__func__", found) is value
