"""Which pages of an array take memory: what nobody touched of a large one need not be looked at."""

import os

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.arrays import Bools
from kernbench.ptx.emulator.memory.pages.large import PAGE

# smaller arrays are looked at whole
_WORTH = 256 << 20
# touched pages with so few others between them are taken together
_NEAR = 16
# pages that the system is asked about at once
_TOGETHER = 1 << 20
# of what the system says about a page: it is in memory, or it was and is swapped out
_HELD = 62
_WORD = 8


def touched_rows(rows: Array) -> list[slice]:
    """The rows of an array that may hold something; all others are zeros that nobody touched.

    The array was made by `room.sparse_zeros`, and its rows divide a page. All rows where the system does not say.
    """
    if rows.nbytes < _WORTH:
        return [slice(0, len(rows))]
    start, size = rows.ctypes.data, rows.nbytes // len(rows)
    first = start // PAGE
    try:
        held = _held(first, -(-(start + rows.nbytes) // PAGE) - first)
    except OSError:
        return [slice(0, len(rows))]
    edges = np.flatnonzero(np.diff(held, prepend=False, append=False))
    # looking at a few more is faster than stopping before them
    apart = np.diff(edges[1:-1].reshape(-1, 2)).reshape(-1) > _NEAR
    edges = edges[np.concatenate(([True], np.repeat(apart, 2), [True]))] if len(edges) else edges
    lines = np.clip(((first + edges.reshape(-1, 2)) * PAGE - start) // size, 0, len(rows))
    return [slice(begin, end) for begin, end in lines.tolist()]


def _held(first: int, count: int) -> Bools:
    """Whether each of some pages of this process takes memory."""
    found = np.zeros(count, bool)
    file = os.open("/proc/self/pagemap", os.O_RDONLY)
    try:
        for done in range(0, count, _TOGETHER):
            some = min(_TOGETHER, count - done)
            words = np.frombuffer(os.pread(file, _WORD * some, _WORD * (first + done)), np.uint64)
            if len(words) < some:
                raise OSError("the system does not know these pages")
            found[done : done + some] = words >> np.uint64(_HELD) != 0
    finally:
        os.close(file)
    return found
