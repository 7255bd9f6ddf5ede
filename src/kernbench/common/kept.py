"""Where machine code of loops lies on disk, and that no two processes compile the same one at once."""

import fcntl
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

# objects of numba and of what it compiles: it publishes no types of them
Numba = Any
# seconds to wait for another process that compiles the same loop; one that is stuck must not stop us
_PATIENCE = 120.0
_LOOK_AGAIN = 0.02


@cache
def _resolved(path: str) -> str:
    """A path without links: each part of it is asked for, which takes longer than to read a loop."""
    return os.path.realpath(path)


class RoomFolder:
    """The folder of a loop: named after its room, so that it is the same wherever kernbench is installed.

    The folder above is named after the sources; a file that is not one of them is known by what stands in it.
    """

    def __init__(self, function: Numba, folder: str, package: Path):
        self._py_file = function.__code__.co_filename
        self._line = function.__code__.co_firstlineno
        path, within = _resolved(self._py_file), os.path.join(_resolved(str(package)), "")
        ours = path.startswith(within)
        room = os.path.dirname(path[len(within) :]).replace(os.sep, ".") if ours else self._elsewhere(path)
        self._folder = os.path.join(folder, room or "loops")

    @staticmethod
    def _elsewhere(path: str) -> str:
        content = sha256(Path(path).read_bytes()).hexdigest()
        return f"file_{sha256(path.encode()).hexdigest()[:8]}_{content[:16]}"

    def get_cache_path(self) -> str:
        """Where its files lie."""
        return self._folder

    def get_source_stamp(self) -> str:
        """The folder is named after the sources, so that nothing else is compared."""
        return ""

    def get_disambiguator(self) -> str:
        """What distinguishes two functions of one name."""
        return str(self._line)


class Turn:
    """The right to compile a loop: a lock on a file, which ends with the process that has it."""

    def __init__(self, path: str, waiting: Callable[[], AbstractContextManager[None]]):
        self._path = path
        self._waiting = waiting
        self._file: int | None = None

    def take(self) -> None:
        """Wait until no other process compiles the loop; where no lock can be had, or for too long, go on without."""
        if self._file is not None:
            return
        with suppress(OSError):
            self._file = os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
            if not self._locked():
                with self._waiting():
                    self._wait()

    def _wait(self) -> None:
        until = time.monotonic() + _PATIENCE
        while time.monotonic() < until and not self._locked():
            time.sleep(_LOOK_AGAIN)

    def _locked(self) -> bool:
        assert self._file is not None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def give_up(self) -> None:
        """Let others compile it."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
