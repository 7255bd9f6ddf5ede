"""Options of the commands that look inside a run, and their output."""

from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from kernbench.bench.running.stopping import run_until
from kernbench.cli.output.console import FOUND, RIGHT_AND_SAFE, results
from kernbench.cli.output.document import write_document
from kernbench.common.errors import BenchError
from kernbench.report import run_text
from kernbench.report.text.printed import printed_text
from kernbench.report.text.stopped import stopped_table, write_dump
from kernbench.result.run import Run
from kernbench.safety.stopping import Stopper

STOP_AT = Annotated[
    str | None,
    typer.Option(
        "--stop-at",
        metavar="LOCATION",
        help="Stop inside the kernel and show what it holds: FILE:LINE, FILE:LINE#N (the N-th time), or finding.",
    ),
]
DUMP = Annotated[
    Path | None,
    typer.Option("--dump", metavar="FILE", help="With --stop-at: write the arrays it shows to this .npz file."),
]


FIRST_WRONG = Annotated[
    bool,
    typer.Option(
        "--first-wrong",
        help="Compare values that the kernel names (tl., core. or ctx.checkpoint) with the bench's intermediates: "
        "which is the first to leave them?",
    ),
]


def check_first_wrong(stop_at: str | None, shapes_only: bool, all_algorithms: bool) -> None:
    """Intermediates are values of one whole run."""
    if stop_at is not None or shapes_only or all_algorithms:
        raise BenchError("--first-wrong follows whole runs with data: leave --stop-at, --shapes-only and such away")


def check_options(stop_at: str | None, dump: Path | None) -> None:
    """A dump needs the point where a run stops."""
    if dump is not None and stop_at is None:
        raise BenchError(f"--dump {dump}: it takes what the kernel holds at a location, so name one with --stop-at")


def stop_and_print(
    stop_at: str,
    dump: Path | None,
    json: Path | None,
    command: str,
    title: str,
    launched: Callable[[Stopper], Run],
    strict: bool = False,
) -> None:
    """Run until the stopping point, print the values, and end the command."""
    result = run_until(stop_at, launched, strict)
    console = results()
    if result.findings:
        console.print(run_text(title, result), highlight=False, soft_wrap=True)
    if "printf" in result.views:
        console.print(printed_text(title, result), soft_wrap=True)
    console.print(stopped_table(title, result), highlight=False)
    if dump is not None:
        write_dump(dump, result)
        console.print(f"wrote {dump}: {len(result.views['stopped']['arrays'])} arrays by name", soft_wrap=True)
    write_document(json, command, result.to_dict)
    raise typer.Exit(FOUND if result.findings else RIGHT_AND_SAFE)
