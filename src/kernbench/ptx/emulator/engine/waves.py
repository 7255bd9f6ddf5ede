"""The CTAs of a grid that are not resident yet, taken batch by batch: a grid may be far larger than memory."""

from math import prod

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.engine.schedule import Schedule
from kernbench.ptx.emulator.lanes.clusters import Extent, cluster_members


class Waves:
    """Batches of whole clusters in the schedule's order, at most `most` clusters each.

    Only the `chosen` ones, if given.

    Batches are of equal size as far as possible, so that there is no small rest.
    """

    def __init__(
        self, grid: Extent, cluster: Extent, most: int, schedule: Schedule, chosen: tuple[int, ...] | None = None
    ):
        self._grid, self._cluster, self._schedule = grid, cluster, schedule
        # CTAs of a cluster, clusters of all batches, and clusters taken so far
        self.size = prod(cluster)
        self._chosen = None if chosen is None else np.array(chosen, np.int64)
        self.total = prod(grid) // self.size if chosen is None else len(chosen)
        batches = max(1, -(-self.total // most))
        self.most = max(1, -(-self.total // batches))
        self.given = 0
        self._next: Array = np.zeros(0, np.int64)
        self._draw()

    def _draw(self) -> None:
        if self.given < self.total:
            drawn = self._schedule.wave(self.total, self.given, self.given + self.most)
            self._next = drawn if self._chosen is None else self._chosen[drawn]

    @property
    def left(self) -> int:
        """The number of CTAs that have not been taken."""
        return (self.total - self.given) * self.size

    @property
    def following(self) -> int:
        """The number of CTAs of the next batch."""
        return len(self._next) * self.size if self.left else 0

    def take(self) -> Array:
        """The CTA numbers of the next batch."""
        members = cluster_members(self._grid, self._cluster, self._next)
        self.given += len(self._next)
        self._draw()
        return members.reshape(-1)

    def cancel(self) -> int:
        """The number of the first CTA of the next cluster, which is taken out; -1 if none is left."""
        if not self.left:
            return -1
        cancelled, self._next = self._next[:1], self._next[1:]
        self.given += 1
        if not len(self._next):
            self._draw()
        return int(cluster_members(self._grid, self._cluster, cancelled).reshape(-1)[0])

    @property
    def sizes(self) -> list[int]:
        """The sizes in clusters of the batches that have not been taken."""
        return [min(self.most, self.total - first) for first in range(self.given, self.total, self.most)]

    def piece(self, first: int, count: int) -> Array:
        """The CTA numbers of `count` clusters from `first` on, for schedules that do not draw at random."""
        drawn = self._schedule.wave(self.total, first, first + count)
        return cluster_members(
            self._grid, self._cluster, drawn if self._chosen is None else self._chosen[drawn]
        ).reshape(-1)

    def finish(self) -> None:
        """All CTAs have been run."""
        self.given = self.total
