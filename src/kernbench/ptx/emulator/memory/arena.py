"""Global memory: allocations in one arena with guard gaps between them, and a state byte for each byte.

The state says how a byte may be used, so that bounds, lifetime and definedness of an access take one comparison. Freed
addresses are not reused until much has been freed, so that a late access is detected.
"""

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.errors import MisuseError
from kernbench.ptx.emulator.lanes.arrays import Bools, Bytes
from kernbench.ptx.emulator.memory.pages.allocation import require_memory
from kernbench.ptx.emulator.memory.pages.large import BLOCK, LARGE, Extent, LargeArrays, forget_marks
from kernbench.safety.processes.threads import together

if TYPE_CHECKING:
    from kernbench.ptx.emulator.memory.footprint import Footprint
    from kernbench.ptx.emulator.memory.heap import Heap

GLOBAL_BASE = 0x1000_0000_0000
LOCAL_BASE = 0x2000_0000_0000
SHARED_BASE = 0x3000_0000_0000

NOTHING, UNWRITTEN, WRITTEN, FREED = 0, 1, 3, 4
TRACKED = 0x80
POISON = 0xFF

_ALIGNMENT = 256
_START = 1 << 26
_SMALLEST_GAP, _LARGEST_GAP = 1 << 10, 1 << 20
_QUARANTINE = 1 << 28
_WIDTHS = (1, 2, 4, 8)
_PIECE = 1 << 18
# bytes that one thread writes, copies or compares at a time
_TOGETHER = 4 << 20


@dataclass
class Usual:
    """The contents of a large allocation where nobody has written: the value of each byte, and its state.

    `tracked` says whether it is watched for races. That is part of the state, and stays from launch to launch as long
    as launches agree; None if unknown.
    """

    value: int
    state: int
    tracked: bool | None = False


@dataclass(eq=False)
class Allocation:
    """A named piece of global memory; `space` is "global", "const" or "param"."""

    offset: int
    nbytes: int
    name: str
    space: str = "global"
    live: bool = True
    # poisoned when made, so that bytes a launch leaves unwritten are found
    fresh: bool = False
    # memory whose pages are allocated on first write: all its bytes are always tracked, as setting that touches every
    # page
    sparse: bool = False
    # for a large allocation, whose pages are allocated on write: the contents of unwritten ones; None for a small one
    usual: "Usual | None" = None

    @property
    def address(self) -> int:
        """The device address of the first byte."""
        return GLOBAL_BASE + self.offset

    @property
    def valid(self) -> str:
        """The range of valid addresses, for messages."""
        return f"{self.address:#x} to {self.address + self.nbytes:#x} ({self.nbytes} bytes)"

    @property
    def extent(self) -> Extent:
        """Its range in the arena."""
        return Extent(self.offset, self.offset + self.nbytes)


def views(memory: Array) -> dict[int, Array]:
    """`memory`, an array of bytes, viewed as unsigned words of each width."""
    return {width: memory.view(f"uint{8 * width}") for width in _WIDTHS}


def _others(states: Array, state: int) -> tuple[int, int]:
    """How many entries differ from a state, and the first one (0 if none); compared in pieces that fit into caches."""
    found: dict[int, tuple[int, int]] = {}

    def look(begin: int) -> None:
        end = min(begin + _TOGETHER, len(states))
        for start in range(begin, end, _PIECE):
            other = states[start : min(start + _PIECE, end)] != state
            if count := int(np.count_nonzero(other)):
                found[start] = count, start + int(np.argmax(other))

    together(partial(look, begin) for begin in range(0, len(states), _TOGETHER))
    return sum(count for count, _ in found.values()), found[min(found)][1] if found else 0


def _copied(memory: Bytes) -> Bytes:
    """A copy of an array of bytes, made by several threads if large."""
    found: Bytes = np.empty(len(memory), np.uint8)
    parts = [slice(first, first + _TOGETHER) for first in range(0, len(memory), _TOGETHER)]
    together(partial(np.copyto, found[part], memory[part]) for part in parts)
    return found


class Aliases:
    """Address ranges of host memory that stand for allocations in the arena."""

    def __init__(self, ranges: list[tuple[int, int, int]]):
        ordered = sorted(ranges)
        self._starts = np.array([start for start, _, _ in ordered], np.uint64)
        self._sizes = np.array([size for _, size, _ in ordered], np.uint64)
        self._targets = np.array([target for _, _, target in ordered], np.uint64)

    def translated(self, addresses: Array, offset: int | np.uint64 = 0) -> Array:
        """Translate addresses; `offset`, which is added later, decides which range they fall into."""
        full = addresses + np.uint64(offset)
        which = np.searchsorted(self._starts, full, side="right").astype(np.int64) - 1
        known = np.maximum(which, 0)
        inside = (which >= 0) & (full - self._starts[known] < self._sizes[known])
        if not inside.any():
            return addresses
        by = self._targets[known] - self._starts[known]
        moved: Array = np.where(inside, addresses + by, addresses)
        return moved


class Arena:
    """All global memory of one device."""

    # host addresses that stand for allocations
    aliases: Aliases | None = None
    # records what a launch reads and writes, if its parts may run apart
    footprint: "Footprint | None" = None
    # False if the memory is shared with other processes
    private = True
    # address space reserved for large arrays: the arena begins inside it, and need not move later
    _room: LargeArrays | None = None

    def __init__(self, limit: int):
        self.limit = limit
        self.used = _ALIGNMENT
        self.live_bytes = 0
        self._allocations: list[Allocation] = []
        self._offsets: list[int] = []
        self._quarantine: deque[Allocation] = deque()
        self._quarantined = 0
        self._reusable: list[Allocation] = []
        # the heap for malloc in kernels, once used
        self.heap: Heap | None = None
        # the reserved address space, once there are large arrays
        self._large: LargeArrays | None = None
        self._resize(_START)

    def _reserved(self) -> LargeArrays | None:
        """Address space for large arrays, whose pages are allocated on touch; None if the system refuses."""
        try:
            return LargeArrays()
        except MemoryError:
            return None

    def _resize(self, capacity: int) -> None:
        if not hasattr(self, "words"):
            self._room = self._reserved()
            if self._room is not None:
                room, blocks = self._room, capacity // BLOCK
                self._hold(room.words[:capacity], room.states[:capacity], room.dirty[:blocks])
                return
        elif self._large is None:
            # with reserved address space, growing moves nothing
            self._enlarge()
            if capacity <= self.capacity:
                return
        if self._large is not None:
            raise MisuseError(f"the device's addresses are used up: {self.capacity:,} bytes were given out in all")
        self._move(np.zeros(capacity, np.uint8), np.zeros(capacity, np.uint8), np.zeros(capacity // BLOCK, np.bool_))

    def _enlarge(self) -> None:
        """Use the address space reserved for large arrays, if the system provides it."""
        if self._room is not None:
            self._large = self._room
            self._hold(self._room.words, self._room.states, self._room.dirty)
        elif (room := self._reserved()) is not None:
            # it was not available before, as other devices had it
            self._move(room.words, room.states, room.dirty)
            self._large = room

    def _move(self, bytes_: Bytes, state: Bytes, dirty: Bools) -> None:
        """Copy the memory to other arrays."""
        if hasattr(self, "words"):
            bytes_[: self.used] = self.words[1][: self.used]
            state[: self.used] = self.state[1][: self.used]
            dirty[: self.used // BLOCK] = self.dirty[: self.used // BLOCK]
        self._hold(bytes_, state, dirty)

    def _hold(self, bytes_: Bytes, state: Bytes, dirty: Bools) -> None:
        """Use these arrays as the memory."""
        self.words: dict[int, Array] = views(bytes_)
        self.state: dict[int, Array] = views(state)
        self.dirty: Bools = dirty
        self.capacity = len(bytes_)

    def allocate(
        self, nbytes: int, name: str = "", space: str = "global", data: Array | bytes | int | None = None
    ) -> Allocation:
        """Allocate memory with `data` (bytes of exactly that size, or one value) or poison."""
        if self.live_bytes + nbytes > self.limit:
            raise MisuseError(
                f"{nbytes:,} bytes do not fit the device's memory: {self.live_bytes:,} of {self.limit:,} are in use"
            )
        if nbytes >= LARGE and self._large is None:
            self._enlarge()
        if self._large is None or nbytes < LARGE:
            # each byte has a state
            require_memory(2 * nbytes, f"an array of {nbytes:,} bytes with its state", "use a smaller one")
        allocation = self._take(nbytes) or self._extend(nbytes)
        allocation.name, allocation.space, allocation.fresh = name, space, data is None
        self.live_bytes += nbytes
        if self._large is not None and nbytes >= LARGE:
            self._fill(self._large, allocation, data)
            return allocation
        together(partial(self._write, allocation, data, first) for first in range(0, max(1, nbytes), _TOGETHER))
        return allocation

    def _write(self, allocation: Allocation, data: Array | bytes | int | None, first: int) -> None:
        """Initialise part of an allocation, from byte `first` on, with its states."""
        last = min(allocation.nbytes, first + _TOGETHER)
        part = slice(allocation.offset + first, allocation.offset + last)
        value = POISON if data is None else data if isinstance(data, int) else data[first:last]
        self.words[1][part] = value
        self.state[1][part] = UNWRITTEN if data is None else WRITTEN

    def _fill(self, large: LargeArrays, allocation: Allocation, data: Array | bytes | int | None) -> None:
        """Initialise a large allocation, with its states."""
        state = UNWRITTEN if data is None else WRITTEN
        value = POISON if data is None else data if isinstance(data, int) else 0
        allocation.usual = Usual(value, state)
        large.begin(allocation.extent, value, state)
        if data is None or isinstance(data, int):
            return
        try:
            large.bring(allocation.extent, np.frombuffer(data, np.uint8))
        except MisuseError:
            self.free(allocation)
            raise

    def _extend(self, nbytes: int) -> Allocation:
        gap = max(_SMALLEST_GAP, min(_LARGEST_GAP, nbytes))
        allocation = Allocation(self.used, nbytes, "")
        end = -(-(self.used + nbytes + gap) // _ALIGNMENT) * _ALIGNMENT
        if end > self.capacity:
            self._resize(max(2 * self.capacity, 1 << (end - 1).bit_length()))
        self.used = end
        self._allocations.append(allocation)
        self._offsets.append(allocation.offset)
        return allocation

    def _take(self, nbytes: int) -> Allocation | None:
        """Reuse a piece that was freed long ago and fits, if there is one."""
        for number, old in enumerate(self._reusable):
            if old.nbytes >= nbytes > 0:
                del self._reusable[number]
                index = self._position(old.offset)
                if self._large is not None and old.usual is not None:
                    self._large.begin(old.extent, POISON, NOTHING)
                else:
                    self.state[1][old.offset : old.offset + old.nbytes] = NOTHING
                self._allocations[index] = Allocation(old.offset, nbytes, "")
                return self._allocations[index]
        return None

    def free(self, allocation: Allocation) -> None:
        """End an allocation's life; its addresses are remembered as freed."""
        allocation.live = False
        if self._large is not None and allocation.usual is not None:
            self._large.begin(allocation.extent, POISON, FREED)
        else:
            part = slice(allocation.offset, allocation.offset + allocation.nbytes)
            self.state[1][part] = FREED
            self.words[1][part] = POISON
        self.live_bytes -= allocation.nbytes
        self._quarantine.append(allocation)
        self._quarantined += allocation.nbytes
        while self._quarantined > _QUARANTINE:
            oldest = self._quarantine.popleft()
            self._quarantined -= oldest.nbytes
            self._reusable.append(oldest)

    def give_aliases(self, ranges: list[tuple[int, int, int]]) -> None:
        """Set the address ranges (first, bytes, address in the arena) of host memory; they replace earlier ones."""
        self.aliases = Aliases(ranges) if ranges else None

    def real(self, address: int) -> int:
        """The address in the arena, for an address that may be an alias."""
        if self.aliases is None:
            return address
        return int(self.aliases.translated(np.array([address], np.uint64))[0])

    def contents(self, allocation: Allocation) -> Array:
        """The bytes of an allocation, in place."""
        if self._large is not None and allocation.usual is not None:
            self._large.opened(allocation.extent, states=False)
        return self.words[1][allocation.offset : allocation.offset + allocation.nbytes]

    def states(self, allocation: Allocation) -> Array:
        """The state of each byte of an allocation, in place."""
        if self._large is not None and allocation.usual is not None:
            self._large.opened(allocation.extent, states=True)
            allocation.usual.tracked = None
        return self.state[1][allocation.offset : allocation.offset + allocation.nbytes]

    def copy(self, allocation: Allocation) -> Bytes:
        """A copy of the bytes of an allocation; of a large one, only written pages take memory."""
        if self._large is None or allocation.usual is None:
            return _copied(self.contents(allocation))
        self._note_written()
        return self._large.copy(allocation.extent, allocation.usual.value)

    def unwritten(self, allocation: Allocation) -> tuple[int, int]:
        """How many bytes of an allocation are unwritten, and the first of them."""
        if self._large is None or allocation.usual is None:
            return _others(self.states(allocation), WRITTEN)
        self._note_written()
        return self._large.differing(allocation.extent, WRITTEN, allocation.usual.state, TRACKED)

    def unwritten_extents(self) -> list[Extent]:
        """Ranges of small tracked allocations without a written byte, by address."""
        wanted = UNWRITTEN | TRACKED
        fresh = [a for a in self.allocations() if a.fresh and a.usual is None and not a.sparse and a.nbytes]
        # most written ones show it in their first byte
        first = [a for a in fresh if self.state[1][a.offset] == wanted]
        return [a.extent for a in first if not _others(self.states(a), wanted)[0]]

    def watch(self, allocation: Allocation, on: bool) -> None:
        """Start or stop watching an allocation for races."""
        if self._large is None or allocation.usual is None:
            if on:
                self.states(allocation)[...] |= TRACKED
            else:
                self.states(allocation)[...] &= ~np.uint8(TRACKED)
        elif allocation.usual.tracked is not on:
            self._note_written()
            self._large.mark(allocation.extent, TRACKED, on, allocation.usual.state)
            allocation.usual.tracked = on

    def _position(self, offset: int) -> int:
        """The index of the last allocation that begins at or before an offset; -1 for none."""
        return bisect_right(self._offsets, offset) - 1

    def nearest(self, address: int) -> Allocation | None:
        """The allocation that contains or is nearest to `address`, None if there is none."""
        index = self._position(address - GLOBAL_BASE)
        if not self._allocations:
            return None
        before = self._allocations[max(index, 0)]
        following = self._allocations[min(index + 1, len(self._allocations) - 1)]
        gap_before = address - GLOBAL_BASE - (before.offset + before.nbytes)
        gap_after = following.offset - (address - GLOBAL_BASE)
        found = following if 0 <= gap_after < gap_before else before
        return self.heap.nearest(address) if self.heap is not None and found is self.heap.region else found

    def holding(self, address: int) -> Allocation | None:
        """The living allocation that contains `address`, or None."""
        index = self._position(address - GLOBAL_BASE)
        found = self._allocations[index] if index >= 0 else None
        inside = found is not None and found.live and address - GLOBAL_BASE < found.offset + found.nbytes
        return found if inside else None

    def allocations(self) -> list[Allocation]:
        """All living allocations, by address."""
        return [a for a in self._allocations if a.live]

    def written_since(self, allocations: list[Allocation]) -> list[Allocation]:
        """Those that a kernel has written to since `clear_written`."""
        marks = np.flatnonzero(self.dirty[: -(-self.used // BLOCK)])
        firsts = np.array([one.offset // BLOCK for one in allocations], np.int64)
        lasts = np.array([-(-(one.offset + one.nbytes) // BLOCK) for one in allocations], np.int64)
        found = np.searchsorted(marks, lasts) > np.searchsorted(marks, firsts)
        return [allocations[number] for number in np.flatnonzero(found)]

    @property
    def written(self) -> bool:
        """Whether a kernel has written anything since `clear_written`."""
        return bool(self.dirty[: self.used // BLOCK].any())

    def clear_written(self) -> None:
        """Clear the marks of written blocks."""
        self._note_written()
        forget_marks(self.dirty[: self.used // BLOCK])

    def _note_written(self) -> None:
        """Record for large allocations which pages kernels have written."""
        if self._large is not None:
            self._large.note(np.flatnonzero(self.dirty[: self.used // BLOCK]))
