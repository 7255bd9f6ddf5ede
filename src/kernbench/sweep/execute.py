"""Running a plan: every finished point is handed on at once, so that nothing is lost; what the rows say together."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from typing import Any

from kernbench.sweep.executors import Executor
from kernbench.sweep.plan import Group, Plan, Point
from kernbench.sweep.points import Row

# points that one of several workers times before it hands on their rows: what is lost when a sweep is stopped
PART = 64


def run_sweep(plan: Plan, executor: Executor, done: set[tuple[str, ...]], take: Callable[[Row], None]) -> None:
    """Time every point that is not `done`; `take` gets each row as it comes, in any order."""
    work = list(_open_work(plan, done, executor.workers))
    for row in executor.rows(replace(plan, groups=()), work):
        take(row)


def point_key(plan: Plan, row: Row) -> tuple[str, ...]:
    """What identifies a point: its swept values, as text."""
    return tuple(str(row[key]) for key in plan.keys)


def in_order(plan: Plan, rows: list[Row]) -> list[Row]:
    """The rows in the order of the plan, whichever came first."""
    place = {
        point_key(plan, {**group.settings, **group.shapes, **rates}): number
        for number, (group, rates) in enumerate((g, r) for g in plan.groups for r in g.rates)
    }
    return sorted(rows, key=lambda row: place[point_key(plan, row)])


def _open_work(plan: Plan, done: set[tuple[str, ...]], workers: int) -> Iterator[Group]:
    """What is left to do, in parts for several workers; one alone does each group in one go."""
    for group in plan.groups:
        left = [r for r in group.rates if point_key(plan, {**group.settings, **group.shapes, **r}) not in done]
        size = max(1, len(left)) if workers == 1 else PART
        for i in range(0, len(left), size):
            yield Group(group.settings, group.shapes, tuple(left[i : i + size]))


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
