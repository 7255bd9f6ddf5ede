"""Which bytes of global memory a part of a launch has read and written, as far as the kernel may write them.

Parts of a launch that run apart from each other give what they give one after the other if none of them reads or
writes a byte that another has written. A footprint is what that is decided by: a mark for each byte of memory, kept in
pages as `Arena.dirty` is, so that only what was touched is looked at.
"""

from dataclasses import dataclass

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.arrays import Bools, Bytes, Int, Int64s, UInt64s
from kernbench.ptx.emulator.lanes.compiled import kernel
from kernbench.ptx.emulator.memory.arena import TRACKED, WRITTEN, Arena
from kernbench.ptx.emulator.memory.pages.room import sparse_zeros

READS, WRITES = 1, 2
PAGE = 256
_PAGE_SHIFT = 8


@dataclass(frozen=True, slots=True, eq=False)
class Touched:
    """What one part of a launch did to memory: numbers of pages, with a bit a byte for what was read and written.

    `contents` holds the pages of `written`, all bytes of each; `dirty` are the pages that count as written by a kernel.
    """

    pages: Int64s
    reads: Bytes
    writes: Bytes
    written: Int64s
    contents: Bytes
    dirty: Int64s

    @property
    def nbytes(self) -> int:
        """Bytes that it takes itself."""
        return sum(part.nbytes for part in (self.pages, self.reads, self.writes, self.written, self.contents))


class Footprint:
    """Marks of what was read and written since the last `clear`, of the memory of an arena."""

    def __init__(self, arena: Arena):
        pages = -(-arena.used // PAGE)
        # zeros that take memory where they are written
        self._marks: Bytes = sparse_zeros(-(-pages * PAGE // 8)).view(np.uint8).reshape(-1, PAGE)
        self._pages: Bools = np.zeros(pages, bool)
        self._arena = arena

    def words(self, starts: UInt64s, count: int, nbytes: int, writes: bool) -> None:
        """Mark `nbytes` bytes from each of the first `count` of `starts` on; they lie in one page each."""
        mark_words(self._marks.reshape(-1), self._pages, starts, count, nbytes, WRITES if writes else READS)

    def lanes(self, starts: Array, active: Bools | None, nbytes: int) -> None:
        """Mark what atomics of active lanes update, `nbytes` from each of `starts` on, as far as it may be."""
        inside = (starts >= 0) & (starts <= self._arena.used - nbytes)
        chosen = starts[inside if active is None else inside & active]
        watched = chosen[(self._arena.state[1][chosen] & TRACKED) != 0]
        self.words(np.ascontiguousarray(watched.astype(np.uint64)), len(watched), nbytes, True)

    def ranges(self, starts: Array, lengths: Array, writes: bool, everything: bool = False) -> None:
        """Mark ranges of bytes that may be written, by their first byte; or all of them."""
        inside = (starts >= 0) & (starts + lengths <= self._arena.used)
        if not everything:
            inside &= (self._arena.state[1][np.where(inside, starts, 0)] & TRACKED) != 0
        mark = WRITES if writes else READS
        begins, sizes = (np.ascontiguousarray(one[inside], np.int64) for one in (starts, lengths))
        mark_ranges(self._marks.reshape(-1), self._pages, begins, sizes, mark)

    @property
    def empty(self) -> bool:
        """Whether nothing is marked as written."""
        return not (self._marks[np.flatnonzero(self._pages)] & WRITES).any()

    def clear(self) -> None:
        """Forget all marks."""
        pages = np.flatnonzero(self._pages)
        self._marks[pages] = 0
        self._pages[pages] = False

    def touched(self) -> Touched | None:
        """What was done since the last `clear`; None where memory has changed in a way that marks do not show."""
        arena = self._arena
        pages = np.flatnonzero(self._pages)
        marks = self._marks[pages]
        writes = (marks & WRITES) != 0
        some = writes.any(axis=1)
        written, dirty = pages[some], np.flatnonzero(arena.dirty[: len(self._pages)])
        states = _pages_of(arena.state[1], written) & ~np.uint8(TRACKED)
        if not np.isin(dirty, written).all() or (states[writes[some]] != WRITTEN).any():
            return None
        reads = (marks & READS) != 0
        contents = _pages_of(arena.words[1], written)
        return Touched(pages, np.packbits(reads, axis=1), np.packbits(writes, axis=1), written, contents, dirty)

    def apply(self, part: Touched) -> None:
        """Bring what another part wrote into memory."""
        arena = self._arena
        rows = np.searchsorted(part.pages, part.written)
        whole = (part.writes[rows] == 0xFF).all(axis=1)
        # nearly all pages are written as a whole
        arena.words[1][: arena.used].reshape(-1, PAGE)[part.written[whole]] = part.contents[whole]
        arena.state[1][: arena.used].reshape(-1, PAGE)[part.written[whole]] |= np.uint8(WRITTEN)
        some = ~whole
        writes = np.unpackbits(part.writes[rows[some]], axis=1).view(bool)
        where = (part.written[some, None] * PAGE + np.arange(PAGE))[writes]
        arena.words[1][where] = part.contents[some][writes]
        arena.state[1][where] |= np.uint8(WRITTEN)
        arena.dirty[part.dirty] = True


class Admitted:
    """What parts of a launch have touched so far, a bit a byte: whether another part has anything in common with it."""

    def __init__(self, here: Footprint):
        pages = len(here._pages)
        self._reads, self._writes = (
            sparse_zeros(pages * PAGE // 64).view(np.uint8).reshape(-1, PAGE // 8) for _ in range(2)
        )
        self._pages: Bools = np.zeros(pages, bool)
        touched = np.flatnonzero(here._pages)
        marks = here._marks[touched]
        self._reads[touched] = np.packbits((marks & READS) != 0, axis=1)
        self._writes[touched] = np.packbits((marks & WRITES) != 0, axis=1)
        self._pages[touched] = True

    def admit(self, part: Touched) -> bool:
        """Add what a part touched; False where it read or wrote what was written, or wrote what was read."""
        known = self._pages[part.pages]
        if known.any():
            pages = part.pages[known]
            reads, writes = self._reads[pages], self._writes[pages]
            if (part.writes[known] & (reads | writes)).any() or (part.reads[known] & writes).any():
                return False
            self._reads[pages] = reads | part.reads[known]
            self._writes[pages] = writes | part.writes[known]
        new = ~known
        self._reads[part.pages[new]] = part.reads[new]
        self._writes[part.pages[new]] = part.writes[new]
        self._pages[part.pages] = True
        return True


def _pages_of(memory: Array, pages: Int64s) -> Bytes:
    """Copies of some pages of an array of bytes, a row each."""
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
