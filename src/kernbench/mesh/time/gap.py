"""Splits the time beyond the binding floor by cause, exact to the picosecond.

The binding resource is examined where it was busiest: the GEMM or MATH engine of one PE, the HBM of one cube, or one
link. Its busy time is the floor, imbalance, and work beyond the floor. Its idle intervals are attributed by walking
back from what ended the wait to where the wait began. docs/cost-model.md has the formulas.
"""

from dataclasses import dataclass

import numpy as np

from kernbench.common.compiled import part
from kernbench.common.deferred import deferred
from kernbench.mesh.time.clock import Timing
from kernbench.mesh.time.lower import FIRST_DMA, GEMM, MATH
from kernbench.mesh.time.work import Work, cube_bytes, link_times
from kernbench.timing import graph as g
from kernbench.timing.graph import Ints, owner

IDLE_CAUSES = (
    "exposed communication",
    "queue stalls",
    "dispatch",
    "fill and drain",
    "HBM waits",
    "other engines",
    "other PEs",
)
CAUSES = ("imbalance", *IDLE_CAUSES, "array fill and drain", "unused cells", "other math", "rounding")
_COMMUNICATION, _QUEUE, _DISPATCH, _FILL, _HBM, _ENGINES, _PES = range(len(IDLE_CAUSES))
_ENGINE = {"compute": GEMM, "exp": MATH}


@dataclass(frozen=True)
class _Watched:
    """One resource: the nodes it served in order of their begin, and its busy interval for each.

    `home` is the program whose own engines are not "other PEs" at the end of the run; -1: that of the last command.
    """

    nodes: Ints
    begin: Ints
    end: Ints
    home: int


def split_gap(timing: Timing, work: Work, floors: dict[str, int], bound: str) -> dict[str, int]:
    """The time above `floors[bound]` by cause; floor and causes add up to the time exactly."""
    gap = dict.fromkeys(CAUSES, 0)
    if not timing.total_ps:
        return gap
    if bound in _ENGINE:
        watched, busy = _engine(timing, _ENGINE[bound])
        gap |= _beyond(bound, work, floors[bound], busy)
    else:
        watched = _memory(timing) if bound == "hbm" else _link(timing)
    idle = _idle(timing, watched)
    gap |= {name: int(time) for name, time in zip(IDLE_CAUSES, idle, strict=True)}
    if bound not in _ENGINE:
        gap["rounding"] = timing.total_ps - floors[bound] - sum(gap.values())
    return gap


def _beyond(bound: str, work: Work, floor: int, busy: Ints) -> dict[str, int]:
    """Busy time of the engines beyond the floor: on average, and more on the busiest."""
    mean = int(busy.sum()) // len(busy)
    parts = {"imbalance": int(busy.max()) - mean}
    if bound == "exp":
        return parts | {"other math": mean - floor}
    filling = int(work.array_ps / len(busy))
    return parts | {"array fill and drain": filling, "unused cells": mean - floor - filling}


def _engine(timing: Timing, engine: int) -> tuple[_Watched, Ints]:
    """The busiest PE's engine (the last one to end if several are), and its busy time on each PE."""
    lowered, times = timing.lowered, timing.times
    programs = len(lowered.recording.streams)
    nodes = np.flatnonzero(lowered.engine == engine)
    program = lowered.columns.program[nodes]
    busy = np.zeros(programs, np.int64)
    last = np.zeros(programs, np.int64)
    np.add.at(busy, program, times.finish[nodes] - times.start[nodes])
    np.maximum.at(last, program, times.finish[nodes])
    home = int(np.lexsort((-last, -busy))[0]) if len(nodes) else -1
    here = nodes[program == home]
    return _Watched(here, times.start[here], times.finish[here], home), busy


def _memory(timing: Timing) -> _Watched:
    """The HBM of the cube that moved most bytes; a transfer uses it after its latency."""
    times, rates = timing.times, timing.rates
    nodes = np.flatnonzero(rates.server == int(cube_bytes(timing.lowered).argmax()))
    begin = times.start[nodes] + rates.duration[nodes]
    order = np.argsort(begin, kind="stable")
    return _Watched(nodes[order], begin[order], times.finish[nodes[order]], -1)


def _link(timing: Timing) -> _Watched:
    """The link that was sending longest."""
    pieces, times = timing.lowered.pieces, timing.times
    nodes = pieces.push[pieces.link == int(link_times(timing).argmax())].astype(np.int64)
    return _Watched(nodes, times.start[nodes], times.finish[nodes], -1)


def _idle(timing: Timing, watched: _Watched) -> Ints:
    lowered, times, graph = timing.lowered, timing.times, timing.lowered.graph
    idle = np.zeros(len(IDLE_CAUSES), np.int64)
    ready, cause = times.start.copy(), times.cause.copy()
    _without_queues(
        (graph.offsets, graph.targets, graph.lags, graph.kinds),
        (times.start, times.finish, times.cause),
        timing.rates.dispatch,
        timing.rates.latency,
        ready,
        cause,
    )
    _explain(
        watched.nodes,
        watched.begin,
        watched.end,
        watched.home,
        int(times.finish.argmax()),
        (times.start, times.finish, ready, cause),
        (graph.offsets, graph.kinds),
        (lowered.engine, lowered.programs),
        idle,
    )
    return idle


@deferred(lambda graph, *_: len(graph[0]) + len(graph[1]))
def _without_queues(graph, times, dispatch, latency, ready, found):  # type: ignore[no-untyped-def]
    """When each node could have started with unbounded queues, and the edge it then waited for longest.

    `ready` and `found` initially hold the actual times and edges.
    """
    offsets, targets, lags, kinds = graph
    start, finish, cause = times
    for node in range(len(start)):
        if cause[node] >= 0 and kinds[cause[node]] == g.CREDIT:
            ready[node] = -1
            found[node] = -1
    for node in range(len(start)):
        for edge in range(offsets[node], offsets[node + 1]):
            target = targets[edge]
            if kinds[edge] == g.CREDIT or kinds[cause[target]] != g.CREDIT:
                continue
            lag = lags[edge]
            time = finish[node] + (lag * dispatch if lag >= 0 else latency[-lag - 1])
            if time > ready[target]:
                ready[target] = time
                found[target] = edge


@deferred(lambda nodes, begin, end, home, last, times, *_: len(times[0]))
def _explain(nodes, begin, end, home, last, times, graph, owners, idle):  # type: ignore[no-untyped-def]
    """Attribute every idle interval of the resource, in order; the first and the last are its filling and draining."""
    reached = 0
    program = owners[1]
    was_used = len(nodes) > 0
    for i in range(len(nodes)):
        if begin[i] > reached:
            _walk(reached, begin[i], nodes[i], np.int64(program[nodes[i]]), i == 0, times, graph, owners, idle)
        reached = max(reached, end[i])
    _walk(reached, times[1][last], last, home if home >= 0 else program[last], was_used, times, graph, owners, idle)


@part
def _walk(low, high, node, home, at_an_end, times, graph, owners, idle):  # type: ignore[no-untyped-def]
    """Attribute the time from `low` to `high`, from `node` back along what each node waited for longest.

    A full queue gets the time it delayed a message longer than anything else did; the walk continues along the latter.
    """
    start, finish, ready, cause = times
    offsets, kinds = graph
    engine, program = owners
    while high > low:
        since = max(low, start[node])
        idle[_of_node(node, home, at_an_end, engine, program)] += high - since
        high = since
        since = max(low, ready[node])
        idle[_QUEUE] += high - since
        high = since
        if high <= low:
            break
        edge = cause[node]
        node = owner(edge, offsets)
        since = max(low, finish[node])
        idle[_DISPATCH if kinds[edge] == g.DISPATCH else _COMMUNICATION] += high - since
        high = since


@part
def _of_node(node, home, at_an_end, engine, program):  # type: ignore[no-untyped-def]
    """The cause to which time spent in `node` is attributed."""
    if node >= len(engine):
        return _COMMUNICATION
    where = engine[node]
    works = where in (GEMM, MATH)
    if not works and where < FIRST_DMA:
        return _COMMUNICATION
    if program[node] != home:
        return _PES
    if at_an_end:
        return _FILL
    return _ENGINES if works else _HBM
