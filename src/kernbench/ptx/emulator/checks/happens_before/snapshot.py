"""What a warp and its lanes know at one time, and what of it some of them release."""

from dataclasses import dataclass

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.checks.happens_before.knowledge import Knowledge, bits
from kernbench.ptx.emulator.lanes.lanes import WARP


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """All that a warp and its lanes know at one time, to be released later by some of them.

    A fence releases by a write that comes after it, and what is released is what was known at the fence; hence a copy.
    """

    first: int
    inside: int
    own: int
    row: Array
    # its lanes, as of `Clocks.apart`
    lanes: int
    beyond: Knowledge
    private: dict[int, Knowledge]
    peers: Array | None
    actors: int
    # where what is known of single lanes begins, or -1
    lane: int

    def released_by(self, mask: int) -> Knowledge:
        """What the lanes of `mask` know together: of the others of their warp, only what they did before they met."""
        number, whole = self.first + self.inside, not self.lanes & ~mask
        row, lanes = self.row, self.beyond.lanes
        if whole:
            # all lanes release: the warp's own clock speaks for each of them
            row = row.copy()
            row[self.inside] = self.own
        else:
            # `row` has the clock at which the warp met; beyond that only the releasing lanes are known, by name, and
            # one of them in the column that compiled loops read
            if self.lane >= 0:
                row = row.copy()
                row[self.lane + self.inside] = self.own * WARP + (mask & -mask).bit_length() - 1
            lanes = {**lanes, **self._among(number, mask)}
        published = Knowledge({**self.beyond.rows, self.first: row}, self.beyond.dense, lanes)
        # by lane, as they were put there; few lanes know something for themselves, and all 32 may release
        for lane, known in self.private.items():
            if mask >> lane & 1:
                published = published.join(known, self.actors)
        return published

    def _among(self, number: int, mask: int) -> dict[int, int]:
        """What lanes know of single lanes of their warp."""
        found = {}
        if self.peers is not None:
            known = self.peers[list(bits(mask))].max(axis=0)
            found = {number * WARP + lane: int(known[lane]) for lane in np.flatnonzero(known).tolist()}
        for lane in bits(mask):
            found[number * WARP + lane] = self.own
        return found
