"""The critical path: from the last finish back to the start, always along the longest wait."""

from dataclasses import dataclass

import numpy as np

from kernbench.common.deferred import deferred
from kernbench.npu.isa.units import PIPES, M, V
from kernbench.npu.time import edges as e
from kernbench.npu.time.causes import WORKS
from kernbench.npu.time.clock import Timing
from kernbench.npu.time.costs import Ints
from kernbench.npu.time.swimlane import describe
from kernbench.npu.time.waiting import KINDS, NOTHING
from kernbench.result.timeline import Step
from kernbench.timing.graph import Bytes, owner


@dataclass(frozen=True)
class Path:
    """The steps that took time, first to last, with their nodes; the time on the path by category."""

    steps: list[Step]
    shares: dict[str, int]
    works: list[str]
    nodes: list[int]


def causes(timing: Timing, node: int, most: int = 2**31) -> list[tuple[int, int]]:
    """From a node back to the start: each node and the edge it waited for longest, last first."""
    cause, offsets = timing.times.cause, timing.graph.offsets
    found: list[tuple[int, int]] = []
    while node >= 0 and len(found) < most:
        edge = int(cause[node])
        found.append((node, edge))
        node = int(offsets.searchsorted(np.int32(edge), side="right")) - 1 if edge >= 0 else -1
    return found


def critical_path(timing: Timing) -> Path:
    """Walk back from the last finish; durations along it add up to the total.

    The wait of a step is shown as for spans: after a wait that takes no time it is the flag, not the pipe's order.
    """
    times = timing.times
    way, kinds = _way(timing, int(times.finish.argmax()))
    start, finish = times.start[way], times.finish[way]
    shown = np.flatnonzero(finish > start)
    nodes = way[shown]
    works = _works(timing, nodes)
    begins, ends = start[shown].tolist(), finish[shown].tolist()
    shares = dict.fromkeys(WORKS, 0)
    for work, begin, end in zip(works, begins, ends, strict=True):
        shares[work] += end - begin
    waited = _carried(kinds.tolist(), (finish > start).tolist())
    steps = [
        Step(*described, KINDS[kind], 0, begin, end)
        for described, kind, begin, end in zip(describe(timing, nodes), waited, begins, ends, strict=True)
    ]
    return Path(steps, {work: time for work, time in shares.items() if time}, works, nodes.tolist())


def _way(timing: Timing, node: int) -> tuple[Ints, Bytes]:
    """From the start to a node, along the longest waits: nodes, and kinds of the edges to them."""
    cause, graph = timing.times.cause, timing.graph
    nodes = np.empty(len(cause), np.int64)
    found = nodes[: _walk(cause, graph.offsets, node, nodes)][::-1].copy()
    edges = cause[found]
    return found, np.where(edges >= 0, graph.kinds[edges], np.int8(NOTHING))


@deferred(lambda cause, *_: len(cause))
def _walk(cause, offsets, node, nodes):  # type: ignore[no-untyped-def]
    """Write the path back from a node, always along the longest wait; returns its length."""
    length, here = 0, int(node)
    while here >= 0:
        nodes[length] = here
        length += 1
        here = owner(cause[here], offsets) if cause[here] >= 0 else -1
    return length


def _carried(kinds: list[int], takes_time: list[bool]) -> list[int]:
    """The wait of each node of a path that takes time."""
    found: list[int] = []
    carried: int | None = None
    for kind, shown in zip(kinds, takes_time, strict=True):
        kind = carried if kind in e.PLAIN and carried is not None else kind
        carried = None if shown else kind
        if shown:
            found.append(kind)
    return found


def time_of_tasks(timing: Timing, path: Path) -> dict[int, int]:
    """How much of the critical path each task is: its submit, the dispatch of its blocks, and their rows."""
    nodes, recording, times = timing.lowered.nodes, timing.lowered.recording, timing.times
    found, transfers = np.array(path.nodes, np.int64), timing.lowered.transfers
    rows = np.where(found >= nodes.issue, found - nodes.issue, found)
    moving = (nodes.begin <= rows) & (rows < nodes.dispatch)
    rows[moving] = transfers[(rows[moving] - nodes.begin) % max(1, len(transfers))]
    block = recording.firsts().searchsorted(rows, side="right") - 1
    dispatched = (nodes.dispatch <= found) & (found < nodes.end)
    block[dispatched] = found[dispatched] - nodes.dispatch
    outside = (nodes.command <= found) & (found < nodes.issue)
    block[outside] = 0
    task = recording.owners()[block]
    task[outside] = [recording.commands[number].target for number in (found[outside] - nodes.command).tolist()]
    spent: dict[int, int] = {}
    for number, time in zip(task.tolist(), (times.finish[found] - times.start[found]).tolist(), strict=True):
        spent[number] = spent.get(number, 0) + time
    return spent


_WORK_OF_PIPE = [{M: "cube", V: "vector", "S": "scalar"}.get(pipe, "moves") for pipe in PIPES]


def _works(timing: Timing, found: Ints) -> list[str]:
    """The category of each of some nodes."""
    nodes = timing.lowered.nodes
    (pipe,) = timing.lowered.recording.columns("pipe")
    pipes = pipe[np.where(found < nodes.rows, found, 0)].tolist()
    # the category after the begin of each kind of nodes, in order; tasks and ends of blocks take no time
    begins = (nodes.begin, nodes.dispatch, nodes.end, nodes.command, nodes.issue)
    names = ("", "memory", "dispatch", "", "submit", "issue")
    ranks = np.searchsorted(begins, found, side="right").tolist()
    return [names[rank] or _WORK_OF_PIPE[pipe] for rank, pipe in zip(ranks, pipes, strict=True)]
