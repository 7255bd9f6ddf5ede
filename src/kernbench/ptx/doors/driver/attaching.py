"""Loads our driver library into a running Python, for front ends that find a GPU through CUDA's driver.

Under `kernbench exec` the library is preloaded. Here it is loaded when such a front end is imported: from then on,
loading libcuda.so.1 gives our library. If NVIDIA's is already loaded, it is too late.
"""

import atexit
import ctypes
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from importlib.machinery import ExtensionFileLoader, ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from kernbench.ptx.doors.driver.bindings import look_out
from kernbench.ptx.doors.driver.library import NAME, library_folder
from kernbench.ptx.doors.driver.local import Answering, answering, library_here, restore
from kernbench.ptx.doors.driver.running import compiler_switches
from kernbench.ptx.doors.patching import Patches

if TYPE_CHECKING:
    from kernbench.ptx.doors.session import Session

# front ends that look for the driver once, at import
_EAGER = ("cupy",)
_REMEDY = "begin the block before, or run the program with `kernbench exec -- python ...`"


class DriverNotSeenWarning(UserWarning):
    """Launches through CUDA's driver will not reach the emulated GPU; says why and what to do."""


# loaded once, and never unloaded: a front end keeps its function pointers
_LOADED: list[Answering] = []


class DriverDoor:
    """The door for CuPy, Numba, cuda.bindings and others, for one session."""

    def __init__(self, session: "Session"):
        self._session = session
        self._patches = Patches()
        self._answering: Answering | None = None

    def open(self) -> None:
        """Let the library answer for the session; emits a `DriverNotSeenWarning` if it is too late."""
        problem = "" if _LOADED or library_here() is not None else _too_late()
        if problem:
            warnings.warn(DriverNotSeenWarning(f"{problem}: {_REMEDY}"), stacklevel=2)
            return
        self._answering = _load()
        # a GPU lost in an earlier session is available again
        restore()
        self._answering.sessions.append(self._give)
        self._switches()
        self._watch(self._answering.library)

    def close(self) -> None:
        """Disconnect the session; the library stays, with no GPU or that of the enclosing session."""
        self._patches.undo()
        if self._answering is not None:
            self._answering.sessions.remove(self._give)

    def _give(self) -> "Session":
        return self._session

    def _switches(self) -> None:
        """Make the compilers of front ends produce PTX."""
        kept = _kept_folder()
        for name, value in compiler_switches(os.environ, kept, kept).items():
            self._patches.item(os.environ, name, value)

    def _watch(self, library: ctypes.CDLL) -> None:
        """Replace CUDA runtimes and compilers linked into other libraries, as soon as these are loaded."""
        create, load = ExtensionFileLoader.create_module, ctypes.CDLL.__init__
        replace: Callable[[], None] = library.kernbench_replace_runtimes

        def create_module(loader: ExtensionFileLoader, spec: ModuleSpec) -> ModuleType:
            made = create(loader, spec)
            replace()
            return made

        def load_library(loaded: ctypes.CDLL, *args: object, **kwargs: object) -> None:
            load(loaded, *args, **kwargs)  # type: ignore[arg-type]
            replace()

        self._patches.set(ExtensionFileLoader, "create_module", create_module)
        self._patches.set(ctypes.CDLL, "__init__", load_library)


@cache
def _kept_folder() -> str:
    """The folder for texts that compilers keep, until the process ends.

    CuTe DSL reads its environment variables once, so the folder must outlive the session that it was imported in.
    """
    folder, process = tempfile.mkdtemp(prefix="kernbench-"), os.getpid()

    def remove() -> None:
        # not by a forked copy of the process
        if os.getpid() == process:
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(remove)
    return folder


def _load() -> Answering:
    """The library of this process."""
    if not _LOADED:
        library = library_here()
        if library is None:
            library = ctypes.CDLL(str(library_folder() / NAME), ctypes.RTLD_GLOBAL)
            library.kernbench_replace_runtimes.argtypes, library.kernbench_replace_runtimes.restype = [], None
            library.kernbench_replace_runtimes()
            look_out(library)
        _LOADED.append(answering(library))
    return _LOADED[0]


def _too_late() -> str:
    """Why the library cannot replace the driver; empty if it can."""
    for name in _EAGER:
        if name in sys.modules:
            return f"{name} was imported before the emulated GPU was there, and has looked for a driver already"
    other = loaded_driver()
    return f"{other} is loaded into this process already, and is what programs get as CUDA's driver" if other else ""


def loaded_driver() -> Path | None:
    """The driver library loaded in this process, ours or NVIDIA's."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return None
    paths = (Path(line.split(maxsplit=5)[5]) for line in lines if len(line.split(maxsplit=5)) == 6)
    return next((path for path in paths if path.name.startswith("libcuda.so")), None)
