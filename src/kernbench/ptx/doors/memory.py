"""Memory that a program uses as GPU memory: allocated at host addresses, with a state for each byte.

Allocated bytes are unwritten until a kernel or the host writes them, across launches. If host writes go through calls,
the calls report them (`written`). If the host writes directly, as torch does, `watch` compares unwritten bytes with
their poison.
"""

import os
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from threading import RLock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.errors import MisuseError
from kernbench.ptx.devices.device import PARAMETER_BYTES
from kernbench.ptx.doors.arena import LARGE, POISON_WORD, MappedArena
from kernbench.ptx.emulator.memory.arena import GLOBAL_BASE, TRACKED, UNWRITTEN, WRITTEN, Allocation
from kernbench.ptx.emulator.memory.pages.large import BLOCK
from kernbench.ptx.emulator.memory.pages.mapping import bytes_at
from kernbench.result.finding import SourceLocation

# in place of a unit: calls say what is written, contents say nothing
_BY_CALLS = 0
# the bit in which the states of written and unwritten bytes differ
_IS_WRITTEN = WRITTEN & ~UNWRITTEN
# arrays up to this size may be tables of pointers
_TABLE_BYTES = 1 << 20
_POISON_HALVES = np.array([POISON_WORD & 0xFFFF, POISON_WORD >> 16], np.uint16)


@dataclass(eq=False)
class Adopted:
    """Host memory that kernels access at its own address: meanwhile a copy of it is in device memory."""

    address: int
    nbytes: int
    copy: Allocation
    # keeps the memory alive
    owner: Any = None
    # memory of another process, which keeps the copy up to date itself
    out_of_reach: bool = False


@dataclass(frozen=True)
class Made:
    """Where the program made an array, and its shape, if its elements lie one behind the other."""

    site: SourceLocation | None
    shape: tuple[int, ...] = ()
    itemsize: int = 1


class DeviceMemory:
    """The global memory of this process's emulated GPU; addresses are host addresses, so `view` needs no copy."""

    def __init__(self, file: int | None = None) -> None:
        self.arena = MappedArena(file)
        self.lock = RLock()
        # allocations with unwritten bytes that the host may write directly -> bytes that it writes together
        self._watched: dict[int, int] = {}
        # arrays that the program made without writing them
        self.made: WeakKeyDictionary[Allocation, Made] = WeakKeyDictionary()
        # addresses released by finalisers, which may run at any point
        self._given_back: deque[int] = deque()
        self._adopted: dict[int, Adopted] = {}
        # pinned host memory by address, with bytes and name; adopted when a kernel first uses it
        self._pinned: dict[int, tuple[int, str]] = {}
        self._unpinned: deque[int] = deque()
        # kernel parameters: allocated first, so that the address fits into 32 bits
        self.parameters = self.arena.allocate(PARAMETER_BYTES, "kernel parameters", "param")

    def allocate(self, nbytes: int, name: str = "", *, written: bool = False) -> int:
        """Fresh memory: unwritten poison, or zeros that count as written."""
        if nbytes < 0:
            raise MisuseError(f"{nbytes} bytes cannot be allocated")
        with self.lock:
            self.collect()
            allocation = self.arena.allocate(nbytes or 1, name or "memory", "global", 0 if written else None)
            return allocation.address

    def copied(self, source: int, nbytes: int, name: str = "") -> int:
        """Fresh memory with a copy of the bytes at a host address."""
        with self.lock:
            self.collect()
            return self.arena.copied(source, nbytes, name or "memory").address

    def free(self, address: int) -> None:
        """Free an allocation; a kernel that still uses it gets a finding."""
        with self.lock:
            found = self.array_at(address)
            if found is None or found.address != address:
                raise MisuseError(f"{address:#x} is no address of memory that is allocated")
            self._watched.pop(address, None)
            self.arena.free(found)

    def give_back(self, address: int) -> None:
        """Release an allocation from a finaliser, which may run at any time; it is freed later, when that is safe."""
        self._given_back.append(address)

    def collect(self) -> None:
        """Free what finalisers released."""
        while self._given_back:
            self.free(self._given_back.popleft())
        while self._unpinned:
            address = self._unpinned.popleft()
            self._pinned.pop(address, None)
            if address in self._adopted:
                self.disown(address)

    def holds(self, address: int) -> bool:
        """Whether an address is in the device's range, allocated or not."""
        return GLOBAL_BASE <= address < GLOBAL_BASE + self.arena.capacity

    def array_at(self, address: int) -> Allocation | None:
        """The live allocation that contains an address; has `address`, `nbytes` and `name`."""
        return self.arena.holding(address)

    def view(self, address: int, nbytes: int) -> Array:
        """A view of an allocation's bytes."""
        found = self._holding(address, nbytes)
        start = address - found.address
        return self.arena.contents(found)[start : start + nbytes]

    def _holding(self, address: int, nbytes: int) -> Allocation:
        """The allocation that contains a range."""
        found = self.array_at(address)
        if found is None or address + nbytes > found.address + found.nbytes:
            end = "" if found is None else f"; the allocation there ends at {found.address + found.nbytes:#x}"
            raise MisuseError(f"{nbytes:,} bytes at {address:#x} lie outside the memory that is allocated{end}")
        return found

    def written(self, address: int, nbytes: int) -> None:
        """Mark a range as written by the host."""
        states = self._states(address, nbytes)
        states |= np.uint8(WRITTEN)

    def unwritten(self, address: int, nbytes: int) -> None:
        """Mark a range as unwritten: its content is undefined."""
        states = self._states(address, nbytes)
        states &= np.uint8(TRACKED)
        states |= np.uint8(UNWRITTEN)

    def _states(self, address: int, nbytes: int) -> Array:
        found = self._holding(address, nbytes)
        start = address - found.address
        return self.arena.states(found)[start : start + nbytes]

    def undefined(self, address: int, nbytes: int) -> Array:
        """Which bytes of a range are unwritten."""
        states = self._states(address, nbytes)
        if all_written(states):
            return np.zeros(nbytes, np.bool_)
        unwritten: Array = (states & ~np.uint8(TRACKED)) == UNWRITTEN
        return unwritten

    def watch(self, address: int, unit: int = 4) -> None:
        """The host writes this allocation without calls: bytes that no longer contain poison count as written.

        It is compared in units of `unit` bytes: 2 for floats of that size, else 4. Large memory counts as written.
        """
        found = self._holding(address, 0)
        if found.nbytes < LARGE:
            self._watched[found.address] = unit
        elif found.sparse:
            self.arena.fill_state(found, WRITTEN | TRACKED)

    def note_made(self, address: int, made: Made) -> None:
        """The program has made this array, without writing it."""
        self.made[self._holding(address, 0)] = made

    def watch_calls(self, address: int) -> None:
        """Calls say what is written in this allocation: its unwritten bytes contain other values than poison."""
        found = self._holding(address, 0)
        if found.nbytes < LARGE:
            self._watched.setdefault(found.address, _BY_CALLS)

    def watches_any(self, addresses: Iterable[int]) -> bool:
        """Whether one of some allocations, by first address, may have unwritten bytes."""
        return bool(self._watched) and any(address in self._watched for address in addresses)

    @property
    def watches(self) -> bool:
        """Whether any allocation that the host writes directly may have unwritten bytes."""
        return bool(self._watched)

    def settle_range(self, address: int, nbytes: int) -> Array | None:
        """The states of a range, after direct host writes to it are marked as written; None if all of it is written."""
        found = self._holding(address, nbytes)
        unit = self._watched.get(found.address, _BY_CALLS)
        first, last = address - found.address, address - found.address + nbytes
        start, end = first // 4 * 4, min(-(-last // 4) * 4, found.nbytes)
        states = self.arena.states(found)
        if _settled(self.arena.contents(found)[start:end], states[start:end], unit):
            if end - start == found.nbytes:
                self._watched.pop(found.address, None)
            return None
        part = states[first:last]
        return None if all_written(part) else part

    def reached(self, address: int) -> Allocation | None:
        """The allocation at an address as a kernel uses it, which may be one of adopted memory."""
        return self.arena.holding(self.arena.real(address))

    def unwritten_bytes(self, found: Allocation) -> int:
        """How many bytes of an allocation are unwritten; 0 for a large one, whose pages are allocated on touch."""
        if found.nbytes >= LARGE:
            return 0
        states = self.arena.states(found)
        unit = self._watched.get(found.address, _BY_CALLS)
        if all_written(states) or _settled(self.arena.contents(found), states, unit):
            return 0
        return int(np.count_nonzero((states & ~np.uint8(TRACKED)) == UNWRITTEN))

    def settle(self) -> None:
        """Before a launch: mark direct host writes as written, and copy adopted memory in."""
        self.collect()
        for address, unit in list(self._watched.items()):
            found = self.arena.holding(address)
            if found is None or _settled(self.arena.contents(found), self.arena.states(found), unit):
                del self._watched[address]
        for adopted in self._in_reach():
            self.arena.contents(adopted.copy)[...] = bytes_at(adopted.address, adopted.nbytes)

    def count_stored(self) -> None:
        """After a launch without checks, which tracks no states: mark what it stored as written.

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
        """A launch did not run, or not to its end: mark everything it could reach from its parameters as written.

        What it would have written is unknown, so a later read of it is no fault. Tables of pointers among its arguments
        are followed, one level deep.
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

    def arguments(self, parameters: Iterable[bytes]) -> list[Allocation]:
        """The allocations that the parameters of a launch point into, without tables of pointers."""
        return list(dict.fromkeys(self._pointed_to(b"".join(map(_padded, parameters)))))

    def _pointed_to(self, data: bytes) -> Iterator[Allocation]:
        """The allocations that 64-bit words point into."""
        words = np.frombuffer(data[: len(data) // 8 * 8], np.uint64)
        inside = (words >= GLOBAL_BASE) & (words < GLOBAL_BASE + self.arena.capacity)
        for address in np.unique(words[inside]).tolist():
            found = self.arena.holding(address)
            if found is not None and found.space == "global":
                yield found

    def hand_back(self) -> None:
        """After a launch: copy adopted memory back."""
        for adopted in self._in_reach():
            target, source = bytes_at(adopted.address, adopted.nbytes), self.arena.contents(adopted.copy)
            # memory that no kernel wrote may be in read-only pages
            if not np.array_equal(target, source):
                target[...] = source

    def adopt(self, address: int, nbytes: int, name: str = "", owner: Any = None, *, out_of_reach: bool = False) -> int:
        """Let kernels access host memory at its own address; all of it counts as written. Returns the copy's address.

        If the memory is `out_of_reach` (another process's), the caller keeps the copy up to date.
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
        """Pin host memory: it is adopted when a kernel gets an address in it."""
        with self.lock:
            self.collect()
            self._pinned[address] = (nbytes, name)

    def unpin(self, address: int) -> None:
        """Release pinned memory, for example from a finaliser."""
        self._unpinned.append(address)

    def is_pinned(self, address: int) -> bool:
        """Whether an address is the first of pinned memory."""
        return address in self._pinned and address not in self._unpinned

    def reaches(self, address: int) -> bool:
        """Whether kernels can access an address: in device memory, or in pinned memory, which is then adopted."""
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
        """Undo `adopt`."""
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
    """A parameter padded to 64-bit words; shorter ones contain no address."""
    return parameter.ljust(-(-len(parameter) // 8) * 8, b"\0")


def all_written(states: Array) -> bool:
    """Whether all bytes of live memory are written, in one pass without a copy."""
    return bool(int(np.bitwise_and.reduce(states)) & _IS_WRITTEN) if states.size else True


def _settled(memory: Array, states: Array, unit: int) -> bool:
    """Mark bytes that no longer contain poison as written; returns whether nothing unwritten is left."""
    if all_written(states):
        return True
    left = (states & ~np.uint8(TRACKED)) == UNWRITTEN
    if not left.any():
        return True
    if unit == _BY_CALLS:
        return False
    whole = memory.size // 4 * 4
    halves = memory[:whole].view(np.uint16).reshape(-1, 2) != _POISON_HALVES
    changed = np.repeat(halves.reshape(-1), 2) if unit == 2 else np.repeat(halves.any(axis=1), 4)
    states[:whole][left[:whole] & changed] |= np.uint8(WRITTEN)
    rest = memory[whole:]
    if (rest != np.frombuffer(POISON_WORD.to_bytes(4, "little"), np.uint8)[: rest.size]).any():
        states[whole:] |= np.uint8(WRITTEN)
    return False


def _fill_blocks(states: Array, blocks: Array) -> None:
    """Mark blocks of sparse memory, which contained zeros instead of poison, as written; neighbours at once."""
    for run in np.split(blocks, np.flatnonzero(np.diff(blocks) != 1) + 1):
        states[int(run[0]) * BLOCK : (int(run[-1]) + 1) * BLOCK] |= np.uint8(WRITTEN)


_PROCESS: list[DeviceMemory] = []


def process_memory() -> DeviceMemory:
    """The device memory of this process, created on first use."""
    if not _PROCESS:
        _PROCESS.append(DeviceMemory())
    return _PROCESS[0]


def share_process_memory() -> tuple[int, int, int]:
    """Make the memory of this process shareable: returns a file, and the address and size of its mapping."""
    if _PROCESS:
        raise MisuseError("the memory of this process is in use already: share it before the first session")
    file = os.memfd_create("kernbench device memory", os.MFD_CLOEXEC)
    memory = DeviceMemory(file)
    _PROCESS.append(memory)
    return file, GLOBAL_BASE, memory.arena.capacity
