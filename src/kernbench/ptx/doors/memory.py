"""Memory that a program takes for the GPU's: allocated at addresses of the process, with the state of each byte.

What was allocated and never written is unwritten until a kernel or the host writes it, through all launches. Where the
host's writes go through calls, those say so (`written`). Where the host writes directly, as torch does, `watch`
compares what unwritten bytes hold with the poison that they were filled with.
"""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from threading import RLock
from typing import Any

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.errors import MisuseError
from kernbench.ptx.devices.device import PARAMETER_BYTES
from kernbench.ptx.doors.arena import LARGE, POISON_WORD, MappedArena
from kernbench.ptx.emulator.memory.arena import GLOBAL_BASE, TRACKED, UNWRITTEN, WRITTEN, Allocation
from kernbench.ptx.emulator.memory.pages.large import BLOCK
from kernbench.ptx.emulator.memory.pages.mapping import bytes_at

# arrays up to this size may be tables of addresses
_TABLE_BYTES = 1 << 20
_POISON_HALVES = np.array([POISON_WORD & 0xFFFF, POISON_WORD >> 16], np.uint16)


@dataclass(eq=False)
class Adopted:
    """Memory of the host that kernels reach at its own address: a copy of it lies in the device's memory meanwhile."""

    address: int
    nbytes: int
    copy: Allocation
    # what keeps the memory alive
    owner: Any = None
    # memory of another process, which keeps the copy up to date itself
    out_of_reach: bool = False


class DeviceMemory:
    """The global memory of this process's emulated GPU. Addresses are those of the host: `view` needs no copy."""

    def __init__(self, file: int | None = None) -> None:
        self.arena = MappedArena(file)
        self.lock = RLock()
        # allocations whose unwritten bytes the host may write directly -> bytes that it writes together
        self._watched: dict[int, int] = {}
        # what a finaliser gave back: it may run in the midst of anything
        self._given_back: deque[int] = deque()
        self._adopted: dict[int, Adopted] = {}
        # memory of the host that kernels may reach: by its address, the bytes and the name; adopted when one does
        self._pinned: dict[int, tuple[int, str]] = {}
        self._unpinned: deque[int] = deque()
        # where kernels find their parameters: before all else, so that 32 bits of the address are enough
        self.parameters = self.arena.allocate(PARAMETER_BYTES, "kernel parameters", "param")

    def allocate(self, nbytes: int, name: str = "", *, written: bool = False) -> int:
        """Fresh memory: poison that nobody wrote, or zeros that count as written."""
        if nbytes < 0:
            raise MisuseError(f"{nbytes} bytes cannot be allocated")
        with self.lock:
            self.collect()
            allocation = self.arena.allocate(nbytes or 1, name or "memory", "global", 0 if written else None)
            return allocation.address

    def copied(self, source: int, nbytes: int, name: str = "") -> int:
        """Fresh memory with the bytes at an address of this process."""
        with self.lock:
            self.collect()
            return self.arena.copied(source, nbytes, name or "memory").address

    def free(self, address: int) -> None:
        """Give an allocation back; a kernel that still uses it gets a finding."""
        with self.lock:
            found = self.array_at(address)
            if found is None or found.address != address:
                raise MisuseError(f"{address:#x} is no address of memory that is allocated")
            self._watched.pop(address, None)
            self.arena.free(found)

    def give_back(self, address: int) -> None:
        """The same for finalisers, which may run at any time: the memory is freed when it is safe."""
        self._given_back.append(address)

    def collect(self) -> None:
        """Free what finalisers gave back."""
        while self._given_back:
            self.free(self._given_back.popleft())
        while self._unpinned:
            address = self._unpinned.popleft()
            self._pinned.pop(address, None)
            if address in self._adopted:
                self.disown(address)

    def holds(self, address: int) -> bool:
        """Whether an address is one of the device's, allocated or not."""
        return GLOBAL_BASE <= address < GLOBAL_BASE + self.arena.capacity

    def array_at(self, address: int) -> Allocation | None:
        """The allocation that holds an address, if it lives; has `address`, `nbytes` and `name`."""
        return self.arena.holding(address)

    def view(self, address: int, nbytes: int) -> Array:
        """Bytes of an allocation, in place."""
        found = self._holding(address, nbytes)
        start = address - found.address
        return self.arena.contents(found)[start : start + nbytes]

    def _holding(self, address: int, nbytes: int) -> Allocation:
        """The allocation that a range lies in."""
        found = self.array_at(address)
        if found is None or address + nbytes > found.address + found.nbytes:
            end = "" if found is None else f"; the allocation there ends at {found.address + found.nbytes:#x}"
            raise MisuseError(f"{nbytes:,} bytes at {address:#x} lie outside the memory that is allocated{end}")
        return found

    def written(self, address: int, nbytes: int) -> None:
        """The host wrote a range."""
        states = self._states(address, nbytes)
        states |= np.uint8(WRITTEN)

    def unwritten(self, address: int, nbytes: int) -> None:
        """What a range holds means nothing any more."""
        states = self._states(address, nbytes)
        states &= np.uint8(TRACKED)
        states |= np.uint8(UNWRITTEN)

    def _states(self, address: int, nbytes: int) -> Array:
        found = self._holding(address, nbytes)
        start = address - found.address
        return self.arena.states(found)[start : start + nbytes]

    def undefined(self, address: int, nbytes: int) -> Array:
        """Which bytes of a range nobody wrote."""
        unwritten: Array = (self._states(address, nbytes) & ~np.uint8(TRACKED)) == UNWRITTEN
        return unwritten

    def watch(self, address: int, unit: int = 4) -> None:
        """The host writes this allocation without a word: what no longer holds poison was written.

        It is looked at in `unit` bytes, 2 for floats of that size, 4 for all else. Large memory counts as written.
        """
        found = self._holding(address, 0)
        if found.nbytes < LARGE:
            self._watched[found.address] = unit
        elif found.sparse:
            self.arena.fill_state(found, WRITTEN | TRACKED)

    def watches(self, address: int) -> bool:
        """Whether an allocation, by its first address, may have unwritten bytes that the host writes directly."""
        return address in self._watched

    def watches_any(self, addresses: Iterable[int]) -> bool:
        """The same of several."""
        return bool(self._watched) and any(address in self._watched for address in addresses)

    def settle(self) -> None:
        """Before a launch: what the host wrote directly counts as written, and adopted memory is copied in."""
        self.collect()
        for address, unit in list(self._watched.items()):
            found = self.arena.holding(address)
            if found is None or _settled(self.arena.contents(found), self.arena.states(found), unit):
                del self._watched[address]
        for adopted in self._in_reach():
            self.arena.contents(adopted.copy)[...] = bytes_at(adopted.address, adopted.nbytes)

    def count_stored(self) -> None:
        """After a launch without checks, which keeps no states: what it stored counts as written.

        That is what changed since `arena.clear_written`.
        """
        arena = self.arena
        blocks = np.flatnonzero(arena.dirty[: arena.used // BLOCK])
        for found in arena.allocations() if blocks.size else ():
            ends = (found.offset // BLOCK, -(-(found.offset + found.nbytes) // BLOCK))
            first, last = np.searchsorted(blocks, ends)
            if first == last:
                continue
            if found.sparse:
                _fill_blocks(arena.states(found), blocks[first:last] - ends[0])
            else:
                _settled(arena.contents(found), arena.states(found), 4)

    def _in_reach(self) -> list[Adopted]:
        return [adopted for adopted in self._adopted.values() if not adopted.out_of_reach]

    def assume_written(self, parameters: Iterable[bytes]) -> None:
        """A launch did not run, or not to its end: what it could reach by its parameters counts as written.

        Nobody knows what it would have written, so that a later read of it is no fault. Arrays of addresses that it is
        passed are followed, once.
        """
        with self.lock:
            self.settle()
            reached = {found.address: found for found in self._pointed_to(b"".join(map(_padded, parameters)))}
            small = [found for found in reached.values() if found.nbytes <= _TABLE_BYTES]
            for table in small:
                reached |= {found.address: found for found in self._pointed_to(self.arena.contents(table).tobytes())}
            for found in reached.values():
                if found.nbytes >= LARGE:
                    self.arena.fill_state(found, WRITTEN | (TRACKED if found.sparse else 0))
                else:
                    self.arena.states(found)[...] |= np.uint8(WRITTEN)

    def _pointed_to(self, data: bytes) -> Iterator[Allocation]:
        """The allocations that words of 64 bits are addresses in."""
        words = np.frombuffer(data[: len(data) // 8 * 8], np.uint64)
        inside = (words >= GLOBAL_BASE) & (words < GLOBAL_BASE + self.arena.capacity)
        for address in np.unique(words[inside]).tolist():
            found = self.arena.holding(address)
            if found is not None and found.space == "global":
                yield found

    def hand_back(self) -> None:
        """After a launch: adopted memory gets what the kernel wrote."""
        for adopted in self._in_reach():
            target, source = bytes_at(adopted.address, adopted.nbytes), self.arena.contents(adopted.copy)
            # what no kernel wrote may lie in pages that may not be written
            if not np.array_equal(target, source):
                target[...] = source

    def adopt(self, address: int, nbytes: int, name: str = "", owner: Any = None, *, out_of_reach: bool = False) -> int:
        """Let kernels use memory of the host at its own address; all of it counts as written. Gives the copy's address.

        Of memory that is `out_of_reach`, another process's, whoever asks keeps the copy up to date.
        """
        with self.lock:
            if self.holds(address):
                raise MisuseError(f"{address:#x} lies in the device's memory already")
            known = self._adopted.get(address)
            if known is not None and known.nbytes >= nbytes:
                return known.copy.address
            if known is not None:
                self.disown(address)
            copy = self.arena.allocate(nbytes, name or "host memory", "global", 0)
            self._adopted[address] = Adopted(address, nbytes, copy, owner, out_of_reach)
            self._alias()
            return copy.address

    def pin(self, address: int, nbytes: int, name: str) -> None:
        """Kernels may reach this memory of the host: it is adopted when one is passed an address in it."""
        with self.lock:
            self.collect()
            self._pinned[address] = (nbytes, name)

    def unpin(self, address: int) -> None:
        """The memory is given back, by a finaliser say."""
        self._unpinned.append(address)

    def is_pinned(self, address: int) -> bool:
        """Whether an address is the first of pinned memory."""
        return address in self._pinned and address not in self._unpinned

    def reaches(self, address: int) -> bool:
        """Whether a kernel may be passed an address: the device's, or one in pinned memory, which it reaches then."""
        if self.holds(address):
            return True
        with self.lock:
            self.collect()
            for start, (nbytes, name) in self._pinned.items():
                if start <= address < start + nbytes:
                    self.adopt(start, nbytes, name)
                    return True
        return any(one.address <= address < one.address + one.nbytes for one in self._adopted.values())

    def disown(self, address: int) -> None:
        """End what `adopt` began."""
        with self.lock:
            found = self._adopted.pop(address, None)
            if found is None:
                raise MisuseError(f"{address:#x} is no address of adopted memory")
            self.arena.free(found.copy)
            self._alias()

    def _alias(self) -> None:
        ordered = sorted(self._adopted.values(), key=lambda one: one.address)
        self.arena.give_aliases([(one.address, one.nbytes, one.copy.address) for one in ordered])


def _padded(parameter: bytes) -> bytes:
    """Parameters as words of 64 bits; what is shorter is no address."""
    return parameter.ljust(-(-len(parameter) // 8) * 8, b"\0")


def _settled(memory: Array, states: Array, unit: int) -> bool:
    """Mark as written what no longer holds poison; whether nothing unwritten is left."""
    left = (states & ~np.uint8(TRACKED)) == UNWRITTEN
    if not left.any():
        return True
    whole = memory.size // 4 * 4
    halves = memory[:whole].view(np.uint16).reshape(-1, 2) != _POISON_HALVES
    changed = np.repeat(halves.reshape(-1), 2) if unit == 2 else np.repeat(halves.any(axis=1), 4)
    states[:whole][left[:whole] & changed] |= np.uint8(WRITTEN)
    rest = memory[whole:]
    if (rest != np.frombuffer(POISON_WORD.to_bytes(4, "little"), np.uint8)[: rest.size]).any():
        states[whole:] |= np.uint8(WRITTEN)
    return False


def _fill_blocks(states: Array, blocks: Array) -> None:
    """Mark some blocks of memory, which held zeros instead of poison, as written; neighbours at once."""
    for run in np.split(blocks, np.flatnonzero(np.diff(blocks) != 1) + 1):
        states[int(run[0]) * BLOCK : (int(run[-1]) + 1) * BLOCK] |= np.uint8(WRITTEN)


_PROCESS: list[DeviceMemory] = []


def process_memory() -> DeviceMemory:
    """The one memory of this process; made when it is first asked for."""
    if not _PROCESS:
        _PROCESS.append(DeviceMemory())
    return _PROCESS[0]


def share_process_memory() -> tuple[int, int, int]:
    """Make the memory of this process one that another can map: a file, and the address and bytes of its mapping."""
    if _PROCESS:
        raise MisuseError("the memory of this process is in use already: share it before the first session")
    file = os.memfd_create("kernbench device memory", os.MFD_CLOEXEC)
    memory = DeviceMemory(file)
    _PROCESS.append(memory)
    return file, GLOBAL_BASE, memory.arena.capacity
