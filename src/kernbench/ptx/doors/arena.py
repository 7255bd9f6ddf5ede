"""Global memory mapped into this process: a device address is also a host address.

On an ordinary emulated device, global memory is a NumPy array, and addresses start at a constant of the emulator. Here
the array is mapped at that very address, once per process. So pointers in a program's own tables are valid on the
device as well, and the host reads results without a copy.
"""

import ctypes
from typing import Any

import numpy as np

from kernbench.common.errors import MisuseError
from kernbench.ptx.emulator.memory.arena import (
    FREED,
    GLOBAL_BASE,
    NOTHING,
    TRACKED,
    UNWRITTEN,
    WRITTEN,
    Allocation,
    Arena,
    views,
)
from kernbench.ptx.emulator.memory.pages.mapping import Templates, bytes_at, give_up, reserve

# content of unwritten memory: a NaN in every float format, and rare as a number
POISON_WORD = 0xFFE7FFB3
POISON = np.frombuffer(POISON_WORD.to_bytes(4, "little"), np.uint8)
# from this size on, memory is allocated on touch
LARGE = 64 << 20
_ALIGNMENT = 256
_WINDOWS = tuple(1 << bits for bits in (40, 38, 36, 34, 32))
# unused addresses between small arrays: they take no memory, and out-of-bounds accesses fall there
_LEAST_GAP = 1 << 16
_QUARANTINE_BYTES = 32 << 20
_QUARANTINE_COUNT = 512
# freed allocations keep their pages up to this many bytes, which is faster if they are soon reused. The rest is given
# back to the system, except small ones: each range given back is a mapping of its own, and a process may have only some
# ten thousand
_SPARE_BYTES = 128 << 20
_WORTH_GIVING = 1 << 20


# a source of poison for memmove, which for small arrays takes a tenth of the time of NumPy
_POISONED = np.full(1 << 14, POISON_WORD, np.uint32)
_POISON_ADDRESS = _POISONED.ctypes.data


def poison(memory: Any) -> None:
    """Fill memory with poison; it must start at a multiple of four."""
    whole = memory.size // 4 * 4
    memory[:whole].view(np.uint32)[...] = POISON_WORD
    memory[whole:] = POISON[: memory.size - whole]


def _slot(nbytes: int) -> int:
    """The size of an allocation's slot; sizes are rounded up so that few size classes exist."""
    rounded = max(_ALIGNMENT, nbytes)
    power = 1 << (rounded - 1).bit_length()
    return power // 4 * 3 if rounded <= power // 4 * 3 and power >= 4 * _ALIGNMENT else power


class MappedArena(Arena):
    """The global memory of all emulated devices of this process; there is one, as there is one address space."""

    def __init__(self, file: int | None = None) -> None:
        # the file behind the memory, if another process shares it
        self._file = file
        self.private = file is None
        self._templates = Templates()
        # free slots by size class
        self._slots: dict[int, list[Allocation]] = {}
        self._slot_bytes: dict[int, int] = {}
        # bytes of free slots that may still have pages; and by offset those of each
        self.spare_bytes = 0
        self._spare: dict[int, int] = {}
        super().__init__(limit=1 << 62)

    def _resize(self, capacity: int) -> None:
        if hasattr(self, "words"):
            raise MisuseError(f"the device's addresses are used up: {self.capacity:,} bytes were given out in all")
        size, where = _window(self._file)
        self._state_address = where
        self.words, self.state = views(bytes_at(GLOBAL_BASE, size)), views(bytes_at(where, size))
        dirty = reserve(size // _ALIGNMENT)
        if dirty is None:
            raise MisuseError(_NO_WINDOW)
        self.dirty = bytes_at(dirty, size // _ALIGNMENT).view(np.bool_)
        self.capacity = size

    def allocate(self, nbytes: int, name: str = "", space: str = "global", data: Any = None) -> Allocation:
        """Fresh memory, filled with `data` (bytes of exactly that size, or 0) or poison.

        Memory of `LARGE` bytes or more without data contains zeros instead of poison, and is allocated on touch.
        """
        allocation = self._taken(nbytes, name, space)
        if nbytes >= LARGE and (data is None or isinstance(data, int)):
            self._spread(allocation, UNWRITTEN if data is None else WRITTEN)
            return allocation
        if data is None:
            self._poison(allocation)
        else:
            self.contents(allocation)[...] = data
        self._give_state(allocation, UNWRITTEN if data is None else WRITTEN)
        return allocation

    def copied(self, source: int, nbytes: int, name: str) -> Allocation:
        """Fresh memory with a copy of the bytes at a host address."""
        allocation = self._taken(nbytes, name, "global")
        ctypes.memmove(allocation.address, source, nbytes)
        self._give_state(allocation, WRITTEN)
        return allocation

    def _taken(self, nbytes: int, name: str, space: str) -> Allocation:
        """Addresses for an allocation; its content and states are not set yet."""
        slot = _slot(nbytes)
        free = self._slots.get(slot)
        allocation = self._again(free.pop(), nbytes) if free else self._extend(slot)
        self._slot_bytes[allocation.offset] = slot
        allocation.nbytes, allocation.name, allocation.space = nbytes, name, space
        self.live_bytes += nbytes
        return allocation

    def _extend(self, nbytes: int) -> Allocation:
        made = super()._extend(nbytes)
        if self.used + _LEAST_GAP <= self.capacity // 2:
            self.used = max(self.used, -(-(made.offset + nbytes + _LEAST_GAP) // _ALIGNMENT) * _ALIGNMENT)
        return made

    def _poison(self, allocation: Allocation) -> None:
        if allocation.nbytes <= _POISONED.nbytes:
            ctypes.memmove(allocation.address, _POISON_ADDRESS, allocation.nbytes)
        else:
            poison(self.contents(allocation))

    def _give_state(self, allocation: Allocation, state: int) -> None:
        """Set the state of all bytes.

        For a large allocation by remapping, which takes no memory until states change.
        """
        if allocation.nbytes >= LARGE:
            self.fill_state(allocation, state)
        else:
            ctypes.memset(self._state_address + allocation.offset, state, allocation.nbytes)

    def _spread(self, allocation: Allocation, state: int) -> None:
        """Make an allocation zeros of one state, allocated on touch."""
        allocation.sparse = True
        self._blank(allocation)
        self.fill_state(allocation, state | TRACKED)

    def _blank(self, allocation: Allocation) -> None:
        """Replace the content by zeros without pages."""
        if self._file is None:
            self._templates.fill(allocation.address, allocation.nbytes, 0)
        else:
            give_up(allocation.address, allocation.nbytes)

    def fill_state(self, allocation: Allocation, state: int) -> None:
        """Set the state of all bytes of a large allocation, with a few mappings."""
        self._templates.fill(self._state_address + allocation.offset, allocation.nbytes, state)

    def _again(self, old: Allocation, nbytes: int) -> Allocation:
        """Reuse the slot of a freed allocation."""
        spare = self._spare.pop(old.offset, 0)
        self.spare_bytes -= spare
        if spare:
            self._give_state(old, NOTHING)
        else:
            self.fill_state(old, NOTHING)
        made = Allocation(old.offset, nbytes, "")
        self._allocations[self._position(old.offset)] = made
        return made

    def free(self, allocation: Allocation) -> None:
        """Free an allocation; its addresses stay marked as freed for a while (quarantine)."""
        allocation.live = False
        self.live_bytes -= allocation.nbytes
        if allocation.sparse:
            self._blank(allocation)
            self.fill_state(allocation, FREED)
        else:
            self._poison(allocation)
            self._give_state(allocation, FREED)
        self._quarantine.append(allocation)
        self._quarantined += 0 if allocation.sparse else allocation.nbytes
        while self._quarantined > _QUARANTINE_BYTES or len(self._quarantine) > _QUARANTINE_COUNT:
            oldest = self._quarantine.popleft()
            self._quarantined -= 0 if oldest.sparse else oldest.nbytes
            self._retire(oldest)

    def _retire(self, old: Allocation) -> None:
        """End the quarantine of a freed allocation; only some large ones keep their pages until they are reused."""
        if not old.sparse and (old.nbytes < _WORTH_GIVING or self.spare_bytes + old.nbytes <= _SPARE_BYTES):
            self._spare[old.offset] = old.nbytes
            self.spare_bytes += old.nbytes
        elif not old.sparse:
            self._blank(old)
            self.fill_state(old, FREED)
        self._slots.setdefault(self._slot_bytes[old.offset], []).append(old)


_NO_WINDOW = (
    "this system does not give the emulated GPU its addresses (4 GiB at 0x100000000000): it needs 64-bit Linux with "
    "48-bit addresses and no limit on virtual memory (ulimit -v unlimited)"
)


def _window(file: int | None) -> tuple[int, int]:
    """Reserve the addresses of device memory, as many as the system permits, and as many for the state of each byte."""
    for size in _WINDOWS:
        found = reserve(size, GLOBAL_BASE, file)
        if found is None:
            continue
        state = reserve(size)
        if state is not None:
            return size, state
        raise MisuseError(_NO_WINDOW)
    raise MisuseError(_NO_WINDOW)
