"""The stamps of global memory (`ops.shadow`): they live as long as the arrays, from launch to launch."""

from weakref import WeakKeyDictionary

import numpy as np

from kernbench.ptx.emulator.memory.arena import Allocation, Arena
from kernbench.ptx.emulator.memory.pages.allocation import sparse_bytes
from kernbench.ptx.executor.ops.shadow import ROW_BYTES, ROW_WORDS_COUNT

# after this many blocks their numbers begin again, and all stamps are erased
_LAST_SERIAL = 1 << 30


class ArrayStamps:
    """The stamps of an array's rows and words, and the launch that last wrote each row; pages are taken on touch."""

    def __init__(self, allocation: Allocation):
        self.first = allocation.address // ROW_BYTES
        last = (allocation.address + max(allocation.nbytes, 1) - 1) // ROW_BYTES
        self.count = last - self.first + 2
        self._rows = [sparse_bytes(8 * self.count).view(np.int64) for _ in range(3)]
        self._saved = sparse_bytes(4 * self.count).view(np.uint32)
        self._words = [sparse_bytes(8 * self.count * ROW_WORDS_COUNT).view(np.int64) for _ in range(3)]

        rows, words = ([one.ctypes.data for one in part] for part in (self._rows, self._words))
        # their addresses and the number of the first row, in the order of a launch's table of arrays
        self.entry = [*rows, self._saved.ctypes.data, *words, self.first]


class Stamps:
    """The stamps of a device's memory, and how many blocks and launches it has seen."""

    def __init__(self) -> None:
        self._arrays: WeakKeyDictionary[Allocation, ArrayStamps] = WeakKeyDictionary()
        self._serial = 0
        self.epoch = 0

    def begin(self, blocks: int) -> int:
        """A launch of some blocks begins: returns the number before that of its first block."""
        if self._serial + blocks + 2 > _LAST_SERIAL or self.epoch >= _LAST_SERIAL:
            self._arrays, self._serial, self.epoch = WeakKeyDictionary(), 0, 0
        self.epoch += 1
        first = self._serial + 1
        self._serial += blocks + 2
        return first

    def of(self, allocation: Allocation) -> ArrayStamps:
        """The stamps of an array."""
        found = self._arrays.get(allocation)
        if found is None:
            found = self._arrays[allocation] = ArrayStamps(allocation)
        return found


_STAMPS: "WeakKeyDictionary[Arena, Stamps]" = WeakKeyDictionary()


def stamps_of(arena: Arena) -> Stamps:
    """The stamps of a device's memory."""
    found = _STAMPS.get(arena)
    return _STAMPS.setdefault(arena, Stamps()) if found is None else found
