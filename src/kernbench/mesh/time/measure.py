"""The results of a timed run: the timeline, time by engine, achieved rates, floors and the causes of the gap."""

from contextlib import suppress
from dataclasses import replace
from functools import partial

import numpy as np

from kernbench.common.errors import MachineError
from kernbench.common.pe_commands import OPERATION_NAMES
from kernbench.machine import Machine
from kernbench.mesh.time.clock import Timing, time_recording
from kernbench.mesh.time.counters import counters
from kernbench.mesh.time.critical import CriticalPath, critical_path
from kernbench.mesh.time.gap import split_gap
from kernbench.mesh.time.lanes import lane_numbers, lanes
from kernbench.mesh.time.lower import BLOCKING, CODE, FIRST_DMA, GEMM, LONG, MATH
from kernbench.mesh.time.work import Work, achieved_rates, count_work, work_floors
from kernbench.result.reading import Data
from kernbench.result.run import Run
from kernbench.result.timeline import Timeline, Waits
from kernbench.result.untimed import no_time
from kernbench.safety.processes.threads import together
from kernbench.timing import graph as g
from kernbench.timing.graph import Ints

MOST_FOR_SENSITIVITY = 200_000
# the engines of a PE whose utilisation is shown in tables
SHOWN = ("gemm", "math", "dma")
# the keys of each rate that is varied for its sensitivity; latencies count as rates of their own
SENSITIVE = {
    "clock": ("pe.clock", 1.1),
    "dispatch": ("pe.dispatch_cycles", None),
    "HBM bandwidth": ("hbm.bandwidth", 1.1),
    "HBM latency": ("hbm.latency", 1 / 1.1),
    "link bandwidth": ("link.bandwidth", 1.1),
    "link latency": ("link.latency", 1 / 1.1),
    "cube link bandwidth": ("cube_link.bandwidth", 1.1),
    "cube link latency": ("cube_link.latency", 1 / 1.1),
}


def sensitivity(timing: Timing) -> dict[str, float]:
    """The fraction of the time that a 10 % increase of each rate would save; for dispatch: if it were free."""
    better: dict[str, Machine] = {}
    for name, (key, factor) in SENSITIVE.items():
        table, field = key.split(".")
        value = getattr(getattr(timing.machine, table), field)
        # the increased value may exceed what a key allows
        with suppress(MachineError):
            better[name] = timing.machine.override({key: 0 if factor is None else round(value * factor, 6)})
    times: dict[str, int] = {}

    def time_again(name: str) -> None:
        times[name] = timing.again(better[name]).total_ps

    # each thread has times of its own
    is_long = timing.lowered.commands >= LONG
    together((partial(time_again, name) for name in better), None if is_long else 1)
    return {name: 1 - times[name] / timing.total_ps if timing.total_ps else 0.0 for name in better}


def retime(run: Run, machine: Machine, drawn: bool = True) -> Run:
    """A new Run with the same outputs, timed on `machine`. An unsafe run, or one known to be wrong, is not timed; nor
    is one whose messages do not pair up, even if that is acknowledged. Without `drawn` only time, floors and gap are
    computed, as for a point of a sweep: drawing millions of commands costs as much as timing them.
    """
    why = no_time(run, "nothing was recorded")
    if why:
        return replace(run, metrics={**run.metrics, "no_time": why})
    timing = time_recording(run.recording, machine)
    if not drawn:
        return replace(run, metrics={**run.metrics, **summary(timing)})
    path = critical_path(timing)
    views = {**run.views, "messages": messages(timing)}
    metrics = {**run.metrics, **measure(timing, path)}
    return replace(run, timeline=timeline(timing, path), metrics=metrics, views=views)


def messages(timing: Timing) -> dict[str, Ints]:
    """For each message its link, when its first byte left and its last, and when its receiver had it."""
    pieces, times = timing.lowered.pieces, timing.times
    order = np.argsort(pieces.send, kind="stable")
    first = np.flatnonzero(np.diff(pieces.send[order], prepend=-1))
    last = np.append(first[1:], len(order))[: len(first)] - 1
    return {
        "link": pieces.link[order][first].astype(np.int64),
        "start": times.start[pieces.push[order][first]],
        "sent": times.finish[pieces.push[order][last]],
        "received": times.finish[pieces.recv[order][last]],
    }


def timeline(timing: Timing, path: CriticalPath | None = None) -> Timeline:
    """Every command and piece that took time, as spans."""
    lowered, times = timing.lowered, timing.times
    commands, programs, pieces = lowered.commands, len(lowered.recording.streams), len(lowered.pieces.push)
    starts = np.full(programs, -1, np.int64)
    owner = np.concatenate([np.arange(commands), starts, lowered.pieces.send, lowered.pieces.recv])
    start = times.start.copy()
    waits = lowered.engine < FIRST_DMA
    waits &= (lowered.engine != GEMM) & (lowered.engine != MATH)
    # messages and waits fill their lane from their dispatch until they are done
    start[:commands][waits] = issued(timing)[waits]
    shown = np.flatnonzero((times.finish > start) & (owner >= 0))
    position = np.full(lowered.graph.nodes, -1, np.int64)
    position[shown] = np.arange(len(shown))
    push = commands + programs + np.arange(pieces)
    flows = np.stack([position[push], position[lowered.pieces.recv]], axis=1) if pieces else np.empty((0, 2), np.int64)
    return Timeline(
        "ps",
        lanes(lowered),
        list(OPERATION_NAMES),
        lowered.recording.tables.sites,
        lane_numbers(lowered)[shown],
        lowered.columns.op[owner[shown]],
        lowered.columns.site[owner[shown]],
        start[shown],
        times.finish[shown],
        flows[(flows >= 0).all(axis=1)],
        (path or critical_path(timing)).steps,
        counters(timing),
        _waits(timing, shown, position),
    )


def _waits(timing: Timing, shown: Ints, position: Ints) -> Waits:
    """For each span shown, the edge that its node waited for longest."""
    graph = timing.lowered.graph
    edge = timing.times.cause[shown]
    source = np.searchsorted(graph.offsets, edge, side="right") - 1
    kind = np.where(edge >= 0, graph.kinds[edge] if graph.edges else 0, g.DISPATCH)
    return Waits(g.KIND_NAMES, kind.astype(np.int64), np.where(edge >= 0, position[source], -1))


def issued(timing: Timing) -> Ints:
    """When the CPU had dispatched each command, counted from the last command that held it."""
    lowered, columns = timing.lowered, timing.lowered.columns
    index = np.arange(lowered.commands)
    first = columns.first[columns.program]
    holds = np.isin(columns.op, [CODE[name] for name in BLOCKING])
    held = np.where(holds, index, -1)
    before = np.maximum.accumulate(np.concatenate([[-1], held[:-1]])) if len(held) else held
    free = np.where(before >= first, timing.times.finish[: len(index)][before], 0)
    return free + (index - np.maximum(before, first - 1)) * timing.rates.dispatch


def measure(timing: Timing, path: CriticalPath | None = None) -> dict[str, object]:
    """All results of a timed run: its summary, achieved rates, critical path and sensitivity."""
    work, busy = count_work(timing.lowered, timing.machine), _busy(timing)
    small = timing.lowered.commands <= MOST_FOR_SENSITIVITY
    return {
        **_summary(timing, work, busy),
        "rates": achieved_rates(timing, work, busy["math"]),
        "critical_path_ps": (path or critical_path(timing)).shares,
        "sensitivity": sensitivity(timing) if small else {},
    }


def summary(timing: Timing) -> Data:
    """The record of a point of a sweep: time, utilisation by engine, work floors and the gap to the binding one."""
    return _summary(timing, count_work(timing.lowered, timing.machine), _busy(timing))


def _summary(timing: Timing, work: Work, busy: dict[str, int]) -> dict[str, object]:
    total = timing.total_ps
    programs = max(1, len(timing.lowered.recording.streams))
    floors = work_floors(timing, work)
    binding = max(floors, key=lambda k: floors[k])
    return {
        "time_ps": total,
        "busy_ps": busy,
        "utilisation": {k: v / (programs * total) if total else 0.0 for k, v in busy.items()},
        "engines": SHOWN,
        "floors_ps": floors,
        "bound": binding,
        "floor_ratio": total / floors[binding] if floors[binding] else None,
        "gap_ps": split_gap(timing, work, floors, binding),
    }


def _busy(timing: Timing) -> dict[str, int]:
    """Busy time of each kind of engine, over all PEs; for DMA a channel counts while it holds a transfer."""
    lowered, times = timing.lowered, timing.times
    spent = (times.finish - times.start)[: lowered.commands]
    engine = lowered.engine
    return {
        "gemm": int(spent[engine == GEMM].sum()),
        "math": int(spent[engine == MATH].sum()),
        "dma": int(spent[engine >= FIRST_DMA].sum()) // lowered.channels,
        "link": int(timing.rates.duration[lowered.pieces.push].sum()),
    }
