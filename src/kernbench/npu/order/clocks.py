"""What `happens_before` keeps while it walks through the rows: vector clocks, flags, cells, messages. Named columns.

Compiled loops take these tuples as they are; their names cost nothing at run time.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernbench.npu.isa.units import THREADS

Ints = NDArray[np.int64]
Column = NDArray[Any]


class Rows(NamedTuple):
    """What was recorded, by columns; `w` is the tile that a row writes, the others depend on its operation."""

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
    """Tile t is made of cells[starts[t]:starts[t + 1]] of its memory, which begins at bases[lane, space[t]] and
    belongs to the lane owners[lane, space[t]]."""

    starts: Ints
    cells: Ints
    bases: Ints
    owners: Ints
    space: Ints
    # the tile of which it is a part
    roots: Ints
    # first and one past the last byte, and whether it is only these bytes: one inside another is then a view of it
    first: Ints
    last: Ints
    nests: NDArray[np.bool_]


class Posts(NamedTuple):
    """Posts and waits between cores, and rows whose clock is wanted by others."""

    # wait k rests on the posts sources[starts[k]:starts[k + 1]]
    starts: Ints
    sources: Ints
    # of each post: the clock it carries, and its row once it was reached
    carried: Ints
    row_of: Ints
    # rows whose clock is wanted, in order; and these clocks
    wanted: Ints
    clocks: Ints


class Cells(NamedTuple):
    """The last accesses to each cell: the row that wrote it, the tile it did so by, the last reader on each pipe."""

    writer: Ints
    by_tile: NDArray[np.int32]
    readers: Ints


class Flags(NamedTuple):
    """By flag (lane, pipe that sets, pipe that waits, event): the row that set it and nobody waited for yet, the row
    that waited for it last, a wait that came before its set, and the clock that the set carries.
    """

    set_row: Ints
    wait_row: Ints
    early: Ints
    carried: Ints
    # flags that the block has used, and for each flag the last block that used it
    touched: Ints
    stamp: Ints


class Clocks(NamedTuple):
    """Vector clocks. known[p, q] says how many entries of pipe q are surely done where pipe p is now; done[p] is how
    many entries p has had. Of each row: its number on its pipe, its pipe, and one past its last byte in memory.

    So row r was surely done before pipe p came where it is if seq[r] < known[p, thread[r]].
    """

    known: Ints
    done: Ints
    seq: Ints
    thread: Ints
    ends: Ints


class Memory(NamedTuple):
    """By buffer of device memory the last row that accessed it, by row the one before it (a linked list), and by
    buffer the last block that stores to it: only there can a block's accesses race.
    """

    last: Ints
    before: Ints
    stored_in: Ints


class Fifos(NamedTuple):
    """By block and FIFO its depth and the bits of the lanes that push and pop; then the clocks that messages and
    freed slots carry, by FIFO, lane and slot.
    """

    shape: Ints
    pushed: Ints
    popped: Ints


class Digest(NamedTuple):
    """A number for each row (none where no digest is wanted), and by pipe and entry how many accesses came before."""

    identity: NDArray[np.uint64]
    prefix: Ints


class Found(NamedTuple):
    """Violations (kind, row, other row, tile), as far as there is room, and how many there are."""

    rows: Ints
    number: Ints


# no wait, no post, no row whose clock is wanted
NO_POSTS = Posts(
    np.zeros(1, np.int64), np.zeros(0, np.int64), np.zeros((0, THREADS), np.int64), np.zeros(0, np.int64),
    np.zeros(0, np.int64), np.zeros((0, THREADS), np.int64),
)  # fmt: skip
