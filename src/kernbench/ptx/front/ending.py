"""Ending a program that was begun here, with the processes that it has begun: none of them goes on working, or holds an
output open for which somebody waits.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

_STEP = 0.05
# a process by its number and the time at which it began: numbers are used again
Process = tuple[int, str]


def end_program(child: "subprocess.Popen[bytes]", grace: float) -> None:
    """End a program: first it is asked to, which lets Python's own end run; then what it began and left behind."""
    begun = set(descendants(child.pid))
    child.terminate()
    try:
        child.wait(grace)
    except subprocess.TimeoutExpired:
        begun |= set(descendants(child.pid))
        child.kill()
        child.wait()
    for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, grace)):
        begun = {one for process in begun for one in (process, *descendants(process[0])) if _lives(one)}
        for process, _ in begun:
            with suppress(ProcessLookupError, PermissionError):
                os.kill(process, number)
        end = time.monotonic() + seconds
        while any(map(_lives, begun)) and time.monotonic() < end:
            time.sleep(_STEP)


def descendants(process: int) -> Iterator[Process]:
    """The processes that one has begun, and those that these have begun; on systems without /proc none is seen."""
    children: dict[int, list[Process]] = {}
    for path in Path("/proc").glob("[0-9]*"):
        known = _stat(int(path.name))
        if known is not None:
            children.setdefault(known[1], []).append((int(path.name), known[2]))
    waiting = [process]
    while waiting:
        for found in children.get(waiting.pop(), []):
            yield found
            waiting.append(found[0])


def _stat(process: int) -> tuple[str, int, str] | None:
    """State, parent and beginning of a process; None of one that has ended."""
    try:
        words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return words[0], int(words[1]), words[19]
    except (OSError, ValueError, IndexError):
        return None


def _lives(process: Process) -> bool:
    """Whether it is still the same process, and works."""
    known = _stat(process[0])
    return known is not None and known[2] == process[1] and known[0] not in "ZX"
