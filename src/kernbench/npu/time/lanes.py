"""Where rows lie in the swimlane, and what nodes of the graph are to a person."""

from functools import partial

import numpy as np

from kernbench.common.deferred import deferred
from kernbench.npu.isa.operations import NAMES
from kernbench.npu.isa.units import AIC, LANES, PIPE_NUMBER, PIPES, S
from kernbench.npu.time.clock import Timing
from kernbench.npu.time.costs import Ints, Small
from kernbench.npu.time.lower import stretches
from kernbench.result.finding import Place
from kernbench.result.timeline import Lane
from kernbench.safety.processes.threads import together

_PER_CORE = len(PIPES) + 1


def _first_core(timing: Timing) -> int:
    """Lanes before those of the cores: the orchestrator and the schedulers."""
    return 1 + timing.chip.tasks.schedulers


def all_lanes(timing: Timing) -> list[Lane]:
    """Orchestrator, schedulers, then for each core of each cluster the core itself and its pipes."""
    lanes = [Lane("runtime", "orchestrator")]
    lanes += [Lane("runtime", f"scheduler {i}") for i in range(timing.chip.tasks.schedulers)]
    for cluster in range(timing.chip.clusters.count):
        for core in LANES:
            lanes.append(Lane(f"cluster {cluster}", core))
            lanes += [Lane(f"cluster {cluster}", f"{core} {pipe}") for pipe in PIPES]
    return lanes


def core_lanes(timing: Timing) -> Ints:
    """For each block and lane of its task the number of the core's lane."""
    assignment, recording = timing.assignment, timing.lowered.recording
    is_single = np.array([len(t.lanes) == 1 and t.lanes[0] != AIC for t in recording.tasks], np.bool_)
    single = is_single[recording.owners()][:, None]
    core = np.where(single, assignment.first_lane[:, None], np.arange(len(LANES))[None, :])
    numbers: Ints = _first_core(timing) + (assignment.cluster[:, None] * len(LANES) + core) * _PER_CORE
    return numbers


def lane_numbers(timing: Timing) -> Small:
    """The lane of each row."""
    recording = timing.lowered.recording
    numbers = np.empty(recording.count, np.int32)
    given = recording.firsts(), *recording.columns("lane", "pipe"), core_lanes(timing), numbers
    together(partial(_number_lanes, begin, end, *given) for begin, end in stretches(recording))
    return numbers


@deferred(lambda begin, end, firsts, *_: firsts[end] - firsts[begin])
def _number_lanes(begin, end, firsts, lane, pipe, cores, numbers):  # type: ignore[no-untyped-def]
    """The lane of each row of blocks from `begin` up to `end`: behind that of its core."""
    for block in range(begin, end):
        for i in range(firsts[block], firsts[block + 1]):
            numbers[i] = cores[block, lane[i]] + 1 + pipe[i]


def describe(timing: Timing, found: Ints) -> list[tuple[Lane, str, Place | None]]:
    """Lane, name and kernel line of each of some nodes that take time."""
    nodes, recording, lanes = timing.lowered.nodes, timing.lowered.recording, all_lanes(timing)
    transfers, rows = timing.lowered.transfers, found.copy()
    moving = (nodes.begin <= found) & (found < nodes.dispatch)
    rows[moving] = transfers[(found[moving] - nodes.begin) % max(1, len(transfers))]
    rows[(found >= nodes.dispatch) & (found < nodes.issue)] = 0
    is_issue = found >= nodes.issue
    rows[is_issue] -= nodes.issue
    op, site, core, pipe = (column[rows] for column in recording.columns("op", "site", "lane", "pipe"))
    block = recording.firsts().searchsorted(rows, side="right") - 1
    # a core hands out its rows by its scalar pipe
    lane = core_lanes(timing)[block, core] + 1 + np.where(is_issue, PIPE_NUMBER[S], pipe)
    names, sites = np.where(is_issue, -1, op).tolist(), recording.tables.sites
    described = [
        (lanes[number], NAMES[name] if name >= 0 else "issue", sites[line])
        for number, name, line in zip(lane.tolist(), names, site.tolist(), strict=True)
    ]
    # commands and dispatches were taken for the first row
    for index in np.flatnonzero((found >= nodes.command) & ~is_issue).tolist():
        command = recording.commands[found[index] - nodes.command]
        described[index] = (lanes[0], command.verb, sites[command.site])
    indices = np.flatnonzero((found >= nodes.dispatch) & (found < nodes.end))
    blocks = found[indices] - nodes.dispatch
    titles = [(f"dispatch {task.name}", sites[task.site]) for task in recording.tasks]
    threads, tasks = timing.assignment.thread[blocks].tolist(), recording.owners()[blocks].tolist()
    for index, thread, task in zip(indices.tolist(), threads, tasks, strict=True):
        described[index] = (lanes[1 + thread], *titles[task])
    return described
