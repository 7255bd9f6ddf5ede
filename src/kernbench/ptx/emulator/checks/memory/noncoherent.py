"""Loads through the non-coherent cache (`ld.global.nc`: `__ldg`, `const __restrict__`) of what the same launch writes.

The memory consistency model does not cover them: no barrier or fence orders such a load with a write of the same
launch. The cache is not the only reason: ptxas moves these loads across stores, fences and barriers, merges them, and
hoists them out of loops. So what they read must not be written from the launch's beginning to its end.

*A load after the write* is found when it is executed: the shadow cells have the writes of this launch. A write by the
same thread is no excuse. *A write after the load* is found at the end of the launch, from marks of words and bytes: a
mark has the thread that read it this way, or says that several did, and the cells have the last writer. A thread may
write what it alone has read: in-place kernels do, and what they store depends on what they have loaded.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.checks.findings.reporter import Reporter, actor_name
from kernbench.ptx.emulator.checks.memory.memory import MemoryReporter
from kernbench.ptx.emulator.lanes.arrays import Bools, Int64s, UInt32s, UInt64s
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.memory.access_sites import AccessSites
from kernbench.ptx.emulator.memory.arena import GLOBAL_BASE
from kernbench.ptx.emulator.memory.cells import (
    APART,
    EARLIER_STRONG,
    GROUP,
    LANES,
    MIXED,
    NUMBER_MASK,
    NUMBER_SHIFT,
    SITE_SHIFT,
    decode,
    lines_of,
)
from kernbench.ptx.emulator.memory.pages.allocation import sparse_zeros
from kernbench.ptx.emulator.program.hub import LaunchHub
from kernbench.ptx.emulator.program.program import Site

_WORD = 4
_WRITES = EARLIER_STRONG + 1
_NOTHING: Int64s = np.zeros(0, np.int64)
# the mark of a byte that several threads have read
_SEVERAL = 0xFFFF_FFFF
# higher than the scopes of other races' hints, which do not help here
_REACH = 2
_HINT = (
    "load it with ld.global, without .nc: in CUDA C++ without __ldg(), and not by a pointer to const that is "
    "__restrict__; or write to another array"
)


@dataclass(frozen=True, slots=True, eq=False)
class _Written:
    """Writes to bytes: their offsets, and the cell and lanes of each."""

    bytes: Int64s
    cells: UInt64s
    lanes: Int64s


_NONE = _Written(_NOTHING, _NOTHING.astype(np.uint64), _NOTHING)


class NoncoherentLoads:
    """The bytes that one launch has read through the non-coherent cache and may write."""

    def __init__(
        self,
        launch: LaunchHub,
        reporter: Reporter,
        memory: MemoryReporter,
        numbers: AccessSites,
        cells: Callable[[], tuple[UInt64s, UInt32s]],
    ):
        program = reporter.program
        # speculative loads whose value is unused do not count
        self.sites = program.noncoherent_sites - program.deferred - program.idle_loads.keys()
        self._launch = launch
        self._reporter = reporter
        self._memory = memory
        self._numbers = numbers
        self._made = cells
        # the marked words, and bytes
        self._marked: dict[int, list[Int64s]] = {_WORD: [], 1: []}
        # reported pairs: the numbers of a write's and a later load's sites
        self._reported: set[tuple[int, int]] = set()

    @cached_property
    def _cells(self) -> UInt64s:
        """The shadow cells, and beside them the lanes."""
        return self._made()[0]

    @cached_property
    def _lanes(self) -> UInt32s:
        return self._made()[1]

    @cached_property
    def _first(self) -> int:
        """The first byte that has a cell."""
        return int(self._cells[-1, 0])

    @cached_property
    def _readers(self) -> dict[int, UInt32s]:
        """For each word, and for each byte of partly read words: the reading thread plus one."""
        lines = len(self._cells)
        return {unit: sparse_zeros(lines * _WORD // unit // 2 + 1).view(np.uint32) for unit in (_WORD, 1)}

    @cached_property
    def _read_at(self) -> Array:
        """For each word the first site that read it."""
        found: Array = sparse_zeros(len(self._cells) // _WORD + 1).view(np.uint16)
        return found

    def read(self, site: Site, threads: Int64s, starts: Int64s, nbytes: int) -> None:
        """Threads of the grid read `nbytes` bytes, each from one of `starts` on."""
        offsets = starts - self._first
        words = offsets[:, None] // _WORD + np.arange(-(-nbytes // _WORD))
        touched = np.full(len(offsets), 15) if nbytes >= _WORD else ((1 << nbytes) - 1) << offsets % _WORD
        lines = self._lines(words)
        cells = [self._cells[lines, column] for column in range(_WRITES)]
        late: Bools = np.zeros(len(offsets), bool)
        if (cells[0] | cells[1] | cells[2]).any():
            written = (np.stack(cells, axis=2) & touched.astype(np.uint64)[:, None, None]) != 0
            late = written.any(axis=(1, 2))
        if late.any():
            # the first conflicting write for each thread
            word, column = np.divmod(written[late].reshape(int(late.sum()), -1).argmax(axis=1), _WRITES)
            which = np.arange(len(word))
            line = lines[late][which, word]
            met = _Written(
                words[late][which, word] * _WORD, self._cells[line, column], self._lanes[line, LANES + column]
            )
            self._report_reads(site, threads[late], np.maximum(met.bytes, offsets[late]), met)
        if nbytes >= _WORD:
            self._mark(site, threads[~late] + 1, words[~late], _WORD)
        else:
            self._mark(site, threads[~late] + 1, offsets[~late][:, None] + np.arange(nbytes), 1)

    def _lines(self, words: Int64s) -> Int64s:
        """The lines that represent words, [threads, words]; only one per thread if all four words share it."""
        if words.shape[1] == GROUP and not (words[:, 0] % GROUP).any():
            heads = lines_of(self._lanes, words[:, :1])
            if not self._lanes[heads, APART].any():
                return heads
        return lines_of(self._lanes, words)

    def _report_reads(self, site: Site, threads: Int64s, offsets: Int64s, met: _Written) -> None:
        """Report reads of bytes that the launch had written, in words from `met.bytes` on."""
        for first, count in _by_site(met.cells >> np.uint64(SITE_SHIFT)):
            cell = met.cells[first : first + 1]
            number, warp, _ = decode(int(cell[0]))
            lanes = _lanes_of(met.lanes[first : first + 1].astype(np.int64), cell, _lowest(int(cell[0]) & 15))
            them = actor_name(self._launch, warp, _lowest(int(lanes[0])))
            other = self._numbers.numbered[number]
            where, address = self._named(int(offsets[first]))
            message = (
                f"{self._thread(int(threads[first]))} reads {where} at {address:#x} through the non-coherent cache "
                f"(.nc); {them} has written it in the same launch, in PTX line {other.line} (`{other.text}`): no "
                "barrier or fence orders the two, and what was there before may be read"
            )
            self._reported.add((number, self._numbers.number(site)))
            self._add(site, message, count, where, other, f"the write, by {them}")

    def _mark(self, site: Site, threads: Int64s, where: Int64s, unit: int) -> None:
        """Mark words, or bytes, as read by threads, numbered from 1: [threads, units]."""
        readers = self._readers[unit]
        own = np.broadcast_to(threads.astype(np.uint32)[:, None], where.shape)
        held = readers[where]
        if ((held == own) | (held == _SEVERAL)).all():
            return
        marks = np.where((held == 0) | (held == own), own, np.uint32(_SEVERAL))
        readers[where] = marks
        # if several threads read the same unit in one step, all but one see another's mark
        lost = readers[where] != marks
        fresh = where[(held == 0) & ~lost]
        self._marked[unit].append(fresh)
        self._read_at[fresh * unit // _WORD] = self._numbers.number(site)
        readers[where[lost]] = _SEVERAL

    def written_since(self) -> bool:
        """Whether another thread has written what was read this way."""
        return any(len(self._since(unit).bytes) for unit in (_WORD, 1))

    def _since(self, unit: int) -> _Written:
        """For each word that another thread has written after it was read this way, its first such byte."""
        if not self._marked[unit]:
            return _NONE
        marked = np.concatenate([_NOTHING, *self._marked[unit]])
        words = marked if unit == _WORD else np.unique(marked // _WORD)
        lines, bytes_of = lines_of(self._lanes, words), np.arange(_WORD)
        readers = self._readers[unit][(words[:, None] * _WORD + bytes_of) // unit]
        warps, lane = np.divmod(readers.astype(np.int64) - 1, WARP)
        alone = np.where(readers == _SEVERAL, 0, 1 << lane)
        found: list[tuple[Int64s, UInt64s, Int64s]] = []
        for column in range(_WRITES):
            cells, held = self._cells[lines, column, None], self._lanes[lines, LANES + column, None].astype(np.int64)
            if not cells.any():
                continue
            lanes = _lanes_of(held, cells, bytes_of)
            own = (lanes == alone) & (_warps_of(cells) == warps)
            wrong = (readers != 0) & (cells >> bytes_of.astype(np.uint64) & np.uint64(1) != 0) & ~own
            which = np.flatnonzero(wrong.any(axis=1))
            byte = wrong[which].argmax(axis=1)
            found.append((words[which] * _WORD + byte, cells[which, 0], lanes[which, byte]))
        if not found:
            return _NONE
        return _Written(*(np.concatenate(parts) for parts in zip(*found, strict=True)))

    def end(self) -> None:
        """The launch has ended: report writes by other threads to what was read this way."""
        for unit in (_WORD, 1):
            found = self._since(unit)
            if len(found.bytes):
                self._report_writes(found, unit)

    def _report_writes(self, found: _Written, unit: int) -> None:
        loads = self._read_at[found.bytes // _WORD].astype(np.int64)
        writes = (found.cells >> np.uint64(SITE_SHIFT)).astype(np.int64)
        for first, count in _by_site(loads << 16 | writes):
            if (int(writes[first]), int(loads[first])) not in self._reported:
                self._report_write(found, first, count, self._numbers.numbered[int(loads[first])], unit)

    def _report_write(self, found: _Written, first: int, count: int, load: Site, unit: int) -> None:
        number, warp, _ = decode(int(found.cells[first]))
        reader = int(self._readers[unit][found.bytes[first] // unit])
        who = "several threads have read it" if reader == _SEVERAL else f"{self._thread(reader - 1)} has read it"
        them = actor_name(self._launch, warp, _lowest(int(found.lanes[first])))
        where, address = self._named(int(found.bytes[first]))
        message = (
            f"{them} writes {where} at {address:#x}; {who} in the same launch through the non-coherent cache (.nc), "
            f"in PTX line {load.line} (`{load.text}`): no barrier or fence orders the two, and what is read may be "
            "what is written here"
        )
        self._add(self._numbers.numbered[number], message, count, where, load, "the load")

    def _add(self, site: Site, message: str, count: int, where: str, other: Site, role: str) -> None:
        location, others = self._reporter.location(other), self._reporter.other(role, other)
        self._reporter.add(
            "race", site, message, _HINT, count, others, about=location, array=where, cause=other, reach=_REACH
        )

    def _named(self, offset: int) -> tuple[str, int]:
        """The array of a marked byte, and its address."""
        address = GLOBAL_BASE + self._first + offset
        return self._memory.global_name(address).rpartition(" at ")[0], address

    def _thread(self, thread: int) -> str:
        return actor_name(self._launch, thread // WARP, thread % WARP)

    def forget(self, first: int, last: int) -> None:
        """Words from `first` up to `last` have a new owner."""
        for unit, marked in self._marked.items():
            start, stop = first * _WORD // unit, last * _WORD // unit
            if marked:
                self._readers[unit][start:stop] = 0
                self._marked[unit] = [one[(one < start) | (one >= stop)] for one in marked]


def _by_site(keys: UInt64s | Int64s) -> Iterator[tuple[int, int]]:
    """For each distinct key, in order of first occurrence: its first index, and its count."""
    _, first, counts = np.unique(keys, return_index=True, return_counts=True)
    return iter(sorted(zip(first.tolist(), counts.tolist(), strict=True)))


def _lanes_of(held: Int64s, cells: UInt64s, byte: int | Int64s) -> Int64s:
    """The lanes that accessed a byte in the accesses of cells, as masks; `held` are the lanes beside the cells."""
    found: Int64s = np.where(cells & np.uint64(MIXED) != 0, 1 << (held >> 8 * byte & 31), held)
    return found


def _warps_of(cells: UInt64s) -> Int64s:
    """The numbers in the grid of the cells' warps."""
    return (cells >> np.uint64(NUMBER_SHIFT) & np.uint64(NUMBER_MASK)).astype(np.int64) - 1


def _lowest(mask: int) -> int:
    """The index of the lowest set bit."""
    return (mask & -mask).bit_length() - 1
