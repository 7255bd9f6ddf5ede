"""cuda.bindings has NVIDIA's runtime linked in, without symbols: functions are found by what Cython exports."""

import ctypes
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

MODULES = ("cuda.bindings._internal.runtime", "cuda.bindings._internal.runtime_ptds")


class _Replacing(Loader):
    """Loads the module as its own loader does, then lets its functions jump to ours."""

    def __init__(self, loader: Loader, library: ctypes.CDLL):
        self._loader, self._library = loader, library

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """The module, as its own loader makes it."""
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Run the module; others take its functions from it when they are imported after it."""
        module.__loader__ = self._loader
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        replace_exported(module, self._library)


class BindingsFinder(MetaPathFinder):
    """Looks out for the module."""

    def __init__(self, library: ctypes.CDLL):
        self._library = library

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Its spec, with the replacement behind it; None for all else."""
        spec = PathFinder.find_spec(name, path) if name in MODULES else None
        if spec is not None and spec.loader is not None:
            spec.loader = _Replacing(spec.loader, self._library)
        return spec


def replace_exported(module: ModuleType, library: ctypes.CDLL) -> None:
    """Let each function that a Cython module exports by the name of one of the runtime's jump to ours."""
    get_name, get_pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get_pointer.restype, get_pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    replace = library.kernbench_replace_function
    replace.restype, replace.argtypes = ctypes.c_int, [ctypes.c_char_p, ctypes.c_void_p]
    for name, capsule in getattr(module, "__pyx_capi__", {}).items():
        replace(name.lstrip("_").encode(), get_pointer(capsule, get_name(capsule)))


def look_out(library: ctypes.CDLL) -> None:
    """Replace the functions of cuda.bindings' runtime when it is imported, or at once where it is."""
    for name in MODULES:
        if name in sys.modules:
            replace_exported(sys.modules[name], library)
    sys.meta_path.insert(0, BindingsFinder(library))
