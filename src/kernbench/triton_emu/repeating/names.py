"""What a piece of Python code can look up outside itself: names, globals and modules, read from its instructions."""

import dis
from functools import cache
from types import CodeType

__kernbench_internal__ = True

# what looks at, or changes, that which is not an attribute of an object: what a cache did, what is registered, ...
_LOOKS_BEHIND = frozenset(
    (
        "__annotations__",
        "__annotate__",
        "__subclasses__",
        "cache_info",
        "register",
        "setflags",
        "writeable",
        "f_locals",
        "gi_frame",
    )
)
_STORES = frozenset(("STORE_ATTR", "DELETE_ATTR"))
_LOADS = frozenset(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"))


@cache
def names_in(code: CodeType) -> tuple[str, ...]:
    """Names that a piece of code, and what is defined in it, looks up outside: variables and attributes."""
    return tuple(dict.fromkeys(name for part in _parts(code) for name in part.co_names))


@cache
def globals_in(code: CodeType) -> frozenset[str]:
    """Names that it looks up as global variables, or else among the builtins."""
    return frozenset(i.argval for part in _parts(code) for i in dis.get_instructions(part) if i.opname in _LOADS)


@cache
def looks_behind(code: CodeType) -> bool:
    """Whether it may keep state in what objects are made of, as in the name of a function or the flags of an array."""
    stored = {i.argval for part in _parts(code) for i in dis.get_instructions(part) if i.opname in _STORES}
    return not _LOOKS_BEHIND.isdisjoint(names_in(code)) or any(n.startswith("__") and n.endswith("__") for n in stored)


def imports_in(code: CodeType, package: str) -> dict[str, bool]:
    """Modules that it imports as it runs, with those that hold them, and, as False, what may be a module of one.

    `package` is where relative names start.
    """
    found: dict[str, bool] = {}
    for level, taken, name in _imports(code):
        start = package.split(".")[: len(package.split(".")) - level + 1] if level else []
        parts = [*start, *filter(None, name.split("."))]
        found.update((".".join(parts[: n + 1]), True) for n in range(len(parts)))
        for one in taken or ():
            found.setdefault(".".join((*parts, one)), False)
    return found


@cache
def _imports(code: CodeType) -> tuple[tuple[int, tuple[str, ...] | None, str], ...]:
    """The level of each import, the names that are taken from the module, and its own."""
    found = []
    for part in _parts(code):
        plain = [i for i in dis.get_instructions(part) if i.opname not in ("CACHE", "EXTENDED_ARG")]
        at = [n for n, i in enumerate(plain) if i.opname == "IMPORT_NAME"]
        found += [(plain[n - 2].argval, plain[n - 1].argval, plain[n].argval) for n in at]
    return tuple(found)


def _parts(code: CodeType) -> list[CodeType]:
    """The code itself, and that of functions and classes defined in it."""
    return [code] + [inner for part in code.co_consts if isinstance(part, CodeType) for inner in _parts(part)]
