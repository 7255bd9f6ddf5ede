"""The device heap: memory that malloc gives to threads, with the state of each byte, until free.

Addresses are not reused while there are fresh ones, so that a late access is detected. Memory stays allocated from
launch to launch, as on a GPU.
"""

from bisect import bisect_right, insort

import numpy as np

from kernbench.ptx.emulator.memory.arena import (
    FREED,
    GLOBAL_BASE,
    NOTHING,
    POISON,
    TRACKED,
    UNWRITTEN,
    Allocation,
    Arena,
)

# bytes that may be allocated at once, CUDA's default limit, and the address range they are spread over
LIMIT = 8 << 20
_REGION = 2 * LIMIT
_ALIGNMENT = 16
_GAP = 64
_MOST_NAMES = 100


class Heap:
    """Allocations made by threads, inside one piece of global memory."""

    def __init__(self, arena: Arena):
        self._arena = arena
        self.region = arena.allocate(_REGION, "device heap")
        self.region.fresh = False
        arena.states(self.region)[...] = NOTHING
        self._next = self.region.offset + _GAP
        self._made: list[Allocation] = []
        self._offsets: list[int] = []
        self._live_bytes = 0

    def allocate(self, nbytes: int, name: str, tracked: bool) -> Allocation | None:
        """Allocate memory; None if the heap is full, or for zero bytes."""
        if nbytes <= 0 or self._live_bytes + nbytes > LIMIT:
            return None
        offset = self._fit(-(-nbytes // _ALIGNMENT) * _ALIGNMENT)
        if offset is None:
            return None
        made = Allocation(offset, nbytes, name)
        index = bisect_right(self._offsets, offset)
        self._made.insert(index, made)
        insort(self._offsets, offset)
        self._live_bytes += nbytes
        self._arena.contents(made)[...] = POISON
        self._arena.states(made)[...] = UNWRITTEN | (TRACKED if tracked else 0)
        return made

    def _fit(self, nbytes: int) -> int | None:
        """Where `nbytes` fit: after everything else, or in a freed allocation."""
        if self._next + nbytes + _GAP <= self.region.offset + self.region.nbytes:
            offset, self._next = self._next, self._next + nbytes + _GAP
            return offset
        for number, old in enumerate(self._made):
            if not old.live and old.nbytes >= nbytes:
                self._arena.states(old)[...] = NOTHING
                del self._made[number], self._offsets[number]
                return old.offset
        return None

    def free(self, address: int) -> str:
        """Free memory; returns what is wrong, "" if nothing."""
        index = bisect_right(self._offsets, address - GLOBAL_BASE) - 1
        found = self._made[index] if index >= 0 else None
        if found is None or not found.address <= address < found.address + found.nbytes:
            return "which malloc never gave"
        if not found.live:
            return f"which was freed before: {found.name}"
        if found.address != address:
            return f"which lies inside {found.name}, {address - found.address} bytes from its start"
        found.live = False
        self._live_bytes -= found.nbytes
        self._arena.states(found)[...] = FREED
        self._arena.contents(found)[...] = POISON
        return ""

    def nearest(self, address: int) -> Allocation:
        """The allocation that contains an address, or the one before it, or the whole heap."""
        index = bisect_right(self._offsets, address - GLOBAL_BASE) - 1
        return self._made[index] if index >= 0 else self.region

    def live(self) -> list[Allocation]:
        """Allocations that have not been freed, by address."""
        return [made for made in self._made if made.live]

    def live_names(self) -> list[str]:
        """Names of allocations that have not been freed: the first of them, and how many more there are."""
        live = self.live()
        more = [f"and {len(live) - _MOST_NAMES} more"] if len(live) > _MOST_NAMES else []
        return [*(made.name for made in live[:_MOST_NAMES]), *more]


def is_freed(arena: Arena, offset: int) -> bool:
    """Whether a byte of global memory was freed."""
    state = arena.state[1][offset] & ~np.uint8(TRACKED)
    return bool(state == FREED)
