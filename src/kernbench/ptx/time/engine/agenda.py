"""A priority queue of sub-cores, by the time at which each is examined next.

A GPU has hundreds of sub-cores, and one is examined for each instruction. The queue is a tournament tree in an array of
2 * `size`, where `size` is a power of two. Sub-core s is leaf `size + s`; an inner node is the earlier of its two
children, and the root is 1.
"""

import numpy as np
from numpy.typing import NDArray

from kernbench.common.compiled import part
from kernbench.ptx.time.engine import codes as c


def new_agenda(subs: int) -> NDArray[np.int64]:
    """A queue of `subs` sub-cores, none of them scheduled."""
    size = 1 << max(subs - 1, 0).bit_length()
    return np.full(2 * size, c.NEVER, np.int64)


@part
def look_next(sub, when, agenda):  # type: ignore[no-untyped-def]
    """Schedule a sub-core for `when`, replacing its earlier time."""
    i = (len(agenda) >> 1) + sub
    agenda[i] = when
    while i > 1:
        i >>= 1
        earlier = min(agenda[2 * i], agenda[2 * i + 1])
        if agenda[i] == earlier:
            # the nodes above do not change either
            return
        agenda[i] = earlier


@part
def look_by(sub, when, agenda):  # type: ignore[no-untyped-def]
    """Schedule a sub-core for `when`, unless it is scheduled earlier."""
    if when < agenda[(len(agenda) >> 1) + sub]:
        look_next(sub, when, agenda)


@part
def first_due(agenda):  # type: ignore[no-untyped-def]
    """The next sub-core to examine and its time; ties go to the lowest number, and -1 is none."""
    now, size, i = agenda[1], len(agenda) >> 1, 1
    if now >= c.NEVER:
        return -1, now
    while i < size:
        i = 2 * i if agenda[2 * i] == now else 2 * i + 1
    return i - size, now
