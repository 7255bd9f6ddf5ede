"""The door for CuTe DSL: tensors that are passed by DLPack say that they lie on a GPU, and PTX is kept.

All else is done by CuTe DSL's own runtime library, over the driver library. A tensor of torch's CPU build that counts
as one on "cuda" is passed as memory of the CPU, and the compiler would not take its address for a global one.
PTX is kept where the driver library looks for it, also when a program has its files written to a folder of its own.
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

# DLPack's number of CUDA devices, and where a tensor that is passed has the kind of its device
_CUDA = 2
_KIND_AT = 8

_LOG = logging.getLogger(__name__)


class CuteDoor:
    """Lets torch tensors that count as CUDA ones be passed as such, and keeps the PTX of what is compiled."""

    def __init__(self, session: "Session"):
        self._patches = Patches()

    def open(self) -> None:
        """Tensors where torch is there; without it they come from elsewhere, and say themselves where they are."""
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
        """What a compilation gave is read into a record when it is done; releases before 4.2 have none."""
        kind: Any = getattr(sys.modules.get("cutlass.base_dsl.jit_executor"), "JitFunctionArtifacts", None)
        if kind is None:
            return
        finish = kind.__post_init__

        def finish_and_keep(artifacts: Any) -> None:
            finish(artifacts)
            keep_text(artifacts.PTX)

        self._patches.set(kind, "__post_init__", finish_and_keep)

    def close(self) -> None:
        """Put everything back."""
        self._patches.undo()


def _load_runtime() -> None:
    """Load the library that compiled code calls: its CUDA runtime is replaced by whoever watches Python load one."""
    find = getattr(sys.modules.get("cutlass.base_dsl.env_manager"), "get_prefix_dsl_libs", None)
    for path in str((find and find("CUTE_DSL")) or "").split(os.pathsep):
        if path:
            try:
                ctypes.CDLL(path)
            except OSError as problem:
                # compiled code that needs it says so itself, with its own error
                _LOG.warning("CuTe DSL's runtime library %s could not be loaded: %s", path, problem)


def keep_text(text: object) -> None:
    """Write a PTX text to the folder where the driver library looks for those of machine code."""
    folder = os.environ.get(KEPT)
    if folder and isinstance(text, str) and ".version" in text:
        name = hashlib.sha256(text.encode()).hexdigest()[:24]
        Path(folder, f"{name}.ptx").write_text(text)


def _on_gpu(capsule: object) -> object:
    """The same capsule, saying that its memory is a GPU's."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    ctypes.c_int32.from_address(pointer(capsule, b"dltensor") + _KIND_AT).value = _CUDA
    return capsule
