"""Every way to leave one thing out of a launch: a flag, a barrier, both ends of a flag, a dependence, a direction.

Rows of a recording are left out of the recording itself, which the checker then judges; flags and barriers change no
values. Dependences and directions are changed while the orchestration runs again. Each gives one of

- found: the checker speaks
- same order: it does not, and by its own digest everything is ordered as before
- silent: it does not, although the order has changed
"""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from kernbench import npu
from kernbench.npu.isa.operations import BARRIER, CLASSES, SET, WAIT
from kernbench.npu.order import happens_before
from kernbench.npu.order.checks import inspect, memory_meets
from kernbench.npu.order.relation import buffer_count, order_digest
from kernbench.npu.recording.record import NpuRecording
from kernbench.npu.runtime.runtime import Runtime
from kernbench.npu.tasks.task import BOTH, READS, WRITES, Arg

FOUND, SAME, SILENT = "found", "same order", "silent"


def without(recording: NpuRecording, dropped: tuple[int, ...]) -> NpuRecording:
    """The recording without some of its rows."""
    rows = [row for i, row in enumerate(recording.rows) if i not in dropped]
    firsts = [first - sum(d < first for d in dropped) for first in recording.block_first]
    return NpuRecording(
        recording.tables, rows, firsts, recording.block_task, recording.block_index, recording.tasks, recording.commands
    )


def violations(recording: NpuRecording, chip) -> int:
    """How many things the checker over pipes would tell."""
    found, _ = inspect(recording, chip, buffer_count(recording))
    rows = recording.array()
    return sum(
        kind != happens_before.GM_RACE or memory_meets(recording, rows[row], rows[other])
        for kind, row, other, _ in found
    )


def flag_pairs(recording: NpuRecording) -> Iterator[tuple[int, int]]:
    """Each set of a flag with its wait."""
    rows = recording.array()
    kinds, block = CLASSES[rows["op"]], np.searchsorted(recording.firsts(), np.arange(len(rows)), side="right")
    up: dict[tuple[int, ...], int] = {}
    for i in np.flatnonzero((kinds == SET) | (kinds == WAIT)).tolist():
        key = (int(block[i]), *(int(rows[name][i]) for name in ("lane", "a", "b", "c")))
        if kinds[i] == SET:
            up[key] = i
        else:
            yield up.pop(key), i


def row_mutants(recording: NpuRecording) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Rows to leave out: each flag end and barrier alone, and both ends of each flag."""
    kinds = CLASSES[recording.array()["op"]]
    for name, kind in (("set", SET), ("wait", WAIT), ("barrier", BARRIER)):
        yield from ((name, (i,)) for i in np.flatnonzero(kinds == kind).tolist())
    yield from (("flag, both ends", pair) for pair in flag_pairs(recording))


def judge_rows(run, chip) -> tuple[Counter, list[str]]:
    """Verdicts on all mutants of a run's rows by kind, and what was silent."""
    recording, counts, silent = run.recording, Counter(), []
    wanted = order_digest(recording, chip.machine)
    for name, dropped in row_mutants(recording):
        mutant = without(recording, dropped)
        told = violations(mutant, chip.machine)
        verdict = FOUND if told else SAME if order_digest(mutant, chip.machine) == wanted else SILENT
        counts[name, verdict] += 1
        if verdict == SILENT:
            locations = [str(recording.tables.sites[recording.array()["site"][i]]) for i in dropped]
            silent.append(f"{name} at {' and '.join(locations)}")
    return counts, silent


@contextmanager
def changed(name: str, change: Callable) -> Iterator[None]:
    """A method of the runtime replaced by `change(original, ...)`."""
    original = getattr(Runtime, name)
    setattr(Runtime, name, lambda *args, **more: change(original, *args, **more))
    try:
        yield
    finally:
        setattr(Runtime, name, original)


def dependence_mutants(run) -> Iterator[tuple[str, tuple[int, int]]]:
    """Each dependence of each task: the task's number, and that of the one it waits for."""
    for task in run.recording.tasks:
        for earlier in task.dependences:
            yield f"dependence of task {task.number} ({task.name}) on {earlier}", (task.number, earlier)


def run_without_dependence(launch: Callable, task: int, earlier: int):
    """Launch again; one task does not wait for another."""

    def drop(original, runtime, *args):
        found = original(runtime, *args)
        if len(runtime._context.tasks) == task:
            found.pop(earlier)
        return found

    with changed("_dependences", drop):
        return launch()


def run_with_directions(launch: Callable, submit: int, position: int, direction: str):
    """Launch again; one argument of one submit has another direction. None where there is no such argument."""
    calls = iter(range(2**31))

    def swap(original, runtime, **keywords):
        if next(calls) == submit:
            args = list(keywords["args"])
            args[position] = Arg(args[position].tensor, direction)
            keywords["args"] = args
        return original(runtime, **keywords)

    with changed("submit", swap):
        return launch()


def direction_mutants(launch: Callable) -> list[tuple[int, int, str]]:
    """Submit, position and another direction, for every tensor argument of a launch."""
    found, calls = [], iter(range(2**31))

    def look(original, runtime, **keywords):
        submit = next(calls)
        for position, arg in enumerate(keywords["args"]):
            if isinstance(arg, Arg):
                found.extend((submit, position, d) for d in (READS, WRITES, BOTH) if d != arg.direction)
        return original(runtime, **keywords)

    with changed("submit", look):
        launch()
    return found


def judge_runtime(launch: Callable, chip: npu.Chip) -> tuple[Counter, list[str]]:
    """Verdicts on all dependences and directions of a launch, and what was silent."""
    run = launch()
    wanted = chip.order_digest(run)
    mutants = [("dependence", told, run_without_dependence, which) for told, which in dependence_mutants(run)]
    mutants += [("direction", str(which), run_with_directions, which) for which in direction_mutants(launch)]
    counts, silent = Counter(), []
    for name, told, again, which in mutants:
        mutant = again(launch, *which)
        verdict = FOUND if mutant.findings else SAME if chip.order_digest(mutant) == wanted else SILENT
        counts[name, verdict] += 1
        if verdict == SILENT:
            silent.append(told)
    return counts, silent
