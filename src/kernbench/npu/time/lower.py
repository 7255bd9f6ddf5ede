"""From an npu recording to a graph of the shared timing engine.

Nodes: every row; for a transfer to or from device memory also its begin, its path, and its part of the shared
bandwidth; if issue takes time, its issue; for every block its dispatch and its end; for every task when it is ready,
done and reclaimed; and every command of the orchestrator. Edges that depend on cores (which block runs where, after
which) are decided by `assign` and added last.
"""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.errors import KernbenchError
from kernbench.npu.isa.operations import AWAIT, BARRIER, CLASSES, SCALAR, WAIT
from kernbench.npu.isa.units import PIPE_NUMBER, S
from kernbench.npu.recording.record import NpuRecording
from kernbench.npu.time import edges as e
from kernbench.npu.time.assign import Assignment
from kernbench.npu.time.costs import Ints, Transfers, find_transfers
from kernbench.npu.time.launches import launch_edges, may_stage
from kernbench.npu.time.reclaim import Waits
from kernbench.safety.processes.threads import in_stretches, thread_count, together
from kernbench.timing.graph import Graph, Unlagged, graph_of, pieces, with_other_edges

_COLUMNS = ("op", "lane", "pipe", "a", "b", "c", "message")
# limit of signed 32-bit integers
_MOST = 2**31
# rows from which threads are worth their cost
_LONG = 200_000
Edges = tuple[Ints, Ints, Ints]


@dataclass(frozen=True)
class Nodes:
    """The first node of each kind."""

    rows: int
    begin: int
    path: int
    memory: int
    dispatch: int
    end: int
    ready: int
    done: int
    reclaimed: int
    command: int
    issue: int
    total: int


@dataclass(frozen=True)
class Lowered:
    """A recording's nodes and the edges that do not depend on cores."""

    recording: NpuRecording
    nodes: Nodes
    found: Transfers
    # for consecutive groups of blocks
    inner: list[Unlagged]
    outer: Edges
    waits: Waits

    @property
    def transfers(self) -> Ints:
        """The rows that transfer memory."""
        return self.found.rows


def lower(recording: NpuRecording, waits: Waits, is_issue_timed: bool = False) -> Lowered:
    """All nodes and fixed edges; with `is_issue_timed` each row also has a node for its issue."""
    rows = recording.array()
    found = find_transfers(recording, stretches(recording))
    nodes = _number(recording, len(rows), len(found.rows), len(rows) if is_issue_timed else 0)
    inner = _inner(recording, nodes, found)
    outer = _joined(_outer(recording, nodes, waits), _signals(recording))
    if is_issue_timed:
        outer = _joined(outer, _issue(recording, rows, CLASSES[rows["op"]], nodes, found.rows))
    return Lowered(recording, nodes, found, inner, outer, waits)


def _number(recording: NpuRecording, rows: int, transfers: int, issues: int) -> Nodes:
    blocks, tasks, commands = len(recording.block_task), len(recording.tasks), len(recording.commands)
    sizes = (rows, transfers, transfers, transfers, blocks, blocks, tasks, tasks, tasks, commands, issues)
    starts = np.concatenate([[0], np.cumsum(sizes)]).tolist()
    _check_count(starts[-1], "nodes")
    return Nodes(rows, *starts[1:])


def _check_count(count: int, what: str) -> None:
    """The graph numbers nodes and edges by 32 bits."""
    if count >= _MOST:
        raise KernbenchError(
            f"{count:,} {what} of its graph are too many to time this recording, which can have {_MOST - 1:,}: "
            "record a smaller size, or time it as several launches"
        )


def _inner(recording: NpuRecording, nodes: Nodes, found: Transfers) -> list[Unlagged]:
    """Edges inside blocks, ordered by target, in groups of blocks that are computed in parallel."""
    firsts, fifos, columns = recording.firsts(), recording.fifo_table(), recording.columns(*_COLUMNS)
    blocks = np.arange(len(recording.block_task), dtype=np.int64)

    def edges_of(begin: int, end: int) -> Unlagged:
        first, last = np.searchsorted(found.rows, firsts[[begin, end]])
        return e.row_edges(
            firsts[begin : end + 1],
            found.counts,
            fifos[begin:end],
            columns,
            CLASSES,
            (found.rows[first:last], int(nodes.begin + first)),
            nodes.dispatch + blocks[begin:end],
            nodes.end + blocks[begin:end],
        )

    return in_stretches(edges_of, stretches(recording))


def _entries(rows: int, nodes: Nodes, transfers: Ints) -> Ints:
    """The node where each row begins: itself, or the begin of its transfer."""
    entry = np.arange(rows, dtype=np.int64)
    entry[transfers] = nodes.begin + np.arange(len(transfers))
    return entry


def _issue(recording: NpuRecording, rows: Array, kinds: Array, nodes: Nodes, transfers: Ints) -> Edges:
    """A core issues its rows one after the other, from its block's start on; after a value that its program waits for
    it continues only when the value is there.
    """
    block = np.repeat(np.arange(len(recording.block_task)), np.diff(recording.firsts()))
    lane = rows["lane"]
    order = np.lexsort((lane, block))
    follows = (np.diff(block[order]) == 0) & (np.diff(lane[order]) == 0)
    before, after = order[:-1][follows], order[1:][follows]
    first = order[np.concatenate([[True], ~follows])]
    scalar = (rows["pipe"] == PIPE_NUMBER[S]) & np.isin(kinds, (SCALAR, WAIT, AWAIT))
    holds = (scalar | ((kinds == BARRIER) & (rows["a"] < 0)))[before]
    parts = (
        (nodes.issue + before, nodes.issue + after),
        (nodes.dispatch + block[first], nodes.issue + first),
        (before[holds], nodes.issue + after[holds]),
        (nodes.issue + np.arange(len(rows)), _entries(len(rows), nodes, transfers)),
    )
    source, target = (np.concatenate(column) for column in zip(*parts, strict=True))
    return source, target, np.full(len(source), e.ISSUED, np.int64)


def _joined(one: Edges, two: Edges) -> Edges:
    source, target, kind = (np.concatenate(pair) for pair in zip(one, two, strict=True))
    return source, target, kind


def _signals(recording: NpuRecording) -> Edges:
    """Waits between cores follow the posts that they depend on."""
    posts, waits = recording.post_edges()
    return posts, waits, np.full(len(posts), e.SIGNAL, np.int64)


def _transfer_edges(lowered: Lowered, part: slice) -> Unlagged:
    """Some transfers begin, use their paths and the shared bandwidth at once, and are done with both."""
    nodes = lowered.nodes
    begin, path, memory = (
        np.arange(first + part.start, first + part.stop, dtype=np.int32)
        for first in (nodes.begin, nodes.path, nodes.memory)
    )
    rows = lowered.transfers[part].astype(np.int32)
    source = np.concatenate([begin, begin, path, memory])
    target = np.concatenate([path, memory, rows, rows])
    return Unlagged(source, target, np.full(len(source), e.STARTED, np.int8))


def _outer(recording: NpuRecording, nodes: Nodes, waits: Waits) -> Edges:
    """Edges between commands, tasks, blocks and ring slots."""
    found: list[tuple[int, int, int]] = []
    command = nodes.command
    for number, one in enumerate(recording.commands):
        if number:
            found.append((command + number - 1, command + number, e.ORDER))
        found.extend((nodes.done + task, command + number, e.VALUE) for task in one.waits)
        if one.makes_task:
            found.append((command + number, nodes.ready + one.target, e.SUBMITTED))
        if waits.slot_of[number] >= 0:
            found.append((nodes.reclaimed + waits.slot_of[number], command + number, e.RING))
    owner = recording.owners()
    blocks = set(recording.block_task)
    # for blocks that may be staged, edges depend on the assignment
    staged = np.array([may_stage(recording, task) for task in recording.tasks], np.bool_)[owner]
    for task in recording.tasks:
        found.extend((nodes.done + d, nodes.ready + task.number, e.DEPENDENCE) for d in task.dependences)
        if task.number not in blocks:
            found.append((nodes.ready + task.number, nodes.done + task.number, e.DONE))
        found.extend((nodes.done + t, nodes.reclaimed + task.number, e.DONE) for t in waits.holders[task.number])
        if waits.ring_before[task.number] >= 0:
            found.append((nodes.reclaimed + waits.ring_before[task.number], nodes.reclaimed + task.number, e.RING))
        if waits.closed_by[task.number] >= 0:
            found.append((command + waits.closed_by[task.number], nodes.reclaimed + task.number, e.ORDER))
    columns = np.array(found, np.int64).reshape(-1, 3)
    block = np.arange(len(owner), dtype=np.int64)
    return (
        np.concatenate([columns[:, 0], nodes.ready + owner[~staged], nodes.end + block]),
        np.concatenate([columns[:, 1], nodes.dispatch + block[~staged], nodes.done + owner]),
        np.concatenate([columns[:, 2], np.full((~staged).sum(), e.READY), np.full(len(owner), e.DONE)]),
    )


def core_edges(lowered: Lowered, assignment: Assignment) -> Edges:
    """Blocks wait for their cores, and for the scheduler thread that starts them."""
    nodes, recording = lowered.nodes, lowered.recording
    owner = recording.owners()
    # for each block the previous blocks of its cores, then the previous block of its scheduler thread
    source = np.column_stack([assignment.before, assignment.previous])
    first, kind = np.full(source.shape, nodes.end), np.full(source.shape, e.CORE)
    first[:, -1], kind[:, -1] = nodes.dispatch, e.SCHEDULER
    target = np.repeat(nodes.dispatch + np.arange(len(owner))[:, None], source.shape[1], axis=1)
    there = source >= 0
    parts = [((source + first)[there], target[there], kind[there])]
    for task in recording.tasks:
        if task.sync_start:
            # all cores must be free before the first block starts
            blocks = np.flatnonzero(owner == task.number)
            waits = np.unique(assignment.before[blocks])
            waits = waits[waits >= 0]
            pairs = np.repeat(nodes.dispatch + blocks, len(waits))
            parts.append((np.tile(nodes.end + waits, len(blocks)), pairs, np.full(len(pairs), e.CORE)))
    parts.append(launch_edges(lowered, assignment, lambda: _entries(nodes.rows, nodes, lowered.transfers)))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return columns[0], columns[1], columns[2]


def join(lowered: Lowered, cores: Edges) -> Graph:
    """The graph of all edges, with those that depend on cores."""
    count = len(lowered.transfers)
    sizes = [len(part.sources) for part in lowered.inner]
    _check_count(sum(sizes) + 4 * count + len(lowered.outer[0]) + len(cores[0]), "edges")
    parts = in_stretches(
        lambda begin, end: _transfer_edges(lowered, slice(begin, end)),
        [(part.start, part.stop) for part in pieces(count)],
    )
    # edges of transfers do not share targets, and edges inside blocks lead to where transfers begin
    apart = [*lowered.inner, *parts]
    return graph_of(lowered.nodes.total, apart, [_unlagged(lowered.outer), _unlagged(cores)], together)


def join_again(lowered: Lowered, graph: Graph, cores: Edges) -> Graph:
    """The same graph with another assignment: the edges to all nodes from the first dispatch on are replaced."""
    first = lowered.nodes.dispatch
    parts = [_from(part, first) for part in (*lowered.inner, _unlagged(lowered.outer), _unlagged(cores))]
    _check_count(int(graph.offsets[first]) + sum(len(part.sources) for part in parts), "edges")
    return with_other_edges(graph, first, parts)


def _from(part: Unlagged, first: int) -> Unlagged:
    """The edges to nodes from `first` on."""
    kept = np.flatnonzero(part.sources >= first)
    return Unlagged(part.sources[kept], part.targets[kept], part.kinds[kept])


def _unlagged(part: Edges) -> Unlagged:
    source, target, kind = part
    return Unlagged(source.astype(np.int32), target.astype(np.int32), kind.astype(np.int8))


def is_long(recording: NpuRecording) -> bool:
    """Whether passes over all rows of a recording are worth threads."""
    return recording.count >= _LONG


def stretches(recording: NpuRecording) -> list[tuple[int, int]]:
    """Groups of blocks, (begin, end), with about the same number of rows: as many as there may be threads."""
    count = thread_count() if is_long(recording) else 1
    wanted = np.arange(1, count) * (recording.count // count)
    ends = [0, *np.searchsorted(recording.block_first, wanted).tolist(), len(recording.block_task)]
    return [(begin, end) for begin, end in pairwise(ends) if begin < end] or [(0, 0)]
