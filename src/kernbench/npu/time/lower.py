"""From an npu recording to a graph of the shared timing engine.

Nodes: every row; for a transfer to or from device memory also where it begins, its path, and its part of the shared
bandwidth; where issue takes time, its issue; for every block its dispatch and its end; for every task when it is ready,
done and reclaimed; and every command of the orchestrator. What depends on cores (which block runs where, after which)
is decided by `assign` and added last.
"""

from dataclasses import dataclass

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.errors import KernbenchError
from kernbench.npu.isa.operations import AWAIT, BARRIER, CLASSES, LOAD, POP, PUSH, SCALAR, STORE, WAIT
from kernbench.npu.isa.units import PIPE_NUMBER, S
from kernbench.npu.recording.record import NpuRecording
from kernbench.npu.time import edges as e
from kernbench.npu.time.assign import Assignment
from kernbench.npu.time.costs import Ints, memory_bytes
from kernbench.npu.time.launches import launch_edges, may_stage
from kernbench.npu.time.reclaim import Waits
from kernbench.timing.graph import Graph, make_graph

_COLUMNS = ("op", "lane", "pipe", "a", "b", "c", "x")
# what 32 bits with a sign number
_MOST = 2**31
Edges = tuple[Ints, Ints, Ints]
Inner = tuple[e.Small, e.Small, e.Kinds]


@dataclass(frozen=True)
class Nodes:
    """Where each kind of node begins."""

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
    """A recording's nodes and the edges that do not depend on cores. `transfers` are the rows that move memory."""

    recording: NpuRecording
    nodes: Nodes
    transfers: Ints
    moved: Ints
    inner: Inner
    outer: Edges
    waits: Waits


def lower(recording: NpuRecording, waits: Waits, is_issue_timed: bool = False) -> Lowered:
    """All nodes and fixed edges; with `is_issue_timed` each row also has a node for its issue."""
    rows = recording.array()
    kinds = CLASSES[rows["op"]]
    moved = memory_bytes(recording, rows)
    transfers = np.flatnonzero(np.isin(kinds, (LOAD, STORE, PUSH, POP)) & (moved > 0))
    nodes = _number(recording, len(rows), len(transfers), len(rows) if is_issue_timed else 0)
    inner = _inner(recording, rows, nodes, transfers)
    outer = _joined(_outer(recording, nodes, waits), _signals(recording))
    if is_issue_timed:
        outer = _joined(outer, _issue(recording, rows, kinds, nodes, transfers))
    return Lowered(recording, nodes, transfers, moved[transfers], inner, outer, waits)


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


def _inner(recording: NpuRecording, rows: Array, nodes: Nodes, transfers: Ints) -> Inner:
    """Edges inside blocks, in the order of their targets."""
    entry = _entries(len(rows), nodes, transfers)
    blocks = np.arange(len(recording.block_task), dtype=np.int64)
    return e.row_edges(
        recording.firsts(),
        tuple(rows[name].copy() for name in _COLUMNS),
        CLASSES,
        entry,
        recording.fifo_table(),
        nodes.dispatch + blocks,
        nodes.end + blocks,
    )


def _entries(rows: int, nodes: Nodes, transfers: Ints) -> Ints:
    """The node where each row begins: itself, or the begin of its transfer."""
    entry = np.arange(rows, dtype=np.int64)
    entry[transfers] = nodes.begin + np.arange(len(transfers))
    return entry


def _issue(recording: NpuRecording, rows: Array, kinds: Array, nodes: Nodes, transfers: Ints) -> Edges:
    """A core issues its rows one after the other, from its block's start on; after a value that its program waits for
    it goes on only when that is there.
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
    """Waits between cores follow the posts that they rest on."""
    posts, waits = recording.post_edges()
    return posts, waits, np.full(len(posts), e.SIGNAL, np.int64)


def transfer_edges(lowered: Lowered) -> Edges:
    """A transfer begins, uses its path and the shared bandwidth at once, and is done with both."""
    nodes, count = lowered.nodes, len(lowered.transfers)
    one = np.arange(count, dtype=np.int64)
    source = np.concatenate([nodes.begin + one, nodes.begin + one, nodes.path + one, nodes.memory + one])
    target = np.concatenate([nodes.path + one, nodes.memory + one, lowered.transfers, lowered.transfers])
    return source, target, np.full(len(source), e.STARTED, np.int64)


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
    owner = np.array(recording.block_task, np.int64)
    blocks = set(recording.block_task)
    # where blocks may be staged, what they wait for depends on the cores that are free
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
    owner = np.array(recording.block_task, np.int64)
    # for each block those that had its cores, then the one its scheduler thread started before
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
    parts.append(launch_edges(lowered, assignment, _entries(nodes.rows, nodes, lowered.transfers)))
    columns = [np.concatenate(column) for column in zip(*parts, strict=True)]
    return columns[0], columns[1], columns[2]


def join(lowered: Lowered, *parts: Edges | Inner) -> Graph:
    """The graph of all edges."""
    _check_count(sum(len(part[0]) for part in parts), "edges")
    source, target, kind = (
        np.concatenate(columns, dtype=dtype, casting="same_kind")
        for columns, dtype in zip(zip(*parts, strict=True), (np.int32, np.int32, np.int8), strict=True)
    )
    return make_graph(lowered.nodes.total, source, target, np.zeros(len(source), np.int32), kind)
