"""Variables of shared memory that accesses are meant for: an address that is made of one's and falls into another.

The emulator leaves a gap behind each variable, whose bytes nobody may access. What goes beyond it falls into the next
one, and only where its address comes from says that it is out of bounds.
"""

from collections.abc import Sequence

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.checks.memory.meant import reaches
from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.memory.port import Accessed
from kernbench.ptx.emulator.program.program import SharedVariable

_ALL = (1 << 64) - 1


def leaves(variables: Sequence[SharedVariable], accessed: Accessed, size: int) -> bool:
    """Whether an access may leave the variables that it is meant for, in a memory of so many bytes: a quick look, at
    lanes too that take no part.
    """
    first, *others = variables
    if others:
        return True
    addresses, offset, base = accessed
    nbytes = size - first.offset if first.size is None else first.size
    return bool(reaches(addresses, np.uint64((base + first.offset - int(offset)) & _ALL), np.uint64(nbytes)))


def strays_from(
    variables: Sequence[SharedVariable], every: Sequence[SharedVariable], starts: Array, active: Mask | None, last: int
) -> Array:
    """Positions whose access begins in a variable of `every` that is none of those it is meant for.

    `starts` are offsets in the block's memory, and `last` the last one at which an access may begin. What falls between
    variables or outside the memory is found by the state of the bytes.
    """
    outside = _in_any(every, starts) & ~_in_any(variables, starts) & (starts >= 0) & (starts <= last)
    found: Array = np.flatnonzero(outside if active is None else outside & active)
    return found


def _in_any(variables: Sequence[SharedVariable], starts: Array) -> Array:
    found: Array = np.zeros(len(starts), np.bool_)
    for one in variables:
        behind = starts >= one.offset
        found |= behind if one.size is None else behind & (starts < one.offset + one.size)
    return found
