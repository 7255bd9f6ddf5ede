"""What the operations are written with: memory by address, and instructions that Python has no name for.

Compiled, each is an instruction or two. The operations are plain Python otherwise (docs/adr/0076), over 64-bit numbers.
"""

from collections.abc import Callable
from typing import Any

import numpy as np

from kernbench.common.native.kinds import EMPTIES, INT, ROWS, SPACES, VIEWS, Instruction, Scalar

# numbers in compiled code
Int = int | np.integer
Real = float | np.floating
Flag = bool | np.bool
_F32 = Scalar("f", 32)


class _Compiled:
    """A function that only compiled code can call."""

    def __init__(self, plain: Instruction):
        self.plain = plain

    def __call__(self, *given: object) -> Any:
        """Raises an error."""
        raise NotImplementedError("only compiled code has this instruction")


def _view(name: str) -> Callable[[Int], Any]:
    return _Compiled(VIEWS[name])


bytes_at, halves_at, words_at, longs_at = (_view(name) for name in ("u1", "u2", "u4", "u8"))
ints_at, numbers_at, floats_at = (_view(name) for name in ("i4", "i8", "f4"))
# the same with one element for each lane
flags_of, words_of = (_Compiled(ROWS[name]) for name in ("b1", "u4"))
no_flags = _Compiled(EMPTIES["b1"])
# 256 elements that only the operation has
floats, ints = (_Compiled(SPACES[name]) for name in ("f4", "i4"))
# how many bits are set, and the number of the lowest one (64 if none is)
ones = _Compiled(Instruction((INT,), INT, "call i64 @llvm.ctpop.i64(i64 {0})"))
lowest = _Compiled(Instruction((INT,), INT, "call i64 @llvm.cttz.i64(i64 {0}, i1 false)"))
# the integer part of a float of less than 2**31
whole = _Compiled(Instruction((_F32,), Scalar("i", 32), "fptosi float {0} to i32"))
# run the code of an operation for a warp, until it stops
enter = _Compiled(Instruction((INT, INT, INT, INT), INT, "call i64 @enter(i64 {0}, i64 {1}, i64 {2}, i64 {3})"))
# exchange a number for another one, and give the one that was there; and look at a number: other threads do it, too
swap = _Compiled(Instruction((INT, INT, INT), INT, "call i64 @swap(i64 {0}, i64 {1}, i64 {2})"))
look = _Compiled(Instruction((INT,), INT, "call i64 @look(i64 {0})"))
# the float of the bits of an f16
half = _Compiled(Instruction((Scalar("u", 16),), _F32, "call float @float_of_half(i16 {0})"))


def lanes_of(mask: Int) -> Int:
    """How many lanes are in a mask."""
    found: Int = ones(mask)
    return found
