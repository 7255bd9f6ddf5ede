"""Footprints: the bytes of global memory that a part of a launch has read and written, if the kernel may write them.

Parts of a launch that run apart give the same results as one after the other, if none reads or writes a byte that
another has written. A footprint decides that: a mark for each byte of memory, with page marks as in `Arena.dirty`, so
that only touched pages are compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.arrays import Bools, Bytes, Flag, Int, Int64s, UInt64s
from kernbench.ptx.emulator.lanes.compiled import kernel
from kernbench.ptx.emulator.memory.arena import POISON, TRACKED, UNWRITTEN, WRITTEN, Arena
from kernbench.ptx.emulator.memory.pages.allocation import sparse_zeros
from kernbench.ptx.emulator.memory.pages.large import Extent

READS, WRITES = 1, 2
PAGE = 256
_PAGE_SHIFT = 8
# marks and states in 8-byte words
_ALL_BITS = np.uint64(0xFFFF_FFFF_FFFF_FFFF)
_EACH = np.uint64(0x0101_0101_0101_0101)
_ALL_WRITTEN = np.uint64(WRITTEN * 0x0101_0101_0101_0101)
_UNTRACKED = np.uint64((TRACKED ^ 0xFF) * 0x0101_0101_0101_0101)
# multiplier that gathers the lowest bits of eight bytes in the highest byte, the first byte's bit first
_SIDE_BY_SIDE = np.uint64(0x8040_2010_0804_0201)


@dataclass(frozen=True, slots=True, eq=False)
class Touched:
    """The memory accesses of one part of a launch: page numbers, with a bit for each byte read and written.

    `contents` has the pages of `written`, all bytes of each; `dirty` are the pages that count as written by a kernel.
    """

    pages: Int64s
    reads: Bytes
    writes: Bytes
    written: Int64s
    contents: Bytes
    dirty: Int64s

    @property
    def nbytes(self) -> int:
        """Its own size in bytes."""
        return sum(part.nbytes for part in (self.pages, self.reads, self.writes, self.written, self.contents))


_NO_PAGES: Int64s = np.zeros(0, np.int64)
_NO_BITS: Bytes = np.zeros((0, PAGE // 8), np.uint8)
# the footprint of a part that touched nothing
NOTHING = Touched(_NO_PAGES, _NO_BITS, _NO_BITS, _NO_PAGES, np.zeros((0, PAGE), np.uint8), _NO_PAGES)


class Footprint:
    """Marks of what was read and written in an arena's memory since the last `clear`."""

    def __init__(self, arena: Arena):
        pages = -(-arena.used // PAGE)
        # zeros whose pages are allocated on write
        self._marks: Bytes = sparse_zeros(-(-pages * PAGE // 8)).view(np.uint8).reshape(-1, PAGE)
        self._pages: Bools = np.zeros(pages, bool)
        self._arena = arena

    def words(self, starts: UInt64s, count: int, nbytes: int, writes: bool) -> None:
        """Mark `nbytes` bytes from each of the first `count` of `starts` on; each range is within a page."""
        mark_words(self._marks.reshape(-1), self._pages, starts, count, nbytes, WRITES if writes else READS)

    def lanes(self, starts: Array, active: Bools | None, nbytes: int) -> None:
        """Mark the watched words that atomics of active lanes update, `nbytes` from each of `starts` on."""
        inside = (starts >= 0) & (starts <= self._arena.used - nbytes)
        chosen = starts[inside if active is None else inside & active]
        watched = chosen[(self._arena.state[1][chosen] & TRACKED) != 0]
        self.words(np.ascontiguousarray(watched.astype(np.uint64)), len(watched), nbytes, True)

    def ranges(self, starts: Array, lengths: Array, writes: bool, everything: bool = False) -> None:
        """Mark ranges of bytes that are watched, by their first byte; or all ranges."""
        inside = (starts >= 0) & (starts + lengths <= self._arena.used)
        if not everything:
            inside &= (self._arena.state[1][np.where(inside, starts, 0)] & TRACKED) != 0
        mark = WRITES if writes else READS
        begins, sizes = (np.ascontiguousarray(one[inside], np.int64) for one in (starts, lengths))
        mark_ranges(self._marks.reshape(-1), self._pages, begins, sizes, mark)

    def take_back(self, fresh: Sequence[Extent]) -> bool:
        """Undo all writes, if all written bytes are in extents that were unwritten; returns whether it did.

        Targets of operations in flight are marked when these begin, and are still unwritten. Marks stay.
        """
        arena = self._arena
        marked = np.flatnonzero(self._pages)
        writes = (self._marks[marked] & WRITES) != 0
        some = writes.any(axis=1)
        pages, writes, dirty = marked[some], writes[some], np.flatnonzero(arena.dirty[: len(self._pages)])
        firsts = pages * PAGE + writes.argmax(axis=1)
        lasts = pages * PAGE + PAGE - 1 - writes[:, ::-1].argmax(axis=1)
        starts, ends = (
            np.array(edges, np.int64) for edges in zip((-1, 0), *((e.start, e.end) for e in fresh), strict=True)
        )
        inside = lasts < ends[np.searchsorted(starts, firsts, side="right") - 1]
        words, states = (_pages_of(memory[1], pages) for memory in (arena.words, arena.state))
        followed = (states == WRITTEN | TRACKED) | (states == UNWRITTEN | TRACKED) | ~writes
        if not (inside.all() and followed.all() and _are_among(dirty, pages)):
            return False
        words[writes], states[writes] = POISON, UNWRITTEN | TRACKED
        for memory, held in ((arena.words, words), (arena.state, states)):
            memory[1][: len(self._pages) * PAGE].reshape(-1, PAGE)[pages] = held
        arena.dirty[dirty] = False
        return True

    def clear(self) -> None:
        """Clear all marks."""
        pages = np.flatnonzero(self._pages)
        self._marks[pages] = 0
        self._pages[pages] = False

    def touched(self) -> Touched | None:
        """The accesses since the last `clear`; None if memory was changed in ways that marks do not show."""
        arena = self._arena
        pages = np.flatnonzero(self._pages)
        reads, writes = (np.empty((len(pages), PAGE // 8), np.uint8) for _ in range(2))
        some = np.empty(len(pages), bool)
        followed = pack_pages(self._marks.reshape(-1).view(np.uint64), arena.state[8], pages, reads, writes, some)
        written, dirty = pages[some], np.flatnonzero(arena.dirty[: len(self._pages)])
        if not followed or not _are_among(dirty, written):
            return None
        return Touched(pages, reads, writes, written, _pages_of(arena.words[1], written), dirty)

    def apply(self, part: Touched) -> None:
        """Write another part's changes to memory."""
        arena = self._arena
        rows = np.searchsorted(part.pages, part.written)
        whole = (part.writes.view(np.uint64)[rows] == _ALL_BITS).all(axis=1)
        # nearly all pages are written completely
        bring_pages(arena.words[8], arena.state[8], part.written, whole, part.contents.view(np.uint64))
        some = np.flatnonzero(~whole)
        writes = np.unpackbits(part.writes[rows[some]], axis=1).view(bool)
        where = (part.written[some, None] * PAGE + np.arange(PAGE))[writes]
        arena.words[1][where] = part.contents[some][writes]
        arena.state[1][where] |= np.uint8(WRITTEN)
        arena.dirty[part.dirty] = True


class Admitted:
    """What parts of a launch have touched so far, a bit for each byte, to detect conflicts with another part."""

    def __init__(self, here: Footprint):
        pages = len(here._pages)
        self._reads, self._writes = (sparse_zeros(pages * PAGE // 64).reshape(-1, PAGE // 64) for _ in range(2))
        touched = np.flatnonzero(here._pages)
        marks = here._marks[touched]
        self._reads[touched] = np.packbits((marks & READS) != 0, axis=1).view(np.uint64)
        self._writes[touched] = np.packbits((marks & WRITES) != 0, axis=1).view(np.uint64)

    def admit(self, part: Touched) -> bool:
        """Add a part; False if it read or wrote what was written, or wrote what was read."""
        reads, writes = (bits.view(np.uint64) for bits in (part.reads, part.writes))
        return bool(admit_pages(self._reads, self._writes, part.pages, reads, writes))


def _are_among(some: Int64s, others: Int64s) -> bool:
    """Whether sorted numbers are all among other sorted numbers."""
    where = np.minimum(np.searchsorted(others, some), max(0, len(others) - 1))
    return not len(some) or (len(others) > 0 and bool((others[where] == some).all()))


def _pages_of(memory: Array, pages: Int64s) -> Bytes:
    """Copies of pages of a byte array, a row each."""
    whole = len(memory) // PAGE * PAGE
    rows: Bytes = memory[:whole].reshape(-1, PAGE)[pages]
    return rows


@kernel
def mark_words(marks: Bytes, pages: Bools, starts: UInt64s, count: Int, nbytes: Int, mark: Int) -> None:
    """Mark a few bytes from each of the first `count` starts on."""
    for i in range(count):
        start = np.int64(starts[i])
        pages[start >> _PAGE_SHIFT] = True
        for byte in range(start, start + nbytes):
            marks[byte] |= mark


@kernel
def mark_ranges(marks: Bytes, pages: Bools, starts: Int64s, lengths: Int64s, mark: Int) -> None:
    """Mark ranges of bytes."""
    for i in range(starts.size):
        for byte in range(starts[i], starts[i] + lengths[i]):
            marks[byte] |= mark
        for page in range(starts[i] >> _PAGE_SHIFT, (starts[i] + lengths[i] + PAGE - 1) >> _PAGE_SHIFT):
            pages[page] = True


@kernel
def pack_pages(marks: UInt64s, states: UInt64s, pages: Int64s, reads: Bytes, writes: Bytes, written: Bools) -> Flag:
    """Pack the marks of pages as bits, a row each with the first byte first, and find pages with writes.

    Eight marks are a word; a multiplication gathers their bits. False if a byte that is marked as written is in another
    state.
    """
    wrong = np.uint64(0)
    count = reads.shape[1]
    for i in range(pages.size):
        start = pages[i] * count
        found = np.uint64(0)
        for k in range(count):
            read = marks[start + k] & _EACH
            write = (marks[start + k] >> np.uint64(1)) & _EACH
            reads[i, k] = (read * _SIDE_BY_SIDE) >> np.uint64(56)
            writes[i, k] = (write * _SIDE_BY_SIDE) >> np.uint64(56)
            found |= write
            wrong |= ((states[start + k] & _UNTRACKED) ^ _ALL_WRITTEN) & (write * np.uint64(0xFF))
        written[i] = found != np.uint64(0)
    right: Flag = wrong == np.uint64(0)
    return right


@kernel
def admit_pages(
    all_reads: UInt64s, all_writes: UInt64s, pages: Int64s, more_reads: UInt64s, more_writes: UInt64s
) -> Flag:
    """Add bits of pages, a row each, to the union; False as soon as a write conflicts."""
    for i in range(pages.size):
        page = pages[i]
        common = np.uint64(0)
        for k in range(more_reads.shape[1]):
            reads, writes = more_reads[i, k], more_writes[i, k]
            common |= (writes & (all_reads[page, k] | all_writes[page, k])) | (reads & all_writes[page, k])
            all_reads[page, k] |= reads
            all_writes[page, k] |= writes
        if common != np.uint64(0):
            return False
    return True


@kernel
def bring_pages(words: UInt64s, states: UInt64s, pages: Int64s, chosen: Bools, contents: UInt64s) -> None:
    """Write the chosen pages, a row of `contents` each; all their bytes become written."""
    count = contents.shape[1]
    for i in range(pages.size):
        if chosen[i]:
            start = pages[i] * count
            for k in range(count):
                words[start + k] = contents[i, k]
            for k in range(count):
                states[start + k] |= _ALL_WRITTEN
