"""How the emulator's loops over lanes are compiled, with their Python types kept.

numba compiles a function for the types of its arguments at each call, not for its annotations: these are for readers
and callers.
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
    """Compile a loop over rows, or an expensive function that several loops call.

    The machine code is cached on disk.
    """
    made: Callable[Given, Result] = patient_loop(function)  # type: ignore[assignment]
    return made


def part(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """Compile a function into each loop that calls it."""
    return compiled.part(function)


def inlined(function: Callable[Given, Result]) -> Callable[Given, Result]:
    """As `part`, but inlined before type inference; for the few functions for which a call costs more."""
    return compiled.inlined(function)
