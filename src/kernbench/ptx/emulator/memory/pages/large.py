"""Large arrays of a device, whose pages are allocated on touch: their bytes, and the state of each byte.

A range whose bytes all have one value is mapped from a small file with that value (`mapping`); a page is copied when it
is written. `LargeArrays` records which pages that may be, so that operations on a whole array, such as changing all its
states, visit only those pages.
"""

import mmap
from dataclasses import dataclass
from functools import cache, partial
from itertools import pairwise

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.arrays import Bools, Bytes, Int64s
from kernbench.ptx.emulator.memory.pages.allocation import require_memory, sparse_bytes
from kernbench.ptx.emulator.memory.pages.mapping import Templates, ask_for_large_pages
from kernbench.safety.processes.threads import together

# begin and end of a range of bytes
Range = tuple[int, int]
# minimal size of such arrays
LARGE = 64 << 20
# bytes per entry of `dirty`
BLOCK = 256
PAGE = mmap.PAGESIZE
# of an array with more uniform ranges than this, the others are written instead: a process has some ten thousand
# mappings
_MOST_RANGES = 1024
# pages to process together, so that NumPy's temporaries stay in a cache; and pages that are worth a thread
_PIECE, _TOGETHER = 64, 4096
# pages to copy together
_AT_ONCE = 1024
# bytes that must be free before more data is copied
_SPARE = 256 << 20
# share of non-zero pages from which on an array gets large pages
_NEARLY_ALL = 0.875
# address space of a device with large arrays; less if the system has less
_WINDOWS = (1 << 39, 1 << 37)


@cache
def _templates() -> Templates:
    """The files of one value each, for the life of the process."""
    return Templates()


@dataclass(frozen=True, slots=True)
class Extent:
    """The range of an array in the address space."""

    start: int
    end: int

    @property
    def nbytes(self) -> int:
        """Its size in bytes."""
        return self.end - self.start

    @property
    def pages(self) -> slice:
        """The numbers of its complete pages; a large array has some."""
        return slice(-(-self.start // PAGE), self.end // PAGE)

    @property
    def ends(self) -> tuple[Range, Range]:
        """The bytes before the complete pages, and those after, in pages that are shared with others."""
        return (self.start, self.pages.start * PAGE), (self.pages.stop * PAGE, self.end)


class LargeArrays:
    """The address space of a device with large arrays; raises `MemoryError` if the system does not provide it."""

    def __init__(self) -> None:
        for size in _WINDOWS:
            try:
                # other arrays are written completely, so large pages are right for them
                self.words, self.states = (sparse_bytes(size, large_pages=True) for _ in range(2))
                break
            except MemoryError:
                continue
        else:
            raise MemoryError
        self.size = size
        self.dirty: Bools = sparse_bytes(size // BLOCK).view(np.bool_)
        # pages whose bytes, and pages whose states, may differ from the array's usual value
        self._filled: Bools = sparse_bytes(size // PAGE).view(np.bool_)
        self._changed: Bools = sparse_bytes(size // PAGE).view(np.bool_)

    def begin(self, where: Extent, value: int, state: int) -> None:
        """Begin or end an array's life: all its bytes get one value and one state."""
        for memory, held in ((self.words, value), (self.states, state)):
            _templates().fill(memory.ctypes.data + where.start, where.nbytes, held)
        for pages in (self._filled, self._changed):
            forget_marks(pages[where.pages])

    def bring(self, where: Extent, data: Bytes) -> None:
        """Copy data into an array of zeros; pages of zeros take no memory."""
        for start, end in where.ends:
            self.words[start:end] = data[start - where.start : end - where.start]
        marks = self._filled[where.pages]
        first, last = where.pages.start * PAGE, where.pages.stop * PAGE
        source, target = (
            part.reshape(-1, PAGE) for part in (data[first - where.start : last - where.start], self.words[first:last])
        )
        for start in range(0, len(source), _TOGETHER):
            marks[start : start + _TOGETHER] = _not_zero(source[start : start + _TOGETHER])
        if np.count_nonzero(marks) >= _NEARLY_ALL * len(marks):
            ask_for_large_pages(target.ctypes.data, target.nbytes)

        def bring(start: int) -> None:
            some = start + np.flatnonzero(marks[start : start + _AT_ONCE])
            if not len(some):
                return
            require_memory(_SPARE, f"an array of {data.size:,} bytes", "use a smaller one")
            whole = slice(some[0], some[-1] + 1)
            chosen = whole if whole.stop - whole.start == len(some) else some
            target[chosen] = source[chosen]

        together(partial(bring, start) for start in range(0, len(source), _AT_ONCE))

    def note(self, blocks: Int64s) -> None:
        """Record that kernels wrote to blocks, by number."""
        # pages repeat, which costs less than making them unique
        pages = blocks // (PAGE // BLOCK)
        self._filled[pages] = True
        self._changed[pages] = True

    def opened(self, where: Extent, states: bool) -> None:
        """Record that a caller gets an array's bytes or states in place, and may change any of them."""
        (self._changed if states else self._filled)[where.pages] = True

    def copy(self, where: Extent, value: int) -> Bytes:
        """A copy of an array's bytes; `value` is its value where nobody wrote."""
        found = sparse_bytes(where.nbytes)
        if value:
            _templates().fill(found.ctypes.data, found.size, value)
        parts = self._parts(where, self._filled)
        if _bytes_of(parts) >= _NEARLY_ALL * found.size:
            ask_for_large_pages(found.ctypes.data, found.size)

        def copy(some: list[Range]) -> None:
            for start, end in some:
                found[start - where.start : end - where.start] = self.words[start:end]

        together(partial(copy, some) for some in _shared_out(parts))
        return found

    def differing(self, where: Extent, state: int, usual: int, ignored: int) -> tuple[int, int]:
        """How many bytes of an array are not in a `state`, and the first of them; -1 for none.

        `usual` is the state where nobody wrote; bits of `ignored` are not compared.
        """
        parts = self._parts(where, self._changed)
        count = 0 if usual == state else where.nbytes - _bytes_of(parts)
        firsts = [_first_gap(where, parts)] if usual != state else []
        # results of each share of the parts: the count, and the first of each part that has one
        found: list[tuple[int, list[int]]] = []

        def look(some: list[Range]) -> None:
            number, began = 0, list[int]()
            for start, end in some:
                other = (self.states[start:end] & ~np.uint8(ignored)) != state
                if here := int(np.count_nonzero(other)):
                    number += here
                    began.append(start + int(np.argmax(other)))
            found.append((number, began))

        together(partial(look, some) for some in _shared_out(parts))
        count += sum(number for number, _ in found)
        known = [first for first in (*firsts, *(first for _, began in found for first in began)) if first >= 0]
        return count, min(known) - where.start if known else -1

    def mark(self, where: Extent, bit: int, on: bool, usual: int) -> None:
        """Set or clear a bit in the states of all bytes of an array; `usual` is the state where nobody wrote."""
        for start, end in self._gaps(where):
            _templates().fill(self.states.ctypes.data + start, end - start, usual | bit if on else usual)

        def mark(some: list[Range]) -> None:
            for start, end in some:
                if on:
                    self.states[start:end] |= np.uint8(bit)
                else:
                    self.states[start:end] &= ~np.uint8(bit)

        together(partial(mark, some) for some in _shared_out(self._parts(where, self._changed)))

    def _gaps(self, where: Extent) -> list[Range]:
        """Ranges of bytes whose states are unchanged, up to a maximal number; the others now count as changed."""
        parts = self._parts(where, self._changed)
        inner = list(pairwise([where.start, *(edge for part in parts for edge in part), where.end]))[::2]
        gaps = sorted((gap for gap in inner if gap[0] < gap[1]), key=lambda gap: gap[0] - gap[1])
        for start, end in gaps[_MOST_RANGES:]:
            self._changed[start // PAGE : end // PAGE] = True
        return gaps[:_MOST_RANGES]

    def _parts(self, where: Extent, pages: Bools) -> list[Range]:
        """Ranges of an array's bytes in marked pages, and in pages shared with others, in order."""
        marked = np.flatnonzero(pages[where.pages]) + where.pages.start
        breaks = np.flatnonzero(np.diff(marked) != 1)
        firsts, lasts = (np.append(0, breaks + 1), np.append(breaks, len(marked) - 1)) if len(marked) else ([], [])
        inner = [
            (start, min(start + _PIECE * PAGE, last * PAGE + PAGE))
            for first, last in zip(marked[firsts].tolist(), marked[lasts].tolist(), strict=True)
            for start in range(first * PAGE, last * PAGE + PAGE, _PIECE * PAGE)
        ]
        before, behind = where.ends
        return [before, *inner, behind]


def _bytes_of(parts: list[Range]) -> int:
    return sum(end - start for start, end in parts)


def _shared_out(parts: list[Range]) -> list[list[Range]]:
    """The parts in shares of some megabytes, for threads; a single page would not be worth a thread."""
    shares, room = list[list[Range]](), 0
    for start, end in parts:
        if room <= 0:
            shares.append([])
            room = _TOGETHER * PAGE
        shares[-1].append((start, end))
        room -= end - start
    return shares


def _not_zero(pages: Array) -> Bools:
    """Which rows are not all zeros; most non-zero ones show it in their first bytes."""
    found: Bools = np.any(pages[:, :8], axis=1)
    rest = np.flatnonzero(~found)
    # for many rows, comparing all is faster than extracting them
    if 2 * len(rest) > len(pages):
        found[rest] = np.any(pages, axis=1)[rest]
    else:
        found[rest] = pages[rest].any(axis=1)
    return found


def _first_gap(where: Extent, parts: list[Range]) -> int:
    """The first byte of an array outside some sorted parts of it; -1 for none."""
    at = where.start
    for start, end in parts:
        if start > at:
            return at
        at = end
    return at if at < where.end else -1


def forget_marks(marks: Bools) -> None:
    """Clear marks where they are set; writing all of them would allocate their memory."""
    marks[np.flatnonzero(marks)] = False
