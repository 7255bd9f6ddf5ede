"""How the emulator's loops over lanes are compiled. What is compiled keeps the type it is written with.

numba compiles a function for the types of the values it is called with, not for what its annotations say: these are for
readers, and for whoever calls it.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from kernbench.common import compiled
from kernbench.common.compiled import prefetch
from kernbench.common.native_loops import patient_loop

__all__ = ["inlined", "kernel", "part", "prefetch"]

Given = ParamSpec("Given")
Result = TypeVar("Result")


def kernel(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """A loop over rows; also what several of them call that takes long to compile: it is kept on disk for all."""
    made: Callable[Given, Result] = patient_loop(function)  # type: ignore[assignment]
    return made


def part(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """What loops call: compiled into each of them."""
    return compiled.part(function)


def inlined(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """A part that becomes a piece of each loop before anything is typed, for the few that a call costs more."""
    return compiled.inlined(function)
