"""When sub-cores are looked at next, as a tree of the earliest times: a GPU has hundreds of them, and one is looked at
for each instruction.

Sub-core s is leaf `size + s` of an array of 2 * `size`, where `size` is a power of two; what lies above two leaves is
the earlier of their times, and the root is 1.
"""

import numpy as np
from numpy.typing import NDArray

from kernbench.common.compiled import part
from kernbench.ptx.time.engine import codes as c


def new_agenda(subs: int) -> NDArray[np.int64]:
    """An agenda of so many sub-cores that nobody needs to look at."""
    size = 1 << max(subs - 1, 0).bit_length()
    return np.full(2 * size, c.NEVER, np.int64)


@part
def look_next(sub, when, agenda):  # type: ignore[no-untyped-def]
    """A sub-core is looked at next then, whatever was said before."""
    i = (len(agenda) >> 1) + sub
    agenda[i] = when
    while i > 1:
        i >>= 1
        earlier = min(agenda[2 * i], agenda[2 * i + 1])
        if agenda[i] == earlier:
            # nothing above it changes either
            return
        agenda[i] = earlier


@part
def look_by(sub, when, agenda):  # type: ignore[no-untyped-def]
    """A sub-core is looked at then at the latest."""
    if when < agenda[(len(agenda) >> 1) + sub]:
        look_next(sub, when, agenda)


@part
def first_due(agenda):  # type: ignore[no-untyped-def]
    """The sub-core that is to be looked at next, of several at one time that of the lowest number, and when; -1 for
    none.
    """
    now, size, i = agenda[1], len(agenda) >> 1, 1
    if now >= c.NEVER:
        return -1, now
    while i < size:
        i = 2 * i if agenda[2 * i] == now else 2 * i + 1
    return i - size, now
