"""The state of `happens_before` during its pass over the rows: vector clocks, flags, cells, messages. Named columns.

Compiled loops take these tuples as they are; their names cost nothing at run time.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernbench.npu.isa.units import THREADS

Ints = NDArray[np.int64]
Column = NDArray[Any]


class Rows(NamedTuple):
    """The recording, by columns; `w` is the tile that a row writes, the others depend on its operation."""

    op: Column
    lane: Column
    pipe: Column
    w: Column
    a: Column
    b: Column
    c: Column
    x: Column
    y: Column


class Tiles(NamedTuple):
    """Tile t consists of cells[starts[t]:starts[t + 1]] of its memory, which begins at bases[lane, space[t]] and
    belongs to the lane owners[lane, space[t]].
    """

    starts: Ints
    cells: Ints
    bases: Ints
    owners: Ints
    space: Ints
    # the tile of which it is a part
    roots: Ints
    # first and one past the last byte, and whether it is contiguous: then a tile inside another is a view of it
    first: Ints
    last: Ints
    nests: NDArray[np.bool_]


class Posts(NamedTuple):
    """Posts and waits between cores, and rows whose clocks are needed later."""

    # wait k depends on the posts sources[starts[k]:starts[k + 1]]
    starts: Ints
    sources: Ints
    # for each post: the clock it carries, and its row once it was reached
    carried: Ints
    row_of: Ints
    # rows whose clock is needed, in order; and these clocks
    wanted: Ints
    clocks: Ints


class Cells(NamedTuple):
    """The last accesses to each cell: the row that wrote it, the tile it used, the last reader on each pipe."""

    writer: Ints
    by_tile: NDArray[np.int32]
    readers: Ints


class Flags(NamedTuple):
    """By flag (lane, pipe that sets, pipe that waits, event): the row of a set without its wait yet, the row
    of the last wait, a wait that came before its set, and the clock that the set carries.
    """

    set_row: Ints
    wait_row: Ints
    early: Ints
    carried: Ints
    # flags that the block has used, and for each flag the last block that used it
    touched: Ints
    stamp: Ints


class Clocks(NamedTuple):
    """Vector clocks. known[p, q] is how many entries of pipe q are known to be done at the current entry of pipe p;
    done[p] is how many entries p has had. For each row: its number on its pipe, its pipe, and one past its last byte in
    memory.

    So row r is done before the current entry of pipe p if seq[r] < known[p, thread[r]].
    """

    known: Ints
    done: Ints
    seq: Ints
    thread: Ints
    ends: Ints


class Memory(NamedTuple):
    """By buffer of device memory the last row that accessed it, by row the previous one (a linked list), and by
    buffer the last block that stores to it: only there can a block's accesses race. By pipe the last row of the block
    that stores.
    """

    last: Ints
    before: Ints
    stored_in: Ints
    stored_by: Ints


class Fifos(NamedTuple):
    """By block and FIFO its depth and the bits of the lanes that push and pop; then the clocks that messages and
    freed slots carry, by FIFO, lane and slot.
    """

    shape: Ints
    pushed: Ints
    popped: Ints


class Digest(NamedTuple):
    """A number for each row (empty without a digest), and by pipe and entry how many accesses came before."""

    identity: NDArray[np.uint64]
    prefix: Ints


class Found(NamedTuple):
    """Violations (kind, row, other row, tile), up to a maximum, and their number."""

    rows: Ints
    number: Ints


# no wait, no post, no row whose clock is needed
NO_POSTS = Posts(
    np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros((0, THREADS), np.int64), np.zeros(0, np.int64),
    np.zeros(0, np.int64), np.zeros((0, THREADS), np.int64),
)  # fmt: skip
