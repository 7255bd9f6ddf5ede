"""Timing a recording on a machine: lower once, time as often as rates change."""

from dataclasses import dataclass

import numpy as np

from kernbench.machine import Machine
from kernbench.result.recording import Recording
from kernbench.timing.costs import rates
from kernbench.timing.engine import Rates, Times, run_events, run_longest_path
from kernbench.timing.lower import FIRST_DMA, Lowered, lower


@dataclass(frozen=True)
class Timing:
    """A recording timed on a machine."""

    lowered: Lowered
    machine: Machine
    rates: Rates
    times: Times

    @property
    def total_ps(self) -> int:
        """From the first dispatch to the end of the last command."""
        return self.times.total

    def again(self, machine: Machine) -> "Timing":
        """The same commands with other rates. A machine of another shape needs another functional pass."""
        lowered = self.lowered
        if machine.dma.channels != lowered.channels:
            return time_recording(lowered.recording, machine)
        return _timed(lowered, machine)


def time_recording(recording: Recording, machine: Machine) -> Timing:
    """Time the recording of a finished, safe run."""
    lowered = lower(recording, machine.dma.channels, machine.ipcq.depth, machine.ipcq.slot)
    return _timed(lowered, machine)


def _timed(lowered: Lowered, machine: Machine) -> Timing:
    given = rates(lowered, machine)
    run = run_events if shares_servers(lowered) else run_longest_path
    return Timing(lowered, machine, given, run(lowered.graph, given))


def shares_servers(lowered: Lowered) -> bool:
    """Whether two transfers of one cube can be under way at once: several programs, or several channels."""
    moving = {s.cube: 0 for s in lowered.recording.streams}
    columns = lowered.columns
    for index, stream in enumerate(lowered.recording.streams):
        part = slice(columns.first[index], columns.first[index + 1])
        channels = np.unique(lowered.engine[part][lowered.engine[part] >= FIRST_DMA])
        moving[stream.cube] += len(channels)
    return any(n > 1 for n in moving.values())
