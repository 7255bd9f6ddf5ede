"""Tensor storages in device memory: allocated, filled, and freed with the last tensor that uses them."""

import ctypes
import functools
import re
from collections.abc import Sequence
from math import prod
from typing import Any

import torch

from kernbench.ptx.doors.memory import DeviceMemory, Made
from kernbench.ptx.doors.terms.sites import launch_site
from kernbench.ptx.doors.torch_door.fakes import is_fake, is_marked, mark

# 2-byte element types in which poison is a NaN that no program writes
_HALVES = (torch.float16, torch.bfloat16)
_NO_FUNCTION_MODE: Any = torch._C.DisableTorchFunction
_NO_DISPATCH: Any = torch._C._DisableTorchDispatch
_SHORTAGE = re.compile(r"can't allocate memory|not enough memory|DefaultCPUAllocator")
_BYTES = re.compile(r"allocate (\d+) bytes")
_PLAIN = (torch.Tensor, torch.nn.Parameter)


class _Buffer(ctypes.Array):  # type: ignore[type-arg]
    """Device memory that is freed when its last user is gone; subclasses have a length."""

    _type_, _length_ = ctypes.c_uint8, 0
    memory: DeviceMemory
    address: int

    def __del__(self) -> None:
        self.memory.give_back(self.address)


@functools.lru_cache(4096)
def _buffers(nbytes: int) -> type[_Buffer]:
    return type("_Buffer", (_Buffer,), {"_length_": nbytes})


def _buffer_of(memory: DeviceMemory, address: int, nbytes: int) -> _Buffer:
    buffer = _buffers(nbytes).from_address(address)
    buffer.memory, buffer.address = memory, address
    return buffer


_TENSOR: Any = torch._C.TensorBase
_RAW_DEVICE, _RAW_IS_CPU, _RAW_LAYOUT = _TENSOR.device, _TENSOR.is_cpu.__get__, _TENSOR.layout.__get__


def plain_here(tensor: torch.Tensor) -> bool:
    """`is_plain`, to be called without a function mode."""
    return type(tensor) in _PLAIN and _RAW_IS_CPU(tensor) and _RAW_LAYOUT(tensor) is torch.strided


def is_plain(tensor: torch.Tensor) -> bool:
    """Whether a tensor has a storage in this process: not a meta, fake, sparse or similar tensor."""
    if type(tensor) not in _PLAIN:
        return False
    with _NO_FUNCTION_MODE():
        return plain_here(tensor)


def raw_device(tensor: torch.Tensor) -> Any:
    """The device that torch itself knows."""
    with _NO_FUNCTION_MODE():
        return _RAW_DEVICE.__get__(tensor)


def address_here(tensor: torch.Tensor) -> int:
    """An address in the storage of a tensor, 0 without one; to be called without a function mode."""
    try:
        # an empty tensor has none, but its storage may have one
        return tensor.data_ptr() or int(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):
        return 0


def storage_address(tensor: torch.Tensor) -> int:
    """The start address of a tensor's storage; 0 without one."""
    try:
        with _NO_FUNCTION_MODE():
            return int(tensor.untyped_storage().data_ptr())
    except (RuntimeError, NotImplementedError):
        return 0


def name_of(tensor: torch.Tensor) -> str:
    """The name of a tensor in findings, if no other is known."""
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"


def is_shortage(problem: RuntimeError) -> bool:
    """Whether an operator failed for lack of memory."""
    return bool(_SHORTAGE.search(str(problem)))


def out_of_memory(problem: RuntimeError | None, nbytes: int = 0, capacity: int = 0, used: int = 0) -> RuntimeError:
    """Torch's exception for a GPU out of memory, with what to do about it here."""
    found = _BYTES.search(str(problem))
    wanted = nbytes or (int(found[1]) if found else 0)
    text = f"CUDA out of memory. Tried to allocate {_size(wanted)}. "
    if capacity:
        text += f"GPU 0 has a total capacity of {_size(capacity)} of which {_size(capacity - used)} is free. "
    text += "The GPU is emulated, and its memory is this computer's: use a smaller problem, or free tensors first"
    kind: type[RuntimeError] = getattr(torch, "OutOfMemoryError", RuntimeError)
    return kind(text)


def _size(nbytes: int) -> str:
    return f"{nbytes / (1 << 30):,.2f} GiB" if nbytes >= 1 << 30 else f"{nbytes / (1 << 20):.2f} MiB"


class Storages:
    """The storages of one device memory."""

    def __init__(self, memory: DeviceMemory, capacity: int):
        self.memory, self.capacity = memory, capacity

    def holds(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is on the device."""
        with _NO_FUNCTION_MODE():
            return self.holds_here(tensor)

    def holds_here(self, tensor: torch.Tensor) -> bool:
        """`holds`, to be called without a function mode."""
        return is_marked(tensor) if is_fake(tensor) else self.memory.holds(address_here(tensor))

    def has_data(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor has a storage in this process; to be called without a function mode."""
        return plain_here(tensor)

    def address(self, tensor: torch.Tensor) -> int:
        """The start address of a tensor's storage; 0 without one."""
        return storage_address(tensor)

    def new(self, nbytes: int, name: str, source: int = 0) -> Any:
        """A new storage on the device, with a copy of the bytes at a host address, or unwritten."""
        # an empty storage would have no address, and be on no device
        size = max(nbytes, 16)
        used = self.memory.arena.live_bytes
        if used + size > self.capacity:
            raise out_of_memory(None, size, self.capacity, used)
        address = self.memory.copied(source, nbytes, name) if source and nbytes else self.memory.allocate(size, name)
        buffer = _buffer_of(self.memory, address, nbytes if source and nbytes else size)
        return torch.frombuffer(buffer, dtype=torch.uint8).untyped_storage()

    def move(self, tensor: torch.Tensor, *, empty: bool = False, poisoned: bool = False) -> None:
        """Give a new tensor, which nothing else refers to, a storage on the device.

        Its bytes are copied unless undefined.

        If it was computed from bytes that may be unwritten (`poisoned`), elements that contain poison are unwritten as
        well.
        """
        if is_fake(tensor):
            mark(tensor)
            return
        old = tensor.untyped_storage()
        nbytes = old.nbytes()
        new = self.new(nbytes, name_of(tensor), 0 if empty else old.data_ptr())
        if empty:
            shape = tuple(tensor.shape) if tensor.is_contiguous() else ()
            self.memory.note_made(new.data_ptr(), Made(launch_site(), shape, tensor.element_size()))
        if poisoned:
            self.memory.unwritten(new.data_ptr(), nbytes)
        if empty or poisoned:
            self.memory.watch(new.data_ptr(), 2 if tensor.dtype in _HALVES else 4)
        # modes of torch's own, such as one that traces, are not to see it
        with _NO_DISPATCH():
            tensor.set_(new, tensor.storage_offset(), tensor.size(), tensor.stride())

    def resize(self, tensor: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
        """`Tensor.resize_` of a tensor on the device: torch cannot grow its storage, so it gets another one.

        Existing elements stay; new ones are unwritten. Other views of the storage keep the old one.
        """
        old, offset = tensor.untyped_storage(), tensor.storage_offset()
        wanted = (offset + prod(size)) * tensor.element_size()
        storage = old
        if wanted > old.nbytes():
            storage = self.new(wanted, f"{str(tensor.dtype).removeprefix('torch.')}{list(size)}")
            ctypes.memmove(storage.data_ptr(), old.data_ptr(), old.nbytes())
            self.memory.written(storage.data_ptr(), old.nbytes())
            self.memory.watch(storage.data_ptr(), 2 if tensor.dtype in _HALVES else 4)
        return tensor.set_(storage, offset, size, torch.empty(size, device="meta").stride())
