"""Running a plan: one process per group at a time, every finished point handed on at once so that nothing is lost."""

from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from itertools import pairwise
from typing import Any

from kernbench.bench import find, run_bench
from kernbench.machine import load
from kernbench.sweep.plan import PREFIX, Group, Plan, Point
from kernbench.timing import measure, time_recording

Row = dict[str, Any]
CHUNK = 64


def run_sweep(plan: Plan, jobs: int, done: set[tuple[str, ...]], take: Callable[[Row], None]) -> None:
    """Time every point that is not `done`; `take` gets each row as it comes. One job runs in this process."""
    work = list(_open_work(plan, done))
    if jobs <= 1 or len(work) <= 1:
        for group in work:
            for row in run_group(plan, group):
                take(row)
        return
    with ProcessPoolExecutor(jobs) as pool:
        pending: set[Future[list[Row]]] = {pool.submit(_rows, plan, group) for group in work}
        while pending:
            finished, pending = wait(pending, return_when=FIRST_COMPLETED)
            for future in finished:
                for row in future.result():
                    take(row)


def point_key(plan: Plan, row: Row) -> tuple[str, ...]:
    """What identifies a point: its swept values, as text."""
    return tuple(str(row[key]) for key in plan.keys)


def _open_work(plan: Plan, done: set[tuple[str, ...]]) -> Iterator[Group]:
    for group in plan.groups:
        left = [r for r in group.rates if point_key(plan, {**group.settings, **group.shapes, **r}) not in done]
        for i in range(0, len(left), CHUNK):
            yield Group(group.settings, group.shapes, tuple(left[i : i + CHUNK]))


def _rows(plan: Plan, group: Group) -> list[Row]:
    return list(run_group(plan, group))


def run_group(plan: Plan, group: Group) -> Iterator[Row]:
    """One functional pass, then the time of each point."""
    bench = find(plan.bench)
    run = run_bench(bench, plan.panel, {**group.settings, **group.shapes}, plan.seed, shapes_only=plan.shapes_only)
    base = load(run.origin["parameters"].get("machine", "reference"))
    shapes = {k.removeprefix(PREFIX): v for k, v in group.shapes.items()}
    timing = None
    for rates in group.rates:
        row: Row = {k: v for k, v in {**group.settings, **group.shapes, **rates}.items() if k in plan.keys}
        row |= {"right": run.right, "safe": run.safe, "commands": run.metrics["commands"]}
        if run.ok and run.recording is not None:
            machine = base.override({**shapes, **{k.removeprefix(PREFIX): v for k, v in rates.items()}})
            timing = time_recording(run.recording, machine) if timing is None else timing.again(machine)
            row |= _flat(measure(timing, with_sensitivity=False))
        yield row


def _flat(metrics: dict[str, Any]) -> Row:
    row: Row = {"time_ps": metrics["time_ps"], "bound": metrics["bound"], "floor_ratio": metrics["floor_ratio"]}
    row |= {f"utilisation_{k}": v for k, v in metrics["utilisation"].items()}
    row |= {f"floor_{k}_ps": v for k, v in metrics["floors_ps"].items()}
    return row


def anomalies(plan: Plan, rows: list[Row]) -> list[str]:
    """Points where more bandwidth made a run slower: possible where resources are shared, and worth knowing."""
    found = []
    for key in plan.keys:
        if not key.endswith(".bandwidth"):
            continue
        others = [k for k in plan.keys if k != key]
        lines: dict[Any, list[Row]] = {}
        for row in rows:
            if row.get("time_ps") is not None:
                lines.setdefault(tuple(row[k] for k in others), []).append(row)
        for line in lines.values():
            ordered = sorted(line, key=lambda row: _number(row[key]))
            for slow, fast in pairwise(ordered):
                if int(fast["time_ps"]) > int(slow["time_ps"]):
                    found.append(f"{key} {slow[key]} -> {fast[key]} takes {slow['time_ps']} -> {fast['time_ps']} ps")
    return found


def _number(text: Point | str) -> float:
    digits = "".join(c for c in str(text).split()[0] if c.isdigit() or c in ".e+-")
    return float(digits or 0)
