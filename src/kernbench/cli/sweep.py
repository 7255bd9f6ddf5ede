"""`kernbench sweep`: one bench over many values of its parameters and of the machine."""

import os
import shlex
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from kernbench.bench import find
from kernbench.cli.document import JSON, STDOUT, write_document
from kernbench.cli.options import DTYPE, MACHINE, NAME, PANEL, SEED, SETTINGS, SHAPES
from kernbench.cli.output import FOUND, RIGHT_AND_SAFE, errors, progress, results
from kernbench.cli.request import parse_settings
from kernbench.common.errors import BenchError
from kernbench.report.time import duration
from kernbench.report.verdict import answer

if TYPE_CHECKING:
    from kernbench.sweep import Executor, Plan
    from kernbench.sweep.store import Store

OVER = Annotated[
    list[str],
    typer.Option("--over", metavar="KEY=A,B,C", help="A parameter, or machine.KEY; several of these make a grid."),
]
OUT = Annotated[
    Path, typer.Option("--out", metavar="FILE", help="CSV file to write; one of the same sweep goes on or grows.")
]
JOBS = Annotated[int, typer.Option("--jobs", metavar="N", help="Processes; 0: as many as there are cores.", min=0)]
RAY = Annotated[
    str | None, typer.Option("--ray", metavar="ADDRESS", help="Run on a Ray cluster; local: start Ray here.")
]
PARQUET = Annotated[Path | None, typer.Option("--parquet", metavar="FILE", help="Write the rows as Parquet, too.")]
PLOT = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE", help="Write a plot (.png or .svg) of the metric over the first key."),
]
METRIC = Annotated[str, typer.Option("--metric", metavar="NAME", help="What the plot shows: a column of numbers.")]
_SHOWN = 40
# points that failed, with the command that runs each
_COMMANDS = 4
# names that say another format than CSV, with the option that writes it
_OTHERS = {".parquet": "--parquet", ".pq": "--parquet", ".json": "--json", ".png": "--plot", ".svg": "--plot"}
_OTHERS |= {".html": "", ".xlsx": "", ".xls": ""}
_ANSWERS = {"True": True, "False": False}
_NARROWEST = 24


def sweep(
    name: NAME,
    over: OVER,
    panel: PANEL = None,
    settings: SETTINGS = None,
    seed: SEED = 0,
    dtype: DTYPE = None,
    machine: MACHINE = None,
    shapes_only: SHAPES = False,
    out: OUT = Path("sweep.csv"),
    parquet: PARQUET = None,
    plot: PLOT = None,
    metric: METRIC = "time_ps",
    jobs: JOBS = 0,
    ray: RAY = None,
    json: JSON = None,
) -> None:
    """Run a bench at every combination of the given values; kernels run again only where a shape changes."""
    # timing is compiled code; other commands start without it
    from kernbench.report.plot import plot_sweep
    from kernbench.sweep import anomalies, in_order, make_plan
    from kernbench.sweep.plan import parse_over
    from kernbench.sweep.store import Store, typed_rows, write_parquet

    bench = find(name)
    if bench.panels and panel not in bench.panels:
        raise BenchError(f"choose one panel with --panel: {', '.join(bench.panels)}")
    _check_files(out, parquet, plot, json, metric)
    values = parse_settings(bench, settings or [], machine, dtype=dtype)
    plan = make_plan(bench, panel, values, parse_over(over), seed, shapes_only)
    place = _executor(jobs, ray)
    store = Store(out, plan)
    _run(plan, place, store, panel or bench.name)
    rows = in_order(store.plan, store.rows)
    results().print(_table(f"{bench.name}: {len(rows)} points in {out}", plan.keys, rows))
    strange = list(anomalies(plan, rows))
    for told in strange:
        errors().print(f"anomaly: {told}", soft_wrap=True)
    if parquet is not None:
        write_parquet(parquet, rows)
    if plot is not None:
        plot_sweep(plot, plan.keys, metric, rows)
    files = {"csv": str(out), "parquet": parquet and str(parquet), "plot": plot and str(plot)}
    data = {"bench": bench.name, "panel": panel, "keys": list(plan.keys), "rows": typed_rows(rows)}
    write_document(json, "sweep", {**data, "anomalies": strange, "written": files})
    raise typer.Exit(_verdict(plan, rows, name, out))


def _check_files(out: Path, parquet: Path | None, plot: Path | None, json: Path | None, metric: str) -> None:
    """Refuse what could not be written or drawn in the end."""
    from kernbench.report.plot import check_plot
    from kernbench.sweep.columns import METRICS
    from kernbench.sweep.store import check_parquet, plan_file
    from kernbench.sweep.targets import check_targets

    if metric not in METRICS:
        raise BenchError(f"--metric {metric}: a column of numbers is wanted: {', '.join(METRICS)}")
    check_targets({"--out": out})
    files = {"--out": out, "the plan of --out": plan_file(out), "--parquet": parquet, "--plot": plot}
    check_targets({**files, "--json": None if json == STDOUT else json})
    _check_format(out, parquet)
    if parquet is not None:
        check_parquet()
    if plot is not None:
        check_plot(plot)


def _check_format(out: Path, parquet: Path | None) -> None:
    """Refuse a name that says another format than the file would have."""
    option = _OTHERS.get(out.suffix.lower())
    if option is not None:
        also = f" {option} {out}" if option else ""
        raise BenchError(f"--out {out}: results are kept as CSV; say --out {out.with_suffix('.csv')}{also}")
    if parquet is not None and parquet.suffix.lower() in (".csv", ".json"):
        raise BenchError(f"--parquet {parquet} is no name for Parquet; say --parquet {parquet.with_suffix('.parquet')}")


def _run(plan: "Plan", place: "AbstractContextManager[Executor]", store: "Store", title: str) -> None:
    """Time what is not done yet, and keep it."""
    from kernbench.sweep import run_sweep
    from kernbench.sweep.execute import point_keys

    with place as executor, progress(plan.points) as bar:
        task = bar.task_ids[0]
        bar.update(task, description=title, completed=len(store.done & point_keys(plan)))

        def take(row: dict[str, object]) -> None:
            store.add(row)
            bar.advance(task)

        try:
            run_sweep(plan, executor, store.done, take)
        except KeyboardInterrupt:
            done = len(store.done & point_keys(plan))
            held = f"{store.file} holds {done} of {plan.points} points" if done else "no point is done"
            errors().print(f"stopped: {held}; the same command goes on", soft_wrap=True)
            raise


def _verdict(plan: "Plan", rows: list[dict[str, object]], bench: str, out: Path) -> int:
    """The exit code for the points that were asked for, and what runs those that failed; the file may hold more."""
    from kernbench.sweep.execute import point_key, point_keys

    asked = point_keys(plan)
    rows = [row for row in rows if point_key(plan, row) in asked]
    refused = sum(1 for row in rows if row["refused"])
    if refused:
        errors().print(f"{refused} of {len(rows)} points refused; to try one again, remove its row from {out}")
    bad = [row for row in rows if not row["refused"] and (row["safe"] != "True" or row["right"] == "False")]
    if bad:
        errors().print(f"{len(bad)} of {len(rows)} points wrong or unsafe; to see why:")
    for row in bad[:_COMMANDS]:
        errors().print(f"  {_command(plan, row, bench)}", soft_wrap=True)
    if len(bad) > _COMMANDS:
        errors().print(f"  and so on for {len(bad) - _COMMANDS} more")
    return FOUND if bad or refused else RIGHT_AND_SAFE


def _command(plan: "Plan", row: dict[str, object], bench: str) -> str:
    """The command that runs one point by itself."""
    settings = {**dict(plan.fixed), **{key: row[key] for key in plan.keys}}
    words = ["kernbench", "run", bench, *(("-p", plan.panel) if plan.panel else ())]
    words += [word for key, value in settings.items() for word in ("--set", f"{key}={value}")]
    words += ["--seed", str(plan.seed)] if plan.seed else []
    return shlex.join([*words, *(["--shapes-only"] if plan.shapes_only else [])])


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
        table.add_column(column, justify="left" if column in ("right", "safe") else "right", no_wrap=True)
    refused = any(row["refused"] for row in rows)
    if refused:
        table.add_column("refused", min_width=_NARROWEST, overflow="fold")
    for row in rows[:_SHOWN]:
        time = duration(int(str(row["time_ps"]))) if row["time_ps"] else ""
        ratio = f"{float(str(row['floor_ratio'])):.2f}" if row["floor_ratio"] else ""
        cells: list[str | Text] = [*(str(row[k]) for k in keys), *_answers(row), time, str(row["bound"]), ratio]
        table.add_row(*cells, *([str(row["refused"])] if refused else []))
    if len(rows) > _SHOWN:
        table.caption = f"and {len(rows) - _SHOWN} more"
    return table


def _answers(row: dict[str, object]) -> list[Text]:
    """Right and safe, in the words that all tables have; nothing of a point that was refused."""
    return [Text() if row["refused"] else answer(_ANSWERS.get(str(row[key]))) for key in ("right", "safe")]
