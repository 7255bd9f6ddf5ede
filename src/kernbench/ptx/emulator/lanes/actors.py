"""Actors: everything in a CTA that accesses memory in an order of its own, and the columns of its vector clock.

A warp's knowledge is a row of clocks with one column an actor. The actors are: each warp; each warp as the async proxy
sees it (up to its last proxy fence), and as one of its lanes has published it for all; the bulk groups, wgmma groups
and tensor-core operations that each warp began, its loads and stores of tensor memory; and each mbarrier of the CTA,
on whose phases copies complete.
"""

from dataclasses import dataclass
from functools import cache
from typing import TypeVar

import numpy as np

from kernbench.ptx.emulator.lanes.arrays import Int32s, Int64s

# mbarriers of a CTA whose copies are followed; those beyond share the last column
BARRIERS = 64
_KINDS = ("proxied", "bulk", "wgmma", "tensor", "loaded", "stored", "copied", "lane", "proxied", "along")


# a warp of a CTA or several, and the same of columns
Column = TypeVar("Column", int, Int64s)


@dataclass(frozen=True, slots=True)
class Actors:
    """The columns of a CTA with `warps` warps; without asynchronous instructions there are warps only."""

    warps: int
    asynchronous: bool

    @property
    def count(self) -> int:
        """Columns in all."""
        return 11 * self.warps + BARRIERS if self.asynchronous else self.warps

    def proxied(self, warp: int, space: str = "shared") -> int:
        """What the async proxy may see of a warp's ordinary accesses to shared or global memory."""
        return (9 if space == "global" else 1) * self.warps + warp

    def bulk(self, warp: Column) -> Column:
        """What bulk copies in the groups of a warp's threads read; the clock is the group's number plus one."""
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
        """What bulk copies in the groups of a warp's threads write; the clock is the group's number plus one."""
        return 7 * self.warps + warp

    def lane(self, warp: int) -> int:
        """What is known of one lane of a warp beyond the whole warp: its clock times 32, plus the lane's number.

        In the warp's own row: the clock at which its lanes last met, up to which each knows of the others.
        """
        return 8 * self.warps + warp

    def along(self, warp: int) -> int:
        """What the lanes of a warp did in instructions that one ran along which arrived on an mbarrier afterwards."""
        return 10 * self.warps + warp

    def barrier(self, number: int) -> int:
        """Copies that complete on the CTA's mbarrier of this number; the clock is the phase plus one."""
        return 11 * self.warps + min(number, BARRIERS - 1)

    def kind(self, column: int) -> str:
        """What a column stands for: "warp", one of the kinds beside it, or "barrier"."""
        if column < self.warps:
            return "warp"
        part = column // self.warps
        return _KINDS[part - 1] if part <= len(_KINDS) else "barrier"

    def works(self, column: int) -> bool:
        """Whether a column stands for work beside the threads, not for what threads did or have seen."""
        return self.kind(column) in ("bulk", "wgmma", "tensor", "copied", "barrier")

    def working(self) -> Int32s:
        """The same of each column, as loops take it; nobody may change it."""
        return _working(self)


@cache
def _working(actors: Actors) -> Int32s:
    """There are as many kinds of actors as sizes of blocks."""
    found: Int32s = np.array([actors.works(column) for column in range(actors.count)], np.int32)
    found.flags.writeable = False
    return found
