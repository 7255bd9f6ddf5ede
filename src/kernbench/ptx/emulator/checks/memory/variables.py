"""Shared variables that accesses are meant for: an address computed from one must not fall into another.

The emulator leaves an inaccessible gap after each variable. An access beyond it falls into the next variable, and only
the origin of its address shows that it is out of bounds.
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
    """Whether an access may leave the variables it is meant for: a quick test that includes inactive lanes.

    `size` is the size of the memory.
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
    """Positions whose access begins in a variable of `every` that is none of those they are meant for.

    `starts` are offsets in the block's memory, `last` is the last valid one. Accesses between variables or outside the
    memory are found by the states of bytes.
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
