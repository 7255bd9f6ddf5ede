"""Waits for phases of mbarriers by parity that may mistake one phase for another, and waits that come late.

A parity distinguishes two phases: a wait for phase p also passes during phase p - 1, unless that one is over by then.
So the waiting thread must know that it is over: by its own wait for p - 1, by the wait of a thread it is ordered after,
or because it knows every arrival that completed p - 1. Pipelines that begin by signalling their stages as free, and
fill the first ones without a wait, rely on the last case.

Who waits for a phase after an arrival for the next one may be too late: the next one may be over by then, too. A phase
that nobody waits for, nor for a later one, does no harm.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.barriers.mbarrier_kernels import (
    LISTED,
    PHASE,
    START,
    TESTED,
    UNSEEN,
    UNSEEN_LANE,
    UNSEEN_SITE,
    skipped,
)
from kernbench.ptx.emulator.checks.asynchronous.hub import BatchFindings
from kernbench.ptx.emulator.checks.findings.reporter import Reporter, thread_name
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.emulator.units.batch import Batch

# the barrier, the lane that arrived, and the site
Complain = Callable[[int, int, Site], None]


class _Comers(NamedTuple):
    """Lanes of a warp that arrived, and their clock, or negative a number of operations of the tensor core."""

    warp: int
    mask: int
    known: int


class Phases:
    """The phases of one batch's barriers; `unwaited` reports a phase that was waited for late, or not at all."""

    def __init__(
        self, batch: Batch, checks: BatchFindings, reporter: Reporter, name: Callable[[int], str], unwaited: Complain
    ):
        self._batch, self._clocks, self._reporter = batch, checks.clocks, reporter
        self._name, self._unwaited = name, unwaited

    def passed(self, slots: Array, lanes: Array, passed: Array, site: Site) -> None:
        """Lanes pass a wait for a parity, before acquiring from it: they must know that the previous phase is over."""
        barriers = self._batch.mbarriers
        known = (self._batch.ctas, barriers.homes, barriers.columns, barriers.state, self._clocks.clocks)
        count, first, unseen = skipped(slots, lanes, passed, *known)
        if unseen:
            self._seen_now(slots, lanes, passed)
        if count:
            unsure = passed & ~self._know_phase(slots, lanes)
            count, first, _ = skipped(slots, lanes, unsure, *known)
        if count:
            unsure &= ~self._know_the_arrivals(slots, lanes, unsure)
            count, first, _ = skipped(slots, lanes, unsure, *known)
        if count:
            slot = int(slots[first])
            phase = int(barriers.state[slot, PHASE] - barriers.state[slot, START]) - 1
            message = (
                f"{thread_name(self._batch, int(lanes[first]))} waits for phase {phase} of {self._name(slot)} by its "
                f"parity, and nothing says that phase {phase - 1} is over by then: the wait would pass during it, too"
            )
            hint = (
                "a parity distinguishes two phases: let a warp wait for every phase of a barrier, or order the wait "
                "after another warp's wait for the phase before"
            )
            self._reporter.add("mbarrier-phase", site, message, hint, count, about="parity")

    def stuck(self) -> None:
        """Nothing continues: report phases that no thread waited for, of barriers that threads wait for."""
        state = self._batch.mbarriers.state[: self._batch.mbarriers.count]
        for slot in np.flatnonzero((state[:, UNSEEN] > 0) & (state[:, TESTED] > 0)).tolist():
            self._late(slot)

    def _seen_now(self, slots: Array, lanes: Array, passed: Array) -> None:
        """Handle waits for a later phase than an unwaited one: fine if the waiting lane knew that it was over."""
        state = self._batch.mbarriers.state
        later = passed & (slots >= 0)
        later[later] = state[slots[later], UNSEEN] > 0
        known = self._know_the_arrivals(slots, lanes, later)
        for i in np.flatnonzero(later).tolist():
            slot = int(slots[i])
            if known[i] and state[slot, PHASE] == state[slot, UNSEEN] + 1:
                state[slot, UNSEEN] = 0
            elif state[slot, UNSEEN]:
                self._late(slot)

    def _late(self, slot: int) -> None:
        """A thread waits after another one arrived for the next phase, and does not know that this one is over."""
        row = self._batch.mbarriers.state[slot]
        self._unwaited(slot, int(row[UNSEEN_LANE]), self._reporter.program.sites[int(row[UNSEEN_SITE])])
        row[UNSEEN] = 0

    def _know_phase(self, slots: Array, lanes: Array) -> Array:
        """Which lanes know for themselves that the previous phase is over."""
        barriers, clocks = self._batch.mbarriers, self._clocks
        special = clocks.special[lanes] & (slots >= 0)
        known: Array = special & (barriers.homes[slots] == lanes // WARP % self._batch.ctas)
        here = np.flatnonzero(known)
        phases = barriers.state[slots[here], PHASE] - 1
        known[here] = clocks.near.alone(lanes[here], barriers.columns[slots[here]]) >= phases
        for i in np.flatnonzero(special & ~known).tolist():
            slot = int(slots[i])
            number = int(clocks.first_numbers[barriers.homes[slot]] + barriers.columns[slot])
            known[i] = not clocks.unknown(int(lanes[i]), number, int(barriers.state[slot, PHASE]) - 1, 1)
        return known

    def _know_the_arrivals(self, slots: Array, lanes: Array, chosen: Array) -> Array:
        """Which lanes know all arrivals that completed the previous phase, and so that it is over."""
        known = np.zeros(len(lanes), bool)
        listed: dict[int, list[_Comers]] = {}
        for i in np.flatnonzero(chosen & (slots >= 0)).tolist():
            slot, lane = int(slots[i]), int(lanes[i])
            if slot not in listed:
                listed[slot] = self._listed(slot)
            comers = listed[slot]
            known[i] = bool(comers) and all(self._knows(lane, one) for one in comers)
        return known

    def _listed(self, slot: int) -> list[_Comers]:
        """The arrivals that completed the phase before the last one; none if they are not all listed."""
        barriers = self._batch.mbarriers
        phase = int(barriers.state[slot, PHASE]) - 2
        if not barriers.state[slot, LISTED + (phase & 1)]:
            return []
        rows, home, found = barriers.comers[slot, phase & 1], int(barriers.homes[slot]), []
        for inside in np.flatnonzero(rows[:, WARP] == phase + 1).tolist():
            row = rows[inside, :WARP]
            for number in np.unique(row[row != 0]).tolist():
                mask = sum(1 << lane for lane in np.flatnonzero(row == number).tolist())
                found.append(_Comers(inside * self._batch.ctas + home, mask, number))
        return found

    def _knows(self, lane: int, those: _Comers) -> bool:
        """Whether a lane knows arrivals."""
        clocks, ctas, warp, by, clock = self._clocks, self._batch.ctas, lane // WARP, those.warp, those.known
        if clock < 0:
            return self._know_the_signal(lane, by, -clock)
        if by == warp:
            met = clocks.met[warp] >= clock
        else:
            met = by % ctas == warp % ctas and clocks.clocks[warp % ctas, warp // ctas, by // ctas] >= clock
        return bool(met or not clocks.unknown(lane, int(clocks.numbers[by]), clock, those.mask))

    def _know_the_signal(self, lane: int, by: int, number: int) -> bool:
        """Whether a lane knows that so many operations of the tensor core, begun by a warp, are complete."""
        clocks, ctas = self._clocks, self._batch.ctas
        warp, column = lane // WARP, self._batch.launch.actors.tensor(0) + by // ctas
        if by % ctas == warp % ctas and clocks.clocks[warp % ctas, warp // ctas, column] >= number:
            return True
        return not clocks.unknown(lane, int(clocks.first_numbers[by % ctas]) + column, number, 1)
