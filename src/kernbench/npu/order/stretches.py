"""Checks all blocks of a launch, a few at a time.

Blocks are independent of each other, and the state of each row is needed only until its block ends. So the rows of a
few blocks are copied into columns, checked, and the buffers are reused: they stay in the cache, and millions of rows
take no more memory than some ten thousand.
"""

from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from kernbench.npu.isa.units import EVENTS, PER_LANE, THREADS
from kernbench.npu.order.clocks import (
    NO_POSTS,
    Cells,
    Clocks,
    Digest,
    Fifos,
    Flags,
    Found,
    Ints,
    Memory,
    Posts,
    Rows,
    Tiles,
)
from kernbench.npu.order.happens_before import LOOSE, MOST, check_blocks

# rows after which a group of blocks ends
ROWS = 1 << 15
_ALL_BITS = (1 << 64) - 1


def check(
    firsts: Ints,
    rows: Rows,
    classes: NDArray[np.int8],
    layout: tuple[Tiles, int],
    extents: Ints,
    buffers: int,
    fifos: Ints,
    identity: NDArray[np.uint64],
    posts: Posts = NO_POSTS,
    vector_order: bool = False,
) -> tuple[Ints, int]:
    """Violations in all blocks, whose first rows are `firsts`. With `vector_order` V is a pipe like others.

    `layout` are the tiles, made of cells, and the number of cells.
    `fifos` are, for each block and FIFO: depth, bits of the lanes that push, bits of those that pop. If `identity`
    has a number for each row, the second result is a digest of the order of all accesses: equal for two launches in
    which the same accesses are ordered after the same others, by whatever flags and barriers; otherwise 0.
    """
    tiles, cells = layout
    state = Cells(
        np.full(cells, -1, np.int64), np.zeros(cells, np.int32), np.full((cells, PER_LANE), -1, np.int64)
    )  # fmt: skip
    ends = _ends(firsts)
    most = int(np.diff(firsts[ends]).max(initial=0))
    clocks = Clocks(np.zeros((THREADS, THREADS), np.int64), np.zeros(THREADS, np.int64), *np.zeros((3, most), np.int64))
    memory = Memory(*(np.full(size, -1, np.int64) for size in (buffers, most, buffers, THREADS)))
    # for each pipe and number of its entries: how many of them are accesses
    longest = int(np.diff(firsts).max(initial=0)) if len(identity) else 0
    prefix = np.zeros((THREADS, longest + 1), np.int64)
    room, flags, messages = Rows(*(np.empty(most, column.dtype) for column in rows)), _flags(), _fifos(fifos)
    parts, total = [np.empty((0, 4), np.int64)], 0
    for begin, stop in pairwise(ends):
        first, end = int(firsts[begin]), int(firsts[stop])
        for one in (state.writer, state.readers, flags.stamp, memory.stored_in):
            one.fill(-1)
        found = Found(np.empty((MOST, 4), np.int64), np.zeros(1, np.int64))
        given = _copied(rows, room, first, end), classes, tiles, extents
        carried = messages._replace(shape=messages.shape[begin:stop]), _wanted(posts, first, end)
        kept = state, flags, clocks, memory, Digest(identity[first:end], prefix), found
        own = firsts[begin : stop + 1] - first
        total += int(check_blocks(own, *given, *carried, *kept, -1 if vector_order else LOOSE, first))
        parts.append(_counted_from(found, first))
    return np.concatenate(parts)[:MOST], total & _ALL_BITS


def _ends(firsts: Ints) -> list[int]:
    """Groups of blocks that are checked together: the first block of each, and one past the last."""
    blocks = len(firsts) - 1
    found = [0]
    while found[-1] < blocks:
        behind = int(np.searchsorted(firsts, firsts[found[-1]] + ROWS))
        found.append(min(max(behind, found[-1] + 1), blocks))
    return found


def _copied(rows: Rows, room: Rows, first: int, end: int) -> Rows:
    """Some rows as contiguous columns, in the buffer `room`."""
    found = Rows(*(column[: end - first] for column in room))
    for into, column in zip(found, rows, strict=True):
        into[...] = column[first:end]
    return found


def _wanted(posts: Posts, first: int, end: int) -> Posts:
    """Rows whose clock is needed, among some rows and numbered as these are."""
    begin, stop = np.searchsorted(posts.wanted, [first, end])
    return posts._replace(wanted=posts.wanted[begin:stop] - first, clocks=posts.clocks[begin:stop])


def _counted_from(found: Found, first: int) -> Ints:
    """Violations in a group, with the row numbers of the launch."""
    rows = found.rows[: min(int(found.number[0]), MOST)].copy()
    rows[:, 1:3] += np.where(rows[:, 1:3] >= 0, first, 0)
    return rows


def _flags() -> Flags:
    keys = THREADS * PER_LANE * EVENTS
    set_row, wait_row, early, stamp = np.full((4, keys), -1, np.int64)
    carried, touched = np.zeros((keys, THREADS), np.int64), np.empty(keys, np.int64)
    return Flags(set_row, wait_row, early, carried, touched, stamp)


def _fifos(shape: Ints) -> Fifos:
    deepest = max(1, int(shape[:, :, 0].max(initial=1)))
    return Fifos(shape, *np.zeros((2, max(1, shape.shape[1]), 3, deepest, THREADS), np.int64))
