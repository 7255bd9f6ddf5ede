"""Opens a door when its front end is loaded: now if it already is, else as soon as it is imported.

Nothing is imported here that the program does not import itself, and nothing for a session before there is one: a
program without front ends has no overhead.
"""

import importlib
import importlib.util
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernbench.ptx.doors.session import Session

# module that a program imports -> its door
DOORS = {
    "torch": ("kernbench.ptx.doors.torch_door.door", "TorchDoor"),
    "triton": ("kernbench.ptx.doors.triton_door.door", "TritonDoor"),
    "cutlass": ("kernbench.ptx.doors.cute_door.door", "CuteDoor"),
    "cupy": ("kernbench.ptx.doors.driver.front_ends", "CupyDoor"),
    "numba.cuda": ("kernbench.ptx.doors.driver.front_ends", "NumbaDoor"),
}
# the door that loads our driver, and the modules that look for CUDA's driver, before which it opens
DRIVER_DOOR = ("kernbench.ptx.doors.driver.attaching", "DriverDoor")
NEED_DRIVER = ("cupy", "numba.cuda", "numba_cuda", "cuda.bindings", "cuda.core", "cutlass")


class _Watched(Loader):
    """Loads a module with its own loader, then calls back."""

    def __init__(self, loader: Any, loaded: Callable[[], None]):
        self._loader, self._loaded = loader, loaded

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create the module with its own loader."""
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        """Run the module; it keeps its own loader."""
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._loaded()


class _Finder(MetaPathFinder):
    """An import hook for front ends."""

    def __init__(self, installed: "Doors"):
        self._installed = installed
        self._busy: set[str] = set()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of a front end, with a loader that opens its door; None for other modules."""
        self._installed.expect(name)
        if name not in DOORS or name in self._busy:
            return None
        self._busy.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._busy.discard(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Watched(spec.loader, lambda: self._installed.open(name))
        return spec


class Doors:
    """The doors of one session, which is created when the first of them opens."""

    def __init__(self, session: "Callable[[], Session]", *, driver: bool = False):
        """With `driver`, our driver library also replaces CUDA's, once something needs it."""
        self._session = session
        self._driver = driver
        self._open: dict[str, Any] = {}
        self._finder = _Finder(self)

    def install(self) -> None:
        """Open the doors of loaded front ends, and hook the import of others."""
        for name in NEED_DRIVER:
            if name in sys.modules:
                self.expect(name)
        for name in DOORS:
            if name in sys.modules:
                self.open(name)
        sys.meta_path.insert(0, self._finder)

    def expect(self, name: str) -> None:
        """A module is about to be imported, or is loaded: open the driver if it needs that."""
        if self._driver and name in NEED_DRIVER:
            self.open_driver()

    def open_driver(self) -> None:
        """Let the driver library answer for the session."""
        self._open_door("libcuda.so.1", *DRIVER_DOOR)

    def open(self, name: str) -> None:
        """Open one door."""
        self._open_door(name, *DOORS[name])

    def _open_door(self, name: str, module: str, kind: str) -> None:
        if name not in self._open:
            door = getattr(importlib.import_module(module), kind)(self._session())
            # registered first, as its imports may lead here again
            self._open[name] = door
            door.open()

    def remove(self) -> None:
        """Close all doors in reverse order."""
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        while self._open:
            _, door = self._open.popitem()
            door.close()
