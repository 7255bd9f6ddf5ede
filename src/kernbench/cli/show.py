"""`kernbench show`: what a bench is made of, and what a rank of it does."""

from pathlib import Path
from typing import Annotated

import typer
from rich.syntax import Syntax
from rich.table import Table

from kernbench.bench import Bench, describe, find, run_bench
from kernbench.cli.output import progress, results
from kernbench.cli.run import DTYPE, NAME, SEED, SETTINGS, parse_settings
from kernbench.common.errors import BenchError
from kernbench.report import commands_table
from kernbench.result.finding import rank_ranges

PANEL = Annotated[
    str | None, typer.Option("--panel", "-p", help="The panel whose commands are shown; without it the first.")
]
RANK = Annotated[int, typer.Option(help="The rank whose commands are shown.")]
LAST = Annotated[int, typer.Option(help="How many of its last commands; 0 shows none and runs nothing.", min=0)]
SOURCE = Annotated[bool, typer.Option(help="Show the source of the bench.")]


def show(
    name: NAME,
    panel: PANEL = None,
    settings: SETTINGS = None,
    seed: SEED = 0,
    dtype: DTYPE = None,
    rank: RANK = 0,
    last: LAST = 12,
    source: SOURCE = True,
) -> None:
    """Show a bench's parameters, its source, and the last commands of a rank of the first (or given) panel."""
    bench = find(name)
    values = parse_settings(bench, settings or [], dtype=dtype)
    console = results()
    console.print(f"{bench.name}: {bench.summary}")
    console.print(_parameters(bench))
    if bench.panels:
        console.print(_panels(bench))
    if source:
        console.print(
            Syntax(
                Path(bench.file).read_text(errors="replace"), "python", line_numbers=True, background_color="default"
            )
        )
    if last:
        console.print(_commands(bench, panel or next(iter(bench.panels), None), values, seed, rank, last))


def _parameters(bench: Bench) -> Table:
    table = Table(title="parameters (--set name=value)", title_justify="left")
    for column in ("name", "type", "default", "allowed", "meaning"):
        table.add_column(column, overflow="fold")
    for row in describe(bench.parameters):
        table.add_row(row.name, row.kind, str(row.default), row.allowed, row.help)
    return table


def _panels(bench: Bench) -> Table:
    table = Table(title="panels (--panel name)", title_justify="left")
    table.add_column("name", no_wrap=True)
    table.add_column("values", overflow="fold")
    for name, values in bench.panels.items():
        table.add_row(name, ", ".join(f"{k}={v}" for k, v in values.items()))
    return table


def _commands(bench: Bench, panel: str | None, values: dict[str, str], seed: int, rank: int, last: int) -> Table | str:
    with progress(1) as bar:
        bar.update(bar.task_ids[0], description=panel or bench.name)
        run = run_bench(bench, panel, values, seed)
    recording = run.recording
    if not hasattr(recording, "of_rank"):
        return f"no commands to show: bench {bench.name} records none by rank, as mesh kernels do"
    stream = recording.of_rank(rank) if recording is not None else None
    if recording is None or stream is None:
        ranks = rank_ranges(s.rank for s in recording.streams) if recording else "none"
        raise BenchError(f"rank {rank} dispatched no command; those that did: {ranks}")
    first = max(0, len(stream) - last)
    title = f"last {len(stream) - first} of {len(stream)} commands of rank {rank}" + (f", {panel}" if panel else "")
    return commands_table(title, stream[first:], first)
