"""Which pages of an array are allocated: untouched parts of a large one can be skipped."""

import os

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.arrays import Bools
from kernbench.ptx.emulator.memory.pages.large import PAGE

# smaller arrays are not worth the query
_WORTH = 256 << 20
# touched pages with at most so many others between them are joined
_NEAR = 16
# pages per query
_TOGETHER = 1 << 20
# bits of a page's entry: it is in memory, or swapped out
_HELD = 62
_WORD = 8


def touched_rows(rows: Array) -> list[slice]:
    """The rows of an array that may hold something; all others are untouched zeros.

    The array was made by `room.sparse_zeros`, and its rows divide a page. All rows if the system gives no information.
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
    # a few more rows are faster than another range
    apart = np.diff(edges[1:-1].reshape(-1, 2)).reshape(-1) > _NEAR
    edges = edges[np.concatenate(([True], np.repeat(apart, 2), [True]))] if len(edges) else edges
    lines = np.clip(((first + edges.reshape(-1, 2)) * PAGE - start) // size, 0, len(rows))
    return [slice(begin, end) for begin, end in lines.tolist()]


def _held(first: int, count: int) -> Bools:
    """Whether each of some pages of this process is allocated."""
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
