"""Identical bulk stores by several warps: the same bytes to the same addresses, as by elect.sync in every warp.

They are unordered writes, and a race by the letter. No GPU can show it, since all of them write the same bytes.
"""

from zlib import crc32

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.arrays import Int64s
from kernbench.ptx.emulator.lanes.compiled import kernel
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.memory.cells import NUMBER_MASK, NUMBER_SHIFT
from kernbench.ptx.emulator.memory.shadow import Ranges
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.emulator.units.batch import Batch

# name suffixes of stores
_IN_GROUPS = (".bulk_group", ".bulk_group.L2::cache_hint")
# maximal remembered stores; identical ones follow each other closely
_MOST = 1 << 16


class SameCopies:
    """The stores of one batch: a checksum of the bytes that each writes, as of its begin."""

    def __init__(self, batch: Batch, first_numbers: Array) -> None:
        self._batch, self._first_numbers = batch, first_numbers
        # the reads of the last store: its site, and the checksum of each operation
        self._read: tuple[int, dict[int, int]] = (-1, {})
        self._starts: dict[int, int] = {}
        # by site, warp and first written byte: the last checksum
        self._brought: dict[tuple[int, int, int], int] = {}

    def access(self, space: str, writes: bool, ranges: Ranges, lanes: Array, site: Site) -> None:
        """Operations access ranges; a store's reads from shared memory come first, then its writes."""
        if space == "shared" and not writes:
            stores = site.name.startswith("cp.async.bulk.") and site.name.endswith(_IN_GROUPS)
            self._read = site.number, self._checksums(ranges) if stores else {}
        elif space == "global" and writes:
            found: Array = np.empty((2, len(ranges.owners)), np.int64)
            count = _find_starts(ranges.owners, ranges.starts, found)
            # of an operation with several ranges the first counts
            self._starts = dict(zip(*found[:, :count][:, ::-1].tolist(), strict=True))
            what = self._read[1] if self._read[0] == site.number else {}
            if len(self._brought) > _MOST:
                self._brought.clear()
            for operation in what.keys() & self._starts.keys():
                warp = int(lanes[operation]) // WARP
                self._brought[site.number, warp, self._starts[operation]] = what[operation]

    def _checksums(self, ranges: Ranges) -> dict[int, int]:
        """Checksums of the bytes that each operation reads."""
        memory: Array = self._batch.port.space("shared").words[1]
        found: dict[int, int] = {}
        each = zip(ranges.owners.tolist(), ranges.starts.tolist(), ranges.lengths.tolist(), strict=True)
        for operation, start, length in each:
            found[operation] = crc32(memory[start : start + length].data, found.get(operation, 0))
        return found

    def alike(self, lanes: Array, operations: Array, cells: Array, sites: Array, site: Site) -> Array:
        """Which operations write the same bytes as the actor of a cell did, at the same site."""
        actors, ctas = self._batch.launch.actors, self._batch.ctas
        numbers = (cells.astype(np.uint64) >> np.uint64(NUMBER_SHIFT) & np.uint64(NUMBER_MASK)).astype(np.int64) - 1
        columns, warps = numbers % actors.count - actors.copied(0), lanes[operations] // WARP
        near = numbers - numbers % actors.count == self._first_numbers[warps % ctas]
        near &= (columns >= 0) & (columns < self._batch.warps_per_cta) & (sites == site.number)
        others = columns * ctas + warps % ctas
        found: Array = np.zeros(len(operations), bool)
        for i in np.flatnonzero(near).tolist():
            start = self._starts.get(int(operations[i]), -1)
            mine = self._brought.get((site.number, int(warps[i]), start))
            found[i] = mine is not None and mine == self._brought.get((site.number, int(others[i]), start))
        return found


@kernel
def _find_starts(owners: Int64s, starts: Int64s, found: Int64s) -> int:
    """Operations, and the start of the first of their consecutive ranges; returns their number."""
    count = 0
    for i in range(owners.size):
        if i == 0 or owners[i] != owners[i - 1]:
            found[0, count], found[1, count] = owners[i], starts[i]
            count += 1
    return count
