"""The command line: one file per command; the only place that prints."""

import sys
from collections.abc import Sequence
from contextlib import redirect_stdout
from typing import Any

import typer

from kernbench import __version__
from kernbench.cli import check, compare, machine, new, ptx, report, run, show, sweep
from kernbench.cli import list as list_command
from kernbench.cli.document import STDOUT, error_data, wants_stdout, write_document
from kernbench.cli.examples import examples
from kernbench.cli.output import FOUND, MISUSE, errors, print_anything, print_nothing_more
from kernbench.common.errors import KernbenchError

app = typer.Typer(
    name="kernbench",
    help="Run attention kernels on accelerators you do not have: is it right, is it safe, how fast and why.",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    epilog=examples("kernbench list", "kernbench new mesh my_ring", "kernbench run my_ring.py --html my_ring.html"),
)
app.command(
    "list",
    short_help="The bundled benches and their panels.",
    epilog=examples("kernbench list", "kernbench list --json -"),
)(list_command.list_benches)
app.command(
    "run",
    short_help="Run a bench: is it right, is it safe, how fast and why.",
    epilog=examples(
        "kernbench run my_ring.py --set n_ranks=8 --html my_ring.html",
        "kernbench run milestone_gqa_llama70b -p single_user_decode -m small",
        "kernbench run my_ring.py --json - | jq '.runs[].safe'",
    ),
)(run.run)
app.command(
    "show",
    short_help="A bench's parameters, source, and a rank's last commands.",
    epilog=examples("kernbench show milestone_gqa_llama70b --rank 2 --no-source"),
)(show.show)
app.command(
    "sweep",
    short_help="A bench over many values of parameters and machine keys.",
    epilog=examples("kernbench sweep my_ring.py --over n_ranks=2,4,8 --over S=32,64"),
)(sweep.sweep)
app.command(
    "report",
    short_help="Saved runs as one page to open.",
    epilog=examples("kernbench report runs.json --html runs.html"),
)(report.report)
app.command(
    "compare",
    short_help="Two saved runs beside each other, and why they differ.",
    epilog=examples("kernbench compare before.json after.json --html change.html"),
)(compare.compare)
app.command(
    "check",
    short_help="All benches of a folder: right and safe, or not.",
    epilog=examples("kernbench check kernels --junit verdicts.xml", "kernbench check kernels --baseline known.toml"),
)(check.check)
app.command(
    "new",
    short_help="A small, working bench to start from.",
    epilog=examples("kernbench new mesh my_ring", "kernbench new ptx my_kernel --dir kernels"),
)(new.new)
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
    """Entry point: misuse is told in a sentence and ends with exit code 2; with `--json -` as a document, too."""
    words = sys.argv[1:]
    print_anything()
    try:
        if wants_stdout(words):
            with redirect_stdout(sys.stderr):
                code = _told_as_document(words)
            sys.exit(code)
        app()
    except KernbenchError as error:
        _tell(error)
        sys.exit(MISUSE)
    except OSError as error:
        # that of a file names it
        if error.filename is not None:
            raise
        sys.exit(_not_written(error))


def _not_written(error: OSError) -> int:
    """The exit code where standard output takes nothing: whoever closed a pipe has read enough, others are told."""
    print_nothing_more()
    if isinstance(error, BrokenPipeError):
        return FOUND
    errors().print(f"error: standard output cannot be written: {error.strerror}", style="red", soft_wrap=True)
    return MISUSE


def _told_as_document(words: Sequence[str]) -> int:
    """Run a command whose document has standard output for itself; the exit code."""
    # what the parser of the command line raises is not public under a name of its own
    usage: Any = typer.BadParameter.__base__
    try:
        return int(app(standalone_mode=False) or 0)
    except KernbenchError as error:
        _tell(error)
        write_document(STDOUT, _command(words), error_data(error, str(error)))
        return MISUSE
    except usage as error:
        error.show()
        write_document(STDOUT, _command(words), error_data(error, error.format_message()))
        return int(error.exit_code)


def _tell(error: KernbenchError) -> None:
    errors().print(f"error: {error}", style="red", soft_wrap=True)


def _command(words: Sequence[str]) -> str:
    """The command that a command line names, as documents call it."""
    named = [word for word in words if not word.startswith("-")]
    groups = [group.name for group in app.registered_groups]
    return " ".join(named[: 2 if named[:1] and named[0] in groups else 1])
