"""The dependences among the commands of one program: dispatch, engines, operands, waits, scratch space, memory.
Compiled.

Edges lead from commands of the program, counted from 0, and from its start, which has the number after the last; to
nodes of the graph.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from kernbench.common.compiled import inlined, part
from kernbench.common.deferred import deferred
from kernbench.timing.graph import Edges, Ints, put

# kinds of edges, as in `graph`
_DISPATCH, _ENGINE, _OPERAND, _MESSAGE, _SPACE, _MEMORY = 0, 1, 2, 3, 7, 8
FIRST_VIEW = -2
# initial capacity for ranges of scratch
_RANGES = 256
# hash table from the block of an address to the range that begins there
_HINTS, _BLOCK_BITS = 1 << 16, 6

Column = NDArray[Any]


class Program(NamedTuple):
    """Constants of one program: engines, and an operation code."""

    engines: int
    first_dma: int
    store: int


class Commands(NamedTuple):
    """Columns of the commands; `entry` is the node where each begins."""

    op: Column
    type: Column
    addr: Column
    engine: Column
    entry: Column


class Views(NamedTuple):
    """Columns of the views: type, the command that made the viewed value, address."""

    type: Column
    producer: Column
    addr: Column


class Waits(NamedTuple):
    """For each command whether it holds the CPU, and the command it waits for (-1: none)."""

    blocking: Column
    awaited: Column


class _Scratch(NamedTuple):
    """Ranges of scratch memory in use: first byte, one past the last, the last command of each engine that used it;
    and by address the last range inserted there, which may have been removed.
    """

    low: Ints
    high: Ints
    users: Ints
    hints: Ints


class _Memory(NamedTuple):
    """By tile of memory its last store and its last load on each channel; what each channel has waited for of each
    other; and what the current command must wait for, by channel.
    """

    last_store: Ints
    last_loads: Ints
    reached: Ints
    latest: Ints


def write_edges(
    program: Program,
    commands: Commands,
    operands: tuple[Column, Column, Column],
    views: Views,
    waits: Waits,
    nbytes: Ints,
    conflicts: tuple[Column, ...],
    edges: Edges,
) -> Edges:
    """Add the edges into the commands of one program to `edges`, in the order of the commands.

    `nbytes` are the sizes of the types, `conflicts` the arrays of `Conflicts`. `_write` has a fixed capacity for ranges
    and edges, and returns when that is used up.
    """
    # where it stopped: command, node that dispatches, commands dispatched since then, ranges in use
    state = np.array([0, len(commands.op), 0, 0], np.int64)
    previous = np.full(program.engines, -1, np.int64)
    memory = _no_memory(len(conflicts[1]) - 1, program.engines - program.first_dma)
    low, high = np.empty((2, _RANGES), np.int64)
    scratch = _Scratch(low, high, np.empty((_RANGES, program.engines), np.int64), np.zeros(_HINTS, np.int64))
    given = program, commands, operands, views, waits, nbytes, conflicts
    while _write(*given, edges, state, previous, scratch, memory) < len(commands.op):
        if state[3] + 2 > len(scratch.low):
            scratch = _Scratch(_grown(scratch.low), _grown(scratch.high), _grown(scratch.users), scratch.hints)
        else:
            edges = edges.grown()
    return edges


def _no_memory(tiles: int, channels: int) -> _Memory:
    return _Memory(
        np.full(tiles, -1, np.int64),
        np.full((tiles, channels), -1, np.int64),
        np.full((channels, channels), -1, np.int64),
        np.empty(channels, np.int64),
    )


def _grown(values: Ints) -> Ints:
    """The same with twice the capacity."""
    return np.concatenate([values, np.empty_like(values)])


@part
def _copy(rows, target, source):  # type: ignore[no-untyped-def]
    for k in range(rows.shape[1]):
        rows[target, k] = rows[source, k]


@part
def _clear(rows, target):  # type: ignore[no-untyped-def]
    for k in range(rows.shape[1]):
        rows[target, k] = -1


@part
def _follow(tile, is_store, engine, first_dma, memory):  # type: ignore[no-untyped-def]
    """Collect the last accesses to `tile` that a load or store of it must wait for in `latest`, by channel."""
    latest = memory.latest
    stored = memory.last_store[tile]
    if stored >= 0:
        k = engine[stored] - first_dma
        latest[k] = max(latest[k], stored)
    if is_store:
        for k in range(len(latest)):
            latest[k] = max(latest[k], memory.last_loads[tile, k])


@part
def _touch(c, is_store, channel, conflicts, engine, first_dma, memory):  # type: ignore[no-untyped-def]
    """Command c, on `channel`, loads or stores its tile: determine what it waits for, and record the access.

    A store makes all earlier accesses to its own tile superfluous: whatever conflicts with them conflicts with it. Of
    each other channel the latest is enough, because a channel keeps its order; what this one has waited for before
    (`reached`) is done.
    """
    tiles, offsets, neighbours = conflicts
    latest, reached = memory.latest, memory.reached
    tile = tiles[c]
    latest[:] = -1
    _follow(tile, is_store, engine, first_dma, memory)
    for n in range(offsets[tile], offsets[tile + 1]):
        _follow(neighbours[n], is_store, engine, first_dma, memory)
    for k in range(len(latest)):
        if k == channel or latest[k] <= reached[channel, k]:
            latest[k] = -1
        else:
            reached[channel, k] = latest[k]
    if is_store:
        memory.last_store[tile] = c
        _clear(memory.last_loads, tile)
    else:
        memory.last_loads[tile, channel] = c


@part
def _range_at(start, stop, scratch, ranges):  # type: ignore[no-untyped-def]
    """The range with exactly these bounds, and so the only one that overlaps it; -1 if there is no such entry."""
    r = scratch.hints[(start >> _BLOCK_BITS) & (_HINTS - 1)]
    return r if r < ranges and scratch.low[r] == start and scratch.high[r] == stop else -1


@part
def _note_read(c, where, start, stop, scratch, ranges):  # type: ignore[no-untyped-def]
    """Command c, on the engine `where`, is the last reader of all ranges that overlap these bytes."""
    r = _range_at(start, stop, scratch, ranges)
    if r >= 0:
        scratch.users[r, where] = c
        return
    for r in range(ranges):
        if scratch.low[r] < stop and start < scratch.high[r]:
            scratch.users[r, where] = c


@inlined
def _read(c, number, where, target, commands, views, nbytes, scratch, ranges, edges):  # type: ignore[no-untyped-def]
    """One operand of command c: an edge from its producer, and the scratch bytes it is read from."""
    if number <= FIRST_VIEW:
        view = FIRST_VIEW - number
        producer, read_type, start = np.int64(views.producer[view]), views.type[view], views.addr[view]
    else:
        producer, read_type, start = np.int64(number), commands.type[number], commands.addr[number]
    if producer >= 0:
        # a view reads the viewed value: a strided view's own address and size do not bound it
        read_type, start = commands.type[producer], commands.addr[producer]
        # an engine keeps the order of its commands; the CPU (0) waits for none
        if commands.engine[producer] != where or where == 0:
            put(producer, target, 0, _OPERAND, edges)
    _note_read(c, where, start, start + nbytes[read_type], scratch, ranges)


@part
def _put_after_users(c, r, where, target, users, edges):  # type: ignore[no-untyped-def]
    """Edges from the last users of a range on other engines than the one that overwrites it."""
    for k in range(users.shape[1]):
        user = users[r, k]
        if user >= 0 and user != c and not (k == where and k > 0):
            put(user, target, 0, _SPACE, edges)


@part
def _remove(r, start, stop, scratch, ranges):  # type: ignore[no-untyped-def]
    """Remove the bytes from start to stop from range r; returns the next range to visit and their number.

    The rest on either side stays in use; if there is none, the last range is moved to index r.
    """
    low, high, users = scratch.low, scratch.high, scratch.users
    if low[r] < start:
        if stop < high[r]:
            low[ranges], high[ranges] = stop, high[r]
            _copy(users, ranges, r)
            ranges += 1
        high[r] = start
        return r + 1, ranges
    if stop < high[r]:
        low[r] = stop
        return r + 1, ranges
    ranges -= 1
    low[r], high[r] = low[ranges], high[ranges]
    scratch.hints[(low[r] >> _BLOCK_BITS) & (_HINTS - 1)] = r
    _copy(users, r, ranges)
    return r, ranges


@inlined
def _overwrite(c, where, start, stop, target, scratch, ranges, edges):  # type: ignore[no-untyped-def]
    """The result of command c takes these bytes: their last users on other engines must be done. Returns the ranges."""
    low, high = scratch.low, scratch.high
    known = _range_at(start, stop, scratch, ranges)
    r = max(known, 0)
    while r < ranges:
        if not (low[r] < stop and start < high[r]):
            r += 1
            continue
        _put_after_users(c, r, where, target, scratch.users, edges)
        r, ranges = _remove(r, start, stop, scratch, ranges)
        if known >= 0:
            break
    scratch.hints[(start >> _BLOCK_BITS) & (_HINTS - 1)] = ranges
    low[ranges], high[ranges] = start, stop
    _clear(scratch.users, ranges)
    scratch.users[ranges, where] = c
    return ranges + 1


@deferred(lambda program, commands, *_: 10 * len(commands.op))
def _write(program, commands, operands, views, waits, nbytes, conflicts, edges, state, previous, scratch, memory):  # type: ignore[no-untyped-def]
    """Write edges from the command on where it stopped, until the capacity is used; returns the next command.

    `operands` are columns of commands (0 and up) or views (-2 and down), `previous` the last command on each engine.
    """
    first_dma, engines = program.first_dma, program.engines
    tiles = conflicts[0]
    first, head, since, ranges = state
    for c in range(first, len(commands.op)):
        # a command may need entries for its range and for the rest of one it splits; its edges come from its dispatch,
        # its engine, what it waits for, three operands, other channels, and all who used a range
        most = 6 + (engines - first_dma) + ranges * engines
        if ranges + 2 > len(scratch.low) or edges.filled[0] + most > len(edges.sources):
            state[0], state[1], state[2], state[3] = c, head, since, ranges
            return c
        since += 1
        target = commands.entry[c]
        put(head, target, since, _DISPATCH, edges)
        where = commands.engine[c]
        if (where == 1 or where == 2 or where >= first_dma) and previous[where] >= 0:
            put(previous[where], target, 0, _ENGINE, edges)
        previous[where] = c
        if waits.awaited[c] >= 0:
            put(waits.awaited[c], target, 0, _MESSAGE, edges)
        for column in operands:
            if column[c] <= FIRST_VIEW or column[c] >= 0:
                _read(c, column[c], where, target, commands, views, nbytes, scratch, ranges, edges)
        # loads and stores that share bytes keep their order
        if tiles[c] >= 0:
            is_store = commands.op[c] == program.store
            _touch(c, is_store, where - first_dma, conflicts, commands.engine, first_dma, memory)
            for k in range(len(memory.latest)):
                if memory.latest[k] >= 0:
                    put(memory.latest[k], target, 0, _MEMORY, edges)
        if commands.type[c] >= 0:
            start = commands.addr[c]
            stop = start + max(nbytes[commands.type[c]], 1)
            ranges = _overwrite(c, where, start, stop, target, scratch, ranges, edges)
        if waits.blocking[c]:
            head = c
            since = 0
    return len(commands.op)
