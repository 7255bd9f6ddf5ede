"""Lets a copy of a process refuse before somebody's own code changes a file: the process that goes on does that once.

What a library writes for kernbench, as a loop that was compiled, is no such change.
"""

import builtins
import functools
import io
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

from kernbench.safety.processes.outside import is_library

_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC
_CHANGES = ("mkdir", "remove", "rename", "replace", "rmdir", "system", "truncate", "unlink")


def watch(refuse: Callable[[], NoReturn]) -> None:
    """From now on, `refuse` is called where somebody's code is about to write. Only a copy, which ends, does this."""

    def watched(usual: Callable[..., object], writes: Callable[..., bool]) -> Callable[..., object]:
        @functools.wraps(usual)
        def call(*given: object, **named: object) -> object:
            if writes(*given, **named) and _is_somebodys(sys._getframe(1)):
                refuse()
            return usual(*given, **named)

        return call

    opened = watched(io.open, lambda file, mode="r", *more, **named: bool(set(mode) & set("wax+")))
    for module in (builtins, io):
        vars(module)["open"] = opened
    vars(os)["open"] = watched(os.open, lambda path, flags, *more, **named: bool(flags & _FLAGS))
    for name in _CHANGES:
        vars(os)[name] = watched(vars(os)[name], lambda *given, **named: True)


def _is_somebodys(frame: FrameType | None) -> bool:
    """Whether code that is neither of kernbench nor of a library called, be it through libraries."""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if not is_library(module):
            return True
        if module.startswith("kernbench."):
            return False
        frame = frame.f_back
    return False
