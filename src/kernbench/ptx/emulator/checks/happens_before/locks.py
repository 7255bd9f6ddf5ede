"""Locks: what a thread accesses behind its own release of a lock is not protected by it, though it looks so.

A thread takes a lock by an atomic whose result it uses, and lets it go by a store, or an atomic whose result it does
not use, to the same address. If a second thread takes the lock next, and both access the same data, the one of them
that came behind its own release is the culprit, whichever of the two accesses is found to race. Records are kept of the
last few locks of each warp.
"""

from dataclasses import dataclass, field
from itertools import islice

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.lanes import WARP, group
from kernbench.ptx.emulator.memory.cells import CLOCK_LIMIT
from kernbench.ptx.emulator.program.access_order import Order
from kernbench.ptx.emulator.program.hub import BatchHub
from kernbench.ptx.emulator.program.program import Program, Site

# for how many locks and releases of each warp records are kept
_KEPT = 8
_NOBODY: Array = np.zeros(0, np.int64)


@dataclass(slots=True, eq=False)
class LetGo:
    """Lanes let go of the lock at an address: their warp's clock then, and when it next tried to take it."""

    address: int
    mask: int
    clock: int
    turn: int
    site: Site
    until: int = CLOCK_LIMIT


@dataclass(eq=False)
class LockRecord:
    """The locks of one launch: when warps, by their numbers in the grid, last tried to take each, and let it go."""

    turn: int = 0
    taken: dict[int, dict[int, int]] = field(default_factory=dict)
    let_go: dict[int, list[LetGo]] = field(default_factory=dict)


def taking_sites(program: Program) -> frozenset[int]:
    """The atomics whose result is used, in programs that acquire or release: such a one may take a lock."""
    sites = [site for block in program.blocks for site in block.sites] if program.hands_over else []
    return frozenset(site.number for site in sites if site.effects.updates and site.number not in program.blind)


class Locks:
    """The locks that one batch takes and lets go."""

    def __init__(self, batch: BatchHub, numbers: Array, clocks: Array, record: LockRecord):
        self._batch, self._numbers, self._clocks, self._record = batch, numbers, clocks, record
        self._sites = taking_sites(batch.program)

    def _clock(self, warp: int) -> int:
        inside = warp // self._batch.ctas
        return int(self._clocks[warp % self._batch.ctas, inside, inside])

    def access(self, lanes: Array, addresses: Array, order: Order, site: Site) -> Array:
        """A strong access of lanes begins; returns the warps that let go of a lock, which then begin a new epoch."""
        takes = site.number in self._sites
        if not (takes or (order.writes and self._record.taken)):
            return _NOBODY
        warps = []
        for warp, address, mask in group(lanes, addresses):
            number, address = int(self._numbers[warp]), int(address)
            self._record.turn += 1
            if takes:
                self._take(warp, number, address)
            elif address in self._record.taken.get(number, ()):
                mine = self._record.let_go.setdefault(number, [])
                mine.append(LetGo(address, mask, self._clock(warp), self._record.turn, site))
                del mine[:-_KEPT]
                warps.append(warp)
        return np.array(sorted(set(warps)), np.int64)

    def _take(self, warp: int, number: int, address: int) -> None:
        """A warp tries to take a lock: what it accesses from now on is not behind its last release."""
        taken = self._record.taken.setdefault(number, {})
        taken.pop(address, None)
        taken[address] = self._record.turn
        for old in list(islice(taken, max(0, len(taken) - _KEPT))):
            del taken[old]
        for one in self._record.let_go.get(number, ()):
            if one.address == address and one.until == CLOCK_LIMIT:
                one.until = self._clock(warp)

    def behind(self, lane: int, number: int, clock: int, mask: int) -> tuple[LetGo | None, bool]:
        """The release of a lock that one of two racing accesses came behind, and whether it is that of `lane`, now.

        The other one is of warp `number` at `clock`, and the thread that it races with has taken the lock since.
        """
        mine = int(self._numbers[lane // WARP])
        found = self._behind(number, clock, mask, mine)
        if found is not None:
            return found, False
        return self._behind(mine, self._clock(lane // WARP), 1 << lane % WARP, number), True

    def _behind(self, number: int, clock: int, mask: int, other: int) -> LetGo | None:
        taken = self._record.taken.get(other, {})
        for one in reversed(self._record.let_go.get(number, ())):
            after = one.clock < clock <= one.until and one.mask & mask
            if after and taken.get(one.address, 0) > one.turn:
                return one
        return None
