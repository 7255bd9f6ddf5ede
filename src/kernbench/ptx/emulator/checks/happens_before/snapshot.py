"""A copy of what a warp and its lanes know, and what some of the lanes release of it."""

from dataclasses import dataclass

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.checks.happens_before.knowledge import Knowledge, bits
from kernbench.ptx.emulator.lanes.lanes import WARP


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """What a warp and its lanes know at one time, to be released later by some of them.

    A fence releases through a later write, but the clocks of the fence count; hence a copy.
    """

    first: int
    inside: int
    own: int
    row: Array
    # the lanes that the warp's clock counts for, as of `Clocks.apart`
    lanes: int
    beyond: Knowledge
    private: dict[int, Knowledge]
    peers: Array | None
    actors: int
    # the first column of the clocks of single lanes, or -1
    lane: int

    def released_by(self, mask: int) -> Knowledge:
        """What the lanes of `mask` release together; other lanes of their warp count up to where the warp last met."""
        number, whole = self.first + self.inside, not self.lanes & ~mask
        row, lanes = self.row, self.beyond.lanes
        if whole:
            # all lanes release: the warp's own clock counts for each of them
            row = row.copy()
            row[self.inside] = self.own
        else:
            # `row` has the clock at which the warp last met. After that clock only the releasing lanes are released, by
            # name, and one of them in the column that compiled loops read.
            if self.lane >= 0:
                row = row.copy()
                row[self.lane + self.inside] = self.own * WARP + (mask & -mask).bit_length() - 1
            lanes = {**lanes, **self._among(number, mask)}
        published = Knowledge({**self.beyond.rows, self.first: row}, self.beyond.dense, lanes)
        # in the order of lanes; few lanes know more than their warp, though all 32 may release
        for lane, known in self.private.items():
            if mask >> lane & 1:
                published = published.join(known, self.actors)
        return published

    def _among(self, number: int, mask: int) -> dict[int, int]:
        """Clocks of single lanes of the own warp: those that the lanes know, and their own."""
        found = {}
        if self.peers is not None:
            known = self.peers[list(bits(mask))].max(axis=0)
            found = {number * WARP + lane: int(known[lane]) for lane in np.flatnonzero(known).tolist()}
        for lane in bits(mask):
            found[number * WARP + lane] = self.own
        return found
