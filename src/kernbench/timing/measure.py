"""What a person gets of a timed run: the timeline, time by engine, achieved rates, floors and where the gap went."""

from dataclasses import replace
from fractions import Fraction
from math import prod
from typing import Any

import numpy as np

from kernbench.common.pe_commands import OPERATION_NAMES, OPERATIONS
from kernbench.machine import Machine
from kernbench.result.run import Run
from kernbench.result.timeline import Timeline
from kernbench.timing.clock import Timing, time_recording
from kernbench.timing.counters import counters
from kernbench.timing.critical import critical_path
from kernbench.timing.graph import Ints
from kernbench.timing.lanes import lane_numbers, lanes
from kernbench.timing.lower import BLOCKING, CODE, FIRST_DMA, GEMM, MATH, Lowered

MOST_FOR_SENSITIVITY = 200_000
# one more of each rate, to see what it would gain; latencies count as rates of their own
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
    """By how much of the time each rate, made 10 % better, would shorten the run; dispatch: if it were free."""
    gains = {}
    for name, (key, factor) in SENSITIVE.items():
        table, field = key.split(".")
        value = getattr(getattr(timing.machine, table), field)
        better = timing.machine.override({key: 0 if factor is None else round(value * factor, 6)})
        gains[name] = 1 - timing.again(better).total_ps / timing.total_ps if timing.total_ps else 0.0
    return gains


def retime(run: Run, machine: Machine) -> Run:
    """A new Run: the same function, timed on `machine`. An unsafe run, or one known to be wrong, gets no time."""
    if run.recording is None or not run.ok or run.safe is False:
        return run
    timing = time_recording(run.recording, machine)
    return replace(run, timeline=timeline(timing), metrics={**run.metrics, **measure(timing)})


def timeline(timing: Timing) -> Timeline:
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
        critical_path(timing).steps,
        counters(timing),
    )


def issued(timing: Timing) -> Ints:
    """When the CPU had dispatched each command: so many dispatches after the last command that held it."""
    lowered, columns = timing.lowered, timing.lowered.columns
    index = np.arange(lowered.commands)
    first = columns.first[columns.program]
    holds = np.isin(columns.op, [CODE[name] for name in BLOCKING])
    held = np.where(holds, index, -1)
    before = np.maximum.accumulate(np.concatenate([[-1], held[:-1]])) if len(held) else held
    free = np.where(before >= first, timing.times.finish[: len(index)][before], 0)
    return free + (index - np.maximum(before, first - 1)) * timing.rates.dispatch


def measure(timing: Timing, with_sensitivity: bool = True) -> dict[str, Any]:
    """Time, utilisation by engine, achieved against peak, work floors and the critical path's shares."""
    total = timing.total_ps
    programs = max(1, len(timing.lowered.recording.streams))
    busy = _busy(timing)
    floors = work_floors(timing)
    binding = max(floors, key=lambda k: floors[k]) if floors else ""
    shares = critical_path(timing).shares
    small = timing.lowered.commands <= MOST_FOR_SENSITIVITY
    return {
        "time_ps": total,
        "busy_ps": busy,
        "utilisation": {k: v / (programs * total) if total else 0.0 for k, v in busy.items()},
        "floors_ps": floors,
        "bound": binding,
        "floor_ratio": total / floors[binding] if floors and floors[binding] else None,
        "critical_path_ps": shares,
        "sensitivity": sensitivity(timing) if with_sensitivity and small else {},
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


def work_floors(timing: Timing) -> dict[str, int]:
    """No schedule of these commands is faster: each engine's work spread evenly over the PEs, and each cube's bytes.

    The GEMM floor counts MACs at the array's peak, without filling and draining; exp counts only the exponentials.
    """
    lowered, machine = timing.lowered, timing.machine
    programs = max(1, len(lowered.recording.streams))
    macs, exponentials = _work(lowered, machine)
    moves = np.isin(lowered.columns.op, (CODE["load"], CODE["store"]))
    cube = np.array([s.cube for s in lowered.recording.streams] or [0])
    by_cube = np.bincount(cube[lowered.columns.program[moves]], lowered.columns.y[moves], 1)
    by_link = np.bincount(lowered.pieces.link, timing.rates.duration[lowered.pieces.push], 1)
    return {
        "compute": int(macs / programs),
        "exp": int(exponentials / programs),
        "hbm": machine.hbm.transfer_ps(int(by_cube.max())),
        "link": int(by_link.max()),
    }


def _work(lowered: Lowered, machine: Machine) -> tuple[Fraction, Fraction]:
    """Picoseconds of MACs at the array's peak, and of exponentials, over all PEs."""
    types, columns = lowered.recording.tables.types, lowered.columns
    peak = machine.gemm.rows * machine.gemm.columns
    macs = exponentials = Fraction(0)
    for row in OPERATIONS.values():
        here = columns.op == row.code
        if row.engine == "gemm":
            pairs, counts = np.unique(columns.operand_type[here, :2], axis=0, return_counts=True)
            for (a, b), count in zip(pairs, counts, strict=True):
                rate = min(machine.gemm.macs_per_cell_cycle.of(types[t][1]) for t in (a, b))
                work = prod(types[a][0]) * types[b][0][-1]
                macs += int(count) * machine.pe.cycle_ps * work / (peak * Fraction(rate))
        elif row.cost in ("exp", "softmax"):
            kinds, counts = np.unique(columns.type[here], return_counts=True)
            elements = sum(int(n) * prod(types[k][0]) for k, n in zip(kinds, counts, strict=True))
            exponentials += elements * machine.pe.cycle_ps / Fraction(machine.math.results_per_cycle("exp"))
    return macs, exponentials
