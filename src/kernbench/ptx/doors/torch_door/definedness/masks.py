"""Masks of tensors on the device: which of their elements nobody wrote, read from and kept in the states of bytes."""

from collections.abc import Sequence
from math import prod
from typing import Protocol

import torch

from kernbench.ptx.doors.arena import LARGE
from kernbench.ptx.doors.memory import DeviceMemory, Made
from kernbench.ptx.emulator.memory.arena import TRACKED, UNWRITTEN, WRITTEN, Allocation

_WITHOUT_TRACKING = 0xFF & ~TRACKED


class DeviceStorages(Protocol):
    """Where tensors on the device lie; all is called without a function mode."""

    memory: DeviceMemory

    def holds_here(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor is on the device."""

    def has_data(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor has a storage in this process."""

    def address(self, tensor: torch.Tensor) -> int:
        """The start address of a tensor's storage; 0 without one."""


class Masks:
    """The masks of tensors in one device memory; to be called without modes."""

    def __init__(self, storages: DeviceStorages):
        self._memory, self._address = storages.memory, storages.address

    def may_be_undefined(self, tensor: torch.Tensor) -> bool:
        """Whether a tensor lies in memory that is not known to be written."""
        return self._memory.watches_any((self._address(tensor),))

    def allocation(self, tensor: torch.Tensor) -> Allocation | None:
        """The memory of a tensor."""
        return self._memory.array_at(self._address(tensor))

    def made(self, tensor: torch.Tensor) -> Made | None:
        """Where its memory was made unwritten; None if it was not."""
        found = self.allocation(tensor)
        return None if found is None else self._memory.made.get(found)

    def of(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """The elements of a tensor that nobody wrote; None if there are none."""
        if not tensor.numel() or not self.may_be_undefined(tensor):
            return None
        item = tensor.element_size()
        start = self._address(tensor) + tensor.storage_offset() * item
        states = self._memory.settle_range(start, _extent(tensor) * item)
        if states is None:
            return None
        unwritten = torch.from_numpy((states & _WITHOUT_TRACKING) == UNWRITTEN)
        found = _as_elements(unwritten, tensor).any(-1)
        return found if bool(found.any()) else None

    def put(self, tensor: torch.Tensor, mask: torch.Tensor | None) -> None:
        """Say which elements of a tensor are undefined; all others are written."""
        found = self.allocation(tensor)
        if found is None or found.nbytes >= LARGE or not tensor.numel():
            return
        item = tensor.element_size()
        begin = self._address(tensor) - found.address + tensor.storage_offset() * item
        states = torch.from_numpy(self._memory.arena.states(found)[begin : begin + _extent(tensor) * item])
        states = _as_elements(states, tensor)
        if mask is None:
            states.copy_(states.bitwise_and(TRACKED).bitwise_or(WRITTEN))
            return
        fresh = torch.where(mask.expand(tensor.shape).unsqueeze(-1), UNWRITTEN, WRITTEN).to(torch.uint8)
        states.copy_(states.bitwise_and(TRACKED).bitwise_or(fresh))
        self._memory.watch_calls(found.address)

    def first(self, tensor: torch.Tensor, mask: torch.Tensor) -> str:
        """The first undefined element, by its index in the array that the program made, if that is of this kind."""
        number = int(mask.reshape(-1).to(torch.uint8).argmax())
        index = _index(number, tensor.shape)
        made = self.made(tensor)
        if made is None or made.itemsize != tensor.element_size() or not made.shape:
            return str(index)
        offset = tensor.storage_offset()
        offset += sum(at * stride for at, stride in zip(index, tensor.stride(), strict=True))
        return str(_index(offset, made.shape))


def _extent(tensor: torch.Tensor) -> int:
    """How many elements of its storage a tensor spans."""
    sizes: Sequence[int] = tensor.shape
    strides: Sequence[int] = tensor.stride()
    return 1 + sum((size - 1) * stride for size, stride in zip(sizes, strides, strict=True))


def _as_elements(part: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    """Bytes of the part of a storage that a tensor spans, by its elements."""
    item = tensor.element_size()
    strides = [stride * item for stride in tensor.stride()]
    return part.as_strided((*tensor.shape, item), (*strides, 1))


def _index(number: int, shape: Sequence[int]) -> list[int]:
    """The index of an element, by its number in order."""
    found = []
    for position in range(len(shape)):
        inner = prod(shape[position + 1 :])
        found.append(number // inner)
        number %= inner
    return found
