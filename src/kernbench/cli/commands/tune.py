"""`kernbench tune`: finds the parameter values with the least predicted time; a GPU measures the best."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from kernbench.bench import Bench, describe, find, run_bench
from kernbench.cli.arguments.options import DTYPE, MACHINE, NAME, PANEL, SEED, SETTINGS, SHAPES
from kernbench.cli.arguments.request import parse_settings
from kernbench.cli.commands.sweep import JOBS, OVER
from kernbench.cli.output.console import FOUND, RIGHT_AND_SAFE, check_targets, errors, results
from kernbench.cli.output.document import JSON, write_document
from kernbench.cli.processes.sweeping import executor, run_points
from kernbench.common.errors import BenchError
from kernbench.report.time.explanation import duration
from kernbench.result.reading import Data
from kernbench.targets.registry import find as target_of
from kernbench.targets.registry import of_parameters

if TYPE_CHECKING:
    from kernbench.sweep import Store

BEST = Annotated[int, typer.Option("--best", metavar="N", help="How many of the fastest are shown.", min=1)]
DEVICE = Annotated[
    str | None,
    typer.Option("--device", metavar="DEVICE", help="cuda: the fastest are measured on the first GPU as well."),
]
MEASURE = Annotated[
    int, typer.Option("--measure", metavar="N", help="With --device cuda: how many of the fastest.", min=1)
]
KEEP = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Keep the points in FILE.sqlite, in which the same command goes on."),
]
SECONDS = Annotated[
    float, typer.Option("--max-seconds", metavar="S", help="What one point may take; 0: as long as it likes.", min=0)
]
YES = Annotated[bool, typer.Option("--yes", help="Do not ask before the kernel is run thousands of times.")]
_LONGEST_POINT = 3600.0
# a point with a time is right (or not judged) and safe: others are not timed
_TIMED = "failed IS NULL AND refused IS NULL AND time_ps IS NOT NULL"
_BAD = "failed IS NULL AND refused IS NULL AND (safe IS NOT 1 OR right IS 0)"


@dataclass(frozen=True)
class Ranked:
    """A point with its predicted time, and the GPU's measurement: a time, or why there is none."""

    row: Data
    measured_ps: int | None = None
    unmeasured: str = ""

    @property
    def time_ps(self) -> int:
        """As predicted."""
        return int(self.row["time_ps"])


def tune(
    name: NAME,
    over: OVER,
    panel: PANEL = None,
    settings: SETTINGS = None,
    seed: SEED = 0,
    dtype: DTYPE = None,
    machine: MACHINE = None,
    shapes_only: SHAPES = False,
    best: BEST = 10,
    device: DEVICE = None,
    measure: MEASURE = 3,
    out: KEEP = None,
    jobs: JOBS = 0,
    max_seconds: SECONDS = _LONGEST_POINT,
    yes: YES = False,
    json: JSON = None,
) -> None:
    """Run a bench at every combination of the given values and rank them by predicted time.

    Points that are wrong or not safe have no time and are left out. Exit code 1 if none is left.
    """
    from kernbench.sweep import Limits, Store, make_plan
    from kernbench.sweep.planning.plan import parse_over

    bench = find(name)
    if bench.panels and panel not in bench.panels:
        raise BenchError(f"choose one panel with --panel: {', '.join(bench.panels)}")
    _check_device(bench, device)
    check_targets({"--out": out, "--json": json})
    values = parse_settings(bench, settings or [], machine, dtype=dtype)
    plan = make_plan(bench, panel, values, parse_over(over), seed, shapes_only, name)
    with _database(out) as file, Store(file, plan) as store:
        run_points(store, executor(jobs, None, Limits(max_seconds or None, None)), panel or bench.name, yes)
        ranked = list(_ranked(store, best))
        if device is not None:
            chosen = [_measured(one, bench, panel, values, plan.keys, seed) for one in ranked[:measure]]
            ranked[:measure] = chosen
        _show(store, bench, ranked)
        rows = [{**one.row, "measured_ps": one.measured_ps, "unmeasured": one.unmeasured} for one in ranked]
        data = {"bench": bench.name, "panel": panel, "keys": list(plan.keys), "points": plan.points, "rows": rows}
        write_document(json, "tune", data)
        raise typer.Exit(RIGHT_AND_SAFE if ranked else FOUND)


def _check_device(bench: Bench, device: str | None) -> None:
    """Refuse an unsuitable --device before hours of predictions."""
    if device is None:
        return
    if device != "cuda":
        raise BenchError(f"--device {device}: cuda is wanted; without --device nothing is measured")
    names = [row.name for row in describe(bench.parameters)]
    if "device" not in names:
        raise BenchError(f"bench {bench.name} has no parameter device: it runs on no GPU")
    target_of(of_parameters(names).name).check_device(device)


@contextmanager
def _database(out: Path | None) -> Iterator[Path]:
    """The database file of the points: the one named, or a temporary one."""
    from kernbench.sweep.database import SUFFIXES

    if out is not None:
        yield out if out.suffix.lower() in SUFFIXES else out.with_suffix(SUFFIXES[0])
        return
    with TemporaryDirectory(prefix="kernbench-tune-") as folder:
        yield Path(folder) / f"points{SUFFIXES[0]}"


def _ranked(store: "Store", best: int) -> Iterator[Ranked]:
    """The fastest first; ties in the order of their values."""
    rows = sorted(store.rows(_TIMED, asked=True), key=lambda row: int(row["time_ps"]))
    return map(Ranked, islice(rows, best))


def _measured(one: Ranked, bench: Bench, panel: str | None, values: Data, keys: tuple[str, ...], seed: int) -> Ranked:
    """The same point on the GPU: its time, if it is right there."""
    run = run_bench(bench, panel, {**values, **{key: one.row[key] for key in keys}, "device": "cuda"}, seed)
    if run.right is False or run.findings:
        return replace(one, unmeasured="wrong on the GPU" if run.right is False else run.findings[0].message)
    return replace(one, measured_ps=round(run.metrics["gpu_time_ns"] * 1000))


def _show(store: "Store", bench: Bench, ranked: list[Ranked]) -> None:
    """Print the ranking, a summary of the other points, and the recommended point."""
    counts, keys = store.counts(), store.plan.keys
    if ranked:
        results().print(_table(f"{bench.name}: the fastest of {counts.done:,} points", keys, ranked))
    for count, what in ((counts.bad, "wrong or unsafe"), (counts.failed, "failed"), (counts.refused, "refused")):
        if count:
            errors().print(f"{count:,} of {counts.done:,} points {what}: they take no part", soft_wrap=True)
    for row in store.rows(_BAD, 1, asked=True):
        errors().print(f"  to see why: {store.plan.command(row)}", soft_wrap=True)
    if not ranked:
        errors().print("no point is right, safe and timed: nothing to choose from", soft_wrap=True)
        return
    measured = [one for one in ranked if one.measured_ps is not None]
    winner = min(measured, key=lambda one: one.measured_ps or 0) if measured else ranked[0]
    how = "measured" if measured else "predicted"
    for caveat in sorted({str(one.row["caveat"]) for one in ranked if one.row["caveat"]}):
        results().print(f"predicted times: {caveat}", soft_wrap=True)
    results().print(f"fastest as {how}: {store.plan.command(winner.row)}", soft_wrap=True)


def _table(title: str, keys: tuple[str, ...], ranked: list[Ranked]) -> Table:
    on_gpu = any(one.measured_ps is not None or one.unmeasured for one in ranked)
    table = Table(title=title, title_justify="left")
    for column in ("", *keys, "predicted", "x best", "bound", "x floor", *(("measured", "off by") if on_gpu else ())):
        table.add_column(column, justify="right", no_wrap=column != "measured")
    for rank, one in enumerate(ranked, 1):
        ratio = one.row["floor_ratio"]
        cells = [str(rank), *(str(one.row[key]) for key in keys), duration(one.time_ps)]
        cells += [f"{one.time_ps / max(1, ranked[0].time_ps):.2f}", str(one.row["bound"] or "")]
        cells += ["" if ratio is None else f"{ratio:.2f}", *(_measurement(one) if on_gpu else ())]
        table.add_row(*cells)
    return table


def _measurement(one: Ranked) -> tuple[str, str]:
    if one.measured_ps is None:
        return one.unmeasured, ""
    return duration(one.measured_ps), f"{100 * (one.time_ps / one.measured_ps - 1):+.0f} %"
