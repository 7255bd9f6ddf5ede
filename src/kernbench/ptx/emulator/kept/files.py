"""The files of the cache: one for each program, named by a hash of its text, our version, and its other dependencies.

Cached programs are code, in effect: they are read only from files and a folder that belong to the user and that nobody
else can write. Files are complete when they appear (by renaming); damaged ones are ignored. Without such a folder
nothing is cached.
"""

import os
import stat
import sys
import tempfile
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path

import numpy as np

from kernbench.common import compiled

# maximal bytes of all programs of a version; the least recently used ones are removed first
_MOST = 256 * 2**20
_SUM = sha256().digest_size


def name_of(text: str, *more: object) -> str:
    """The file name for a text and further conditions, for this version of everything that takes part."""
    digest = sha256(repr((_version(), *more)).encode())
    digest.update(text.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def read(name: str) -> bytes | None:
    """The contents of a cached file; None if there is none, or none that can be trusted."""
    folder = _folder()
    if folder is None:
        return None
    try:
        with open(folder / name, "rb") as file:
            if not _private(os.fstat(file.fileno())):
                return None
            data = file.read()
        os.utime(folder / name)
    except OSError:
        return None
    return data[_SUM:] if sha256(data[_SUM:]).digest() == data[:_SUM] else None


def write(name: str, data: bytes) -> None:
    """Cache something, if possible."""
    folder = _folder()
    if folder is None:
        return
    with suppress(OSError):
        handle, temporary = tempfile.mkstemp(dir=folder)
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(sha256(data).digest() + data)
            os.replace(temporary, folder / name)
        except OSError:
            os.unlink(temporary)
            raise
        # a name begins with any hexadecimal digit: one write in sixteen looks at all files
        if name.startswith("0"):
            _forget(folder)


def _forget(folder: Path) -> None:
    """Remove the least recently used files if the total is too large."""
    found = [(one, one.stat()) for one in folder.iterdir()]
    room = _MOST
    for one, state in sorted(found, key=lambda each: each[1].st_mtime, reverse=True):
        room -= state.st_size
        if room < 0:
            one.unlink(missing_ok=True)


def _folder() -> Path | None:
    """The folder, if it belongs to the user."""
    base = compiled.folder()
    if not base:
        return None
    folder = Path(base) / "programs"
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        return folder if _private(folder.lstat()) and folder.is_dir() else None
    return None


def _private(state: os.stat_result) -> bool:
    """Whether something belongs to the user, and only the user can change it."""
    return state.st_uid == os.getuid() and not state.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


@cache
def _version() -> tuple[str, ...]:
    return compiled.version("common", "safety", "ptx"), sys.version, np.__version__, compiled.version_of("numba")
