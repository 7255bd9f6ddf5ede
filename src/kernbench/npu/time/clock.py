"""Timing an npu recording: lower once, place blocks on cores, run the shared engine, place again by what came out.

Blocks are placed by how long they take. At first that is their time alone; where blocks compete for cores they are
placed a second time by the times of the first pass, in which they share the memory's bandwidth.
"""

from dataclasses import dataclass

import numpy as np

from kernbench.npu.isa.model import ChipModel
from kernbench.npu.recording.record import NpuRecording
from kernbench.npu.time.assign import Assignment, assign
from kernbench.npu.time.costs import Ints, cases, durations, submit_time
from kernbench.npu.time.edges import longest_paths
from kernbench.npu.time.lower import Lowered, core_edges, join, lower, transfer_edges
from kernbench.npu.time.reclaim import ring_waits
from kernbench.timing.engine import Times, run_events
from kernbench.timing.graph import NO_SERVER, Graph
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
    """Time the recording of a finished, safe run."""
    return _placed(lower(recording, ring_waits(recording, chip), chip.clusters.issue > 0), chip)


def _placed(lowered: Lowered, chip: ChipModel) -> Timing:
    given = rates(lowered, chip)
    timing = _timed(lowered, chip, given, _alone(lowered, given))
    if len(lowered.recording.block_task) > chip.clusters.count:
        timing = _timed(lowered, chip, given, _spent(timing))
    return timing


def rates(lowered: Lowered, chip: ChipModel) -> Rates:
    """Durations of all nodes, and what shares the memory's bandwidth."""
    nodes, recording = lowered.nodes, lowered.recording
    examples, case, _ = cases(recording)
    by_row = durations(recording, chip, examples)[case]
    duration = np.zeros(nodes.total, np.int64)
    duration[: nodes.rows] = by_row
    duration[lowered.transfers] = 0
    count = len(lowered.transfers)
    duration[nodes.begin : nodes.begin + count] = chip.memory.latency_ps
    duration[nodes.path : nodes.path + count] = by_row[lowered.transfers]
    duration[nodes.dispatch : nodes.end] = chip.tasks.dispatch_ps
    duration[nodes.issue :] = chip.cycles_ps(chip.clusters.issue)
    for number, command in enumerate(recording.commands):
        duration[nodes.command + number] = submit_time(recording, chip, command)
    server = np.full(nodes.total, NO_SERVER, np.int32)
    server[nodes.memory : nodes.memory + count] = 0
    nbytes = np.zeros(nodes.total, np.int64)
    nbytes[nodes.memory : nodes.memory + count] = lowered.moved
    bandwidth = np.array([chip.memory.bytes_per_ps])
    return Rates(duration, server, nbytes, bandwidth, 0, np.zeros(1, np.int64))


def _alone(lowered: Lowered, given: Rates) -> Ints:
    """Each block's time without others."""
    nodes = lowered.nodes
    duration = given.duration.copy()
    begin = slice(nodes.begin, nodes.begin + len(lowered.transfers))
    # edges inside blocks lead to where a transfer begins and leave from its row: the row carries its time
    duration[lowered.transfers] = given.duration[nodes.path : nodes.path + len(lowered.transfers)]
    duration[nodes.dispatch : nodes.end] = 0
    duration[begin] = 0
    source, target, _ = lowered.inner
    row = np.arange(nodes.total, dtype=np.int32)
    row[begin] = lowered.transfers
    longest = np.zeros(nodes.total, np.int64)
    longest_paths(source, row[target], duration, longest)
    times: Ints = longest[nodes.end : nodes.end + len(lowered.recording.block_task)]
    return times


def _spent(timing: Timing) -> Ints:
    nodes, times = timing.lowered.nodes, timing.times
    blocks = len(timing.lowered.recording.block_task)
    spent: Ints = times.finish[nodes.end : nodes.end + blocks] - times.finish[nodes.dispatch : nodes.dispatch + blocks]
    return spent


def _timed(lowered: Lowered, chip: ChipModel, given: Rates, block_ps: Ints) -> Timing:
    assignment = assign(lowered.recording, chip, block_ps, lowered.waits)
    parts = (lowered.inner, transfer_edges(lowered), lowered.outer, core_edges(lowered, assignment))
    graph = join(lowered, *parts)
    return Timing(lowered, chip, assignment, graph, given, run_events(graph, given))
