"""Hints to Triton's compiler, where this machine has nothing to compile: checked where it claims something."""

import builtins
import sys
from collections.abc import Callable, Iterable
from typing import Any, SupportsIndex, TypeVar

from kernbench.common.pe_commands import TensorHandle
from kernbench.triton_emu.engine.core import Core
from kernbench.triton_emu.engine.part import Part
from kernbench.triton_emu.engine.written import Operand, Sizes
from kernbench.triton_emu.operations.computing import Computing
from kernbench.triton_emu.repeating.loops import loop

__kernbench_internal__ = True


Kept = TypeVar("Kept")
Whole = TensorHandle | int


class Hints(Part):
    """Small help for kernels written for Triton; none of it is a command."""

    def __init__(self, core: Core, computing: Computing):
        super().__init__(core)
        self._full, self._minimum = computing.full, computing.minimum

    @staticmethod
    def constexpr(value: Kept) -> Kept:
        """The value itself: all numbers are known when a kernel runs."""
        return value

    def range(
        self, *bounds: int, num_stages: object = None, loop_unroll_factor: object = None, **hints: object
    ) -> Iterable[int]:
        """Python's range; how the loop is to be compiled changes nothing.

        Iterations of `for j in tl.range(...)` that do the same but for addresses that grow with `j` are recorded, and
        computed in a launch with data, without running each.
        """
        return loop(self._core, builtins.range(*bounds), sys._getframe(1))

    def routine(self, function: Callable[..., Kept], *args: object, at: tuple[int, ...] = ()) -> Kept:
        """function(*args, *at): a part of a kernel that is called again and again with other addresses `at`.

        In a launch without data, a call with arguments like those of an earlier one is recorded without running it, if
        nothing that the function can reach holds handles. It may give back handles that it made, and send and receive.
        `at` may also be positions: numbers that it adds up, multiplies, and takes as both ends of an `arange`.
        """
        return self._core.routines.call(function, args, tuple(at))

    @staticmethod
    def static_range(*bounds: SupportsIndex) -> builtins.range:
        """Python's range."""
        return builtins.range(*bounds)

    def cdiv(self, x: Whole, div: Whole) -> Whole:
        """x / div rounded up."""
        return (x + (div - 1)) // div

    def swizzle2d(self, i: Whole, j: Whole, size_i: Whole, size_j: Whole, size_g: Whole) -> tuple[Whole, Whole]:
        """Where the tile that is (i, j) row by row lies when groups of `size_g` rows are walked column by column."""
        index = i * size_j + j
        group, within = index // (size_g * size_j), index % (size_g * size_j)
        left = size_i - group * size_g
        rows: Any = self._minimum(left, size_g) if isinstance(left, TensorHandle) else min(left, size_g)
        return group * size_g + within % rows, within // rows

    def multiple_of(self, input: Kept, values: Sizes) -> Kept:
        """`input`, which the kernel says is a multiple of `values`; a finding where a plain number is not."""
        steps = self._whole_numbers(values)
        if isinstance(input, int) and any(n and input % n for n in steps):
            location = self._sites.locations[self._sites.here()]
            message = f"multiple_of: {input} is no multiple of {', '.join(map(str, steps))}"
            self._core._port.report(
                "misuse", message, "on other machines this reads wrong data: mend the offset", location
            )
        return input

    def max_contiguous(self, input: Kept, values: Sizes) -> Kept:
        """`input`."""
        return input

    def max_constancy(self, input: Kept, values: Sizes) -> Kept:
        """`input`."""
        return input

    def debug_barrier(self) -> None:
        """Nothing: a PE has one instruction stream, and what a command needs it waits for."""

    def to_tensor(self, x: Operand) -> TensorHandle:
        """A handle: `x` itself, or a number as a value of one element."""
        if isinstance(x, TensorHandle):
            return x
        number = self._scalar(x)
        kind = "i1" if isinstance(number, bool) else "i32" if isinstance(number, int) else "f32"
        return self._full((), number, kind)

    def static_assert(self, condition: object, message: str = "") -> None:
        """Stop the kernel unless `condition` holds."""
        if not condition:
            self._fail("misuse", f"static_assert failed: {message or 'no message'}")
