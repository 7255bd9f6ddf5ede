"""The door for CuTe DSL: tensors passed by DLPack report that they are on a GPU, and PTX is kept.

Everything else is done by CuTe DSL's own runtime library, on top of our driver library. A tensor of torch's CPU build
that stands for a CUDA tensor would otherwise be passed as CPU memory, and the compiler would not treat its address as
global. PTX is kept where our driver library looks for it, even if a program dumps its files to a folder of its own.
"""

import ctypes
import hashlib
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernbench.ptx.doors.driver.images.kept import FOLDER as KEPT
from kernbench.ptx.doors.patching import Patches

if TYPE_CHECKING:
    from kernbench.ptx.doors.session import Session

# DLPack's number for CUDA devices, and the offset of the device kind in a tensor
_CUDA = 2
_KIND_AT = 8

_LOG = logging.getLogger(__name__)


class CuteDoor:
    """Lets torch tensors that stand for CUDA tensors be passed as such, and keeps the PTX of compiled kernels."""

    def __init__(self, session: "Session"):
        self._patches = Patches()

    def open(self) -> None:
        """Patch tensors if torch is installed.

        Without it, tensors come from libraries that report their device themselves.
        """
        self._keep_texts()
        _load_runtime()
        try:
            import torch
        except ImportError:
            return
        tensor = torch.Tensor
        hand_over, where = tensor.__dlpack__, tensor.__dlpack_device__

        def handed_over(self: torch.Tensor, *args: object, **kwargs: object) -> object:
            return _on_gpu(hand_over(self)) if self.is_cuda else hand_over(self, *args, **kwargs)

        def device(self: torch.Tensor) -> object:
            return (_CUDA, 0) if self.is_cuda else where(self)

        self._patches.set(tensor, "__dlpack__", handed_over)
        self._patches.set(tensor, "__dlpack_device__", device)

    def _keep_texts(self) -> None:
        """Keep the PTX of finished compilations; releases before 4.2 have no such record."""
        kind: Any = getattr(sys.modules.get("cutlass.base_dsl.jit_executor"), "JitFunctionArtifacts", None)
        if kind is None:
            return
        finish = kind.__post_init__

        def finish_and_keep(artifacts: Any) -> None:
            finish(artifacts)
            keep_text(artifacts.PTX)

        self._patches.set(kind, "__post_init__", finish_and_keep)

    def close(self) -> None:
        """Undo all patches."""
        self._patches.undo()


def _load_runtime() -> None:
    """Load the library that compiled code calls; the hook on library loading then replaces its CUDA runtime."""
    find = getattr(sys.modules.get("cutlass.base_dsl.env_manager"), "get_prefix_dsl_libs", None)
    for path in str((find and find("CUTE_DSL")) or "").split(os.pathsep):
        if path:
            try:
                ctypes.CDLL(path)
            except OSError as problem:
                # compiled code that needs it raises its own error
                _LOG.warning("CuTe DSL's runtime library %s could not be loaded: %s", path, problem)


def keep_text(text: object) -> None:
    """Write PTX to the folder where our driver library looks for the PTX of machine code."""
    folder = os.environ.get(KEPT)
    if folder and isinstance(text, str) and ".version" in text:
        name = hashlib.sha256(text.encode()).hexdigest()[:24]
        Path(folder, f"{name}.ptx").write_text(text)


def _on_gpu(capsule: object) -> object:
    """Change a capsule to report GPU memory."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    ctypes.c_int32.from_address(pointer(capsule, b"dltensor") + _KIND_AT).value = _CUDA
    return capsule
