"""One group of points: a functional pass, then a row for each of its rates."""

from collections.abc import Iterator
from typing import Any

from kernbench.bench import find, run_bench
from kernbench.machine import load
from kernbench.result.run import Run
from kernbench.sweep.plan import PREFIX, Group, Plan
from kernbench.timing import summary, time_recording

Row = dict[str, Any]


def run_group(plan: Plan, group: Group) -> Iterator[Row]:
    """One functional pass, then the time of each point."""
    return time_points(plan, group, functional_pass(plan, group))


def functional_pass(plan: Plan, group: Group) -> Run:
    """The run that all points of a group share."""
    settings = {**group.settings, **group.shapes}
    return run_bench(find(plan.bench), plan.panel, settings, plan.seed, shapes_only=plan.shapes_only)


def time_points(plan: Plan, group: Group, run: Run) -> Iterator[Row]:
    """The row of each point of the group that `run` is of."""
    base = load(run.origin["parameters"].get("machine", "reference"))
    shapes = {k.removeprefix(PREFIX): v for k, v in group.shapes.items()}
    timing = None
    for rates in group.rates:
        row: Row = {k: v for k, v in {**group.settings, **group.shapes, **rates}.items() if k in plan.keys}
        row |= {"right": run.right, "safe": run.safe, "commands": run.metrics["commands"]}
        if run.ok and run.recording is not None:
            machine = base.override({**shapes, **{k.removeprefix(PREFIX): v for k, v in rates.items()}})
            timing = time_recording(run.recording, machine) if timing is None else timing.again(machine)
            row |= _flat(summary(timing))
        yield row


def gap_column(cause: str) -> str:
    """The column of a cause of the gap."""
    return f"gap_{cause.lower().replace(' ', '_')}_ps"


def _flat(metrics: dict[str, Any]) -> Row:
    row: Row = {"time_ps": metrics["time_ps"], "bound": metrics["bound"], "floor_ratio": metrics["floor_ratio"]}
    row |= {f"utilisation_{k}": v for k, v in metrics["utilisation"].items()}
    row |= {f"floor_{k}_ps": v for k, v in metrics["floors_ps"].items()}
    row |= {gap_column(cause): time for cause, time in metrics["gap_ps"].items()}
    return row
