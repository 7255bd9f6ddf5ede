"""Where the commands print: results on standard output, progress and errors on standard error; the exit codes."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

RIGHT_AND_SAFE, FOUND, MISUSE = 0, 1, 2


def results() -> Console:
    """Standard output; wide enough that tables are whole when it is no terminal and nobody says how wide it is."""
    console = Console(markup=False, highlight=False)
    if console.is_terminal or "COLUMNS" in os.environ:
        return console
    return Console(markup=False, highlight=False, width=160)


def errors() -> Console:
    """Standard error."""
    return Console(stderr=True, markup=False, highlight=False)


@contextmanager
def progress(total: int) -> Iterator[Progress]:
    """A spinner with what is being done, shown on a terminal only and gone when done."""
    columns = (SpinnerColumn(), TextColumn("{task.description}"), TextColumn("{task.completed}/{task.total}"))
    with Progress(*columns, TimeElapsedColumn(), console=errors(), transient=True) as bar:
        bar.add_task("", total=total)
        yield bar
