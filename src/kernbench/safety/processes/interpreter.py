"""What code of users may take away from the Python that kernbench runs in: put back, so that it can be reported."""

import builtins
import os
import sys
from collections.abc import Iterable
from contextlib import suppress

_BUILTINS = builtins.__dict__
_SAVED = _BUILTINS.copy()
# programs replace these on purpose, by something that can be called
_REPLACEABLE = frozenset(
    ("print", "open", "input", "breakpoint", "help", "exit", "quit", "copyright", "credits", "license", "__import__")
)
# names that Python gives the module itself
_OWN = frozenset(("__name__", "__doc__", "__package__", "__loader__", "__spec__", "_"))
# kept under names of our own: what puts builtins back uses none of them
_callable, _nothing = callable, object()
# a second copy of these is of no use: objects and state are in the first
_SINGLE = ("builtins", "kernbench", "numpy", "sys")
_KEPT_ROOTS = sys.stdlib_module_names | {"kernbench", "numpy"}


def replaced_builtins() -> list[str]:
    """Builtins that are gone, or that no program replaces on purpose; works whatever they are now."""
    return [
        name
        for name, value in _SAVED.items()
        if (now := _BUILTINS.get(name, _nothing)) is not value
        and name not in _OWN
        and not (name in _REPLACEABLE and now is not _nothing and _callable(now))
    ]


def restore_builtins() -> list[str]:
    """Put back builtins that were replaced; returns their names."""
    names = replaced_builtins()
    _BUILTINS.update({name: _SAVED[name] for name in names})
    return names


class Interpreter:
    """The state of Python before code of users runs."""

    def __init__(self) -> None:
        self._table, self._modules = sys.modules, sys.modules.copy()
        self._finders = list(sys.meta_path)
        self._depth = sys.getrecursionlimit()
        self._builtins: list[str] = []

    def restore_builtins(self) -> None:
        """Put back builtins; `restore` returns their names later."""
        self._builtins = [*self._builtins, *restore_builtins()]

    def restore(self) -> tuple[list[str], list[str]]:
        """Put back what kernbench cannot do without; returns the builtins and the modules that were replaced or lost.

        What has no trace in later results (finders of imports, depth of recursion, output streams) is put back without
        a word.
        """
        self.restore_builtins()
        sys.modules = self._table
        lost = [name for name, module in self._modules.items() if _is_lost(name, module)]
        if lost:
            sys.modules.update(self._modules)
        sys.meta_path[:] = [*sys.meta_path, *(one for one in self._finders if one not in sys.meta_path)]
        if sys.getrecursionlimit() < self._depth:
            sys.setrecursionlimit(self._depth)
        _open_streams(("stdout", 1), ("stderr", 2))
        return self._builtins, lost


def _is_lost(name: str, module: object) -> bool:
    now, root = sys.modules.get(name), name.partition(".")[0]
    if root in _SINGLE:
        return now is not module
    return now is None and module is not None and root in _KEPT_ROOTS


def _open_streams(*streams: tuple[str, int]) -> None:
    """Open output streams anew that were closed or set to None, where their descriptors are open."""
    for name, number in streams:
        stream = getattr(sys, name)
        if stream is not None and not getattr(stream, "closed", False):
            continue
        with suppress(OSError):
            os.fstat(number)
            made = os.fdopen(number, "w", encoding="utf-8", errors="backslashreplace", buffering=1, closefd=False)
            setattr(sys, name, made)


def some_of(names: Iterable[str], most: int = 4) -> str:
    """Names for a message, the first ones of many."""
    listed = list(names)
    return ", ".join(listed[:most]) + (f" and {len(listed) - most:,} more" if len(listed) > most else "")
