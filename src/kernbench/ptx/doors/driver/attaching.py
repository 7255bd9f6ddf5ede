"""The driver library in a Python that runs already, for front ends that find a GPU by way of CUDA's driver.

Under `kernbench exec` the library is there before all else. Here it is loaded when such a front end is imported:
whoever asks the system for libcuda.so.1 from then on gets it. Where NVIDIA's is loaded already, that is too late.
"""

import ctypes
import os
import sys
import tempfile
import warnings
from collections.abc import Callable
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

# front ends that look for the driver once, when they are imported
_EAGER = ("cupy",)
_REMEDY = "begin the block before, or run the program with `kernbench exec -- python ...`"


class DriverNotSeenWarning(UserWarning):
    """Launches by way of CUDA's driver will not reach the emulated GPU; says why and what to do."""


# loaded once, and never unloaded: a front end keeps what it found
_LOADED: list[Answering] = []


class DriverDoor:
    """CuPy, Numba, cuda.bindings and others for one session."""

    def __init__(self, session: "Session"):
        self._session = session
        self._patches = Patches()
        self._answering: Answering | None = None

    def open(self) -> None:
        """Let the library answer on the session; a `DriverNotSeenWarning` where it comes too late."""
        problem = "" if _LOADED or library_here() is not None else _too_late()
        if problem:
            warnings.warn(DriverNotSeenWarning(f"{problem}: {_REMEDY}"), stacklevel=2)
            return
        self._answering = _load()
        # what an earlier session has lost is not this one's
        restore()
        self._answering.sessions.append(self._give)
        self._switches()
        self._watch(self._answering.library)

    def close(self) -> None:
        """The library stays, and has no GPU, or that of the session around this one."""
        self._patches.undo()
        if self._answering is not None:
            self._answering.sessions.remove(self._give)

    def _give(self) -> "Session":
        return self._session

    def _switches(self) -> None:
        """Compilers of front ends give PTX."""
        kept = tempfile.TemporaryDirectory(prefix="kernbench-")
        self._patches.later(kept.cleanup)
        for name, value in compiler_switches(os.environ, kept.name, kept.name).items():
            self._patches.item(os.environ, name, value)

    def _watch(self, library: ctypes.CDLL) -> None:
        """Libraries that are loaded with a CUDA runtime or a compiler in them get ours, before they are used."""
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
    """Why the library cannot take the driver's part, or nothing."""
    for name in _EAGER:
        if name in sys.modules:
            return f"{name} was imported before the emulated GPU was there, and has looked for a driver already"
    other = loaded_driver()
    return f"{other} is loaded into this process already, and is what programs get as CUDA's driver" if other else ""


def loaded_driver() -> Path | None:
    """A driver library that this process has loaded, be it ours or NVIDIA's."""
    try:
        lines = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return None
    paths = (Path(line.split(maxsplit=5)[5]) for line in lines if len(line.split(maxsplit=5)) == 6)
    return next((path for path in paths if path.name.startswith("libcuda.so")), None)
