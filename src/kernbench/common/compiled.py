"""Compiled loops, kept on disk until any source changes that may be compiled into one.

numba looks only at the file of the function itself when it decides whether what it kept still holds; a constant or a
function that comes from another file is compiled in, and would stay as it was. So what is kept lies in a folder named
after all sources of the rooms that compile, as they stand, and the versions of what compiles them. It has the same name
on another machine of the same kind, and can be brought there (`sharing`).
"""

import gc
import importlib
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from tempfile import gettempdir
from threading import RLock
from types import ModuleType
from typing import TypeVar

import numpy as np

from kernbench.common.kept import Numba
from kernbench.common.native.kinds import PREFETCH, Instruction

# what a compiled function gives; its arguments are whatever its callers compile it for
Result = TypeVar("Result")

_PACKAGE = Path(__file__).parent.parent
# where compiled loops and what they are made of lie
ROOMS = (
    "common",
    "timing",
    "mesh/dividing",
    "mesh/programs",
    "mesh/time",
    "npu",
    "ptx/emulator",
    "ptx/numerics",
    "ptx/recording",
    "ptx/sass",
    "ptx/time",
)
COMPILE, ALWAYS = "KERNBENCH_COMPILE", "always"
# versions that are kept in any case: of two checkouts in turn, say
_KEPT = 4
# seconds: a version that was begun with since then may be in use, and a process whose folder goes away fails
_IN_USE = 24 * 3600


# seconds of compiling after which a person wants to know what is going on
_LONG = 2.0
_LOG = logging.getLogger(__name__)


class _Stopwatch:
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


STOPWATCH = _Stopwatch()


@contextmanager
def counted() -> Iterator[None]:
    """While this process compiles, or waits for another that does: no kernel is to blame for either."""
    STOPWATCH.on_start(None)
    try:
        yield
    finally:
        STOPWATCH.on_end(None)


def at_once() -> bool:
    """Whether every loop is compiled, and optimised, when it is first needed."""
    return os.environ.get(COMPILE) == ALWAYS


def seconds_compiling() -> float:
    """Seconds that this process has spent on compiling loops, which no kernel is to blame for."""
    return STOPWATCH.seconds


def njit(**options: object) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """`numba.njit`; with `cache=True` it is compiled once for all processes. Imports numba."""
    numba = by_numba()

    def decorate(function: Callable[..., Result]) -> Callable[..., Result]:
        made: Callable[..., Result] = numba.dispatcher(function, options)
        return made

    return decorate


def loop(function: Callable[..., Result], **options: object) -> Callable[..., Result]:
    """A loop over arrays that its caller made, kept on disk as numba keeps it. Imports numba.

    It makes none, so numba need not count references, which is much to compile.
    """
    whole = {"cache": True, "nogil": True, "_nrt": False, "pipeline_class": by_numba().LoopCompiler, **options}
    return njit(**whole)(function)


def part(function: Callable[..., Result], **options: object) -> Callable[..., Result]:
    """A function that compiled loops call: compiled into them, once for each type of its arguments.

    From Python it is called as it stands. Nothing is made to call the compiled one from outside, and a constant is a
    number like any other: either would be compiled for each of the many ways in which loops call it.
    """
    with_numba(lambda: by_numba().register(function, {"_nrt": False, **options}))
    return function


def inlined(function: Callable[..., Result]) -> Callable[..., Result]:
    """A part that becomes a piece of each loop, for the few that a call costs more."""
    return part(function)


# what is to be done when numba comes, as long as nothing has needed it; None from then on
_WAITING: list[Callable[[], None]] | None = []
_COMING = RLock()


def with_numba(register: Callable[[], None]) -> Callable[[], None]:
    """Call a function that registers something with numba, when numba is imported or where it is already."""
    if _WAITING is None:
        register()
    else:
        _WAITING.append(register)
    return register


def by_numba() -> ModuleType:
    """All that needs numba, which is imported the first time; another thread that needs it waits until it is there."""
    global _WAITING
    with _COMING, counted() if _WAITING else nullcontext():
        module = importlib.import_module("kernbench.common.by_numba")
        waiting, _WAITING = _WAITING, None
        for register in waiting or ():
            register()
    return module


def prefetch(array: object, *index: object) -> None:
    """An element of an array will be read and written soon: loops that we compile have the processor fetch its line.

    In Python, and in loops that numba compiles, nothing happens. An index is never below zero.
    """


# `by_numba` knows it as a part
prefetch.plain = PREFETCH  # type: ignore[attr-defined]


class Intrinsic:
    """An instruction of LLVM's that loops call as a function; for numba `typing` says of which types, and writes it."""

    def __init__(self, typing: Callable[..., object], plain: Instruction | None = None):
        """`plain`: the same for loops that we compile ourselves."""
        self._typing = typing
        self.plain = plain
        self.__name__ = typing.__name__
        self._made: Numba = None
        # numba has to know it before it begins to compile what calls it
        with_numba(self._make)

    def _make(self) -> None:
        self._made = by_numba().instruction(self._typing)

    def __call__(self, *given: object) -> object:
        """Only compiled code calls it."""
        raise NotImplementedError("only compiled code has this instruction")

    @property
    def _numba_type_(self) -> Numba:
        """What numba takes it for in a loop that it compiles."""
        return by_numba().type_of(self._made)


@cache
def folder() -> str:
    """Where this version's loops are kept: in the user's cache, or where that cannot be written in a folder for
    temporary files that is the user's own; empty where nothing can be.
    """
    home = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
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
    return {"python": python, "numba": version_of("numba"), "llvmlite": version_of("llvmlite"), "numpy": np.__version__}


@cache
def version_of(package: str) -> str:
    """The version of a package that is installed, without importing it.

    The name of the folder beside it says what `importlib.metadata` does, whose import takes a twentieth of all that a
    launch needs; it is asked where there is no such folder.
    """
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        found = [name for name in names if name.startswith(f"{package}-") and name.endswith(".dist-info")]
        if len(found) == 1:
            return found[0].removeprefix(f"{package}-").removesuffix(".dist-info")
        if found or package in names:
            break
    return _reported_version(package)


def _reported_version(package: str) -> str:
    from importlib import metadata

    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return str(importlib.import_module(package).__version__)


def _fingerprint(rooms: list[Path]) -> str:
    """Of paths as texts: `Path` would take longer for their names than it takes to read them."""
    digest = sha256()
    within = len(os.path.join(_PACKAGE, ""))
    for path in sorted(path for room in rooms for path in _modules(room)):
        digest.update(f"{path[within:]} {_content(path)}\n".encode())
    return digest.hexdigest()[:16]


def _modules(room: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(room):
        if "__pycache__" in folders:
            folders.remove("__pycache__")
        yield from (os.path.join(folder, name) for name in names if name.endswith(".py"))


@cache
def _content(path: str) -> str:
    with open(path, "rb") as file:
        return sha256(file.read()).hexdigest()


def _forget(kept: Path, mine: Path) -> None:
    """Remove what older versions left, but for the last few and those of the last day."""
    used = {path: path.stat().st_mtime for path in kept.iterdir() if path.is_dir() and path != mine}
    for path in sorted(used, key=lambda path: used[path], reverse=True)[_KEPT - 1 :]:
        if used[path] < time.time() - _IN_USE:
            shutil.rmtree(path, ignore_errors=True)
