"""From a mesh recording to a graph: what each command waits for.

A command waits for its dispatch (commands are dispatched in order, each costs the same; a blocking command holds the
CPU until it is done), for the command before it on its engine, for its operands, for readers of the scratch space it
overwrites, and, when it loads, for stores to the same tensor. A message goes in slot-sized pieces: each waits for the
piece before it on the link and for a free slot, arrives a latency later, and is taken when a receive is posted for it.

Nodes: one for each command, one for each program's start, and two for each piece (pushed, taken).
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numba import njit

from kernbench.common.dtypes import ITEMSIZE
from kernbench.common.ipcq_types import DIRECTIONS, OPPOSITE
from kernbench.common.pe_commands import OPERATIONS
from kernbench.result.recording import FIRST_VIEW, NONE, Recording
from kernbench.timing import graph as g
from kernbench.timing.graph import Graph, Ints, Small, make_graph

CODE = {name: row.code for name, row in OPERATIONS.items()}
# engines of a program, in lane order; DMA channels follow
CPU, GEMM, MATH, OUT = 0, 1, 2, 3
FIRST_DMA = OUT + len(DIRECTIONS)
# commands that hold the CPU until they are done
BLOCKING = ("send", "recv", "wait", "read_value")
_ENGINE = {"cpu": CPU, "gemm": GEMM, "math": MATH, "dma": FIRST_DMA, "ipcq": CPU}


@dataclass(frozen=True)
class Columns:
    """All streams of a recording end to end; operands are global command numbers, -1 for none."""

    op: Ints
    site: Ints
    type: Ints
    addr: Ints
    operands: Ints
    operand_type: Ints
    operand_addr: Ints
    x: Ints
    y: Ints
    first: Ints
    program: Small


@dataclass(frozen=True)
class Pieces:
    """Slot-sized pieces of messages: the link each is on, its bytes, and the command that sends and takes it."""

    link: Small
    nbytes: Ints
    send: Small
    recv: Small
    push: Small
    take: Small


@dataclass(frozen=True)
class Lowered:
    """A recording as a graph, with what is needed to give its nodes durations.

    `engine` is each command's engine; `entry` the node where a command begins (the first piece of a message).
    """

    recording: Recording
    columns: Columns
    pieces: Pieces
    graph: Graph
    engine: Small
    entry: Small
    channels: int

    @property
    def commands(self) -> int:
        """Nodes from 0 up to here are commands."""
        return len(self.columns.op)

    @cached_property
    def cases(self) -> tuple[Ints, Small]:
        """Commands with one operation on the same types take the same time: one of each case, and each one's case."""
        columns, base = self.columns, len(self.recording.tables.types) + 1
        key = (columns.op * base + columns.type + 1) * base + columns.operand_type[:, 0] + 1
        key = key * base + columns.operand_type[:, 1] + 1
        _, first, inverse = np.unique(key, return_index=True, return_inverse=True)
        return first, inverse.astype(np.int32)


def lower(recording: Recording, channels: int, depth: int, slot: int) -> Lowered:
    """The graph of a finished, safe run on PEs with `channels` DMA channels and queues of `depth` slots."""
    columns = _columns(recording)
    pieces = _pieces(recording, columns, slot)
    engine = _engines(columns, channels)
    entry = np.arange(len(columns.op), dtype=np.int32)
    _set_entries(entry, pieces.send, pieces.push)
    _set_entries(entry, pieces.recv, pieces.take)
    nodes = len(columns.op) + len(recording.streams) + 2 * len(pieces.push)
    blocking = np.isin(columns.op, [CODE[n] for n in BLOCKING])
    nbytes = np.array([int(np.prod(s)) * ITEMSIZE[d] for s, d, _ in recording.tables.types] or [0], np.int64)
    awaited = _awaited(columns)
    arguments = (
        columns.first,
        columns.op,
        columns.type,
        columns.addr,
        columns.operands,
        columns.operand_type,
        columns.operand_addr,
        columns.x,
        engine,
        entry,
        blocking,
        awaited,
        nbytes,
        FIRST_DMA + channels,
        CODE["load"],
        CODE["store"],
        FIRST_DMA,
    )
    count = _command_edges(*arguments, np.empty(0, np.int32), *_edge_arrays(0))
    sources, targets, lags, kinds = np.empty(count, np.int32), *_edge_arrays(count)
    _command_edges(*arguments, sources, targets, lags, kinds)
    more = _piece_edges(pieces, depth, entry)
    edges = [np.concatenate(pair) for pair in zip((sources, targets, lags, kinds), more, strict=True)]
    return Lowered(recording, columns, pieces, make_graph(nodes, *edges), engine, entry, channels)


def _edge_arrays(count: int) -> tuple[Small, Small, Any]:
    return np.empty(count, np.int32), np.empty(count, np.int32), np.empty(count, np.int8)


def _columns(recording: Recording) -> Columns:
    rows, operands, types, addresses, first = [], [], [], [], [0]
    for stream in recording.streams:
        part, views = stream.rows.columns(), stream.views.columns()
        base = first[-1]
        made = part[:, 4:7]
        is_view = made <= FIRST_VIEW
        view = np.where(is_view, FIRST_VIEW - made, 0)
        if len(views) == 0:
            views = np.full((1, 3), NONE)
        producer = np.where(is_view, views[view, 2], made)
        safe = np.maximum(made, 0)
        kind = np.where(is_view, views[view, 0], np.where(made >= 0, part[safe, 2], NONE))
        where = np.where(is_view, views[view, 1], np.where(made >= 0, part[safe, 3], NONE))
        rows.append(part)
        operands.append(np.where(producer >= 0, producer + base, NONE))
        types.append(kind)
        addresses.append(where)
        first.append(base + len(part))
    whole = np.concatenate(rows) if rows else np.empty((0, 9), np.int64)
    lengths = np.diff(first)

    def join(parts: list[Any]) -> Ints:
        return np.concatenate(parts) if parts else np.empty((0, 3), np.int64)

    op, site, kind, where, _, _, _, x, y = (np.ascontiguousarray(column) for column in whole.T)
    program = np.repeat(np.arange(len(lengths), dtype=np.int32), lengths)
    return Columns(
        op,
        site,
        kind,
        where,
        join(operands),
        join(types),
        join(addresses),
        x,
        y,
        np.array(first, np.int64),
        program,
    )


def _engines(columns: Columns, channels: int) -> Small:
    """The engine of each command; DMA commands take the channels of their program in turn."""
    table = np.array([_ENGINE[row.engine] for row in OPERATIONS.values()], np.int32)
    engine = table[columns.op]
    for start, stop in zip(columns.first[:-1], columns.first[1:], strict=True):
        part = engine[start:stop]
        transfers = np.flatnonzero(part == FIRST_DMA)
        part[transfers] = FIRST_DMA + np.arange(len(transfers)) % channels
    sends = np.isin(columns.op, (CODE["send"], CODE["send_async"]))
    engine[sends] = OUT + columns.x[sends]
    return engine


def _awaited(columns: Columns) -> Small:
    """For each wait the command it waits for, -1 elsewhere."""
    awaited = np.full(len(columns.op), NONE, np.int32)
    asynchronous = np.flatnonzero(np.isin(columns.op, (CODE["send_async"], CODE["recv_async"])))
    requests = {(int(columns.program[i]), int(columns.y[i])): i for i in asynchronous}
    for i in np.flatnonzero(columns.op == CODE["wait"]):
        awaited[i] = requests[int(columns.program[i]), int(columns.x[i])]
    return awaited


def _pieces(recording: Recording, columns: Columns, slot: int) -> Pieces:
    """Match the k-th send of each link with its k-th receive, and cut the messages into pieces."""
    number = {(s.cube, s.pe): i for i, s in enumerate(recording.streams)}
    nbytes = np.array([int(np.prod(s)) * ITEMSIZE[d] for s, d, _ in recording.tables.types] or [0], np.int64)
    parts: list[list[Any]] = [[], [], [], []]
    for index, link in enumerate(recording.links):
        sends = _messages(columns, number.get(link.sender), link.direction, ("send", "send_async"))
        takes = _messages(columns, number.get(link.receiver), OPPOSITE[link.direction], ("recv", "recv_async"))
        size = nbytes[columns.operand_type[sends, 0]]
        count = np.maximum(1, -(-size // slot))
        which = np.repeat(np.arange(len(sends)), count)
        last = np.cumsum(count)
        within = np.arange(len(which)) - np.repeat(last - count, count)
        parts[0].append(np.full(len(which), index))
        parts[1].append(np.minimum(slot, size[which] - within * slot))
        parts[2].append(sends[which])
        parts[3].append(takes[which])
    links, cut, send, recv = (np.concatenate(p).astype(np.int64) if p else np.empty(0, np.int64) for p in parts)
    base = len(columns.op) + len(recording.streams)
    push = base + np.arange(len(links))
    return Pieces(
        links.astype(np.int32),
        cut,
        send.astype(np.int32),
        recv.astype(np.int32),
        push.astype(np.int32),
        (push + len(links)).astype(np.int32),
    )


def _messages(columns: Columns, program: int | None, direction: str, verbs: tuple[str, ...]) -> Any:
    if program is None:
        return np.empty(0, np.int64)
    start, stop = columns.first[program], columns.first[program + 1]
    here = np.isin(columns.op[start:stop], [CODE[v] for v in verbs])
    return start + np.flatnonzero(here & (columns.x[start:stop] == DIRECTIONS.index(direction)))


def _set_entries(entry: Small, command: Small, node: Small) -> None:
    """A command begins with the first of its pieces."""
    entry[command[::-1]] = node[::-1]


def _piece_edges(pieces: Pieces, depth: int, entry: Small) -> tuple[Small, Small, Small, Any]:
    sources: list[Any] = []
    targets: list[Any] = []
    lags: list[Any] = []
    kinds: list[Any] = []

    def add(source: Any, target: Any, lag: Any, kind: int) -> None:
        sources.append(source)
        targets.append(target)
        lags.append(np.broadcast_to(lag, source.shape))
        kinds.append(np.full(len(source), kind, np.int8))

    push, take, link = pieces.push, pieces.take, pieces.link
    add(push, take, -link - 1, g.MESSAGE)
    follows = link[1:] == link[:-1]
    add(push[:-1][follows], push[1:][follows], 0, g.LINK)
    add(take[:-1][follows], take[1:][follows], 0, g.LINK)
    held = link[depth:] == link[:-depth]
    add(take[:-depth][held], push[depth:][held], 0, g.CREDIT)
    # a command is done with its last piece
    for command, node in ((pieces.send, push), (pieces.recv, take)):
        last = np.append(command[1:] != command[:-1], True) if len(command) else np.empty(0, bool)
        add(node[last], command[last], 0, g.LINK)
    return (
        np.concatenate(sources).astype(np.int32),
        np.concatenate(targets).astype(np.int32),
        np.concatenate(lags).astype(np.int32),
        np.concatenate(kinds),
    )


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
def _command_edges(  # type: ignore[no-untyped-def]
    first, op, kind, addr, operands, operand_type, operand_addr, x, engine, entry, blocking, awaited, nbytes,
    engines, load, store, first_dma, sources, targets, lags, kinds,
):  # fmt: skip
    """Edges between the commands of each program, in order; with empty arrays only counts them."""
    filling = len(sources) > 0
    edges = 0
    commands = len(op)
    previous = np.empty(engines, np.int64)
    # scratch ranges in use: where, who wrote last, who read last on each engine
    most = 256
    low = np.empty(most, np.int64)
    high = np.empty(most, np.int64)
    readers = np.empty((most, engines), np.int64)
    stored_window = np.empty(16, np.int64)
    stored_by = np.empty((16, engines), np.int64)
    for program in range(len(first) - 1):
        head = commands + program
        since = 0
        ranges = 0
        windows = 0
        previous[:] = -1
        for c in range(first[program], first[program + 1]):
            since += 1
            target = entry[c]
            if filling:
                sources[edges], targets[edges], lags[edges], kinds[edges] = head, target, since, 0
            edges += 1
            where = engine[c]
            is_transfer = where >= first_dma
            if (where == 1 or where == 2 or is_transfer) and previous[where] >= 0:
                if filling:
                    sources[edges], targets[edges], lags[edges], kinds[edges] = previous[where], target, 0, 1
                edges += 1
            previous[where] = c
            if awaited[c] >= 0:
                if filling:
                    sources[edges], targets[edges], lags[edges], kinds[edges] = awaited[c], target, 0, 3
                edges += 1
            # operands, and the ranges they are read from
            for i in range(3):
                producer = operands[c, i]
                if producer >= 0 and not (engine[producer] == where and where > 0):
                    if filling:
                        sources[edges], targets[edges], lags[edges], kinds[edges] = producer, target, 0, 2
                    edges += 1
                if operand_type[c, i] >= 0:
                    start = operand_addr[c, i]
                    stop = start + nbytes[operand_type[c, i]]
                    for r in range(ranges):
                        if low[r] < stop and start < high[r]:
                            readers[r, where] = c
            # a load waits for stores to the same tensor
            if op[c] == load:
                window = x[c] >> 40
                for w in range(windows):
                    if stored_window[w] == window:
                        for k in range(first_dma, engines):
                            if stored_by[w, k] >= 0 and k != where:
                                if filling:
                                    sources[edges], targets[edges] = stored_by[w, k], target
                                    lags[edges], kinds[edges] = 0, 8
                                edges += 1
            elif op[c] == store:
                window = x[c] >> 40
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
                            if filling:
                                sources[edges], targets[edges], lags[edges], kinds[edges] = user, target, 0, 7
                            edges += 1
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
                head = c
                since = 0
    return edges
