"""How fast recording and timing are, against their aims: beside SimPy, on the 64-rank prefill of llama-70B at 32k.

Everything runs in one process, medians of several runs; rates are by this process's own CPU time, which others on the
machine disturb least. Their aims are ratios to the events that SimPy, a simulator in Python too, processes in the same
process, so that they hold on a slow machine and mean as much on a fast one. Memory is measured in processes of its own.
With --full also the memory at ten million commands and a sweep over a thousand machines. Exit status 1 if an aim is
missed.
"""

import argparse
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from itertools import cycle
from typing import Any

from kernbench.bench import find, run_bench
from kernbench.machine import Machine, load
from kernbench.mesh.time import time_recording
from kernbench.mesh.time.clock import OFTEN
from kernbench.result.run import Run
from kernbench.sweep import Collected, Processes, make_plan, run_sweep
from kernbench.timing.engine import run_events
from simpy_ring import Ring, as_graph, as_processes, count_events, run_engine, run_simpy

BENCH, PANEL = "milestone_gqa_llama70b", "single_user_prefill"
MACHINE = "large"
BLOCKED = {"machine": MACHINE, "n_ranks": 64, "block_q": 1024, "block_kv": 512}
CONTEXT = 32_768
# aims for commands a second, of one core that does nothing else
RECORDED, RETIMED = 500_000, 20_000_000
# two users at these contexts make about three and eleven million commands
MEMORY_CONTEXTS, MEMORY_USERS = (32_768, 65_536), 2
FAST = {
    "machine.hbm.bandwidth": [str(200 + 40 * i) for i in range(10)],
    "machine.link.bandwidth": [str(40 + 8 * i) for i in range(10)],
    "machine.link.latency": [str(10 + 5 * i) for i in range(10)],
}


@dataclass(frozen=True)
class Figure:
    """A measured value and the aim it is held to."""

    name: str
    value: float
    aim: float
    unit: str
    at_least: bool = True

    @property
    def met(self) -> bool:
        """Whether the aim is met."""
        return self.value >= self.aim if self.at_least else self.value <= self.aim

    def __str__(self) -> str:
        bound = "at least" if self.at_least else "at most"
        digits = 0 if self.value >= 100 else 2
        line = f"{self.name}: {self.value:,.{digits}f} {self.unit} ({bound} {self.aim:,g})"
        return line if self.met else f"{line}  MISSED"


def median_seconds(work: Callable[[], Any], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        times.append(time.process_time() - began)
    return statistics.median(times)


def panel(context: int, users: int = 1, timed: bool = False) -> Run:
    settings = {**BLOCKED, "context": context, "users": users}
    run = run_bench(find(BENCH), PANEL, settings, timed=timed, shapes_only=True)
    assert run.safe, run.findings
    return run


@cache
def simpy_rate() -> float:
    """Events of the ring that SimPy processes in a second here: what rates of Python code are compared with."""
    model = Ring()
    return count_events(model) / median_seconds(lambda: as_processes(model)[0].run(), 5)


def ring() -> list[Figure]:
    """An event of ours is a node that ends; SimPy's are all that it processes for the same ring."""
    model = Ring()
    assert run_engine(model) == run_simpy(model), "the two do not agree"
    graph = as_graph(model)
    ours = model.nodes / median_seconds(lambda: run_events(*graph), 9)
    theirs = simpy_rate()
    print(f"  {ours:,.0f} events per second, SimPy {theirs:,.0f}; a ring of {model.ranks} ranks, {model.turns} turns")
    return [Figure("ring with shared memory", ours / theirs, 20, "times SimPy's event rate")]


def recording() -> list[Figure]:
    """At half the context too, where a launch has fewer commands to pay for its beginning and end."""
    figures = []
    for context in (CONTEXT // 2, CONTEXT):
        commands = panel(context).metrics["commands"]
        seconds = median_seconds(lambda: panel(context), 3)  # noqa: B023
        print(f"  {commands / seconds:,.0f} commands per second at {context:,}")
        rate = commands / seconds / simpy_rate()
        figures.append(Figure(f"recording without data at {context:,}", rate, 0.5, "times SimPy's event rate"))
    figures.append(Figure(f"that at {CONTEXT:,} by the second", commands / seconds, RECORDED, "commands"))
    return figures


def prefill() -> list[Figure]:
    """The whole panel: record, time, timeline and metrics; then timed again."""
    began = time.perf_counter()
    run = panel(CONTEXT, timed=True)
    whole = time.perf_counter() - began
    assert run.recording is not None
    stream, machine = run.recording, load(MACHINE)
    timing = time_recording(stream, machine)
    lowered_too = median_seconds(lambda: time_recording(stream, machine), 3)
    # as a sweep does, which times a recording often
    for _ in range(OFTEN + 1):
        timing.again(machine)
    bandwidths = cycle(_faster(machine, "hbm.bandwidth"))
    others = cycle(_faster(machine, "hbm.bandwidth", "pe.clock", "link.bandwidth"))
    only_memory = median_seconds(lambda: timing.again(next(bandwidths)), 9)
    again = median_seconds(lambda: timing.again(next(others)), 9)
    print(f"  {stream.commands / only_memory:,.0f} commands per second with another bandwidth of memory only")
    return [
        Figure(f"64-rank prefill at 32k, {stream.commands:,} commands, end to end", whole, 60, "s", at_least=False),
        Figure("timing its recording again", lowered_too, 5, "s", at_least=False),
        Figure("with other rates only", stream.commands / again / simpy_rate(), 15, "times SimPy's event rate"),
        Figure("that by the second", stream.commands / again, RETIMED, "commands"),
    ]


def _faster(machine: Machine, *keys: str) -> list[Machine]:
    """Two machines that differ from this one, and from each other, in some rates."""
    rates = {key: getattr(getattr(machine, key.split(".")[0]), key.split(".")[1]) for key in keys}
    return [machine.override({key: rate * factor for key, rate in rates.items()}) for factor in (1.25, 1.5)]


def memory() -> list[Figure]:
    """Peak memory of recording and timing, in processes of their own."""
    (few, small), (many, large) = (_child(context) for context in MEMORY_CONTEXTS)
    growth = (large - small) / (many - few)
    print(f"  {small:,.0f} MB at {few:,} commands, {large:,.0f} MB at {many:,}: {growth * 1e6:,.0f} bytes a command")
    started = small - growth * few
    return [
        Figure(f"peak memory at {many:,} commands", large, 2_000, "MB", at_least=False),
        Figure("of which not in proportion to them", started, 400, "MB", at_least=False),
    ]


def _child(context: int) -> tuple[int, float]:
    command = [sys.executable, __file__, "--record-and-time", str(context)]
    commands, megabytes = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    return int(commands), float(megabytes)


def record_and_time(context: int) -> None:
    run = panel(context, MEMORY_USERS)
    assert run.recording is not None
    time_recording(run.recording, load(MACHINE))
    kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(run.recording.commands, kilobytes * 1024 / 1e6)


def sweep() -> list[Figure]:
    plan = make_plan(find(BENCH), PANEL, {}, FAST)
    ledger = Collected(plan)
    began = time.perf_counter()
    run_sweep(plan, Processes(2), ledger)
    seconds = time.perf_counter() - began
    assert len(ledger.rows) == plan.points == 1000
    return [Figure("a sweep over 1,000 machines in two processes", seconds, 300, "s", at_least=False)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="memory at ten million commands and the sweep, too")
    parser.add_argument("--record-and-time", type=int, metavar="CONTEXT", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.record_and_time:
        record_and_time(chosen.record_and_time)
        return 0
    missed = 0
    for part in (ring, recording, prefill, *((memory, sweep) if chosen.full else ())):
        for figure in part():
            print(figure, flush=True)
            missed += not figure.met
    print(f"{missed} aims MISSED; timings are noisy: try again on an idle machine" if missed else "all aims met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
