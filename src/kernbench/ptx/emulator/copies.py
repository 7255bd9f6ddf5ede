"""Asynchronous copies of threads (cp.async): what is copied arrives in shared memory when its group is waited for."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes import Mask
from kernbench.ptx.emulator.program import Site


@dataclass(eq=False)
class Copy:
    """Copies that one instruction began: for each lane its destination, its words and the group it belongs to."""

    lanes: Array
    addresses: Array
    words: Array
    groups: Array
    rows: Array
    site: Site

    def part(self, chosen: Mask) -> "Copy":
        """The copies of some lanes."""
        return Copy(
            self.lanes[chosen], self.addresses[chosen], self.words[:, chosen], self.groups[chosen], self.rows, self.site
        )


class Copies:
    """The copies in flight of one batch."""

    def __init__(self, batch: Any):
        self._batch = batch
        self._pending: list[Copy] = []
        # groups each lane has committed
        self._committed: Array = np.zeros(batch.lanes, np.int64)

    def begin(self, lanes: Array, addresses: Array, rows: Array, site: Site) -> None:
        """Lanes begin to copy the words that lie in their registers `rows` to shared addresses."""
        registers = self._batch.banks["uint32"]
        words = registers[rows[:, None], lanes[None, :]]
        self._batch.port.announce(addresses, lanes, 4 * len(rows), None, site)
        self._pending.append(Copy(lanes, addresses, words, self._committed[lanes], rows, site))

    def commit(self, lanes: Array) -> None:
        """Close the lanes' current group."""
        self._committed[lanes] += 1

    def wait(self, lanes: Array, keep: int | None) -> None:
        """Complete all groups of lanes but the last `keep`; everything, committed or not, for None."""
        limit = np.full(self._batch.lanes, -1, np.int64)
        limit[lanes] = np.iinfo(np.int64).max if keep is None else self._committed[lanes] - keep
        staying = []
        for copy in self._pending:
            done = copy.groups < limit[copy.lanes]
            if done.any():
                self._complete(copy if done.all() else copy.part(done))
            if not done.all():
                staying.append(copy.part(~done) if done.any() else copy)
        self._pending = staying

    def _complete(self, copy: Copy) -> None:
        registers = self._batch.banks["uint32"]
        registers[copy.rows[:, None], copy.lanes[None, :]] = copy.words
        self._batch.port.store("shared", copy.addresses, copy.lanes, np.uint64(0), "uint32", copy.rows, None, copy.site)
