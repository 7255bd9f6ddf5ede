"""The critical path: from the last finish back to the start, always along the longest wait.

Lags and durations along it add up to the total time exactly, so its shares show where the time went.
"""

from dataclasses import dataclass

import numpy as np

from kernbench.common.deferred import deferred
from kernbench.common.pe_commands import OPERATION_NAMES
from kernbench.mesh.time.clock import Timing
from kernbench.mesh.time.lanes import WORKS, commands_of, lane_numbers, lanes, works_of
from kernbench.result.timeline import Step
from kernbench.timing import graph as g
from kernbench.timing.graph import Ints, Small, owner


@dataclass(frozen=True)
class CriticalPath:
    """The steps that took time, first to last, and the time on the path by category."""

    steps: list[Step]
    shares: dict[str, int]


def critical_path(timing: Timing) -> CriticalPath:
    """Walk back from the last finish."""
    times, graph, lowered = timing.times, timing.lowered.graph, timing.lowered
    last = int(times.finish.argmax()) if graph.nodes else -1
    nodes, edges = _trail(last, times.cause, graph.offsets)
    finish = times.finish[nodes]
    lag = times.start[nodes] - np.concatenate([[0], finish[:-1]])[: len(nodes)]
    kind = np.where(edges >= 0, graph.kinds[edges] if graph.edges else 0, g.DISPATCH)
    spent = finish - times.start[nodes]
    shares = {
        "dispatch": int(lag[kind == g.DISPATCH].sum()),
        "link latency": int(lag[kind != g.DISPATCH].sum()),
    }
    works = works_of(lowered, nodes)
    for number, work in enumerate(WORKS):
        shares[work] = int(spent[works == number].sum())
    shown = (spent > 0) | (lag > 0)
    return CriticalPath(
        _steps(timing, nodes[shown], kind[shown], lag[shown]), {work: time for work, time in shares.items() if time}
    )


def _trail(last: int, cause: Small, offsets: Small) -> tuple[Ints, Ints]:
    """The nodes of the path, first to last, and the edge each waited for; -1 for none."""
    length = _walk_back(last, cause, offsets, np.empty(0, np.int64))
    nodes = np.empty(length, np.int64)
    _walk_back(last, cause, offsets, nodes)
    return nodes[::-1], cause[nodes[::-1]].astype(np.int64)


@deferred(lambda last, cause, *_: len(cause))
def _walk_back(last, cause, offsets, nodes):  # type: ignore[no-untyped-def]
    """The nodes of the path, last to first, up to the capacity; returns their number."""
    length = 0
    node = last
    while node >= 0:
        if len(nodes):
            nodes[length] = node
        length += 1
        node = owner(cause[node], offsets) if cause[node] >= 0 else -1
    return length


def _steps(timing: Timing, nodes: Ints, kind: Ints, lag: Ints) -> list[Step]:
    lowered, times = timing.lowered, timing.times
    names, sites = lanes(lowered), lowered.recording.tables.sites
    lane, command = lane_numbers(lowered)[nodes], commands_of(lowered, nodes)
    columns = (lane, command, lowered.columns.op[command], lowered.columns.site[command], kind, lag)
    rows = zip(*(c.tolist() for c in (*columns, times.start[nodes], times.finish[nodes])), strict=True)
    return [
        Step(
            names[lane],
            OPERATION_NAMES[op] if command >= 0 else "start",
            sites[site] if command >= 0 else None,
            g.KIND_NAMES[kind],
            lag,
            start,
            finish,
        )
        for lane, command, op, site, kind, lag, start, finish in rows
    ]
