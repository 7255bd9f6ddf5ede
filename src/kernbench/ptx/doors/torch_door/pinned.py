"""Pinned host memory: kernels access it at its own address, as on a GPU with unified addressing."""

import ctypes
from typing import Any

import torch

from kernbench.ptx.doors.memory import DeviceMemory
from kernbench.ptx.doors.torch_door.storages import is_plain, name_of, storage_address

_NO_FUNCTION_MODE: Any = torch._C.DisableTorchFunction


class _Pinned(ctypes.Array):  # type: ignore[type-arg]
    """Host memory that is unpinned when its last user is gone; subclasses have a length."""

    _type_, _length_ = ctypes.c_uint8, 0
    memory: DeviceMemory
    address: int

    def __del__(self) -> None:
        self.memory.unpin(self.address)


def pin(memory: DeviceMemory, tensor: torch.Tensor) -> torch.Tensor:
    """A copy of a host tensor in pinned memory; the tensor itself if it is already pinned."""
    if is_pinned(memory, tensor):
        return tensor
    if memory.holds(storage_address(tensor)):
        raise RuntimeError(
            f"cannot pin 'torch.cuda.{tensor.type().rpartition('.')[2]}' only dense CPU tensors can be pinned"
        )
    with _NO_FUNCTION_MODE(), torch.no_grad():
        # contiguous, whatever the strides were
        copied = tensor.detach().clone()
        nbytes = max(copied.untyped_storage().nbytes(), 1)
        buffer = type("_Pinned", (_Pinned,), {"_length_": nbytes})()
        buffer.memory, buffer.address = memory, ctypes.addressof(buffer)
        memory.pin(buffer.address, nbytes, name_of(tensor))
        storage = torch.frombuffer(buffer, dtype=torch.uint8).untyped_storage()
        ctypes.memmove(buffer.address, copied.untyped_storage().data_ptr(), copied.untyped_storage().nbytes())
        pinned = torch.empty(0, dtype=copied.dtype).set_(
            storage, copied.storage_offset(), copied.size(), copied.stride()
        )
        return pinned.requires_grad_(tensor.requires_grad and tensor.is_leaf)


def is_pinned(memory: DeviceMemory, tensor: torch.Tensor) -> bool:
    """Whether a tensor is in pinned memory."""
    return is_plain(tensor) and memory.is_pinned(storage_address(tensor))
