"""Stores behind an atomic that has read a release and acquires nothing: on every GPU the atomic is performed before.

A block counts itself by an atomic that releases what it did; the last one, as the atomic returns, clears what all have
used. By the letter the atomic must acquire as well. But the store depends on what the atomic returned
(`analysis.returned`), and no GPU stores before it knows that it will; what the others did is visible to all before
their count is. Loads are another matter: they may be served by a cache from before the atomic.
"""

from typing import Protocol

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.checks.happens_before.patterns import MemoryOrder
from kernbench.ptx.emulator.lanes.arrays import Bools
from kernbench.ptx.emulator.memory.cells import decode
from kernbench.ptx.emulator.program.program import Program, Site
from kernbench.ptx.emulator.units.batch import Batch

RETURNED = (
    "whether or what is stored depends on an atomic that has read what was released after that access, and no GPU so "
    "far stores before such an atomic has returned; by the letter it must acquire"
)
ACQUIRE = "give the atomic .acq_rel instead of .release, or put a fence (fence.acq_rel, __threadfence) behind it"


class Checks(Protocol):
    """What is needed from the checks of a batch."""

    batch: Batch

    @property
    def patterns(self) -> MemoryOrder:
        """Releases and acquires through memory."""


def stored_after(checks: Checks, program: Program, site: Site, lanes: Array, races: Array) -> Bools:
    """For each race of a weak store to global memory, a row of suspects: whether an atomic has come between the two."""
    found = np.zeros(len(races), bool)
    if site.effects.access != "store" or not (program.returned or program.decided.get(site.number)):
        return found
    actors, decided = checks.batch.launch.actors, program.decided.get(site.number, frozenset())
    for i, (position, word, mask, *_) in enumerate(races.tolist()):
        cell = word & (1 << 64) - 1
        _, number, clock = decode(cell)
        if actors.kind(number % actors.count) == "warp":
            missed = (number, clock, mask)
            found[i] = checks.patterns.returned(int(lanes[position]), missed, decided, program.returned)
    return found
