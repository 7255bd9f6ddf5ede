"""What orders the commands of one program: dispatch, engines, operands, waits, scratch space, memory. Compiled."""

from typing import Any

import numpy as np

from kernbench.common.compiled import loop, part
from kernbench.timing.graph import Ints, put

# kinds of edges, as `graph` numbers them
_DISPATCH, _ENGINE, _OPERAND, _MESSAGE, _SPACE, _MEMORY = 0, 1, 2, 3, 7, 8
FIRST_VIEW = -2
# room at first for ranges of scratch
_RANGES = 256
# where ranges were put that begin at an address: a table with a place for each of so many blocks of memory
_HINTS, _BLOCK_BITS = 4096, 6

Columns = tuple[Any, ...]


def write_edges(frame: tuple[int, ...], commands: Columns, *given: Any) -> None:
    """The edges into the commands of one program, in the order of the commands: see `_write`, which has no more room
    for ranges than it is given, and stops where that is used up.
    """
    engines, tiles = frame[2], len(given[-2][1]) - 1
    channels = engines - frame[3]
    state = np.array([0, frame[1], 0, 0], np.int64)
    previous = np.full(engines, -1, np.int64)
    memory = (
        np.full(tiles, -1, np.int64),
        np.full((tiles, channels), -1, np.int64),
        np.full((channels, channels), -1, np.int64),
        np.empty(channels, np.int64),
    )
    ranges, hints = _room(_RANGES, engines), np.zeros(_HINTS, np.int64)
    while _write(frame, commands, *given, state, previous, ranges, hints, memory) < len(commands[0]):
        ranges = _grown(ranges)


def _room(size: int, engines: int) -> tuple[Ints, ...]:
    return (*np.empty((2, size), np.int64), np.empty((size, engines), np.int64))


def _grown(room: tuple[Ints, ...]) -> tuple[Ints, ...]:
    """The same with twice the room."""
    return tuple(np.concatenate([values, np.empty_like(values)]) for values in room)


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
    """Who touched the bytes of `tile` last, as far as a load or store of it must wait: into `latest`, by channel."""
    last_store, last_loads, _, latest = memory
    stored = last_store[tile]
    if stored >= 0:
        k = engine[stored] - first_dma
        latest[k] = max(latest[k], stored)
    if is_store:
        for k in range(len(latest)):
            latest[k] = max(latest[k], last_loads[tile, k])


@part
def _touch(c, is_store, channel, conflicts, engine, first_dma, memory):  # type: ignore[no-untyped-def]
    """Command c, on `channel`, loads or stores its tile: find whom it waits for, and remember it.

    A store makes all earlier accesses to its own tile superfluous: whoever conflicts with them conflicts with it. Of
    each other channel the latest is enough, because a channel keeps its order; what this one has waited for before
    (`reached`) is done.
    """
    tiles, offsets, neighbours = conflicts
    last_store, last_loads, reached, latest = memory
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
        last_store[tile] = c
        _clear(last_loads, tile)
    else:
        last_loads[tile, channel] = c


@part
def _range_at(start, stop, low, high, ranges, hints):  # type: ignore[no-untyped-def]
    """The range that is exactly this one, and so the only one that overlaps it; -1 where that is not known."""
    r = hints[(start >> _BLOCK_BITS) & (_HINTS - 1)]
    return r if r < ranges and low[r] == start and high[r] == stop else -1


@loop
def _write(frame, commands, operands, views, waits, nbytes, conflicts, edges, state, previous, used, hints, memory):  # type: ignore[no-untyped-def]
    """Write edges from the command on where it stopped, until there is no room; gives the command it came to.

    `frame` is (number of the first command, node of the start, engines, first DMA engine, code of store), `commands`
    (op, type, address, engine, node where it begins), `operands` and `views` as recorded, `waits` whether a command
    holds the CPU and what it waits for, `conflicts` and `memory` as `_touch` has them. Commands are counted from 0
    here, and from `base` in the graph. `state` is where it stopped, `previous` the last command on each engine.
    """
    base, _, engines, first_dma, store = frame
    op, kind, addr, engine, entry = commands
    view_type, view_producer, view_addr = views
    blocking, awaited = waits
    cursor, targets, lags, kinds = edges
    # scratch ranges in use: where, and who used each last, on each engine
    low, high, readers = used
    tiles, latest = conflicts[0], memory[3]
    first, head, since, ranges = state
    for c in range(first, len(op)):
        # a command may need a place for its range and for the rest of one it splits
        if ranges + 2 > len(low):
            state[0], state[1], state[2], state[3] = c, head, since, ranges
            return c
        since += 1
        target = entry[c]
        put(head, target, since, _DISPATCH, cursor, targets, lags, kinds)
        where = engine[c]
        is_transfer = where >= first_dma
        if (where == 1 or where == 2 or is_transfer) and previous[where] >= 0:
            put(base + previous[where], target, 0, _ENGINE, cursor, targets, lags, kinds)
        previous[where] = c
        if awaited[c] >= 0:
            put(base + awaited[c], target, 0, _MESSAGE, cursor, targets, lags, kinds)
        # operands, and the ranges they are read from
        for column in operands:
            number = column[c]
            if number <= FIRST_VIEW:
                view = FIRST_VIEW - number
                producer, read_type, start = np.int64(view_producer[view]), view_type[view], view_addr[view]
            elif number >= 0:
                producer, read_type, start = np.int64(number), kind[number], addr[number]
            else:
                continue
            if producer >= 0:
                # a view reads the value behind it: its own address and size say little where it is strided
                read_type, start = kind[producer], addr[producer]
            if producer >= 0 and not (engine[producer] == where and where > 0):
                put(base + producer, target, 0, _OPERAND, cursor, targets, lags, kinds)
            stop = start + nbytes[read_type]
            r = _range_at(start, stop, low, high, ranges, hints)
            if r >= 0:
                readers[r, where] = c
                continue
            for r in range(ranges):
                if low[r] < stop and start < high[r]:
                    readers[r, where] = c
        # loads and stores of common bytes keep their order
        if tiles[c] >= 0:
            _touch(c, op[c] == store, where - first_dma, conflicts, engine, first_dma, memory)
            for k in range(len(latest)):
                if latest[k] >= 0:
                    put(base + latest[k], target, 0, _MEMORY, cursor, targets, lags, kinds)
        # the result overwrites its range: its last users on other engines must be done
        if kind[c] >= 0:
            start = addr[c]
            stop = start + max(nbytes[kind[c]], 1)
            known = _range_at(start, stop, low, high, ranges, hints)
            r = max(known, 0)
            while r < ranges:
                if not (low[r] < stop and start < high[r]):
                    r += 1
                    continue
                for k in range(engines):
                    user = readers[r, k]
                    if user >= 0 and user != c and not (k == where and k > 0):
                        put(base + user, target, 0, _SPACE, cursor, targets, lags, kinds)
                # what sticks out on either side stays in use
                if low[r] < start:
                    if stop < high[r]:
                        low[ranges], high[ranges] = stop, high[r]
                        _copy(readers, ranges, r)
                        ranges += 1
                    high[r] = start
                    r += 1
                elif stop < high[r]:
                    low[r] = stop
                    r += 1
                else:
                    ranges -= 1
                    low[r], high[r] = low[ranges], high[ranges]
                    hints[(low[r] >> _BLOCK_BITS) & (_HINTS - 1)] = r
                    _copy(readers, r, ranges)
                    if known >= 0:
                        break
            hints[(start >> _BLOCK_BITS) & (_HINTS - 1)] = ranges
            low[ranges], high[ranges] = start, stop
            _clear(readers, ranges)
            readers[ranges, where] = c
            ranges += 1
        if blocking[c]:
            head = base + c
            since = 0
    return len(op)
