"""`kernbench sweep`: one bench over many values of its parameters and of the machine."""

import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from kernbench.bench import find
from kernbench.cli.output import FOUND, RIGHT_AND_SAFE, errors, progress, results
from kernbench.cli.run import DTYPE, NAME, PANEL, SEED, SETTINGS, SHAPES, parse_settings
from kernbench.common.errors import BenchError
from kernbench.report.time import duration

if TYPE_CHECKING:
    from kernbench.sweep import Executor

OVER = Annotated[list[str], typer.Option("--over", help="key=a,b,c: a parameter, or machine.KEY; several make a grid.")]
OUT = Annotated[Path, typer.Option("--out", help="CSV file to write; an existing one of the same sweep is continued.")]
JOBS = Annotated[int, typer.Option(help="Processes; 0: as many as there are cores.", min=0)]
RAY = Annotated[str | None, typer.Option(metavar="ADDRESS", help="Run on a Ray cluster; local: start Ray here.")]
PARQUET = Annotated[Path | None, typer.Option(help="Write the rows as Parquet, too.")]
PLOT = Annotated[Path | None, typer.Option(help="Write a plot (.png or .svg) of the metric over the first key.")]
METRIC = Annotated[str, typer.Option(help="What the plot shows.")]
_SHOWN = 40


def sweep(
    name: NAME,
    over: OVER,
    panel: PANEL = None,
    settings: SETTINGS = None,
    seed: SEED = 0,
    dtype: DTYPE = None,
    shapes_only: SHAPES = False,
    out: OUT = Path("sweep.csv"),
    parquet: PARQUET = None,
    plot: PLOT = None,
    metric: METRIC = "time_ps",
    jobs: JOBS = 0,
    ray: RAY = None,
) -> None:
    """Run a bench at every combination of the given values; kernels run again only where a shape changes."""
    # timing is compiled code; other commands start without it
    from kernbench.report.plot import plot_sweep
    from kernbench.sweep import anomalies, in_order, make_plan, run_sweep
    from kernbench.sweep.plan import parse_over
    from kernbench.sweep.store import COLUMNS, Store, write_parquet

    bench = find(name)
    if bench.panels and panel not in bench.panels:
        raise BenchError(f"choose one panel with --panel: {', '.join(bench.panels)}")
    if metric not in COLUMNS:
        raise BenchError(f"--metric {metric}: known are {', '.join(COLUMNS)}")
    values = parse_settings(bench, settings or [], dtype=dtype)
    plan = make_plan(bench, panel, values, parse_over(over), seed, shapes_only)
    for file in (out, parquet, plot):
        if file is not None and (file.is_dir() or not file.parent.is_dir()):
            raise BenchError(f"{file}: there is no folder {file.parent} to write it to, or it is one itself")
    place = _executor(jobs, ray)
    store = Store(out, plan)
    with place as executor, progress(plan.points) as bar:
        task = bar.task_ids[0]
        bar.update(task, description=panel or bench.name, completed=len(store.rows))

        def take(row: dict[str, object]) -> None:
            store.add(row)
            bar.advance(task)

        run_sweep(plan, executor, store.done, take)
    rows = in_order(plan, store.rows)
    results().print(_table(f"{bench.name}: {plan.points} points in {out}", plan.keys, rows))
    for told in anomalies(plan, rows):
        errors().print(f"anomaly: {told}", soft_wrap=True)
    if parquet is not None:
        write_parquet(parquet, rows)
    if plot is not None:
        plot_sweep(plot, plan.keys, metric, rows)
    bad = [row for row in rows if str(row["safe"]) != "True" or str(row["right"]) == "False"]
    raise typer.Exit(FOUND if bad else RIGHT_AND_SAFE)


def _executor(jobs: int, ray: str | None) -> "AbstractContextManager[Executor]":
    """The cluster, or this machine."""
    from kernbench.sweep import Here, Processes, RayCluster

    if ray is None:
        jobs = jobs or os.cpu_count() or 1
        return nullcontext(Here() if jobs == 1 else Processes(jobs))
    if jobs:
        raise BenchError("--jobs is for processes on this machine; with --ray the cluster says how many there are")
    return RayCluster(ray)


def _table(title: str, keys: tuple[str, ...], rows: list[dict[str, object]]) -> Table:
    table = Table(title=title, title_justify="left")
    for column in (*keys, "right", "safe", "time", "bound", "x floor"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows[:_SHOWN]:
        timed = row["time_ps"] not in ("", None)
        time = duration(int(str(row["time_ps"]))) if timed else ""
        ratio = (
            f"{float(str(row['floor_ratio'])):.2f}" if timed and row["floor_ratio"] not in ("", "None", None) else ""
        )
        cells = [str(row[k]) for k in (*keys, "right", "safe")]
        table.add_row(*cells, time, str(row["bound"]), ratio)
    if len(rows) > _SHOWN:
        table.caption = f"and {len(rows) - _SHOWN} more"
    return table
