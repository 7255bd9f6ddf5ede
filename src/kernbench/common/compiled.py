"""Compiled loops, kept on disk until any source changes that may be compiled into one.

numba looks only at the file of the function itself when it decides whether what it kept still holds; a constant or a
function that comes from another file is compiled in, and would stay as it was. So what is kept lies in a folder named
after all sources of the rooms that compile, as they stand, and the versions of what compiles them. It has the same name
on another machine of the same kind, and can be brought there (`sharing`).
"""

import gc
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import gettempdir
from typing import TypeVar

import llvmlite
import numba
import numpy as np
from numba.core import event, registry
from numba.extending import register_jitable

from kernbench.common.kept import KeptLoop, LoopCompiler, Numba

_CONFIG: Numba = numba.config
_NJIT: Numba = numba.njit
_EVENTS: Numba = event
# what compiled functions are in Python
COMPILED: type = registry.CPUDispatcher

# what a compiled function gives; its arguments are whatever its callers compile it for
Result = TypeVar("Result")

_PACKAGE = Path(__file__).parent.parent
# where compiled loops and what they are made of lie
ROOMS = (
    "common",
    "timing",
    "mesh/time",
    "npu",
    "ptx/emulator",
    "ptx/numerics",
    "ptx/recording",
    "ptx/sass",
    "ptx/time",
)
# nothing calls loops through pointers of C
_OPTIONS: dict[str, object] = {"no_cfunc_wrapper": True}
# versions that are kept in any case: of two checkouts in turn, say
_KEPT = 4
# seconds: a version that was begun with since then may be in use, and a process whose folder goes away fails
_IN_USE = 24 * 3600


# seconds of compiling after which a person wants to know what is going on
_LONG = 2.0
_LOG = logging.getLogger(__name__)


class _Stopwatch(event.Listener):  # type: ignore[misc]
    """How long numba has compiled in this process; what is compiled within is not counted twice. Says so if long.

    Python's collector of cyclic garbage waits meanwhile: nearly all that numba makes stays until the loop is compiled,
    and to look through it again and again takes a tenth of the time.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._depth = 0
        self._began = 0.0
        self._noted = False
        self._collecting = False

    def on_start(self, event: object) -> None:
        if not self._depth:
            self._began = time.monotonic()
            self._collecting = gc.isenabled()
            gc.disable()
        self._depth += 1
        self._note(self.seconds + time.monotonic() - self._began)

    def on_end(self, event: object) -> None:
        self._depth -= 1
        if not self._depth:
            if self._collecting:
                gc.enable()
            self.seconds += time.monotonic() - self._began
            self._note(self.seconds)

    def _note(self, seconds: float) -> None:
        if not self._noted and seconds > _LONG:
            self._noted = True
            cache = folder()
            kept = f"they are kept in {cache}" if cache else "no folder can be written, so they are not kept"
            _LOG.info("compiling loops that run for the first time, for some seconds more; %s", kept)


_STOPWATCH = _Stopwatch()
_EVENTS.register("numba:compile", _STOPWATCH)


@contextmanager
def counted() -> Iterator[None]:
    """While this process compiles, or waits for another that does: no kernel is to blame for either."""
    _STOPWATCH.on_start(None)
    try:
        yield
    finally:
        _STOPWATCH.on_end(None)


def seconds_compiling() -> float:
    """Seconds that this process has spent on compiling loops, which no kernel is to blame for."""
    return _STOPWATCH.seconds


def njit(**options: object) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """`numba.njit`; with `cache=True` it is compiled once for all processes."""

    def decorate(function: Callable[..., Result]) -> Callable[..., Result]:
        rest = {name: value for name, value in options.items() if name != "cache"}
        compiled: Numba = _NJIT(**_OPTIONS, **rest)(function)
        if options.get("cache") and folder():
            makes_arrays = bool(options.get("_nrt", True))
            compiled._cache = KeptLoop(function, makes_arrays, (folder(), _PACKAGE), counted)
        made: Callable[..., Result] = compiled
        return made

    return decorate


def loop(function: Callable[..., Result], **options: object) -> Callable[..., Result]:
    """A loop over arrays that its caller made, kept on disk.

    It makes none, so numba need not count references, which is much to compile.
    """
    return njit(cache=True, nogil=True, _nrt=False, pipeline_class=LoopCompiler, **options)(function)


def part(function: Callable[..., Result], **options: object) -> Callable[..., Result]:
    """A function that compiled loops call: compiled into them, once for each type of its arguments.

    From Python it is called as it stands. Nothing is made to call the compiled one from outside, and a constant is a
    number like any other: either would be compiled for each of the many ways in which loops call it.
    """
    made: Callable[..., Result] = register_jitable(**_OPTIONS, _nrt=False, **options)(function)
    return made


def inlined(function: Callable[..., Result]) -> Callable[..., Result]:
    """A part that becomes a piece of each loop before anything is typed, for the few that a call costs more."""
    return njit(nogil=True, _nrt=False, inline="always")(function)


@cache
def folder() -> str:
    """Where this version's loops are kept: in the user's cache, or where that cannot be written in a folder for
    temporary files that is the user's own; empty where nothing can be.
    """
    home = _CONFIG.CACHE_DIR or os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    mine_is = sha256(f"{version(*ROOMS)} {tools()}".encode()).hexdigest()[:16]
    shared = Path(gettempdir()) / f"kernbench-{os.getuid()}"
    for kept in (Path(home) / "kernbench", shared):
        mine = kept / mine_is
        try:
            kept.mkdir(mode=0o700, parents=True, exist_ok=True)
            mine.mkdir(exist_ok=True)
            os.utime(mine)
            # what is kept is code, and anybody may make folders there
            if kept == shared and kept.stat().st_uid != os.getuid():
                continue
        except OSError:
            continue
        # another process may be at it too
        with suppress(OSError):
            _forget(kept, mine)
        return str(mine)
    return ""


def version(*rooms: str) -> str:
    """A name for the sources of some rooms as they are, wherever they lie and whenever they were written."""
    return _fingerprint([_PACKAGE / room for room in rooms])


def tools() -> dict[str, str]:
    """What compiles beside us, and for what Python: a loop of other versions is another loop."""
    python = f"{sys.implementation.name} {sys.version_info[0]}.{sys.version_info[1]}"
    return {"python": python, "numba": numba.__version__, "llvmlite": llvmlite.__version__, "numpy": np.__version__}


def _fingerprint(rooms: list[Path]) -> str:
    digest = sha256()
    for path in sorted(path for room in rooms for path in room.rglob("*.py")):
        digest.update(f"{path.relative_to(_PACKAGE)} {_content(path)}\n".encode())
    return digest.hexdigest()[:16]


@cache
def _content(path: Path) -> str:
    return sha256(path.read_bytes()).hexdigest()


def _forget(kept: Path, mine: Path) -> None:
    """Remove what older versions left, but for the last few and those of the last day."""
    used = {path: path.stat().st_mtime for path in kept.iterdir() if path.is_dir() and path != mine}
    for path in sorted(used, key=lambda path: used[path], reverse=True)[_KEPT - 1 :]:
        if used[path] < time.time() - _IN_USE:
            shutil.rmtree(path, ignore_errors=True)
