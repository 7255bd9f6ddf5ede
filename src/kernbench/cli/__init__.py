"""The command line: one file per command; the only package that prints."""

import atexit
import errno
import os
import sys
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from kernbench import __version__
from kernbench.cli.arguments.examples import examples
from kernbench.cli.commands import add_commands, groups
from kernbench.cli.output.console import FOUND, MISUSE, errors, print_anything, print_nothing_more, show_notes
from kernbench.cli.output.document import (
    STDOUT,
    error_data,
    standard_output_for_documents,
    wants_stdout,
    write_document,
)
from kernbench.common.errors import KernbenchError
from kernbench.common.files import why
from kernbench.safety.processes.interpreter import restore_builtins
from kernbench.safety.processes.leaving import freeze
from kernbench.targets.registry import DEFAULT

if TYPE_CHECKING:
    app: typer.Typer

# commands that run a user's file in this process
_RUNNING = ("run", "show")
# errors of the system if files, or room for them, are used up
_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOSPC, errno.EDQUOT)
# environment variables in which shells pass a line to be completed
_COMPLETED = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")


def __getattr__(name: str) -> typer.Typer:
    """`app`, with every command: made on first use, as it imports everything."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    whole = globals()[name] = application()
    return whole


def application(words: Collection[str] | None = None) -> typer.Typer:
    """All commands; given the words of a command line, those it does not name are listed but not imported."""
    made = typer.Typer(
        name="kernbench",
        help="Run attention kernels on accelerators you do not have: is it right, is it safe, how fast and why.",
        no_args_is_help=True,
        add_completion=True,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        epilog=examples(
            "kernbench list", f"kernbench new {DEFAULT.name} my_ring", "kernbench run my_ring.py --html my_ring.html"
        ),
    )
    add_commands(made, words)
    made.callback()(common)
    return made


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"kernbench {__version__}")
        raise typer.Exit


def common(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Run attention kernels on accelerators you do not have: is it right, is it safe, how fast and why."""


def main() -> None:
    """Entry point: misuse is reported in a sentence and ends with exit code 2; with `--json -` as a document, too."""
    words = sys.argv[1:]
    atexit.register(freeze)
    if words[:1] and words[0] in _RUNNING:
        # other commands do not need its imports
        from kernbench.cli.processes.guard import guarded, runs_files

        if runs_files(words[1:]):
            sys.exit(guarded(words, lambda: _command_line(words)))
    _command_line(words)


def _command_line(words: Sequence[str]) -> None:
    """Run a command; ends with SystemExit."""
    print_anything()
    show_notes()
    try:
        named = application({*words, *(word for key in _COMPLETED for word in os.environ.get(key, "").split())})
        if wants_stdout(words):
            with standard_output_for_documents():
                code = _run_as_document(named, words)
            sys.exit(code)
        named()
    except KernbenchError as error:
        _print_error(error)
        sys.exit(MISUSE)
    except OSError as error:
        # an error of a file has its name
        if error.filename is not None and error.errno not in _EXHAUSTED:
            raise
        sys.exit(_not_written(error) if error.filename is None else _used_up(f"{error.filename}: {error.strerror}"))
    except MemoryError as error:
        sys.exit(_used_up(f"out of memory: {error}" if str(error) else "out of memory"))
    except Exception as error:
        # what follows needs them, imports too
        builtins = restore_builtins()
        why = _blamed(error, words, builtins)
        if why is None:
            raise
        _print_error(why)
        sys.exit(MISUSE)


def _blamed(error: Exception, words: Sequence[str], builtins: Sequence[str]) -> KernbenchError | None:
    """An error about Python or NumPy, if the file on the command line has replaced functions of them."""
    from kernbench.bench.discovery.libraries import blamed

    return blamed(error, [Path(word) for word in words if word.endswith(".py")], builtins)


def _used_up(what: str) -> int:
    """The exit code where memory, files or room for them are used up."""
    # printed plainly: the console's modules may not be loaded yet, and that needs memory and files, too
    text = f"error: {what}: give the process more, or take a smaller size; the file that was run may limit it\n"
    os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, text.encode(errors="backslashreplace"))
    return MISUSE


def _not_written(error: OSError) -> int:
    """The exit code when standard output cannot be written: a closed pipe is not an error, anything else is."""
    print_nothing_more(sys.__stdout__)
    if isinstance(error, BrokenPipeError):
        return FOUND
    errors().print(f"error: standard output cannot be written: {why(error)}", style="red", soft_wrap=True)
    return MISUSE


def _run_as_document(named: typer.Typer, words: Sequence[str]) -> int:
    """Run a command with standard output reserved for its document; returns the exit code."""
    # the base class of the parser's exceptions has no public name
    usage: Any = typer.BadParameter.__base__
    try:
        return int(named(standalone_mode=False) or 0)
    except KernbenchError as error:
        _print_error(error)
        write_document(STDOUT, _command(words), error_data(error, str(error)))
        return MISUSE
    except usage as error:
        error.show()
        write_document(STDOUT, _command(words), error_data(error, error.format_message()))
        return int(error.exit_code)


def _print_error(error: KernbenchError) -> None:
    errors().print(f"error: {error}", style="red", soft_wrap=True)


def _command(words: Sequence[str]) -> str:
    """The command on a command line, as documents name it."""
    named = [word for word in words if not word.startswith("-")]
    return " ".join(named[: 2 if named[:1] and named[0] in groups() else 1])
