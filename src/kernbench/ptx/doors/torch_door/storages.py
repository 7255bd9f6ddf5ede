"""Storages of tensors in the device's memory: made, filled, and given back when the last tensor that uses them dies."""

import ctypes
import weakref
from typing import Any

import torch

from kernbench.ptx.doors.memory import DeviceMemory

# elements of two bytes of which poison is a NaN: no number that a program writes looks like it
_HALVES = (torch.float16, torch.bfloat16)
_NO_FUNCTION_MODE: Any = torch._C.DisableTorchFunction
_PLAIN = (torch.Tensor, torch.nn.Parameter)


def _buffer_of(memory: DeviceMemory, address: int, nbytes: int) -> Any:
    buffer = (ctypes.c_uint8 * nbytes).from_address(address)
    weakref.finalize(buffer, memory.give_back, address).atexit = False
    return buffer


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor has bytes in this process: no meta, fake, sparse or other tensor without a storage."""
    if type(tensor) not in _PLAIN:
        return False
    with _NO_FUNCTION_MODE():
        return _raw_device(tensor).type == "cpu" and bool(tensor.layout == torch.strided)


_RAW_DEVICE: Any = torch._C.TensorBase.device


def _raw_device(tensor: torch.Tensor) -> Any:
    return _RAW_DEVICE.__get__(tensor)


def raw_device(tensor: torch.Tensor) -> Any:
    """The device that torch itself knows, whatever tensors say of themselves."""
    with _NO_FUNCTION_MODE():
        return _raw_device(tensor)


def storage_address(tensor: torch.Tensor) -> int:
    """Where the storage of a tensor begins; 0 for one without."""
    try:
        with _NO_FUNCTION_MODE():
            return int(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):
        return 0


def name_of(tensor: torch.Tensor) -> str:
    """What findings call a tensor of which no name is known."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


class Storages:
    """The storages of one memory."""

    def __init__(self, memory: DeviceMemory):
        self.memory = memory

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies on the device."""
        return self.memory.holds(storage_address(tensor))

    def new(self, nbytes: int, name: str, source: int = 0) -> Any:
        """A fresh storage on the device, with the bytes at an address of this process, or that nobody has written."""
        # storages of no bytes have no address, and would lie nowhere
        size = max(nbytes, 16)
        address = self.memory.copied(source, nbytes, name) if source and nbytes else self.memory.allocate(size, name)
        buffer = _buffer_of(self.memory, address, nbytes if source and nbytes else size)
        return torch.frombuffer(buffer, dtype=torch.uint8).untyped_storage()

    def move(self, tensor: torch.Tensor, *, empty: bool = False, poisoned: bool = False) -> None:
        """Give a tensor that nobody else knows yet a storage on the device, with its bytes unless they mean nothing.

        Where it was computed from bytes that may be unwritten (`poisoned`), what holds poison is unwritten here, too.
        """
        old = tensor.untyped_storage()
        nbytes = old.nbytes()
        new = self.new(nbytes, name_of(tensor), 0 if empty else old.data_ptr())
        if poisoned:
            self.memory.unwritten(new.data_ptr(), nbytes)
        if empty or poisoned:
            self.memory.watch(new.data_ptr(), 2 if tensor.dtype in _HALVES else 4)
        tensor.set_(new, tensor.storage_offset(), tensor.size(), tensor.stride())
