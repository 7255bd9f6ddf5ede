"""Phases of mbarriers that no thread waited for, and waits by parity that may mistake one phase for another.

A parity distinguishes two phases: a wait for phase p also passes during phase p - 1, unless that one is over by then.
So the waiting thread must know that it is over: by its own wait for p - 1, by the wait of a thread it is ordered after,
or because it knows the single arrival that completed p - 1. Pipelines that begin by signalling their stages as free,
and fill the first ones without a wait, rely on the last case.
"""

from collections.abc import Callable

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.barriers.mbarrier_kernels import (
    ALONE,
    ALONE_CLOCK,
    PHASE,
    START,
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


class Phases:
    """The phases of one batch's barriers; `unwaited` reports a phase that no thread waited for."""

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
            unsure &= ~self._know_the_arrival(slots, lanes, unsure)
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

    def ended(self) -> None:
        """Nothing continues: report phases that no thread waited for although later ones followed."""
        barriers = self._batch.mbarriers
        for slot in np.flatnonzero(barriers.state[: barriers.count, UNSEEN]).tolist():
            self.forgotten(slot)

    def _seen_now(self, slots: Array, lanes: Array, passed: Array) -> None:
        """Handle waits for a later phase than an unwaited one: fine if the waiting lane knew that it was over."""
        state = self._batch.mbarriers.state
        later = passed & (slots >= 0)
        later[later] = state[slots[later], UNSEEN] > 0
        known = self._know_the_arrival(slots, lanes, later)
        for i in np.flatnonzero(later).tolist():
            slot = int(slots[i])
            if known[i] and state[slot, PHASE] == state[slot, UNSEEN] + 1:
                state[slot, UNSEEN] = 0
            elif state[slot, UNSEEN]:
                self.forgotten(slot)

    def forgotten(self, slot: int) -> None:
        """A thread arrived for the next phase without a wait for this one, or knowledge that it is over."""
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

    def _know_the_arrival(self, slots: Array, lanes: Array, chosen: Array) -> Array:
        """Which lanes know the single arrival that completed the previous phase, and so that it is over."""
        clocks, ctas = self._clocks, self._batch.ctas
        known = np.zeros(len(lanes), bool)
        for i in np.flatnonzero(chosen & (slots >= 0)).tolist():
            row = self._batch.mbarriers.state[slots[i]]
            before = int(row[PHASE]) & 1
            other, clock, lane = int(row[ALONE + before]) - 1, int(row[ALONE_CLOCK + before]), int(lanes[i])
            if other < 0:
                continue
            warp, by = lane // WARP, other // WARP
            if clock < 0:
                known[i] = self._know_the_signal(lane, by, -clock)
                continue
            if by == warp:
                met = clocks.met[warp] >= clock
            else:
                met = by % ctas == warp % ctas and clocks.clocks[warp % ctas, warp // ctas, by // ctas] >= clock
            known[i] = met or not clocks.unknown(lane, int(clocks.numbers[by]), clock, 1 << other % WARP)
        return known

    def _know_the_signal(self, lane: int, by: int, number: int) -> bool:
        """Whether a lane knows that so many operations of the tensor core, begun by a warp, are complete."""
        clocks, ctas = self._clocks, self._batch.ctas
        warp, column = lane // WARP, self._batch.launch.actors.tensor(0) + by // ctas
        if by % ctas == warp % ctas and clocks.clocks[warp % ctas, warp // ctas, column] >= number:
            return True
        return not clocks.unknown(lane, int(clocks.first_numbers[by % ctas]) + column, number, 1)
