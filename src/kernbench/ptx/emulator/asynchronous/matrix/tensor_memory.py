"""Tensor memory of a batch: 128 lanes of 512 words for each CTA, and the allocation of its columns."""

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.memory.pages.allocation import POOL
from kernbench.ptx.emulator.program.hub import BatchHub
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.numerics.matrix.instruction import Part

LANES = 128
COLUMNS = 512
_SMALLEST = 32
_POISON = np.uint32(0xFFFFFFFF)


class TensorMemory:
    """The words, by CTA, quarter of 32 lanes, lane in it and column."""

    def __init__(self, batch: BatchHub):
        self._batch = batch
        self.words: Array = POOL.full((batch.ctas, 4, 32, COLUMNS), 0xFFFFFFFF, np.uint32)
        # the allocation that has each column, 0 for none
        self.owner: Array = np.zeros((batch.ctas, COLUMNS), np.int32)
        self.relinquished: Array = np.zeros(batch.ctas, bool)
        # for each CTA its allocations: number -> (first column, columns, site)
        self.allocations: list[dict[int, tuple[int, int, Site]]] = [{} for _ in range(batch.ctas)]
        self._number = 0
        # whether anything may have been written; until then, all words are poison
        self.touched = False

    def allocate(self, cta: int, columns: int, site: Site) -> int:
        """The first column of a new allocation, -1 if none is free."""
        owner = self.owner[cta]
        for first in range(0, COLUMNS - columns + 1, max(_SMALLEST, 1)):
            if not owner[first : first + columns].any():
                self._number += 1
                owner[first : first + columns] = self._number
                self.allocations[cta][self._number] = (first, columns, site)
                if self.touched:
                    self.words[cta, :, :, first : first + columns] = _POISON
                return first
        return -1

    def free(self, cta: int, first: int, columns: int) -> bool:
        """End an allocation; False if there is none of exactly these columns."""
        number = int(self.owner[cta, first % COLUMNS])
        found = self.allocations[cta].get(number)
        if found is None or found[:2] != (first, columns):
            return False
        del self.allocations[cta][number]
        self.owner[cta, first : first + columns] = 0
        return True

    def chosen(self, ctas: Array) -> Array | slice:
        """CTAs as an index: a slice if consecutive, so that reading makes no copy."""
        first, count = int(ctas[0]), len(ctas)
        if count == 1 or (int(ctas[-1]) == first + count - 1 and (ctas == np.arange(first, first + count)).all()):
            return slice(first, first + count)
        return ctas

    def read(self, ctas: Array, part: Part, column: int, count: int) -> Array:
        """Words of a part's lanes: [ctas, rows, columns]; columns beyond the last read as poison."""
        view = self.words[self.chosen(ctas), slice(*part.quarters), slice(*part.lanes), column : column + count]
        found = view.reshape(len(ctas), part.rows, view.shape[3])
        if found.shape[2] < count:
            found = np.concatenate(
                [found, np.full((len(ctas), part.rows, count - found.shape[2]), _POISON, np.uint32)], axis=2
            )
        return found

    def write(self, ctas: Array, part: Part, column: int, values: Array, lanes: Array | None = None) -> None:
        """Write words [ctas, rows, columns] of a part's lanes, those of `lanes` (a mask over 128) only."""
        self.touched = True
        count = min(values.shape[2], COLUMNS - column)
        values = values[:, :, : max(count, 0)]
        quarters, rows = slice(*part.quarters), slice(*part.lanes)
        shape = (len(ctas), part.quarters[1] - part.quarters[0], part.lanes[1] - part.lanes[0], values.shape[2])
        chosen, columns = self.chosen(ctas), slice(column, column + values.shape[2])
        values = values.reshape(shape)
        if lanes is not None:
            kept = lanes.reshape(-1, 4, 32)[:, quarters, rows, None]
            values = np.where(kept, values, self.words[chosen, quarters, rows, columns])
        self.words[chosen, quarters, rows, columns] = values

    def add(self, ctas: Array, part: Part, column: int, sums: Array) -> bool:
        """Add float32 sums [ctas, rows, columns] to words of a part's lanes; False if some do not exist."""
        chosen, columns = self.chosen(ctas), slice(column, column + sums.shape[2])
        if columns.stop > COLUMNS or not isinstance(chosen, slice):
            return False
        self.touched = True
        there = self.words.view(np.float32)[chosen, slice(*part.quarters), slice(*part.lanes), columns]
        # of two NaNs, the processor returns the first
        np.add(sums.reshape(there.shape), there, out=there)
        return True
