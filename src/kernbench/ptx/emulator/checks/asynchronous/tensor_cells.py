"""Shadow cells of tensor memory: the last accesses to each column of each group of sixteen lanes.

A cell is one 64-bit word: kind of access (3 bits), warp in its CTA (5), index of the operation among the warp's of that
kind (20), the warp's clock (20), the instruction (16, see `AccessSites`). Each word of tensor memory has three cells:
the last write, load, and read by the tensor core.
"""

from dataclasses import dataclass

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.arrays import Flag, Int, Int64s, UInt64s
from kernbench.ptx.emulator.lanes.compiled import kernel, part
from kernbench.ptx.numerics.matrix.instruction import Part

STORE, LOAD, MULTIPLY, COPY, FREE = 1, 2, 3, 4, 5
GROUPS, COLUMNS = 8, 512
WARP_SHIFT, NUMBER, CLOCK, SITE = 3, 8, 28, 48
NUMBERS, CLOCKS = (1 << 20) - 1, (1 << 20) - 1


@dataclass(frozen=True, slots=True)
class Region:
    """Lanes of a part, columns `first` to `last` (exclusive)."""

    part: Part
    first: int
    last: int


@dataclass(frozen=True, slots=True, eq=False)
class Who:
    """Accessing warps: CTA, warp in it, operation index and clock of each, and the counters and clocks each knows."""

    ctas: Int64s
    warps: Int64s
    numbers: Int64s
    clocks: Int64s
    known: Int64s
    known_clocks: Int64s


@dataclass(frozen=True, slots=True)
class Found:
    """An unordered access: how often, the first operation and its column, and the other's cell.

    It is `late` if columns are freed, which nobody reads any more, without waiting for a store.
    """

    late: bool
    count: int
    operation: int
    column: int
    what: int
    warp: int
    number: int
    site: int


class Cells:
    """The cells of one batch."""

    def __init__(self, ctas: int):
        self.cells: Array = np.zeros((ctas, GROUPS, COLUMNS, 3), np.uint64)
        # by the quarters and lanes of a part
        self._groups: dict[tuple[tuple[int, int], tuple[int, int]], Array] = {}
        # for unordered, and for late accesses: count, operation, column, the other's cell
        self._report: Array = np.zeros((2, 4), np.int64)

    def groups(self, region: Region) -> Array:
        """The groups of sixteen lanes of a region."""
        return self._lanes(region.part)

    def _lanes(self, part: Part) -> Array:
        """The groups of sixteen lanes of a part."""
        found = self._groups.get((part.quarters, part.lanes))
        if found is None:
            found = np.array(_group_numbers(part))
            self._groups[part.quarters, part.lanes] = found
        return found

    def enter(self, region: Region, writes: bool, what: int, site: int, who: Who) -> list[Found]:
        """Enter accesses to a region; returns what is not ordered before them."""
        mine = (
            np.int64(what)
            | who.warps << WARP_SHIFT
            | (who.numbers & NUMBERS) << NUMBER
            | (who.clocks & CLOCKS) << CLOCK
            | np.int64(site) << SITE
        )
        self._report[...] = 0
        note(
            self.cells, who.ctas, self._lanes(region.part), region.first, min(region.last, COLUMNS), writes, what,
            mine, who.warps, who.known, who.known_clocks, self._report,
        )  # fmt: skip
        found = []
        for late, (count, operation, column, cell) in enumerate(self._report.tolist()):
            cell &= (1 << 64) - 1
            theirs = cell & 7, cell >> WARP_SHIFT & 31, cell >> NUMBER & NUMBERS, cell >> SITE
            found.append(Found(bool(late), count, operation, column, *theirs))
        return [one for one in found if one.count]

    def never_written(self, ctas: Array, region: Region) -> int:
        """The first of `ctas` with a word of the region that no operation has begun to write, -1 for none."""
        return int(empty(self.cells, ctas, self._lanes(region.part), region.first, min(region.last, COLUMNS)))


def groups_of(part: Part) -> int:
    """The groups of sixteen lanes of a part, as bits."""
    return sum(1 << number for number in _group_numbers(part))


def _group_numbers(part: Part) -> list[int]:
    halves = range(part.lanes[0] // 16, -(-part.lanes[1] // 16))
    return [2 * quarter + half for quarter in range(*part.quarters) for half in halves]


@kernel
def empty(cells: UInt64s, ctas: Int64s, groups: Int64s, first: int, last: int) -> int:
    """The first position with a cell that has no write."""
    for i in range(ctas.size):
        for group in groups:
            for column in range(first, last):
                if cells[ctas[i], group, column, 0] == 0:
                    return i
    return -1


@part
def _begun_before(cell: Int, warp: Int, clocks: Int64s) -> Flag:
    """Whether a warp knows that the access of a cell has begun."""
    their = (cell >> WARP_SHIFT) & 31
    return their == warp or ((cell >> CLOCK) & CLOCKS) <= clocks[their]


@part
def ordered(cell: Int, what: int, reads: bool, warp: Int, known: Int64s, clocks: Int64s) -> Flag:
    """Whether the access of a cell is complete before, or ordered by the tensor core's own order."""
    other = cell & 7
    their = (cell >> WARP_SHIFT) & 31
    number = (cell >> NUMBER) & NUMBERS
    before = _begun_before(cell, warp, clocks)
    if other in (LOAD, STORE):
        return number <= known[1 if other == LOAD else 2, their] and (what != FREE or before)
    if number <= known[0, their]:
        return True
    if what != MULTIPLY and what != COPY:
        return False
    # the tensor core runs its operations in order, except that a product does not wait for another product to write its
    # A
    if reads and other == MULTIPLY:
        return False
    return before


@kernel
def note(
    cells: UInt64s,
    ctas: Int64s,
    groups: Int64s,
    first: int,
    last: int,
    writes: bool,
    what: int,
    mine: Int64s,
    warps: Int64s,
    known: Int64s,
    known_clocks: Int64s,
    report: Int64s,
) -> None:
    """Enter accesses, and count those that are not ordered after the cells' accesses."""
    for i in range(ctas.size):
        for group in groups:
            for column in range(first, last):
                here = cells[ctas[i], group, column]
                for which in range(3 if writes else 1):
                    cell = np.int64(here[which])
                    if cell == 0 or ordered(cell, what, not writes, warps[i], known[i], known_clocks[i]):
                        continue
                    late = what == FREE and cell & 7 == STORE and _begun_before(cell, warps[i], known_clocks[i])
                    row = report[1 if late else 0]
                    if row[0] == 0:
                        row[1] = i
                        row[2] = column
                        row[3] = cell
                    row[0] += 1
                if writes:
                    here[0] = np.uint64(0 if what == FREE else mine[i])
                    here[1] = np.uint64(0)
                    here[2] = np.uint64(0)
                elif what == LOAD:
                    here[1] = np.uint64(mine[i])
                else:
                    here[2] = np.uint64(mine[i])
