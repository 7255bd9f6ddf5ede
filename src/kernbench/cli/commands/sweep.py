"""`kernbench sweep`: one bench over many values of its parameters and of the machine."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from kernbench.bench import Bench, describe, find
from kernbench.cli.arguments.options import DTYPE, MACHINE, NAME, PANEL, RAY, SEED, SETTINGS, SHAPES, memory_limit
from kernbench.cli.arguments.request import parse_settings
from kernbench.cli.output.console import FOUND, RIGHT_AND_SAFE, errors, promise, results
from kernbench.cli.output.document import JSON, STDOUT, write_document
from kernbench.cli.processes.sweeping import executor, run_points
from kernbench.common.errors import BenchError
from kernbench.report.text.verdict import answer
from kernbench.report.time.explanation import duration
from kernbench.result.reading import Data
from kernbench.targets.registry import of_parameters

if TYPE_CHECKING:
    from kernbench.sweep import Plan, Store

OVER = Annotated[
    list[str],
    typer.Option(
        "--over",
        metavar="KEY=VALUES",
        help="A parameter, or machine.KEY, and its values: a list (2,4,8), ranges (1..64, 100..400/50 GB/s by a step, "
        "8..64*2 by a factor), or both (1,2,8..64*2). Several of these make a grid.",
    ),
]
OUT = Annotated[
    Path,
    typer.Option(
        "--out",
        metavar="FILE",
        help="Results: FILE.sqlite is the database of points, in which the same sweep goes on or grows; .csv and "
        ".parquet are written from the database of that name beside it.",
    ),
]
JOBS = Annotated[int, typer.Option("--jobs", metavar="N", help="Processes; 0: as many as there are cores.", min=0)]
PARQUET = Annotated[Path | None, typer.Option("--parquet", metavar="FILE", help="Write the rows as Parquet, too.")]
PLOT = Annotated[
    Path | None,
    typer.Option("--plot", metavar="FILE", help="Write a plot (.png or .svg) of the metric over the first key."),
]
METRIC = Annotated[str, typer.Option("--metric", metavar="NAME", help="What the plot shows: a column of numbers.")]
SECONDS = Annotated[
    float,
    typer.Option("--max-seconds", metavar="S", help="What one point may take; 0: as long as it likes.", min=0),
]
MEMORY = Annotated[
    str | None, typer.Option("--max-memory", metavar="SIZE", help="Memory that one point may take, as 4GiB.")
]
RETRY = Annotated[bool, typer.Option("--retry-failed", help="Run points again that failed or were refused.")]
YES = Annotated[bool, typer.Option("--yes", help="Do not ask before the kernel is run thousands of times.")]
_SHOWN = 40
# most failed points whose commands are shown
_COMMANDS = 4
# suffixes of other formats, with the option that writes them
_OTHERS = {".json": "--json", ".png": "--plot", ".svg": "--plot", ".html": "", ".xlsx": "", ".xls": ""}
_PARQUET = (".parquet", ".pq")
_NARROWEST = 24
# rows above which documents and plots omit them
_MOST_ROWS = 100_000
_LONGEST_POINT = 3600.0


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
    max_seconds: SECONDS = _LONGEST_POINT,
    max_memory: MEMORY = None,
    retry_failed: RETRY = False,
    yes: YES = False,
    json: JSON = None,
) -> None:
    """Run a bench at every combination of the given values; kernels run again only where a shape changes.

    A point that fails is a row that says why, where, and how to repeat it; the others go on.
    """
    # timing is compiled code, which other commands do not need
    from kernbench.sweep import Limits, Store, make_plan
    from kernbench.sweep.planning.plan import parse_over

    bench = find(name)
    if bench.panels and panel not in bench.panels:
        raise BenchError(f"choose one panel with --panel: {', '.join(bench.panels)}")
    _check_metric(bench, metric)
    database = _check_files(out, parquet, plot, json)
    values = parse_settings(bench, settings or [], machine, dtype=dtype)
    plan = make_plan(bench, panel, values, parse_over(over), seed, shapes_only, name)
    _check_size(plan, plot)
    pool = executor(jobs, ray, Limits(max_seconds or None, memory_limit(max_memory)))
    with Store(database, plan, None if out == database else out, retry_failed) as store:
        run_points(store, pool, panel or bench.name, yes)
        strange = _show(store, bench.name, out)
        files = _export(store, out, parquet, plot, metric)
        data = {"bench": bench.name, "panel": panel, "keys": list(plan.keys), **_data(store), "anomalies": strange}
        write_document(json, "sweep", {**data, "written": files})
        raise typer.Exit(_verdict(store, out))


def _check_metric(bench: Bench, metric: str) -> None:
    """Refuse a metric that a sweep of the bench does not have."""
    from kernbench.sweep.columns import metrics

    known = metrics(of_parameters([row.name for row in describe(bench.parameters)]).name)
    if metric not in known:
        raise BenchError(f"--metric {metric}: a column of numbers is wanted: {', '.join(known)}")


def _check_files(out: Path, parquet: Path | None, plot: Path | None, json: Path | None) -> Path:
    """Refuse files that could not be written or plots that could not be drawn; returns the path of the database."""
    from kernbench.report.export.plot import check_plot
    from kernbench.sweep.database import SUFFIXES, is_store
    from kernbench.sweep.export import check_parquet
    from kernbench.sweep.targets import check_targets

    check_targets({"--out": out})
    is_database = out.suffix.lower() in SUFFIXES
    database = out if is_database else out.with_suffix(SUFFIXES[0])
    files = {"--out": out, "the database of --out": None if is_database else database, "--parquet": parquet}
    check_targets({**files, "--plot": plot, "--json": None if json == STDOUT else json})
    promise({**files, "--plot": plot, "--json": json})
    _check_format(out, parquet)
    if out.suffix.lower() in _PARQUET and out.exists() and not is_store(database):
        raise BenchError(f"{out} is there, but no {database}: choose another --out, or remove it")
    if parquet is not None or out.suffix.lower() in _PARQUET:
        check_parquet()
    if plot is not None:
        check_plot(plot)
    return database


def _check_format(out: Path, parquet: Path | None) -> None:
    """Refuse a suffix that names another format than the file would have."""
    option = _OTHERS.get(out.suffix.lower())
    if option is not None:
        also = f" {option} {out}" if option else ""
        raise BenchError(
            f"--out {out}: results are kept as SQLite, CSV or Parquet; say --out {out.with_suffix('.csv')}{also}"
        )
    if parquet is not None and parquet.suffix.lower() in (".csv", ".json"):
        raise BenchError(f"--parquet {parquet} is no name for Parquet; say --parquet {parquet.with_suffix('.parquet')}")


def _check_size(plan: "Plan", plot: Path | None) -> None:
    if plot is not None and plan.points > _MOST_ROWS:
        raise BenchError(f"--plot: {plan.points:,} points are no picture; at most {_MOST_ROWS:,} are drawn")


def _show(store: "Store", bench: str, out: Path) -> list[str]:
    """Print the first rows and the anomalies of all; returns the anomalies."""
    from kernbench.sweep import anomalies

    total = int(str(store.query("SELECT count(*) FROM points")[0][0]))
    results().print(
        _table(f"{bench}: {total:,} points in {out}", store.plan.keys, list(store.rows(most=_SHOWN)), total)
    )
    strange = anomalies(store)
    for sentence in strange:
        errors().print(f"anomaly: {sentence}", soft_wrap=True)
    return strange


def _export(store: "Store", out: Path, parquet: Path | None, plot: Path | None, metric: str) -> dict[str, str | None]:
    """Write the rows in further formats; returns the names of all files."""
    from kernbench.report.export.plot import plot_sweep
    from kernbench.sweep.export import write_csv, write_parquet

    table = out if out.suffix.lower() in _PARQUET else None
    text = None if out == store.file or table is not None else out
    if text is not None:
        write_csv(text, store)
    for file in filter(None, (table, parquet)):
        write_parquet(file, store)
    if plot is not None:
        plot_sweep(plot, store.plan.keys, metric, list(store.rows()))
    files = {"database": store.file, "csv": text, "parquet": parquet or table, "plot": plot}
    return {kind: None if file is None else str(file) for kind, file in files.items()}


def _data(store: "Store") -> dict[str, object]:
    """Points and their rows for a document; very many are only in the database."""
    from kernbench.sweep.export import typed_rows

    total = int(str(store.query("SELECT count(*) FROM points")[0][0]))
    counts = store.counts()
    rows = list(typed_rows(store)) if total <= _MOST_ROWS else None
    return {"points": total, "failed": counts.failed, "refused": counts.refused, "rows": rows}


def _verdict(store: "Store", out: Path) -> int:
    """The exit code for the requested points, with commands for failed ones; the store may hold more points."""
    plan, counts = store.plan, store.counts()
    if counts.refused:
        errors().print(
            f"{counts.refused:,} of {counts.done:,} points refused; --retry-failed tries them again", soft_wrap=True
        )
    if counts.failed:
        errors().print(
            f"{counts.failed:,} of {counts.done:,} points failed; column failed of {out} says why, and --retry-failed "
            "runs them again; to repeat one:",
            soft_wrap=True,
        )
    for row in store.rows("failed IS NOT NULL", _COMMANDS, asked=True):
        where = f" at {row['failed_at']}" if row["failed_at"] else ""
        errors().print(f"  {row['repeat']}\n    {row['failed']}{where}", soft_wrap=True)
    _more(counts.failed)
    if counts.bad:
        errors().print(f"{counts.bad:,} of {counts.done:,} points wrong or unsafe; to see why:")
    bad = "failed IS NULL AND refused IS NULL AND (safe IS NOT 1 OR right IS 0)"
    for row in store.rows(bad, _COMMANDS, asked=True):
        errors().print(f"  {plan.command(row)}", soft_wrap=True)
    _more(counts.bad)
    return FOUND if counts.bad or counts.refused or counts.failed else RIGHT_AND_SAFE


def _more(count: int) -> None:
    if count > _COMMANDS:
        errors().print(f"  and so on for {count - _COMMANDS:,} more")


def _table(title: str, keys: tuple[str, ...], rows: list[Data], total: int) -> Table:
    table = Table(title=title, title_justify="left")
    for column in (*keys, "right", "safe", "time", "bound", "x floor"):
        table.add_column(column, justify="left" if column in ("right", "safe") else "right", no_wrap=True)
    reasons = [name for name in ("refused", "failed", "caveat") if any(row[name] for row in rows)]
    for name in reasons:
        table.add_column(name, min_width=_NARROWEST, overflow="fold")
    for row in rows:
        time = "" if row["time_ps"] is None else duration(row["time_ps"])
        ratio = "" if row["floor_ratio"] is None else f"{row['floor_ratio']:.2f}"
        cells: list[str | Text] = [*(str(row[k]) for k in keys), *_answers(row), time, row["bound"] or "", ratio]
        table.add_row(*cells, *(row[name] or "" for name in reasons))
    if total > len(rows):
        table.caption = f"and {total - len(rows):,} more"
    return table


def _answers(row: Data) -> list[Text]:
    """Right and safe, in the words of all tables; empty for a refused or failed point."""
    return [Text() if row["refused"] or row["failed"] else answer(row[key]) for key in ("right", "safe")]
