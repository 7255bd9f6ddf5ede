"""How the emulator's loops over lanes are compiled."""

from collections.abc import Callable
from typing import Any

from kernbench.common.compiled import njit

# kept on disk; no arrays are made inside, so references are not counted: that would cost more than a load
_OPTIONS: dict[str, Any] = {"cache": True, "nogil": True, "_nrt": False}


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """A loop over rows."""
    compiled: Callable[..., Any] = njit(**_OPTIONS)(function)
    return compiled


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """A part of such loops."""
    compiled: Callable[..., Any] = njit(**_OPTIONS, inline="always")(function)
    return compiled
