"""Timing an npu recording: lower once, assign blocks to cores, run the shared engine, assign again by the result.

The assignment depends on block durations. At first these are their times alone; if blocks compete for cores they
are assigned a second time by the times of the first pass, in which they share the memory's bandwidth.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np

from kernbench.npu.isa.model import ChipModel
from kernbench.npu.recording.record import NpuRecording
from kernbench.npu.time.assign import Assignment, assign
from kernbench.npu.time.costs import Ints, cases, durations, move, spread, submit_time
from kernbench.npu.time.edges import longest_paths
from kernbench.npu.time.lower import Lowered, core_edges, is_long, join, join_again, lower
from kernbench.npu.time.reclaim import ring_waits
from kernbench.safety.processes.threads import both, together
from kernbench.timing.engine import Times, run_events
from kernbench.timing.graph import NO_SERVER, Graph, pieces
from kernbench.timing.servers import Rates


@dataclass(frozen=True)
class Timing:
    """A recording timed on a chip."""

    lowered: Lowered
    chip: ChipModel
    assignment: Assignment
    graph: Graph
    rates: Rates
    times: Times
    # the time of each case of rows
    cost: Ints

    @property
    def total_ps(self) -> int:
        """From the first submit to the end of the last block."""
        return self.times.total

    def again(self, chip: ChipModel) -> "Timing":
        """The same recording on a chip that differs in rates only."""
        if bool(chip.clusters.issue) != bool(self.chip.clusters.issue):
            return time_recording(self.lowered.recording, chip)
        return _placed(self.lowered, chip)


def time_recording(recording: NpuRecording, chip: ChipModel) -> Timing:
    """Time the recording of a finished, safe run. A chip on which it would deadlock is an error."""
    waits = ring_waits(recording, chip)
    # cases are kept with the recording
    lowered, _ = both(
        lambda: lower(recording, waits, chip.clusters.issue > 0), lambda: cases(recording), is_long(recording)
    )
    return _placed(lowered, chip)


def _placed(lowered: Lowered, chip: ChipModel) -> Timing:
    recording = lowered.recording
    cost = durations(recording, chip, cases(recording)[0])
    given = rates(lowered, chip, cost)
    assignment = assign(recording, chip, _alone(lowered, cost), lowered.waits)
    graph = join(lowered, core_edges(lowered, assignment))
    times = run_events(graph, given, together)
    if len(recording.block_task) > chip.clusters.count:
        before, assignment = assignment, assign(recording, chip, _spent(lowered, times), lowered.waits)
        # the same assignment gives the same times
        if not assignment.is_like(before):
            graph = join_again(lowered, graph, core_edges(lowered, assignment))
            times = run_events(graph, given, together)
    return Timing(lowered, chip, assignment, graph, given, times, cost)


def rates(lowered: Lowered, chip: ChipModel, cost: Ints) -> Rates:
    """Durations of all nodes, by the time of each case of rows, and what shares the memory's bandwidth."""
    nodes, recording = lowered.nodes, lowered.recording
    # untouched pages of zeros take no memory
    duration, nbytes = np.zeros(nodes.total, np.int64), np.zeros(nodes.total, np.int64)
    server, case, count = np.empty(nodes.total, np.int32), cases(recording)[1], len(lowered.transfers)

    def fill(part: slice) -> None:
        server[part] = NO_SERVER
        spread(case[part], cost, duration[: nodes.rows][part])

    together(partial(fill, part) for part in pieces(nodes.total))
    move(lowered.transfers, nodes.path, duration)
    duration[nodes.begin : nodes.begin + count] = chip.memory.latency_ps
    duration[nodes.dispatch : nodes.end] = chip.tasks.dispatch_ps
    duration[nodes.issue :] = chip.cycles_ps(chip.clusters.issue)
    for number, command in enumerate(recording.commands):
        duration[nodes.command + number] = submit_time(recording, chip, command)
    server[nodes.memory : nodes.memory + count] = 0
    nbytes[nodes.memory : nodes.memory + count] = lowered.found.moved
    bandwidth = np.array([chip.memory.bytes_per_ps])
    return Rates(duration, server, nbytes, bandwidth, 0, np.zeros(1, np.int64), np.array([0, count]))


def _alone(lowered: Lowered, cost: Ints) -> Ints:
    """Each block's time without others, by the time of each case of rows."""
    nodes, case = lowered.nodes, cases(lowered.recording)[1]
    transfers = (lowered.transfers, nodes.begin)
    longest = np.zeros(nodes.total, np.int64)
    # edges inside blocks lead to where a transfer begins and leave from its row: the row carries its time
    together(
        partial(longest_paths, source, target, case, cost, transfers, longest) for source, target, _ in lowered.inner
    )
    times: Ints = longest[nodes.end : nodes.end + len(lowered.recording.block_task)]
    return times


def _spent(lowered: Lowered, times: Times) -> Ints:
    nodes, blocks = lowered.nodes, len(lowered.recording.block_task)
    spent: Ints = times.finish[nodes.end : nodes.end + blocks] - times.finish[nodes.dispatch : nodes.dispatch + blocks]
    return spent
