"""One group of points: a functional pass, then a row for each of its rates."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

from kernbench.bench import find, run_bench
from kernbench.common.errors import BenchError, KernbenchError, MachineError
from kernbench.machine import load
from kernbench.result.run import Run
from kernbench.sweep.plan import PREFIX, Group, Plan, Point, told
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
    if not hasattr(run.recording, "streams"):
        raise BenchError(
            f"bench {run.origin.get('bench')} records no mesh commands, and only those can be swept over time so far"
        )
    base = load(run.origin["parameters"].get("machine", "reference"))
    timing = None
    for rates in group.rates:
        machine = base.override({k.removeprefix(PREFIX): v for k, v in {**group.shapes, **rates}.items()})
        try:
            timing = time_recording(run.recording, machine) if timing is None else timing.again(machine)
        except MachineError as error:
            yield {"refused": told(error)}
        else:
            yield _flat(summary(timing))


def refused_rows(plan: Plan, group: Group, why: str) -> Iterator[Row]:
    """The row of each point of a group that cannot be run."""
    return (_swept(plan, point) | {"refused": why} for point in group.points())


def _swept(plan: Plan, point: Point) -> Row:
    return {k: v for k, v in point.items() if k in plan.keys}


def gap_column(cause: str) -> str:
    """The column of a cause of the gap."""
    return f"gap_{cause.lower().replace(' ', '_')}_ps"


def _flat(metrics: dict[str, Any]) -> Row:
    row: Row = {"time_ps": metrics["time_ps"], "bound": metrics["bound"], "floor_ratio": metrics["floor_ratio"]}
    row |= {f"utilisation_{k}": v for k, v in metrics["utilisation"].items()}
    row |= {f"floor_{k}_ps": v for k, v in metrics["floors_ps"].items()}
    row |= {gap_column(cause): time for cause, time in metrics["gap_ps"].items()}
    return row
