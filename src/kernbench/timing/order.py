"""What orders the commands of one program: dispatch, engines, operands, waits, scratch space, memory. Compiled."""

import numpy as np

from kernbench.common.compiled import njit
from kernbench.timing.graph import put

# kinds of edges, as `graph` numbers them
_DISPATCH, _ENGINE, _OPERAND, _MESSAGE, _SPACE, _MEMORY = 0, 1, 2, 3, 7, 8
FIRST_VIEW = -2
# addresses that agree above these bits belong to one tensor
_WINDOW_BITS = 40


@njit(cache=True)
def _grown(values, size):  # type: ignore[no-untyped-def]
    larger = np.empty(size, np.int64)
    larger[: len(values)] = values
    return larger


@njit(cache=True)
def _grown_rows(values, size):  # type: ignore[no-untyped-def]
    larger = np.empty((size, values.shape[1]), np.int64)
    larger[: len(values)] = values
    return larger


@njit(cache=True)
def write_edges(frame, commands, operands, views, waits, nbytes, cursor, targets, lags, kinds):  # type: ignore[no-untyped-def]
    """The edges into the commands of one program, in the order of the commands.

    `frame` is (number of the first command, node of the start, engines, first DMA engine, codes of load and store),
    `commands` (op, type, address, x, engine, node where it begins), `operands` and `views` as recorded, `waits` whether
    a command holds the CPU and what it waits for. Commands are counted from 0 here, and from `base` in the graph.
    """
    base, start_node, engines, first_dma, load, store = frame
    op, kind, addr, x, engine, entry = commands
    view_type, view_producer, view_addr = views
    blocking, awaited = waits
    previous = np.full(engines, -1, np.int64)
    # scratch ranges in use: where, and who used each last, on each engine
    most = 256
    low = np.empty(most, np.int64)
    high = np.empty(most, np.int64)
    readers = np.empty((most, engines), np.int64)
    ranges = 0
    # for each tensor that was stored to: who did so last, on each channel
    stored_window = np.empty(16, np.int64)
    stored_by = np.empty((16, engines), np.int64)
    windows = 0
    head = start_node
    since = 0
    for c in range(len(op)):
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
                if windows == len(stored_window):
                    stored_window = _grown(stored_window, 2 * windows)
                    stored_by = _grown_rows(stored_by, 2 * windows)
                stored_window[w] = window
                stored_by[w, :] = -1
                windows += 1
            stored_by[w, where] = c
        # the result overwrites its range: its last users on other engines must be done
        if kind[c] >= 0:
            if ranges + 2 > most:
                # room for the new range and for the rest of one it splits
                most *= 2
                low, high, readers = _grown(low, most), _grown(high, most), _grown_rows(readers, most)
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
                        readers[ranges, :] = readers[r, :]
                        ranges += 1
                    high[r] = start
                    r += 1
                elif stop < high[r]:
                    low[r] = stop
                    r += 1
                else:
                    ranges -= 1
                    low[r], high[r] = low[ranges], high[ranges]
                    readers[r, :] = readers[ranges, :]
            low[ranges], high[ranges] = start, stop
            readers[ranges, :] = -1
            readers[ranges, where] = c
            ranges += 1
        if blocking[c]:
            head = base + c
            since = 0
