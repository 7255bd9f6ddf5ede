"""cuda.bindings has NVIDIA's runtime linked in, without symbols: its functions are found through Cython's exports."""

import ctypes
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

MODULES = ("cuda.bindings._internal.runtime", "cuda.bindings._internal.runtime_ptds")


class _Replacing(Loader):
    """Loads the module with its own loader, then redirects its functions to ours."""

    def __init__(self, loader: Loader, library: ctypes.CDLL):
        self._loader, self._library = loader, library

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """Create the module with its own loader."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module; modules imported later take its functions from it."""
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        replace_exported(module, self._library)


class BindingsFinder(MetaPathFinder):
    """An import hook for the module."""

    def __init__(self, library: ctypes.CDLL):
        self._library = library

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's spec, with a loader that redirects its functions; None for other modules."""
        spec = PathFinder.find_spec(name, path) if name in MODULES else None
        if spec is not None and spec.loader is not None:
            spec.loader = _Replacing(spec.loader, self._library)
        return spec


def replace_exported(module: ModuleType, library: ctypes.CDLL) -> None:
    """Patch each function that a Cython module exports under a runtime function's name to jump to ours."""
    get_name, get_pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    replace = library.kernbench_replace_function
    replace.restype, replace.argtypes = ctypes.c_int, [ctypes.c_char_p, ctypes.c_void_p]
    for name, capsule in getattr(module, "__pyx_capi__", {}).items():
        replace(name.lstrip("_").encode(), get_pointer(capsule, get_name(capsule)))


def look_out(library: ctypes.CDLL) -> None:
    """Redirect the runtime functions of cuda.bindings when it is imported, or now if it is."""
    for name in MODULES:
        if name in sys.modules:
            replace_exported(sys.modules[name], library)
    sys.meta_path.insert(0, BindingsFinder(library))
