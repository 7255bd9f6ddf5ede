"""How a program that kernbench started ended; or ends it with all its descendants: none keeps running, or holds an
output open.
"""

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_STEP = 0.05
# a process: its pid and its start time, since pids are reused
Process = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Ended:
    """A program's exit code as shells report it, and the reason if it did not end by itself."""

    code: int
    by: str = ""


def end_program(child: "subprocess.Popen[bytes]", grace: float) -> None:
    """Terminate a program and wait `grace` seconds, then kill it; then do the same with its remaining descendants."""
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
    """All descendants of a process; without /proc none are found."""
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
    """State, parent and start time of a process; None if it has ended."""
    try:
        words = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
        return words[0], int(words[1]), words[19]
    except (OSError, ValueError, IndexError):
        return None


def _lives(process: Process) -> bool:
    """Whether the process still runs: the pid was not reused, and it is no zombie."""
    known = _stat(process[0])
    return known is not None and known[2] == process[1] and known[0] not in "ZX"
