"""Splits the time above the binding floor: work of its resource beyond the floor, and what the critical path, which
covers the whole time, did while the resource was idle.
"""

import numpy as np

from kernbench.npu.isa.units import AIC, PIPE_NUMBER, M, V
from kernbench.npu.time.causes import BEYOND, waiting
from kernbench.npu.time.clock import Timing
from kernbench.npu.time.costs import Ints
from kernbench.npu.time.path import Path
from kernbench.npu.time.swimlane import lane_numbers

Spans = tuple[Ints, Ints]


def split_gap(timing: Timing, bound: str, floor: int, path: Path) -> dict[str, int]:
    """The time above the floor by cause; floor and causes add up to the time exactly."""
    start, finish = _merged(*_watched(timing, bound))
    busy = int((finish - start).sum())
    gap = {BEYOND[bound != "memory"]: busy - floor}
    begin = np.array([step.start for step in path.steps], np.int64)
    end = np.array([step.finish for step in path.steps], np.int64)
    idle = (end - begin) - _covered(start, finish, begin, end)
    for work, time in zip(path.works, idle.tolist(), strict=True):
        if time:
            gap[waiting(work)] = gap.get(waiting(work), 0) + time
    return gap


def _watched(timing: Timing, bound: str) -> Spans:
    """The busy intervals of the binding resource, on its busiest core."""
    nodes, times = timing.lowered.nodes, timing.times
    if bound == "memory":
        here = slice(nodes.memory, nodes.memory + len(timing.lowered.transfers))
        return times.start[here], times.finish[here]
    if bound == "submit":
        return times.start[nodes.command : nodes.issue], times.finish[nodes.command : nodes.issue]
    if bound == "issue":
        rows = timing.lowered.recording.array()
        pipe = rows["pipe"]
        cores = lane_numbers(timing) - pipe
        here_nodes = nodes.issue + np.flatnonzero(cores == np.bincount(cores).argmax())
        return times.start[here_nodes], times.finish[here_nodes]
    if bound == "dispatch":
        threads = np.array(timing.assignment.thread, np.int64)
        here_nodes = nodes.dispatch + np.flatnonzero(threads == np.bincount(threads).argmax())
        return times.start[here_nodes], times.finish[here_nodes]
    return _busiest(timing, bound)


def _busiest(timing: Timing, bound: str) -> Spans:
    """The spans of a kind of pipe on the core with the largest sum, transfers at the full rate of their path."""
    rows, times = timing.lowered.recording.array(), timing.times
    pipe = PIPE_NUMBER[{"cube": M, "vector": V}.get(bound, bound.split()[-1])]
    on_vector = bound.startswith("aiv") or bound == "vector"
    here = np.flatnonzero((rows["pipe"] == pipe) & ((rows["lane"] != AIC) == on_vector))
    first, count = timing.lowered.nodes.path, len(timing.lowered.transfers)
    start, finish = times.start[: len(rows)].copy(), times.finish[: len(rows)].copy()
    start[timing.lowered.transfers] = times.start[first : first + count]
    finish[timing.lowered.transfers] = times.finish[first : first + count]
    lanes = lane_numbers(timing)[here]
    spent = np.bincount(lanes, (finish - start)[here])
    chosen = here[lanes == spent.argmax()]
    return start[chosen], finish[chosen]


def _merged(start: Ints, finish: Ints) -> Spans:
    """Overlapping or adjacent spans merged, in order."""
    order = np.argsort(start, kind="stable")
    start, reach = start[order], np.maximum.accumulate(finish[order]) if len(finish) else finish
    if not len(start):
        return start, reach
    opens = np.concatenate([[True], start[1:] > reach[:-1]])
    closes = np.concatenate([opens[1:], [True]])
    return start[opens], reach[closes]


def _covered(start: Ints, finish: Ints, begin: Ints, end: Ints) -> Ints:
    """How much of each interval from `begin` to `end` the spans cover; spans are sorted and disjoint."""
    total = np.concatenate([[0], np.cumsum(finish - start)])

    def until(time: Ints) -> Ints:
        index = np.searchsorted(start, time, side="right")
        over = np.maximum(0, finish[np.maximum(index - 1, 0)] - time) if len(finish) else np.zeros_like(time)
        covered: Ints = total[index] - np.where(index > 0, over, 0)
        return covered

    covered: Ints = until(end) - until(begin)
    return covered
