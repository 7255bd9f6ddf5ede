"""What orders the commands of one program: dispatch, engines, operands, waits, scratch space, memory. Compiled."""

from typing import Any

import numpy as np

from kernbench.common.compiled import loop, part
from kernbench.timing.graph import Ints, put

# kinds of edges, as `graph` numbers them
_DISPATCH, _ENGINE, _OPERAND, _MESSAGE, _SPACE, _MEMORY = 0, 1, 2, 3, 7, 8
FIRST_VIEW = -2
# addresses that agree above these bits belong to one tensor
_WINDOW_BITS = 40
# room at first for ranges of scratch, and for tensors that are stored to
_RANGES, _WINDOWS = 256, 16

Columns = tuple[Any, ...]


def write_edges(frame: tuple[int, ...], commands: Columns, *given: Any) -> None:
    """The edges into the commands of one program, in the order of the commands: see `_write`, which has no more room
    for ranges and tensors than it is given, and stops where that is used up.
    """
    engines = frame[2]
    state = np.array([0, frame[1], 0, 0, 0], np.int64)
    previous = np.full(engines, -1, np.int64)
    ranges, windows = _room(_RANGES, 2, engines), _room(_WINDOWS, 1, engines)
    while _write(frame, commands, *given, state, previous, ranges, windows) < len(commands[0]):
        ranges, windows = _grown(ranges), _grown(windows)


def _room(size: int, columns: int, engines: int) -> tuple[Ints, ...]:
    return (*np.empty((columns, size), np.int64), np.empty((size, engines), np.int64))


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


@loop
def _write(frame, commands, operands, views, waits, nbytes, edges, state, previous, used, stored):  # type: ignore[no-untyped-def]
    """Write edges from the command on where it stopped, until there is no room; gives the command it came to.

    `frame` is (number of the first command, node of the start, engines, first DMA engine, codes of load and store),
    `commands` (op, type, address, x, engine, node where it begins), `operands` and `views` as recorded, `waits` whether
    a command holds the CPU and what it waits for. Commands are counted from 0 here, and from `base` in the graph.
    `state` is where it stopped, `previous` the last command on each engine.
    """
    base, _, engines, first_dma, load, store = frame
    op, kind, addr, x, engine, entry = commands
    view_type, view_producer, view_addr = views
    blocking, awaited = waits
    cursor, targets, lags, kinds = edges
    # scratch ranges in use: where, and who used each last, on each engine
    low, high, readers = used
    # for each tensor that was stored to: who did so last, on each channel
    stored_window, stored_by = stored
    first, head, since, ranges, windows = state
    for c in range(first, len(op)):
        # a command may need a place for its range and for the rest of one it splits
        if ranges + 2 > len(low) or windows == len(stored_window):
            state[0], state[1], state[2], state[3], state[4] = c, head, since, ranges, windows
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
            if producer >= 0 and not (engine[producer] == where and where > 0):
                put(base + producer, target, 0, _OPERAND, cursor, targets, lags, kinds)
            stop = start + nbytes[read_type]
            for r in range(ranges):
                if low[r] < stop and start < high[r]:
                    readers[r, where] = c
        # a load waits for stores to the same tensor
        if op[c] == load:
            window = x[c] >> _WINDOW_BITS
            for w in range(windows):
                if stored_window[w] == window:
                    for k in range(first_dma, engines):
                        if stored_by[w, k] >= 0 and k != where:
                            put(base + stored_by[w, k], target, 0, _MEMORY, cursor, targets, lags, kinds)
        elif op[c] == store:
            window = x[c] >> _WINDOW_BITS
            w = 0
            while w < windows and stored_window[w] != window:
                w += 1
            if w == windows:
                stored_window[w] = window
                _clear(stored_by, w)
                windows += 1
            stored_by[w, where] = c
        # the result overwrites its range: its last users on other engines must be done
        if kind[c] >= 0:
            start = addr[c]
            stop = start + max(nbytes[kind[c]], 1)
            r = 0
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
                    _copy(readers, r, ranges)
            low[ranges], high[ranges] = start, stop
            _clear(readers, ranges)
            readers[ranges, where] = c
            ranges += 1
        if blocking[c]:
            head = base + c
            since = 0
    return len(op)
