"""What a worker and the programs that it starts print: passed on by the process that holds the standard error.

Programs that a kernel leaves behind hold the worker's end of a pipe open, and not the standard error itself: whoever
reads that need not wait for them.
"""

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

# bytes that a full pipe may contain
_FULL_PIPE = 1 << 16


class Printed:
    """A pipe from a worker."""

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe()
        os.set_blocking(self._reading, False)
        self.ended = False

    def fileno(self) -> int:
        """The descriptor that has something to read."""
        return self._reading

    def pass_on(self) -> None:
        """Pass on what is there."""
        with contextlib.suppress(BlockingIOError):
            text = os.read(self._reading, _FULL_PIPE)
            self.ended = not text
            # a closed or full output is no concern of a sweep
            with contextlib.suppress(OSError):
                os.write(2, text)

    def close(self) -> None:
        """Pass on the rest, and close the pipe."""
        self.pass_on()
        os.close(self._reading)


def made() -> Printed | None:
    """A pipe, on systems whose pipes can be waited for."""
    return Printed() if os.name == "posix" else None


def descendants(process: int) -> list[int]:
    """The processes that a process has started, and those that these have; empty on systems other than Linux."""
    found: list[int] = []
    waiting = [process]
    while waiting:
        children = list(_children(waiting.pop()))
        found += children
        waiting += children
    return found


def _children(process: int) -> Iterator[int]:
    with contextlib.suppress(OSError):
        for thread in Path(f"/proc/{process}/task").iterdir():
            yield from map(int, (thread / "children").read_text().split())
