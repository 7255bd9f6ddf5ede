"""Where machine code of loops is cached on disk, and the lock that lets only one process compile a loop."""

import fcntl
import os
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

# objects of numba and of code compiled by it: numba publishes no types for them
Numba = Any
# seconds to wait for another process that compiles the same loop; it may hang, and must not block us
_PATIENCE = 120.0
_LOOK_AGAIN = 0.02


@cache
def _resolved(path: str) -> str:
    """A path without symbolic links; cached, as resolving each component takes longer than reading a loop."""
    return os.path.realpath(path)


class RoomFolder:
    """The cache folder of a loop: named after its room, so that it is the same wherever kernbench is installed.

    Its parent is named after the sources. A file outside kernbench is identified by a hash of its content.
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
        """The folder of its cache files."""
        return self._folder

    def get_source_stamp(self) -> str:
        """Empty: the folder is named after the sources, so there is nothing else to compare."""
        return ""

    def get_disambiguator(self) -> str:
        """Distinguishes two functions of the same name: the line."""
        return str(self._line)


class Turn:
    """The right to compile a loop: a file lock, released when the process that holds it ends."""

    def __init__(self, path: str, waiting: Callable[[], AbstractContextManager[None]]):
        self._path = path
        self._waiting = waiting
        self._file: int | None = None

    def take(self) -> None:
        """Wait until no other process compiles the loop.

        Go on without the lock if there is none or it takes too long.
        """
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
        """Release the lock."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
