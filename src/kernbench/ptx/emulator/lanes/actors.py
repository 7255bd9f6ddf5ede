"""Actors: everything in a CTA that accesses memory in an order of its own, and its columns in vector clocks.

A warp's vector clock has one column for each actor of its CTA:

- each warp;
- each warp as the async proxy sees it (up to its last proxy fence), and as one lane published it for all lanes;
- the bulk groups, wgmma groups and tensor-core operations that each warp began, and its accesses to tensor memory;
- each mbarrier of the CTA, for the copies that complete on its phases.
"""

from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import numpy as np

from kernbench.ptx.emulator.lanes.arrays import Int32s, Int64s

# mbarriers of a CTA with a column of their own; all later ones share the last column
BARRIERS = 64
_KINDS = ("proxied", "bulk", "wgmma", "tensor", "loaded", "stored", "copied", "lane", "proxied", "along")


# one warp of a CTA or an array of them; the same type of columns
Column = TypeVar("Column", int, Int64s)


@dataclass(frozen=True, slots=True)
class Actors:
    """The columns of a CTA with `warps` warps.

    A program without asynchronous instructions has only the warps' columns.
    """

    warps: int
    asynchronous: bool

    @property
    def count(self) -> int:
        """The number of columns."""
        return 11 * self.warps + BARRIERS if self.asynchronous else self.warps

    def proxied(self, warp: int, space: str = "shared") -> int:
        """The clock up to which the async proxy sees a warp's ordinary accesses to shared or global memory."""
        return (9 if space == "global" else 1) * self.warps + warp

    def bulk(self, warp: Column) -> Column:
        """Reads by bulk copies in the bulk groups of a warp's threads; the clock is the group's number plus one."""
        return 2 * self.warps + warp

    def wgmma(self, warp: int) -> int:
        """wgmma operations that a warp takes part in; the clock is the group's number plus one."""
        return 3 * self.warps + warp

    def tensor(self, warp: int) -> int:
        """tcgen05 operations that a warp began; the clock counts them."""
        return 4 * self.warps + warp

    def loaded(self, warp: int) -> int:
        """Loads from tensor memory that a warp has waited for and fenced; the clock counts them."""
        return 5 * self.warps + warp

    def stored(self, warp: int) -> int:
        """Stores to tensor memory that a warp has waited for and fenced; the clock counts them."""
        return 6 * self.warps + warp

    def copied(self, warp: Column) -> Column:
        """Writes by bulk copies in the bulk groups of a warp's threads; the clock is the group's number plus one."""
        return 7 * self.warps + warp

    def lane(self, warp: int) -> int:
        """The clock of one lane of a warp beyond the whole warp's: the clock times 32, plus the lane's number.

        In the warp's own row: the clock at which its lanes last met, up to which each knows the others.
        """
        return 8 * self.warps + warp

    def along(self, warp: int) -> int:
        """The warp's clock as an mbarrier arrival published it for lanes that ran along (see `released_along`)."""
        return 10 * self.warps + warp

    def barrier(self, number: int) -> int:
        """Copies that complete on the CTA's mbarrier of this number; the clock is the phase plus one."""
        return 11 * self.warps + min(number, BARRIERS - 1)

    def kind(self, column: int) -> str:
        """The kind of a column: "warp", one of `_KINDS`, or "barrier"."""
        if column < self.warps:
            return "warp"
        part = column // self.warps
        return _KINDS[part - 1] if part <= len(_KINDS) else "barrier"

    def works(self, column: int) -> bool:
        """Whether a column counts asynchronous work, not accesses or observations of threads."""
        return self.kind(column) in ("bulk", "wgmma", "tensor", "copied", "barrier")

    def working(self) -> Int32s:
        """`works` for each column, as a read-only array of ones and zeros for compiled loops."""
        return _working(self)


@cache
def _working(actors: Actors) -> Int32s:
    """Cached: there are as many values as block sizes."""
    found: Int32s = np.array([actors.works(column) for column in range(actors.count)], np.int32)
    found.flags.writeable = False
    return found
