"""The command line: one file per command; the only place that prints."""

import sys

import typer

from kernbench import __version__
from kernbench.cli import check, compare, machine, new, ptx, report, run, show, sweep
from kernbench.cli import list as list_command
from kernbench.cli.output import MISUSE, errors
from kernbench.common.errors import KernbenchError

app = typer.Typer(
    name="kernbench",
    help="Run attention kernels on accelerators you do not have: is it right, is it safe, how fast and why.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command("list")(list_command.list_benches)
app.command("run")(run.run)
app.command("show")(show.show)
app.command("sweep")(sweep.sweep)
app.command("report")(report.report)
app.command("compare")(compare.compare)
app.command("check")(check.check)
app.command("new")(new.new)
app.add_typer(machine.app, name="machine")
app.add_typer(ptx.app, name="ptx")


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kernbench {__version__}")
        raise typer.Exit


@app.callback()
def common(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Run attention kernels on accelerators you do not have: is it right, is it safe, how fast and why."""


def main() -> None:
    """Entry point: misuse is told in a sentence and ends with exit code 2."""
    try:
        app()
    except KernbenchError as error:
        errors().print(f"error: {error}", style="red", soft_wrap=True)
        sys.exit(MISUSE)
