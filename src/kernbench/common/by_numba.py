"""Everything that needs numba: loops compiled by numba, and what they call.

Importing numba takes half a second, so nothing imports this module until numba has to compile a loop, or a loop is
called that only numba can load. What was defined for such loops before is registered with numba then
(`compiled.by_numba`).
"""

import logging
import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import ClassVar
from weakref import WeakKeyDictionary

import numba
from llvmlite import binding as llvm
from numba.core import caching, compiler, event, registry
from numba.core.runtime import nrt
from numba.extending import intrinsic, register_jitable

from kernbench.common import compiled
from kernbench.common.kept import Numba, RoomFolder, Turn
from kernbench.common.native.kinds import Array, Kind, NotPlain, Scalar, numpy_type

_NJIT: Numba = numba.njit
_EVENTS: Numba = event
_TARGET: Numba = registry.cpu_target
_RUNTIME: Numba = nrt.rtsys
_Building: Numba = caching.CompileResultCacheImpl
_Keeping: Numba = caching.FunctionCache
_Locating: Numba = caching._CacheLocator
_Compiler: Numba = compiler.Compiler
# nothing calls loops through C function pointers
_OPTIONS: dict[str, object] = {"no_cfunc_wrapper": True}
_LOG = logging.getLogger(__name__)


class _Listener(event.Listener):  # type: ignore[misc]
    """Runs the stopwatch while numba compiles."""

    def on_start(self, event: object) -> None:
        compiled.STOPWATCH.on_start(event)

    def on_end(self, event: object) -> None:
        compiled.STOPWATCH.on_end(event)


class LoopCompiler(_Compiler):  # type: ignore[misc]
    """numba's compiler; if it fails, it releases the lock so that other processes stop waiting for the loop."""

    # by function, for those cached on disk: what to call if compilation fails
    failed: ClassVar[WeakKeyDictionary[Numba, Callable[[], None]]] = WeakKeyDictionary()

    def compile_extra(self, func: Numba) -> Numba:
        """Compile a function; on failure, release its lock."""
        try:
            return super().compile_extra(func)
        except BaseException:
            self.failed.get(func, bool)()
            raise


class _Room(RoomFolder, _Locating):  # type: ignore[misc]
    """The cache folder of a loop, behind numba's interface of a cache locator."""


class _Rebuilding(_Building):  # type: ignore[misc]
    """Loads a cached loop; its bitcode for linking into other loops is parsed only on demand.

    numba parses it at once, which takes a third of the loading time, though most loops are only called from Python.
    """

    def __init__(self, function: Numba, room: _Room):
        self._lineno = function.__code__.co_firstlineno
        self._locator = room
        name = f"{function.__module__.rpartition('.')[2]}.{function.__qualname__}"
        self._filename_base = self.get_filename_base(name, sys.abiflags)

    def rebuild(self, target_context: Numba, payload: Numba) -> Numba:
        (name, kind, code), *rest = payload
        if kind != "object" or len(code) != 2:
            return super().rebuild(target_context, payload)
        machine_code, for_linking = code
        # numba would read the names of the entry points from the bitcode
        entries = (rest[0].llvm_func_name, rest[0].llvm_cpython_wrapper_name)
        target_context.codegen()._engine._defined_symbols.update(entries)
        made = super().rebuild(target_context, ((name, kind, (machine_code, _nothing_to_link())), *rest))
        library = made.library
        library._shared_module = None
        library._get_module_for_linking = lambda: _linkable(library, for_linking)
        return made


def _linkable(library: Numba, bitcode: bytes) -> Numba:
    """The module that is linked into a loop that calls this one."""
    if library._shared_module is None:
        library._shared_module = llvm.parse_bitcode(bitcode)
        library.codegen._engine._load_defined_symbols(library._shared_module)
    return library._shared_module


def _nothing_to_link() -> Numba:
    if not _NOTHING:
        _NOTHING.append(llvm.parse_assembly("").as_bitcode())
    return _NOTHING[0]


_NOTHING: list[bytes] = []


class KeptLoop(_Keeping):  # type: ignore[misc]
    """The versions of a loop in the cache on disk.

    Before numba loads a cached loop, it sets up everything it needs to compile: 0.2 s in a process that compiles
    nothing. A call needs at most the runtime, and only if the loop allocates arrays. A damaged cache entry counts as
    missing.
    """

    def __init__(
        self,
        function: Callable[..., object],
        makes_arrays: bool,
        where: tuple[str, Path],
        waiting: Callable[[], AbstractContextManager[None]],
    ):
        self._impl_class = lambda made: _Rebuilding(made, _Room(made, *where))
        super().__init__(function)
        self._makes_arrays = makes_arrays
        self._turn = Turn(os.path.join(self._cache_path, f"{self._impl.filename_base}.lock"), waiting)
        LoopCompiler.failed[function] = self._turn.give_up

    @property
    def index(self) -> Path:
        """The index file of the cached versions; it exists if there is a version."""
        return Path(self._cache_path, f"{self._impl.filename_base}.nbi")

    def load_overload(self, sig: Numba, target_context: Numba) -> Numba:
        """The cached loop; None if this process has to compile it, and then holds the lock so that no other does."""
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
        """Write the compiled loop to the cache, and release the lock."""
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


def dispatcher(function: Callable[..., object], options: dict[str, object]) -> Numba:
    """`numba.njit`; with `cache=True` a loop is compiled once for all processes."""
    rest = {name: value for name, value in options.items() if name != "cache"}
    made: Numba = _NJIT(**_OPTIONS, **rest)(function)
    if options.get("cache") and compiled.folder():
        makes_arrays = bool(options.get("_nrt", True))
        made._cache = KeptLoop(function, makes_arrays, (compiled.folder(), compiled._PACKAGE), compiled.counted)
    return made


def text_of(function: Callable[..., object], kinds: tuple[Kind, ...], options: dict[str, object]) -> tuple[str, str]:
    """A loop compiled by numba for some argument types: the name of its function, and the module as LLVM IR.

    No wrapper for calls from Python is compiled.
    """
    plain = {**options, "nogil": True, "_nrt": False, "no_cpython_wrapper": True}
    types = tuple(_type(kind) for kind in kinds)
    try:
        made: Numba = dispatcher(function, plain)._compiler.compile(types, None)
    except Exception as error:
        raise NotPlain(f"numba cannot compile it alone: {error}") from error
    if made.signature.return_type != numba.types.none:
        raise NotPlain("it gives something")
    return str(made.fndesc.llvm_func_name), str(made.library.get_llvm_str())


def _type(kind: Kind) -> Numba:
    """numba's type for a kind of argument."""
    if isinstance(kind, Scalar):
        return numba.from_dtype(numpy_type(kind))
    if isinstance(kind, Array):
        return numba.types.Array(_type(kind.item), kind.ndim, "C" if kind.packed else "A")
    if kind.fields:
        raise NotPlain(f"an argument of kind {kind}")
    return numba.types.BaseTuple.from_types([_type(item) for item in kind.items])


def register(function: Callable[..., object], options: dict[str, object]) -> None:
    """Let numba compile a function into the loops that call it."""
    register_jitable(**_OPTIONS, **options)(function)


def instruction(typing: Callable[..., object]) -> Numba:
    """An intrinsic that loops call as a function."""
    return intrinsic(typing)


def type_of(thing: Numba) -> Numba:
    """numba's type of an object that numba knows."""
    return _TARGET.typing_context.resolve_value_type(thing)


_EVENTS.register("numba:compile", _Listener())


# loops that prefetch call it; register it as soon as numba is imported
register(compiled.prefetch, {"_nrt": False})
