"""Arrays that accesses are meant for: an address computed from one array's pointer must not fall into another array.

The state of a byte says whether it may be accessed, not for whom. If an access leaves its array and falls into another
living one, only the origin of its address shows that it is out of bounds.
"""

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.arrays import Flag, UInt64s
from kernbench.ptx.emulator.lanes.compiled import kernel
from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.memory.arena import FREED, GLOBAL_BASE, NOTHING, TRACKED, Allocation, Arena
from kernbench.ptx.emulator.memory.port import Accessed
from kernbench.ptx.emulator.program.program import Program, Site, Word

_WORD, _HALF = (1 << 64) - 1, (1 << 32) - 1
# element sizes in which a program may pass the distance of two arrays, up to the size of the access
_SCALES = (1, 2, 4, 8, 16)
# maximal number of arrays to consider for the lanes of one access
_MOST_ARRAYS = 8
_NO_WORDS: frozenset[Word] = frozenset()


class Parameters(Protocol):
    """What is needed from a launch."""

    def parameter(self, name: str, offset: int, dtype: str, count: int) -> Array:
        """`count` values from an offset in the kernel's parameters."""


class MeantArrays:
    """For each access of a launch, the arrays that its address is computed from, if known."""

    def __init__(self, program: Program, arena: Arena):
        self._program, self._arena = program, arena
        self._known: dict[int, tuple[Allocation, ...]] = {}
        # the same by the address's parameters: a tile is stored by a hundred instructions
        self._made: dict[frozenset[Word], tuple[Allocation, ...]] = {}
        self._launch: Parameters | None = None

    def begin(self, launch: Parameters) -> None:
        """A launch is about to run: its parameters point to other arrays."""
        self._launch = launch
        self._known, self._made = {}, {}

    def arrays(self, site: Site) -> tuple[Allocation, ...]:
        """The arrays that the address of an access is computed from; empty if not certain."""
        found = self._known.get(site.number)
        if found is None:
            found = self._known[site.number] = self.behind(self._program.meant.get(site.number, _NO_WORDS))
        return found

    def behind(self, words: frozenset[Word]) -> tuple[Allocation, ...]:
        """The arrays that words of the parameters point to; empty if not certain."""
        found = self._made.get(words)
        if found is None:
            found = self._made[words] = self._arrays(words)
        return found

    def _arrays(self, words: frozenset[Word]) -> tuple[Allocation, ...]:
        found: dict[int, Allocation] = {}
        for word in words:
            address = self._arena.real(self._value(word))
            held = self._arena.holding(address)
            if held is not None and held.space == "global":
                found[held.address] = held
            elif held is not None or GLOBAL_BASE <= address < GLOBAL_BASE + self._arena.capacity:
                # after the end of an array, or in freed memory: it may be meant for anything
                return ()
        heap = self._arena.heap
        return () if heap is not None and heap.region.address in found else tuple(found.values())

    def only(self, site: Site) -> Allocation | None:
        """The single array that an access is meant for, or None."""
        found = self._known.get(site.number) or self.arrays(site)
        return found[0] if len(found) == 1 else None

    def null(self, site: Site) -> str:
        """The single parameter in the address of an access, if it is a null pointer; else ""."""
        words = [word for word in self._program.meant.get(site.number, ()) if not self._value(word)]
        return words[0].parameter if len(words) == 1 and not self.arrays(site) else ""

    def _value(self, word: Word) -> int:
        assert self._launch is not None, "a launch has begun"
        return int(self._launch.parameter(word.parameter, word.offset, "uint64", 1)[0])

    def leaves(self, site: Site, accessed: Accessed) -> bool:
        """Whether an access may leave the array that it is meant for: a quick test that includes inactive lanes."""
        one = self.only(site)
        if one is None:
            return bool(self.arrays(site))
        addresses, offset, base = accessed
        # an address before the array counts as far after it, since unsigned numbers wrap around
        return bool(reaches(addresses, np.uint64((base + one.offset - int(offset)) & _WORD), np.uint64(one.nbytes)))

    def strays(self, site: Site, starts: Array, active: Mask | None, nbytes: int) -> Array:
        """Positions that access a living array which is none of those they are meant for.

        `starts` are offsets in the arena. Accesses between arrays are found by the states of bytes.
        """
        arrays = self.arrays(site)
        outside = np.ones(len(starts), np.bool_) if active is None else active.copy()
        for one in arrays:
            outside &= (starts < one.offset) | (starts >= one.offset + one.nbytes)
        if not arrays or not outside.any():
            return _NONE
        positions = np.flatnonzero(outside & (starts >= 0) & (starts <= self._arena.used - nbytes))
        states = self._arena.state[1][starts[positions]] & ~np.uint8(TRACKED)
        strays: Array = positions[(states != NOTHING) & (states != FREED)]
        for _ in range(_MOST_ARRAYS if self._begin_there(site) else 0):
            if not len(strays):
                break
            other = self._arena.holding(GLOBAL_BASE + int(starts[strays[0]]))
            if other is None:
                break
            if not self._deliberate(arrays, other, nbytes):
                return strays
            there = starts[strays]
            strays = strays[(there < other.offset) | (there >= other.offset + other.nbytes)]
        return _NONE

    def _begin_there(self, site: Site) -> bool:
        """Whether all pointers in an address are the beginnings of their arrays.

        A pointer into the middle of an array may be a view, or have been moved by the program, even from another array.
        """
        addresses = [self._arena.real(self._value(word)) for word in self._program.meant.get(site.number, ())]
        held = [(address, self._arena.holding(address)) for address in addresses]
        return all(one is None or one.address == address for address, one in held)

    def _deliberate(self, arrays: tuple[Allocation, ...], other: Allocation, nbytes: int) -> bool:
        """Whether a number that the kernel is passed leads from the array to the accessed one.

        Such numbers mean that the program has computed the distance of two arrays. Accesses within the same array also
        count.
        """
        if any(one is other for one in arrays) or other.space != "global":
            return True
        numbers, scales = list(self._numbers()), [scale for scale in _SCALES if scale <= nbytes]
        if {other.address & _HALF, other.address >> 32} <= {number & _HALF for number in numbers}:
            # its pointer, passed in two halves
            return True
        reached = {one.offset + value * scale for one in arrays for value in numbers for scale in scales}
        if any(other.offset <= offset < other.offset + other.nbytes for offset in reached):
            return True
        # in rows: a number of rows, and the length of a row
        rows = {first * second for first in numbers for second in numbers}
        return any(other.offset - one.offset in {row * scale for row in rows for scale in scales} for one in arrays)

    def _numbers(self) -> Iterator[int]:
        """All 32- and 64-bit numbers that the kernel is passed, including those in structs."""
        assert self._launch is not None, "a launch has begun"
        for parameter in self._program.kernel.params:
            if parameter.size < 4:
                continue
            halves = self._launch.parameter(parameter.name, 0, "int32", parameter.size // 4)
            words = halves[: len(halves) // 2 * 2].view(np.uint64)
            pointers = (words >= GLOBAL_BASE) & (words < GLOBAL_BASE + self._arena.capacity)
            plain = np.ones(len(halves), np.bool_)
            plain[: 2 * len(words)] = ~np.repeat(pointers, 2)
            yield from words[~pointers].view(np.int64).tolist()
            yield from halves[plain].tolist()


@kernel
def reaches(addresses: UInt64s, start: np.uint64, nbytes: np.uint64) -> Flag:
    """Whether any address is at least `nbytes` after a start."""
    found = False
    for i in range(addresses.size):
        found |= addresses[i] - start >= nbytes
    return found


_NONE = np.zeros(0, np.int64)
