"""Compiled loops on disk: where each lies, how it is read, and that no two processes compile the same one at once."""

import fcntl
import logging
import os
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar
from weakref import WeakKeyDictionary

from llvmlite import binding as llvm
from numba.core import caching, compiler
from numba.core.runtime import nrt

# objects of numba and of what it compiles: it publishes no types of them
Numba = Any
_RUNTIME: Numba = nrt.rtsys
_Building: Numba = caching.CompileResultCacheImpl
_Keeping: Numba = caching.FunctionCache
_Locating: Numba = caching._CacheLocator
_Compiler: Numba = compiler.Compiler
# seconds to wait for another process that compiles the same loop; one that is stuck must not stop us
_PATIENCE = 120.0
_LOOK_AGAIN = 0.02
_LOG = logging.getLogger(__name__)


class LoopCompiler(_Compiler):  # type: ignore[misc]
    """numba's compiler, which lets others know of a loop that cannot be compiled."""

    # for functions that are kept: what to do then
    failed: ClassVar[WeakKeyDictionary[Numba, Callable[[], None]]] = WeakKeyDictionary()

    def compile_extra(self, func: Numba) -> Numba:
        """Compile a function; others need not wait for one that cannot be."""
        try:
            return super().compile_extra(func)
        except BaseException:
            self.failed.get(func, bool)()
            raise


class RoomFolder(_Locating):  # type: ignore[misc]
    """The folder of a loop: named after its room, so that it is the same wherever kernbench is installed.

    The folder above is named after the sources; a file that is not one of them is known by what stands in it.
    """

    def __init__(self, function: Numba, folder: str, package: Path):
        self._py_file = function.__code__.co_filename
        self._line = function.__code__.co_firstlineno
        path = Path(self._py_file).resolve()
        ours = path.is_relative_to(package.resolve())
        room = ".".join(path.parent.relative_to(package.resolve()).parts) if ours else self._elsewhere(path)
        self._folder = os.path.join(folder, room or "loops")

    @staticmethod
    def _elsewhere(path: Path) -> str:
        return f"file_{sha256(str(path).encode()).hexdigest()[:8]}_{sha256(path.read_bytes()).hexdigest()[:16]}"

    def get_cache_path(self) -> str:
        """Where its files lie."""
        return self._folder

    def get_source_stamp(self) -> str:
        """The folder is named after the sources, so that nothing else is compared."""
        return ""

    def get_disambiguator(self) -> str:
        """What distinguishes two functions of one name."""
        return str(self._line)


class _Rebuilding(_Building):  # type: ignore[misc]
    """Makes a kept loop callable; its code for being compiled into others is read when that is asked for.

    numba reads it at once, though most loops are only ever called from Python: a third of the time of loading one.
    """

    def __init__(self, function: Numba, room: RoomFolder):
        self._lineno = function.__code__.co_firstlineno
        self._locator = room
        name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"
        self._filename_base = self.get_filename_base(name, sys.abiflags)

    def rebuild(self, target_context: Numba, payload: Numba) -> Numba:
        (name, kind, code), *rest = payload
        if kind != "object" or len(code) != 2:
            return super().rebuild(target_context, payload)
        machine_code, for_linking = code
        # numba takes the names of what can be called from the code for linking
        entries = (rest[0].llvm_func_name, rest[0].llvm_cpython_wrapper_name)
        target_context.codegen()._engine._defined_symbols.update(entries)
        made = super().rebuild(target_context, ((name, kind, (machine_code, _nothing_to_link())), *rest))
        library = made.library
        library._shared_module = None
        library._get_module_for_linking = lambda: _linkable(library, for_linking)
        return made


def _linkable(library: Numba, bitcode: bytes) -> Numba:
    """What another loop that calls this one is linked with."""
    if library._shared_module is None:
        library._shared_module = llvm.parse_bitcode(bitcode)
        library.codegen._engine._load_defined_symbols(library._shared_module)
    return library._shared_module


def _nothing_to_link() -> Numba:
    if not _NOTHING:
        _NOTHING.append(llvm.parse_assembly("").as_bitcode())
    return _NOTHING[0]


_NOTHING: list[bytes] = []


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


class KeptLoop(_Keeping):  # type: ignore[misc]
    """The versions of a loop that are kept on disk.

    numba gathers all it can compile before it loads what is compiled already, 0.2 s in a process that compiles
    nothing; a call needs at most the runtime, and not even that where the loop makes no arrays. What is damaged counts
    as not kept.
    """

    def __init__(
        self,
        function: Callable[..., object],
        makes_arrays: bool,
        where: tuple[str, Path],
        waiting: Callable[[], AbstractContextManager[None]],
    ):
        self._impl_class = lambda made: _Rebuilding(made, RoomFolder(made, *where))
        super().__init__(function)
        self._makes_arrays = makes_arrays
        self._turn = Turn(os.path.join(self._cache_path, f"{self._impl.filename_base}.lock"), waiting)
        LoopCompiler.failed[function] = self._turn.give_up

    @property
    def index(self) -> Path:
        """The table of the versions that are kept: it is there when one is."""
        return Path(self._cache_path, f"{self._impl.filename_base}.nbi")

    def load_overload(self, sig: Numba, target_context: Numba) -> Numba:
        """The loop as it is kept; None where this process has to compile it, which no other does then."""
        found = self._look(sig, target_context)
        if found is None:
            with suppress(OSError):
                self._impl.locator.ensure_cache_path()
            self._turn.take()
            # another process may have compiled it meanwhile
            found = self._look(sig, target_context)
            if found is not None:
                self._turn.give_up()
        return found

    def save_overload(self, sig: Numba, data: Numba) -> None:
        """Keep what was compiled, for this process and those that wait for it."""
        try:
            super().save_overload(sig, data)
        finally:
            self._turn.give_up()

    def _look(self, sig: Numba, target_context: Numba) -> Numba:
        if self._makes_arrays:
            _RUNTIME.initialize(target_context)
        try:
            return self._load_overload(sig, target_context)
        except Exception as error:
            _LOG.info("a compiled loop is not usable and is compiled anew: %s: %s", self._name, error)
            return None
