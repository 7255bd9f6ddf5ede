"""Compiled loops, cached on disk until any source changes that may be compiled into one.

numba checks only the file of the function itself to decide whether a cached loop is still valid. Constants and
functions from other files are compiled in and would go stale. So the cache folder is named after a hash of all sources
of the packages with compiled loops, and the versions of the compilers. The name is the same on another machine of the
same kind, and the folder can be copied there (`sharing`).
"""

import gc
import importlib
import logging
import os
import re
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

# return type of a compiled function; its arguments may be of any type
Result = TypeVar("Result")

_PACKAGE = Path(__file__).parent.parent
# packages with compiled loops, or with code that is compiled into them
PACKAGES = (
    "common",
    "timing",
    "mesh/dividing",
    "mesh/programs",
    "mesh/time",
    "npu",
    "ptx/emulator",
    "ptx/executor",
    "ptx/numerics",
    "ptx/recording",
    "ptx/sass",
    "ptx/time",
)
COMPILE, ALWAYS = "KERNBENCH_COMPILE", "always"
# versions that are always kept, so that two checkouts can be used in turn
_KEPT = 4
# the name of a version: the beginning of a hash
_VERSION = re.compile("[0-9a-f]{16}")
# seconds: a version used since then may be in use now, and a process whose folder is deleted fails
_IN_USE = 24 * 3600


# seconds of compiling after which the user is informed
_LONG = 2.0
_LOG = logging.getLogger(__name__)


class _Stopwatch:
    """How long numba has compiled in this process; nested compilations are counted once. Logs a note if long.

    The garbage collector is disabled meanwhile: nearly all objects that numba makes live until the loop is compiled,
    and scanning them again and again takes a tenth of the time.
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
    """Counts the time of the block as compile time, also if it waits for another process that compiles."""
    STOPWATCH.on_start(None)
    try:
        yield
    finally:
        STOPWATCH.on_end(None)


def at_once() -> bool:
    """Whether every loop is compiled and optimised at its first call."""
    return os.environ.get(COMPILE) == ALWAYS


def seconds_compiling() -> float:
    """Seconds that this process has spent on compiling loops; budgets do not count them."""
    return STOPWATCH.seconds


def njit(**options: object) -> Callable[[Callable[..., Result]], Callable[..., Result]]:
    """`numba.njit`; with `cache=True` a loop is compiled once for all processes. Imports numba."""
    numba = by_numba()

    def decorate(function: Callable[..., Result]) -> Callable[..., Result]:
        made: Callable[..., Result] = numba.dispatcher(function, options)
        return made

    return decorate


def loop(function: Callable[..., Result], **options: object) -> Callable[..., Result]:
    """A loop over arrays that its caller allocated, compiled by numba and cached. Imports numba.

    It allocates no arrays itself, so numba need not count references, which would take long to compile.
    """
    whole = {"cache": True, "nogil": True, "_nrt": False, "pipeline_class": by_numba().LoopCompiler, **options}
    return njit(**whole)(function)


def part(function: Callable[..., Result], **options: object) -> Callable[..., Result]:
    """A function that compiled loops call: compiled into them, once for each type of its arguments.

    Called from Python, it runs as Python. No wrapper for calls from outside is compiled, and constant arguments do not
    count as types of their own: otherwise it would be compiled again for each way in which loops call it.
    """
    with_numba(lambda: by_numba().register(function, {"_nrt": False, **options}))
    return function


def inlined(function: Callable[..., Result]) -> Callable[..., Result]:
    """A `part` that is inlined into each loop, for the few whose call overhead matters."""
    return part(function)


# registrations that wait for numba to be imported; None once it is
_WAITING: list[Callable[[], None]] | None = []
_COMING = RLock()


def with_numba(register: Callable[[], None]) -> Callable[[], None]:
    """Call a function that registers something with numba: now if numba is imported, else as soon as it is."""
    if _WAITING is None:
        register()
    else:
        _WAITING.append(register)
    return register


def by_numba() -> ModuleType:
    """The module that needs numba, imported on first use; other threads wait until it is there."""
    global _WAITING
    with _COMING, counted() if _WAITING else nullcontext():
        module = importlib.import_module("kernbench.common.by_numba")
        waiting, _WAITING = _WAITING, None
        for register in waiting or ():
            register()
    return module


def prefetch(array: object, *index: object) -> None:
    """Prefetch the cache line of an element that will be read and written; only in loops that we compile.

    In Python and in loops compiled by numba it does nothing. An index must not be negative.
    """


# `by_numba` registers it as a part
prefetch.plain = PREFETCH  # type: ignore[attr-defined]


class Intrinsic:
    """An LLVM instruction that loops call as a function; `typing` types and emits it for numba."""

    def __init__(self, typing: Callable[..., object], plain: Instruction | None = None):
        """`plain` is the same instruction for loops that we compile ourselves."""
        self._typing = typing
        self.plain = plain
        self.__name__ = typing.__name__
        self._made: Numba = None
        # it must be registered before numba compiles a caller
        with_numba(self._make)

    def _make(self) -> None:
        self._made = by_numba().instruction(self._typing)

    def __call__(self, *given: object) -> object:
        """Raises an error: only compiled code can call it."""
        raise NotImplementedError("only compiled code has this instruction")

    @property
    def _numba_type_(self) -> Numba:
        """numba's type for it, in a loop compiled by numba."""
        return by_numba().type_of(self._made)


@cache
def folder() -> str:
    """The cache folder of this version; empty if none is writable.

    It lies in the user's cache, or if that is not writable in a temporary folder that the user owns.
    """
    home = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    mine_is = sha256(f"{version(*PACKAGES)} {tools()}".encode()).hexdigest()[:16]
    shared = Path(gettempdir()) / f"kernbench-{os.getuid()}"
    for kept in (Path(home) / "kernbench", shared):
        mine = kept / mine_is
        try:
            kept.mkdir(mode=0o700, parents=True, exist_ok=True)
            mine.mkdir(exist_ok=True)
            os.utime(mine)
            # the cache holds machine code, and anybody may create folders there
            if kept == shared and kept.stat().st_uid != os.getuid():
                continue
        except OSError:
            continue
        # another process may remove the same
        with suppress(OSError):
            _forget(kept, mine)
        return str(mine)
    return ""


def version(*packages: str) -> str:
    """A hash of the sources of some packages; it does not depend on where they are installed, or when."""
    return _fingerprint([_PACKAGE / package for package in packages])


def tools() -> dict[str, str]:
    """Versions of Python and the compilers: a loop compiled by other versions is another loop."""
    python = f"{sys.implementation.name} {sys.version_info[0]}.{sys.version_info[1]}"
    return {"python": python, "numba": version_of("numba"), "llvmlite": version_of("llvmlite"), "numpy": np.__version__}


@cache
def version_of(package: str) -> str:
    """The version of an installed package, without importing it.

    It is read from the name of the `.dist-info` folder. `importlib.metadata` gives the same, but its import takes a
    twentieth of the time of a launch; it is the fallback if there is no such folder.
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


def _fingerprint(packages: list[Path]) -> str:
    """A hash of all modules below some folders; it uses string paths, as `Path` would take longer than reading them."""
    digest = sha256()
    within = len(os.path.join(_PACKAGE, ""))
    for path in sorted(path for package in packages for path in _modules(package)):
        digest.update(f"{path[within:]} {_content(path)}\n".encode())
    return digest.hexdigest()[:16]


def _modules(package: Path) -> Iterator[str]:
    for folder, folders, names in os.walk(package):
        if "__pycache__" in folders:
            folders.remove("__pycache__")
        yield from (os.path.join(folder, name) for name in names if name.endswith(".py"))


@cache
def _content(path: str) -> str:
    with open(path, "rb") as file:
        return sha256(file.read()).hexdigest()


def _forget(kept: Path, mine: Path) -> None:
    """Remove older versions, except the last few and those used in the last day.

    Other caches of kernbench lie in the same folder, under names that are no hash.
    """
    versions = (path for path in kept.iterdir() if path.is_dir() and _VERSION.fullmatch(path.name))
    used = {path: path.stat().st_mtime for path in versions if path != mine}
    for path in sorted(used, key=lambda path: used[path], reverse=True)[_KEPT - 1 :]:
        if used[path] < time.time() - _IN_USE:
            shutil.rmtree(path, ignore_errors=True)
