"""Timing a recording on a machine: lower once, time as often as rates change."""

from dataclasses import dataclass

import numpy as np

from kernbench.common.errors import MachineError
from kernbench.machine import Machine
from kernbench.mesh.time.blocked import blocked_error
from kernbench.mesh.time.costs import fixed_times, rates
from kernbench.mesh.time.lower import FIRST_DMA, GEMM, MATH, Lowered, lower
from kernbench.result.recording import Recording
from kernbench.timing.chains import Chains, make_chains
from kernbench.timing.engine import CycleError, Times, never_done, run_events, run_longest_path
from kernbench.timing.needed import Lanes
from kernbench.timing.playing import in_order_of_time, run_chains, steps_of
from kernbench.timing.servers import Rates

LONGEST_PS = 2.0**62
# it pays to reduce a graph of at least this many nodes that is timed this often, which costs about five timings; a
# run that is drawn is timed nine times, for its sensitivities
MANY_NODES, OFTEN = 200_000, 9


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
        """The same commands with other rates, channels or queues; other shapes need another functional pass."""
        lowered = self.lowered
        channels, depth, slot = machine.dma.channels, machine.ipcq.depth, machine.ipcq.slot
        if (channels, depth, slot) != (lowered.channels, lowered.depth, lowered.slot):
            return time_recording(lowered.recording, machine)
        return _timed(lowered, machine)


def time_recording(recording: Recording, machine: Machine) -> Timing:
    """Time the recording of a finished, safe run. Queues in which it would deadlock are an error."""
    lowered = lower(recording, machine.dma.channels, machine.ipcq.depth, machine.ipcq.slot)
    return _timed(lowered, machine)


def _timed(lowered: Lowered, machine: Machine) -> Timing:
    given = rates(lowered, machine)
    _check_range(lowered, machine, given)
    return Timing(lowered, machine, given, _run(lowered, machine, given))


def _run(lowered: Lowered, machine: Machine, given: Rates) -> Times:
    """Times and causes; a deadlock is an error."""
    try:
        return _played(lowered, machine, given)
    except CycleError:
        # the details of a deadlock are computed only after it is detected
        raise blocked_error(lowered, machine, never_done(lowered.graph, given)) from None


def _played(lowered: Lowered, machine: Machine, given: Rates) -> Times:
    """Times and causes, the same from either pass."""
    if not lowered.once("shares servers", None, lambda: shares_servers(lowered)):
        return run_longest_path(lowered.graph, given)
    if lowered.graph.nodes < MANY_NODES or lowered.count_timing() <= OFTEN:
        return run_events(lowered.graph, given)
    chains = lowered.once("chains", None, lambda: _chains(lowered, given))
    return run_chains(chains, given, lowered.once("steps", fixed_times(machine), lambda: steps_of(chains, given)))


def _chains(lowered: Lowered, given: Rates) -> Chains:
    """The in-order engines of a program are lanes; products and arithmetic take time."""
    engine = np.full(lowered.graph.nodes, -1, np.int32)
    engine[: lowered.commands] = lowered.engine
    computes = (engine == GEMM) | (engine == MATH)
    lane = np.where(computes, engine - GEMM, np.where(engine >= FIRST_DMA, engine - FIRST_DMA + 2, -1))
    takes_time = computes & (given.duration > 0)
    lanes = Lanes(lowered.programs, lane.astype(np.int32), takes_time.astype(np.int8))
    return in_order_of_time(make_chains(lowered.graph, given.server, lanes), given)


def _check_range(lowered: Lowered, machine: Machine, given: Rates) -> None:
    """Times are whole picoseconds in 64 bits: refuse a run whose serialised work could exceed them."""
    moved = lowered.once("moved", None, lambda: _moved(given))
    bandwidth = float(given.bytes_per_ps.min(initial=1.0))
    steps = float(lowered.graph.nodes) * (float(given.dispatch) + float(given.latency.max(initial=0)))
    # nearly all runs are far from it: sum only those that are near
    most = float(given.duration.max(initial=0)) * lowered.graph.nodes
    if most + moved / bandwidth + steps <= LONGEST_PS:
        return
    longest = float(given.duration.sum(dtype=np.float64)) + moved / bandwidth + steps
    if longest > LONGEST_PS:
        raise MachineError(
            f"machine '{machine.name}' is so slow that this run could take {longest / 1e12:.3g} s; times are kept up "
            f"to {LONGEST_PS / 1e12:.3g} s: give it a faster clock, array, memory or links"
        )


def _moved(given: Rates) -> float:
    """The bytes that go through servers."""
    return float(given.nbytes[given.server[: len(given.nbytes)] >= 0].sum(dtype=np.float64))


def shares_servers(lowered: Lowered) -> bool:
    """Whether two transfers of one cube can overlap: several programs, or several channels."""
    moving = {s.cube: 0 for s in lowered.recording.streams}
    columns = lowered.columns
    for index, stream in enumerate(lowered.recording.streams):
        part = slice(columns.first[index], columns.first[index + 1])
        channels = np.unique(lowered.engine[part][lowered.engine[part] >= FIRST_DMA])
        moving[stream.cube] += len(channels)
    return any(n > 1 for n in moving.values())
