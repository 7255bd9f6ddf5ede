"""`kernbench show`: the parameters and source of a bench, and the commands of a rank."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.syntax import Syntax
from rich.table import Table

from kernbench.bench import Bench, describe, find, run_bench
from kernbench.cli.arguments.completion import panels
from kernbench.cli.arguments.options import DTYPE, MACHINE, NAME, SEED, SETTINGS
from kernbench.cli.arguments.request import parse_settings
from kernbench.cli.output.console import check_targets, progress, results
from kernbench.cli.output.document import JSON, write_document
from kernbench.common.pe_commands import PeCommand
from kernbench.report import commands_table
from kernbench.result.finding import location_dict
from kernbench.result.reading import Data
from kernbench.targets.registry import listed, of_run

PANEL = Annotated[
    str | None,
    typer.Option(
        "--panel",
        "-p",
        metavar="NAME",
        help="The panel whose commands are shown; without it the first.",
        autocompletion=panels,
    ),
]
RANK = Annotated[int, typer.Option("--rank", metavar="N", help="The rank whose commands are shown.")]
LAST = Annotated[
    int,
    typer.Option("--last", metavar="N", help="How many of its last commands; 0 shows none and runs nothing.", min=0),
]
SOURCE = Annotated[bool, typer.Option("--source/--no-source", help="Show the source of the bench.")]


def show(
    name: NAME,
    panel: PANEL = None,
    settings: SETTINGS = None,
    seed: SEED = 0,
    dtype: DTYPE = None,
    machine: MACHINE = None,
    rank: RANK = 0,
    last: LAST = 12,
    source: SOURCE = True,
    json: JSON = None,
) -> None:
    """Show a bench's parameters, its source, and the last commands of a rank of the first (or given) panel."""
    check_targets({"--json": json})
    bench = find(name)
    values = parse_settings(bench, settings or [], machine, dtype=dtype)
    console = results()
    console.print(f"{bench.name}: {bench.summary}")
    console.print(_parameters(bench))
    if bench.panels:
        console.print(_panels(bench))
    text = Path(bench.file).read_text(errors="replace")
    if source:
        console.print(Syntax(text, "python", line_numbers=True, background_color="default"))
    panel = panel or next(iter(bench.panels), None)
    stream = _stream(bench, panel, values, seed, rank) if last else None
    first = max(0, len(stream) - last) if stream is not None else 0
    if stream is not None:
        title = f"last {len(stream) - first} of {len(stream)} commands of rank {rank}"
        console.print(commands_table(title + (f", {panel}" if panel else ""), stream[first:], first))
    elif last:
        console.print(f"no commands to show: bench {bench.name} records none by rank, as {_by_rank()} kernels do")
    shown = None if stream is None else _commands_data(stream, panel, rank, first)
    write_document(json, "show", {**_data(bench), "source": text if source else None, "commands": shown})


def _by_rank() -> str:
    """The targets that record the commands of each rank."""
    return " and ".join(row.name for row in listed() if row.by_rank)


def _data(bench: Bench) -> Data:
    parameters = [asdict(row) for row in describe(bench.parameters)]
    facts = {"name": bench.name, "summary": bench.summary, "file": bench.file}
    return {**facts, "parameters": parameters, "panels": dict(bench.panels), "sizes": list(bench.sizes)}


def _commands_data(stream: Sequence[PeCommand], panel: str | None, rank: int, first: int) -> dict[str, object]:
    rows = [
        {"number": number, "command": one.op, "engine": one.engine, "where": location_dict(one.where)}
        for number, one in enumerate(stream[first:], first)
    ]
    return {"panel": panel, "rank": rank, "count": len(stream), "last": rows}


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


def _stream(
    bench: Bench, panel: str | None, values: dict[str, str], seed: int, rank: int
) -> Sequence[PeCommand] | None:
    """The commands of a rank; None for a bench that records none by rank."""
    with progress(1) as bar:
        bar.update(bar.task_ids[0], description=panel or bench.name)
        run = run_bench(bench, panel, values, seed)
    return of_run(run).commands_of(run, rank)
