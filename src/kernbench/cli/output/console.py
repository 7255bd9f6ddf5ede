"""The consoles of commands: results on standard output, progress and errors on standard error; the exit codes."""

import io
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING

from kernbench.common.errors import BenchError
from kernbench.common.files import why
from kernbench.targets.registry import listed

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

RIGHT_AND_SAFE, FOUND, MISUSE, INTERRUPTED = 0, 1, 2, 130
# tables in fewer columns are unreadable: a narrower terminal wraps them; elsewhere no table is as wide as this
_NARROWEST, _WIDEST = 60, 10_000
# files that the command of this process will write
_PROMISED: list[Path] = []
# suffixes of source files
_SOURCES = (".py", ".toml")


def results() -> "Console":
    """Standard output; wide enough for whole tables unless it is a terminal or has a given width."""
    return _wide_enough(stderr=False)


def _wide_enough(stderr: bool) -> "Console":
    from kernbench.cli.output.pipes import Console

    console = Console(stderr=stderr, markup=False, highlight=False)
    if console.is_terminal or "COLUMNS" in os.environ:
        console.width = max(console.width, _NARROWEST)
    else:
        console.width = _WIDEST
    return console


def print_anything() -> None:
    """Write characters that a stream cannot encode (in an ASCII locale, say) as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def print_nothing_more(stream: IO[str] | None) -> None:
    """Discard what a stream has not written; Python would otherwise retry at exit, and complain."""
    if stream is not None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def errors() -> "Console":
    """Standard error; as wide as standard output."""
    return _wide_enough(stderr=True)


def show_notes() -> None:
    """Show notes of the library (that it is compiling, say) if standard error is a terminal."""
    if not sys.stderr.isatty():
        return
    import logging

    class Shown(logging.Handler):
        """Prints like errors: between the lines of a spinner, if there is one."""

        def emit(self, record: logging.LogRecord) -> None:
            errors().print(record.getMessage(), style="dim", soft_wrap=True)

    notes = logging.getLogger("kernbench")
    notes.addHandler(Shown())
    notes.setLevel(logging.INFO)


@contextmanager
def progress(total: int, by_itself: bool = True) -> Iterator["Progress"]:
    """A spinner with the current activity, shown on a terminal only and removed at the end.

    `by_itself`: a thread animates it; otherwise a caller that forks processes meanwhile calls its `refresh`.
    """
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TextColumn("{task.completed}/{task.total}"))
    shown = Progress(*columns, TimeElapsedColumn(), console=errors(), transient=True, auto_refresh=by_itself)
    with shown as bar:
        bar.add_task("", total=total)
        yield bar


def promise(files: Mapping[str, Path | None]) -> None:
    """Record the files that the command will write."""
    _PROMISED.extend(file for file in files.values() if file is not None)


def owes_files() -> bool:
    """Whether the command will write files."""
    return bool(_PROMISED)


def check_target(option: str, file: Path, replaces: bool = False) -> None:
    """Refuse a file that cannot be written before the work begins, and source files, unless the option replaces
    them.
    """
    if file.is_dir():
        raise BenchError(f"{option} {file} is a folder: name a file in it, such as {file / 'result'}")
    if not file.parent.is_dir():
        raise BenchError(f"{option} {file}: there is no folder {file.parent} to write it to; make it first")
    if file.exists() and not file.is_file():
        raise BenchError(f"{option} {file} is no ordinary file: choose another name")
    if file.exists() and not replaces and file.resolve().suffix in _sources():
        raise BenchError(f"{option} {file} would write over a file of source: choose another name, or remove it first")
    _require_writable(option, file)


def _require_writable(option: str, file: Path) -> None:
    """Test by opening the file, or an unnamed one in its folder: only that shows whether it can be written (as in
    /proc).
    """
    try:
        with file.open("ab") if file.exists() else TemporaryFile(dir=file.parent):
            pass
    except OSError as problem:
        raise BenchError(f"{option} {file} cannot be written: {why(problem)}") from None


def _sources() -> tuple[str, ...]:
    """Suffixes of source files, for any target."""
    return (*_SOURCES, *(suffix for row in listed() for suffix in row.sources))


def check_targets(files: Mapping[str, Path | None], replaces: str = "") -> None:
    """`check_target` for each option that names a file; all must differ. `replaces` names an option that
    writes source.

    The command will write these files: from here on it runs to its end, even if its output is not read.
    """
    promise(files)
    named: dict[Path, str] = {}
    for option, file in files.items():
        # --json - is standard output
        if file is None or (option, str(file)) == ("--json", "-"):
            continue
        check_target(option, file, option == replaces)
        first = named.setdefault(file.resolve(), option)
        if first != option:
            raise BenchError(f"{first} and {option} both name {file}")
