"""From a mesh recording to a graph of dependences.

A command waits for its dispatch (commands are dispatched in order, each at the same cost; a blocking command holds the
CPU until it is done), for the previous command of its engine, for its operands, for readers of the scratch space it
overwrites, and, if it loads or stores, for earlier transfers that share a byte if one of the two writes it. A
message is sent in slot-sized pieces: each waits for the piece before it on the link and for a free slot, arrives a
latency later, and is taken when a receive is posted for it.

Nodes: one for each command, one for each program's start, and two for each piece (pushed, taken).
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, partial
from math import prod
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from kernbench.common.dtypes import ITEMSIZE, Array
from kernbench.common.ipcq_types import DIRECTIONS, OPPOSITE
from kernbench.common.pe_commands import OPERATIONS
from kernbench.mesh.time.columns import IS_TRANSFER, Columns, cases, make_columns
from kernbench.mesh.time.conflicts import Conflicts, find_conflicts, layout, no_conflicts
from kernbench.mesh.time.order import Commands, Program, Views, Waits, write_edges
from kernbench.result.recording import NONE, CommandRow, Recording, Rows
from kernbench.safety.processes.threads import thread_count, together
from kernbench.timing import graph as g
from kernbench.timing.graph import Edges, Graph, GraphBuilder, Ints, Small, no_edges

Known = TypeVar("Known")
CODE = {name: row.code for name, row in OPERATIONS.items()}
# engines of a program, in lane order; DMA channels follow
CPU, GEMM, MATH, OUT = 0, 1, 2, 3
FIRST_DMA = OUT + len(DIRECTIONS)
# commands that hold the CPU until they are done
BLOCKING = ("send", "recv", "wait", "read_value")
# by the code of an operation: whether it holds the CPU, sends, receives
HOLDS, SENDS, RECEIVES = (
    np.array([name in names for name in OPERATIONS])
    for names in (BLOCKING, ("send", "send_async"), ("recv", "recv_async"))
)
# expected edges from each command, and the least capacity
EDGES_EACH, MANY_EDGES = 4, 1 << 12
# commands from which several threads are worth their cost
LONG = 20_000
_ENGINE = {"cpu": CPU, "gemm": GEMM, "math": MATH, "dma": FIRST_DMA, "ipcq": CPU}


@dataclass(frozen=True)
class Pieces:
    """Slot-sized pieces of messages: link, bytes, and the commands that send and take each."""

    link: Small
    nbytes: Ints
    send: Small
    recv: Small
    push: Small
    take: Small


@dataclass(frozen=True)
class Lowered:
    """A recording as a graph, with the data from which durations are computed; `engine` is each command's engine.

    A machine with other channels or queues (`depth` slots of `slot` bytes) has another graph.
    """

    recording: Recording
    columns: Columns
    pieces: Pieces
    graph: Graph
    engine: Small
    channels: int
    depth: int
    slot: int
    _known: dict[str, tuple[object, Any]] = field(default_factory=dict, compare=False, repr=False)

    def once(self, name: str, given: object, make: Callable[[], Known]) -> Known:
        """The result of `make`, computed again only if `given` differs from the last time.

        A sweep times one graph thousands of times, and most intermediate results depend on few keys of the machine.
        """
        kept = self._known.get(name)
        if kept is None or kept[0] != given:
            # another thread may replace the entry: return the one made here
            kept = self._known[name] = given, make()
        known: Known = kept[1]
        return known

    def count_timing(self) -> int:
        """Count a timing; returns how many there were."""
        count: int = self._known.get("timings", (None, 0))[1] + 1
        self._known["timings"] = None, count
        return count

    @cached_property
    def programs(self) -> Small:
        """The program of each node."""
        starts = np.arange(len(self.recording.streams), dtype=np.int32)
        program, pieces = self.columns.program, self.pieces
        return np.concatenate([program, starts, program[pieces.send], program[pieces.recv]])

    @property
    def commands(self) -> int:
        """Nodes from 0 up to here are commands."""
        return len(self.columns.op)

    @cached_property
    def cases(self) -> tuple[Ints, Small]:
        """Commands with one operation on the same types take the same time: one of each case, and each one's case."""
        return cases(self.columns, len(self.recording.tables.types))


def lower(recording: Recording, channels: int, depth: int, slot: int) -> Lowered:
    """The graph of a finished, safe run on PEs with `channels` DMA channels and queues of `depth` slots."""
    columns = make_columns(recording)
    pieces = _pieces(recording, columns, slot)
    engine = _engines(recording, columns, channels)
    entry = np.arange(len(columns.op), dtype=np.int32)
    _set_entries(entry, pieces.send, pieces.push)
    _set_entries(entry, pieces.recv, pieces.take)
    graph = _graph(recording, columns, channels, (engine, entry), pieces, depth)
    return Lowered(recording, columns, pieces, graph, engine, channels, depth, slot)


def _graph(
    recording: Recording, columns: Columns, channels: int, where: tuple[Small, Small], pieces: Pieces, depth: int
) -> Graph:
    """The edges from commands, program by program, those from programs' starts, and those from pieces. Programs of long
    recordings are processed by several threads, and the results concatenated in order.
    """
    programs, commands = len(recording.streams), len(columns.op)
    longest = int(np.diff(columns.first).max(initial=0))
    builder = GraphBuilder(commands + programs + 2 * len(pieces.push), EDGES_EACH * commands)
    at_once = max(1, min(thread_count() if commands >= LONG else 1, programs))
    rooms, starts = [no_edges(EDGES_EACH * longest + MANY_EDGES) for _ in range(at_once)], []
    sizes, conflicts = _sizes(recording), _conflicts(recording, columns, channels)

    def write(program: int) -> None:
        given = recording, columns, program, where, FIRST_DMA + channels, conflicts[program], sizes
        rooms[program % at_once] = _program_edges(*given, rooms[program % at_once])

    for first in range(0, programs, at_once):
        some = range(first, min(first + at_once, programs))
        together(partial(write, program) for program in some)
        for program in some:
            found = rooms[program % at_once]
            starts.append(builder.add(int(columns.first[program + 1] - columns.first[program]), found))
            found.filled[0] = 0
    for edges in starts:
        builder.add(1, edges)
    builder.add(2 * len(pieces.push), _piece_edges(pieces, depth))
    return builder.graph()


def _conflicts(recording: Recording, columns: Columns, channels: int) -> list[Conflicts]:
    """Transfers of each program that share bytes; a single channel keeps their order anyway."""
    lengths = np.diff(columns.first).tolist()
    if channels == 1:
        return [no_conflicts(length) for length in lengths]
    given, found = layout(recording.tables), []
    for stream, start, length in zip(recording.streams, columns.first[:-1].tolist(), lengths, strict=True):
        op = columns.op[start : start + length]
        moves = np.flatnonzero(IS_TRANSFER[op])
        address, pattern = (stream.rows.values(name, moves) for name in "xy")
        found.append(find_conflicts(address, pattern, op[moves] == CODE["store"], moves, length, given))
    return found


def _program_edges(
    recording: Recording,
    columns: Columns,
    program: int,
    where: tuple[Small, Small],
    engines: int,
    conflicts: Conflicts,
    sizes: Ints,
    edges: Edges,
) -> Edges:
    """The edges from the commands of one program and, as the last source, from its start; added to `edges`."""
    stream, start, stop = recording.streams[program], columns.first[program], columns.first[program + 1]
    rows, views = stream.rows, stream.views
    op, y = columns.op[start:stop], columns.y[start:stop]
    engine, entry = (column[start:stop] for column in where)
    return write_edges(
        Program(engines, FIRST_DMA, CODE["store"]),
        Commands(op, columns.type[start:stop], rows.column("addr"), engine, entry),
        (rows.column("a"), rows.column("b"), rows.column("c")),
        Views(views.column("type"), views.column("producer"), views.column("addr")),
        Waits(HOLDS[op], awaited(op, rows, y)),
        sizes,
        conflicts.arrays,
        edges,
    )


def awaited(op: Array, rows: Rows[CommandRow], y: Ints) -> Small:
    """For each wait of a program the command it waits for, -1 elsewhere; both have the number of their request."""
    awaited = np.full(len(op), NONE, np.int32)
    asynchronous = np.flatnonzero((op == CODE["send_async"]) | (op == CODE["recv_async"]))
    waits = np.flatnonzero(op == CODE["wait"])
    if len(waits):
        by_request = np.empty(int(y[asynchronous].max()) + 1, np.int32)
        by_request[y[asynchronous]] = asynchronous
        awaited[waits] = by_request[rows.values("x", waits)]
    return awaited


def _sizes(recording: Recording) -> Ints:
    """Bytes of each type of handle."""
    return np.array([prod(shape) * ITEMSIZE[dtype] for shape, dtype, _ in recording.tables.types] or [0], np.int64)


def _engines(recording: Recording, columns: Columns, channels: int) -> Small:
    """The engine of each command; DMA commands take the channels of their program in turn."""
    table = np.array([_ENGINE[row.engine] for row in OPERATIONS.values()], np.int32)
    engine = table[columns.op]
    for stream, start, stop in zip(recording.streams, columns.first[:-1], columns.first[1:], strict=True):
        part = engine[start:stop]
        transfers = np.flatnonzero(part == FIRST_DMA)
        part[transfers] = FIRST_DMA + np.arange(len(transfers)) % channels
        sends = np.flatnonzero(SENDS[columns.op[start:stop]])
        if len(sends):
            part[sends] = OUT + stream.rows.values("x", sends)
    return engine


def _pieces(recording: Recording, columns: Columns, slot: int) -> Pieces:
    """Match the k-th send of each link with its k-th receive, and cut the messages into pieces."""
    number = {(s.cube, s.pe): i for i, s in enumerate(recording.streams)}
    nbytes = _sizes(recording)
    parts: list[list[Array]] = [[], [], [], []]
    messages = [_messages(recording, columns, program) for program in range(len(recording.streams))]
    for index, link in enumerate(recording.links):
        sends = _on_side(messages, number.get(link.sender), link.direction, SENDS)
        takes = _on_side(messages, number.get(link.receiver), OPPOSITE[link.direction], RECEIVES)
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


def _messages(recording: Recording, columns: Columns, program: int) -> tuple[Ints, Array, Ints]:
    """The commands of a program that send or receive: their numbers, operations and directions."""
    start, stop = int(columns.first[program]), int(columns.first[program + 1])
    op = columns.op[start:stop]
    here = np.flatnonzero((SENDS | RECEIVES)[op])
    return here + start, op[here], recording.streams[program].rows.values("x", here)


def _on_side(
    messages: list[tuple[Ints, Array, Ints]], program: int | None, direction: str, verbs: NDArray[np.bool_]
) -> Ints:
    """The messages of a program, None for one without commands, over the link on one side."""
    if program is None:
        return np.empty(0, np.int64)
    commands, op, toward = messages[program]
    found: Ints = commands[verbs[op] & (toward == DIRECTIONS.index(direction))]
    return found


def _set_entries(entry: Small, command: Small, node: Small) -> None:
    """A command begins with the first of its pieces."""
    entry[command[::-1]] = node[::-1]


def _piece_edges(pieces: Pieces, depth: int) -> Edges:
    """The edges from pieces, counted from the first."""
    sources: list[Array] = []
    targets: list[Array] = []
    lags: list[Array] = []
    kinds: list[Array] = []

    def add(source: Array, target: Array, lag: Array | int, kind: int) -> None:
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
    begin = push[0] if len(push) else 0
    return Edges(
        np.concatenate(sources).astype(np.int32) - begin,
        np.concatenate(targets).astype(np.int32),
        np.concatenate(lags).astype(np.int32),
        np.concatenate(kinds),
        np.array([sum(map(len, sources))]),
    )
