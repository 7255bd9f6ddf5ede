"""Makes a fork refuse before user code changes a file: only the parent may do that, once.

Files that a library writes for kernbench, such as a compiled loop, do not count.
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
    """From now on, call `refuse` before user code writes a file; only for forks, as it is never undone."""

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
    """Whether user code is the caller, directly or through libraries."""
    while frame is not None:
        module = frame.f_globals.get("__name__", "")
        if not is_library(module):
            return True
        if module.startswith("kernbench."):
            return False
        frame = frame.f_back
    return False
