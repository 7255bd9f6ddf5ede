"""One group of points: a functional pass, then a row for each of its rates."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import repeat
from types import SimpleNamespace
from typing import Any

from kernbench.bench import find, run_bench
from kernbench.bench.machines import load_machine, machine_key
from kernbench.common.errors import BenchError, KernbenchError, MachineError
from kernbench.result.launches import joined_metrics
from kernbench.result.run import Run
from kernbench.sweep.plan import Group, Plan, Point, told
from kernbench.timing import summary, time_recording

Row = dict[str, Any]


@dataclass(frozen=True)
class Refusal:
    """Why the points of a group cannot be run."""

    why: str


def run_group(plan: Plan, group: Group) -> Iterator[Row]:
    """One functional pass, then the time of each point."""
    return time_points(plan, group, functional_pass(plan, group))


def functional_pass(plan: Plan, group: Group) -> Run | Refusal:
    """The run that all points of a group share; a refusal where the bench has no host for them."""
    bench = find(plan.bench)
    hosts: list[Any] = []

    def host(*arguments: Any) -> Any:
        hosts.append(bench.host(*arguments))
        return hosts[-1]

    settings = {**group.settings, **group.shapes}
    try:
        return run_bench(replace(bench, host=host), plan.panel, settings, plan.seed, shapes_only=plan.shapes_only)
    except KernbenchError as error:
        # what goes wrong once there is a host is no refusal
        if hosts:
            raise
        return Refusal(told(error).removeprefix(f"panel {plan.panel}: "))


def time_points(plan: Plan, group: Group, run: Run | Refusal) -> Iterator[Row]:
    """The row of each point of the group that `run` is of."""
    if isinstance(run, Refusal):
        yield from refused_rows(plan, group, run.why)
        return
    verdict = {"right": run.right, "safe": run.safe, "commands": run.metrics.get("commands")}
    timed = _times(group, run) if run.ok and run.recording is not None else repeat({})
    for point, results in zip(group.points(), timed, strict=False):
        yield _swept(plan, point) | verdict | results


def _times(group: Group, run: Run) -> Iterator[Row]:
    """The time of each point; a machine on which the run cannot be timed refuses it."""
    first, told_of = _timers(run)
    base = load_machine(SimpleNamespace(**run.origin["parameters"]))
    recordings = [launch.recording for launch in run.launches] or [run.recording]
    timings: list[Any] = []
    for rates in group.rates:
        machine = base.override({str(machine_key(k)): v for k, v in {**group.shapes, **rates}.items()})
        try:
            timings = [t.again(machine) for t in timings] or [first(recording, machine) for recording in recordings]
        except MachineError as error:
            yield {"refused": told(error)}
        else:
            told_each = [told_of(timing) for timing in timings]
            yield _flat(joined_metrics(told_each) if len(told_each) > 1 else told_each[0])


def _timers(run: Run) -> tuple[Callable[..., Any], Callable[..., dict[str, Any]]]:
    """What times a recording of this kind for the first time, and what tells of a timing."""
    if hasattr(run.recording, "streams"):
        return time_recording, summary
    if hasattr(run.recording, "block_task"):
        # only benches for the npu need its package
        from kernbench.npu import clock, measure

        return clock.time_recording, measure.summary
    raise BenchError(f"bench {run.origin.get('bench')} records nothing that can be timed on a machine")


def refused_rows(plan: Plan, group: Group, why: str) -> Iterator[Row]:
    """The row of each point of a group that cannot be run."""
    return (_swept(plan, point) | {"refused": why} for point in group.points())


def _swept(plan: Plan, point: Point) -> Row:
    return {k: v for k, v in point.items() if k in plan.keys}


def gap_column(cause: str) -> str:
    """The column of a cause of the gap."""
    return f"gap_{_word(cause)}_ps"


def floor_column(name: str) -> str:
    """The column of a floor."""
    return f"floor_{_word(name)}_ps"


def utilisation_column(engine: str) -> str:
    """The column of how busy an engine was."""
    return f"utilisation_{_word(engine)}"


def _word(name: str) -> str:
    return name.lower().replace(" ", "_")


def _flat(metrics: dict[str, Any]) -> Row:
    row: Row = {"time_ps": metrics["time_ps"], "bound": metrics["bound"], "floor_ratio": metrics["floor_ratio"]}
    row |= {utilisation_column(k): v for k, v in metrics["utilisation"].items()}
    row |= {floor_column(k): v for k, v in metrics["floors_ps"].items()}
    row |= {gap_column(cause): time for cause, time in metrics["gap_ps"].items()}
    return row
