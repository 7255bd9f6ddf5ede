"""The critical path: from what finished last back to the start, always to what was waited for longest.

Lags and durations along it add up to the total time exactly, so its shares say where the time went.
"""

from dataclasses import dataclass

import numpy as np

from kernbench.result.timeline import Step
from kernbench.timing import graph as g
from kernbench.timing.clock import Timing
from kernbench.timing.lanes import lane_numbers, lanes, name_of, place_of, work_of


@dataclass(frozen=True)
class CriticalPath:
    """The steps that took time, first to last, and the time on the path by what it was spent on."""

    steps: list[Step]
    shares: dict[str, int]


def critical_path(timing: Timing) -> CriticalPath:
    """Walk back from the last finish."""
    times, graph, lowered = timing.times, timing.lowered.graph, timing.lowered
    names, numbers = lanes(lowered), lane_numbers(lowered)
    node = int(times.finish.argmax()) if graph.nodes else -1
    steps: list[Step] = []
    shares: dict[str, int] = {}
    while node >= 0:
        edge = int(times.cause[node])
        before = int(np.searchsorted(graph.offsets, edge, side="right")) - 1 if edge >= 0 else -1
        kind = int(graph.kinds[edge]) if edge >= 0 else g.DISPATCH
        start, finish = int(times.start[node]), int(times.finish[node])
        lag = start - (int(times.finish[before]) if before >= 0 else 0)
        lane = names[numbers[node]]
        step = Step(lane, name_of(lowered, node), place_of(lowered, node), g.KIND_NAMES[kind], lag, start, finish)
        steps.append(step)
        _add(shares, "dispatch" if kind == g.DISPATCH else "link latency", lag)
        _add(shares, work_of(lowered, node), finish - start)
        node = before
    return CriticalPath([s for s in reversed(steps) if s.finish > s.start or s.lag], shares)


def _add(shares: dict[str, int], what: str, time: int) -> None:
    if time:
        shares[what] = shares.get(what, 0) + time
