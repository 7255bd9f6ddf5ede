"""Where the commands print: results on standard output, progress and errors on standard error; the exit codes."""

import io
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, TYPE_CHECKING

from kernbench.common.errors import BenchError
from kernbench.targets.registry import listed

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress

RIGHT_AND_SAFE, FOUND, MISUSE, INTERRUPTED = 0, 1, 2, 130
# tables in fewer columns show nothing that can be read: a narrower terminal wraps them
_NARROWEST = 60
# files that the command of this process was asked for
_PROMISED: list[Path] = []
# what people write by hand
_SOURCES = (".py", ".toml")


def results() -> "Console":
    """Standard output; wide enough that tables are whole when it is no terminal and nobody says how wide it is."""
    from kernbench.cli.output.pipes import Console

    console = Console(markup=False, highlight=False)
    if console.is_terminal or "COLUMNS" in os.environ:
        console.width = max(console.width, _NARROWEST)
        return console
    return Console(markup=False, highlight=False, width=160)


def print_anything() -> None:
    """Let characters that a stream cannot take (in an ASCII locale, say) be written as escapes."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def print_nothing_more(stream: IO[str] | None) -> None:
    """Forget what a stream has not taken and will be given; Python would try again, and complain, when it ends."""
    if stream is not None:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def errors() -> "Console":
    """Standard error."""
    from kernbench.cli.output.pipes import Console

    return Console(stderr=True, markup=False, highlight=False)


def show_notes() -> None:
    """Let what the library notes (that it is compiling, say) be seen where standard error is a terminal."""
    if not sys.stderr.isatty():
        return
    import logging

    class Shown(logging.Handler):
        """Prints as errors are printed: between the lines of a spinner, where there is one."""

        def emit(self, record: logging.LogRecord) -> None:
            errors().print(record.getMessage(), style="dim", soft_wrap=True)

    notes = logging.getLogger("kernbench")
    notes.addHandler(Shown())
    notes.setLevel(logging.INFO)


@contextmanager
def progress(total: int, by_itself: bool = True) -> Iterator["Progress"]:
    """A spinner with what is being done, shown on a terminal only and gone when done.

    `by_itself`: a thread keeps it turning; without, whoever forks processes meanwhile calls its `refresh`.
    """
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TextColumn("{task.completed}/{task.total}"))
    shown = Progress(*columns, TimeElapsedColumn(), console=errors(), transient=True, auto_refresh=by_itself)
    with shown as bar:
        bar.add_task("", total=total)
        yield bar


def promise(files: Mapping[str, Path | None]) -> None:
    """Note that the command will write those files that are named."""
    _PROMISED.extend(file for file in files.values() if file is not None)


def owes_files() -> bool:
    """Whether the command was asked for files."""
    return bool(_PROMISED)


def check_target(option: str, file: Path, replaces: bool = False) -> None:
    """Refuse a file that cannot be written before the work begins, and one of source, unless the option replaces it."""
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
    """Open the file, or one without a name in its folder: whether that takes one, as /proc does not, shows only so."""
    try:
        with file.open("ab") if file.exists() else TemporaryFile(dir=file.parent):
            pass
    except OSError as problem:
        raise BenchError(f"{option} {file} cannot be written: {problem.strerror or problem}") from None


def _sources() -> tuple[str, ...]:
    """Suffixes of files that people write by hand, for any target."""
    return (*_SOURCES, *(suffix for row in listed() for suffix in row.sources))


def check_targets(files: Mapping[str, Path | None], replaces: str = "") -> None:
    """As `check_target` for each option that names a file; no two may name the same. `replaces` names an option that
    writes source.

    The command will write these files: from here on it goes to its end, also where nobody reads what it prints.
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
