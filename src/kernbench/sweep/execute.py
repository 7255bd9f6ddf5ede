"""Running a plan: every finished point is handed on at once, so that nothing is lost; what the rows say together."""

from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import pairwise

from kernbench.bench.machines import machine_key
from kernbench.machine.units import parse
from kernbench.sweep.executors import Executor
from kernbench.sweep.plan import Group, Plan
from kernbench.sweep.points import Row, refused_rows

# points that one of several workers times before it hands on their rows: what is lost when a sweep is stopped
PART = 64
BANDWIDTH, BANDWIDTH_UNIT = ".bandwidth", "GB/s"


def run_sweep(plan: Plan, executor: Executor, done: set[tuple[str, ...]], take: Callable[[Row], None]) -> None:
    """Time every point that is not `done`; `take` gets each row as it comes, in any order."""
    work = []
    for part in _open_work(plan, done, executor.workers):
        if part.refused:
            for row in refused_rows(plan, part, part.refused):
                take(row)
        else:
            work.append(part)
    for row in executor.rows(plan.light(), work):
        take(row)


def point_key(plan: Plan, row: Row) -> tuple[str, ...]:
    """What identifies a point: its swept values, as text."""
    return tuple(str(row[key]) for key in plan.keys)


def point_keys(plan: Plan) -> set[tuple[str, ...]]:
    """All points of the plan."""
    return {point_key(plan, point) for group in plan.groups for point in group.points()}


def in_order(plan: Plan, rows: list[Row]) -> list[Row]:
    """The rows in the order of the plan's values, the first key slowest, whichever came first."""
    places = {key: {value: place for place, value in enumerate(values)} for key, values in plan.over}
    return sorted(rows, key=lambda row: [places[key][str(row[key])] for key in plan.keys])


def _open_work(plan: Plan, done: set[tuple[str, ...]], workers: int) -> Iterator[Group]:
    """What is left to do, in parts for several workers; one alone does each group in one go."""
    for group in plan.groups:
        points = zip(group.points(), group.rates, strict=True)
        left = [rates for point, rates in points if point_key(plan, point) not in done]
        size = max(1, len(left)) if workers == 1 else PART
        for i in range(0, len(left), size):
            yield Group(group.settings, group.shapes, tuple(left[i : i + size]), group.refused)


def anomalies(plan: Plan, rows: list[Row]) -> list[str]:
    """Points where more bandwidth made a run slower: possible where resources are shared, and worth knowing."""
    timed = [row for row in rows if row.get("time_ps") not in ("", None)]
    keys = [key for key in plan.keys if machine_key(key) is not None and key.endswith(BANDWIDTH)]
    return [text for key in keys for line in _lines(plan, key, timed) for text in _slower(key, line)]


def _lines(plan: Plan, key: str, rows: list[Row]) -> list[list[Row]]:
    """Rows that differ in `key` alone, each list by itself."""
    lines: dict[tuple[str, ...], list[Row]] = {}
    for row in rows:
        lines.setdefault(tuple(str(row[k]) for k in plan.keys if k != key), []).append(row)
    return list(lines.values())


def _slower(key: str, line: list[Row]) -> Iterator[str]:
    def bandwidth(row: Row) -> Fraction:
        return parse(str(row[key]), BANDWIDTH_UNIT)

    for slow, fast in pairwise(sorted(line, key=bandwidth)):
        if int(fast["time_ps"]) > int(slow["time_ps"]) and bandwidth(fast) > bandwidth(slow):
            yield f"{key} {slow[key]} -> {fast[key]} takes {slow['time_ps']} -> {fast['time_ps']} ps"
