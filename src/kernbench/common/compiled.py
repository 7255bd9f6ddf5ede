"""Compiled loops, kept on disk until any source changes that may be compiled into one.

numba looks only at the file of the function itself when it decides whether what it kept still holds; a constant or a
function that comes from another file is compiled in, and would stay as it was. So what is kept lies in a folder named
after all sources of the rooms that compile: their names, sizes and times of change.
"""

import hashlib
import os
import shutil
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numba

# numba has no types
_CONFIG: Any = numba.config

_PACKAGE = Path(__file__).parent.parent
# where compiled loops and what they are made of lie
_ROOMS = ("common", "timing", "npu", "ptx/emulator", "ptx/numerics")
# versions that are kept: of two checkouts in turn, say
_KEPT = 4


def njit(**options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """`numba.njit`; with `cache=True` it is compiled once for all processes."""

    def decorate(function: Callable[..., Any]) -> Callable[..., Any]:
        before = _CONFIG.CACHE_DIR
        # numba asks for the folder when the function is decorated
        _CONFIG.CACHE_DIR = before or folder()
        try:
            compiled: Callable[..., Any] = numba.njit(**options)(function)
        finally:
            _CONFIG.CACHE_DIR = before
        return compiled

    return decorate


@cache
def folder() -> str:
    """Where this version's loops are kept; empty (numba's own choice) where nothing can be."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    kept = Path(home) / "kernbench"
    mine = kept / _fingerprint([_PACKAGE / room for room in _ROOMS])
    try:
        mine.mkdir(parents=True, exist_ok=True)
        os.utime(mine)
        _forget(kept, mine)
    except OSError:
        return ""
    return str(mine)


def _fingerprint(rooms: list[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for room in rooms for path in room.rglob("*.py")):
        state = path.stat()
        digest.update(f"{path} {state.st_size} {state.st_mtime_ns}\n".encode())
    return digest.hexdigest()[:16]


def _forget(kept: Path, mine: Path) -> None:
    """Remove what older versions left, but for the last few."""
    others = [path for path in kept.iterdir() if path.is_dir() and path != mine]
    for path in sorted(others, key=lambda path: path.stat().st_mtime, reverse=True)[_KEPT - 1 :]:
        shutil.rmtree(path, ignore_errors=True)
