"""The critical path: from what finished last back to the start, always to what was waited for longest."""

from dataclasses import dataclass

import numpy as np

from kernbench.npu.isa.units import PIPES, M, V
from kernbench.npu.time import edges as e
from kernbench.npu.time.causes import WORKS
from kernbench.npu.time.clock import Timing
from kernbench.npu.time.swimlane import Swimlane
from kernbench.npu.time.waiting import KINDS, NOTHING
from kernbench.result.timeline import Step


@dataclass(frozen=True)
class Path:
    """The steps that took time, first to last, with their nodes; the time on the path by what it was spent on."""

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


def critical_path(timing: Timing, lanes: Swimlane) -> Path:
    """Walk back from the last finish; durations along it add up to the total.

    What a step waited for is given as for spans: behind a wait that takes no time it is the flag, not the pipe's order.
    """
    times, kinds = timing.times, timing.graph.kinds
    carried: int | None = None
    shares = dict.fromkeys(WORKS, 0)
    steps: list[Step] = []
    works: list[str] = []
    nodes: list[int] = []
    for node, edge in reversed(causes(timing, int(times.finish.argmax()))):
        start, finish = int(times.start[node]), int(times.finish[node])
        kind = int(kinds[edge]) if edge >= 0 else NOTHING
        kind = carried if kind in e.PLAIN and carried is not None else kind
        carried = kind if finish == start else None
        if finish == start:
            continue
        nodes.append(node)
        works.append(_work(timing, node))
        shares[works[-1]] += finish - start
        lane, name, where = lanes.describe(node)
        steps.append(Step(lane, name, where, KINDS[kind], 0, start, finish))
    return Path(steps, {work: time for work, time in shares.items() if time}, works, nodes)


def time_of_tasks(timing: Timing, path: Path) -> dict[int, int]:
    """How much of the critical path each task is: its submit, the dispatch of its blocks, and their rows."""
    nodes, recording, times = timing.lowered.nodes, timing.lowered.recording, timing.times
    firsts, transfers = recording.firsts(), timing.lowered.transfers
    spent: dict[int, int] = {}
    for node in path.nodes:
        if nodes.command <= node < nodes.issue:
            task = recording.commands[node - nodes.command].target
        elif nodes.dispatch <= node < nodes.end:
            task = recording.block_task[node - nodes.dispatch]
        else:
            row = node - nodes.issue if node >= nodes.issue else node
            row = int(transfers[(row - nodes.begin) % len(transfers)]) if nodes.begin <= row < nodes.dispatch else row
            task = recording.block_task[int(firsts.searchsorted(row, side="right")) - 1]
        spent[task] = spent.get(task, 0) + int(times.finish[node] - times.start[node])
    return spent


def _work(timing: Timing, node: int) -> str:
    nodes = timing.lowered.nodes
    if node >= nodes.issue:
        return "issue"
    if node >= nodes.command:
        return "submit"
    if nodes.dispatch <= node < nodes.end:
        return "dispatch"
    if nodes.begin <= node < nodes.dispatch:
        return "memory"
    row = timing.lowered.recording.array()[node]
    pipe = PIPES[row["pipe"]]
    return {M: "cube", V: "vector", "S": "scalar"}.get(pipe, "moves")
