"""The door for CuTe DSL: tensors that are handed over by DLPack say that they lie on a GPU.

All else is done by CuTe DSL's own runtime library, over the driver library. A tensor of torch's CPU build that counts
as one on "cuda" is handed over as memory of the CPU, and the compiler would not take its address for a global one.
"""

import ctypes
from typing import TYPE_CHECKING, Any

from kernbench.ptx.doors.patching import Patches

if TYPE_CHECKING:
    from kernbench.ptx.doors.session import Session

# DLPack's number of CUDA devices, and where a tensor that is handed over has the kind of its device
_CUDA = 2
_KIND_AT = 8


class CuteDoor:
    """Lets torch tensors that count as CUDA ones be handed over as such."""

    def __init__(self, session: "Session"):
        self._patches = Patches()

    def open(self) -> None:
        """Where torch is there; without it tensors come from elsewhere, and say themselves where they are."""
        try:
            import torch
        except ImportError:
            return
        tensor = torch.Tensor
        hand_over, where = tensor.__dlpack__, tensor.__dlpack_device__

        def handed_over(self: Any, *args: Any, **kwargs: Any) -> Any:
            return _on_gpu(hand_over(self)) if self.is_cuda else hand_over(self, *args, **kwargs)

        def device(self: Any) -> Any:
            return (_CUDA, 0) if self.is_cuda else where(self)

        self._patches.set(tensor, "__dlpack__", handed_over)
        self._patches.set(tensor, "__dlpack_device__", device)

    def close(self) -> None:
        """Put everything back."""
        self._patches.undo()


def _on_gpu(capsule: Any) -> Any:
    """The same capsule, saying that its memory is a GPU's."""
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    ctypes.c_int32.from_address(pointer(capsule, b"dltensor") + _KIND_AT).value = _CUDA
    return capsule
