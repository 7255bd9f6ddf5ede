"""CTA barriers: sixteen per CTA, each with the lanes that have arrived and the fragments that wait.

A barrier without a count waits for every lane of the CTA that has not exited; one with a count waits for that many
threads, where a warp whose living lanes all arrive counts as 32, as in hardware. Further arrivals begin its next round.
"""

from dataclasses import dataclass, field

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.barriers.barrier_kernels import begin_again, complete, enter, find_rounds, pass_alone
from kernbench.ptx.emulator.barriers.gathering import active_bits
from kernbench.ptx.emulator.barriers.hub import BarrierScheduler
from kernbench.ptx.emulator.lanes.fragment import Fragment
from kernbench.ptx.emulator.lanes.lanes import WARP, Lanes
from kernbench.ptx.emulator.lanes.warp_bits import given
from kernbench.ptx.emulator.program.program import Site


@dataclass(eq=False)
class Arrival:
    """Lanes that wait: where they continue, and where the result of a reduction (`operation`) goes."""

    fragment: Fragment
    following: int
    site: Site
    target: int | None = None
    operation: str = ""


@dataclass(eq=False)
class Barrier:
    """One barrier number of all CTAs of a batch."""

    number: int
    lanes: Array
    units: Array
    expected: Array
    # waiting warps of each CTA, and how many lanes of each warp have arrived in this round
    present: Array
    came: Array
    votes: Array
    waiting: list[Arrival] = field(default_factory=list)


class Barriers:
    """The barriers of one batch."""

    def __init__(self, scheduler: BarrierScheduler):
        self._scheduler = scheduler
        self._batch = scheduler.batch
        self._barriers: dict[int, Barrier] = {}
        # buffers for one step: threads that have arrived, by CTA; the round in which a warp is counted, by warp
        self._sums: Array = np.zeros(self._batch.ctas, np.int64)
        self._rounds: Array = np.zeros(self._batch.warps, np.int64)
        self._checks = self._batch.checks.barriers
        self._recorder = self._batch.recorder
        # whether no check or recorder observes arrivals
        self._unseen = not (self._batch.checks.checking or self._recorder.recording)
        self._alone: Array = np.zeros((2, self._batch.ctas), np.int64)

    def _barrier(self, number: int) -> Barrier:
        found = self._barriers.get(number)
        if found is None:
            ctas, warps = self._batch.ctas, self._batch.warps_per_cta
            zeros = [np.zeros(ctas, np.int64) for _ in range(4)]
            zeros[2] -= 1
            present, came = np.zeros((ctas, warps), bool), np.zeros((ctas, warps), np.int64)
            found = self._barriers[number] = Barrier(number, zeros[0], zeros[1], zeros[2], present, came, zeros[3])
        return found

    def arrive(
        self,
        fragment: Fragment,
        number: int,
        count: int | None,
        following: int,
        site: Site,
        waits: bool = True,
        predicate: Array | None = None,
        operation: str = "",
        target: int | None = None,
    ) -> Fragment | None:
        """Lanes arrive; lanes whose barrier is complete continue."""
        batch, lanes = self._batch, fragment.lanes
        barrier = self._barrier(number)
        whole = lanes.count == batch.alive_count and not barrier.lanes.any() and predicate is None
        nobody_ended = batch.alive_count == batch.launch.threads * batch.ctas
        if whole and waits and (count is None or (count == batch.warps_per_cta * WARP and nobody_ended)):
            self._checks.comes_whole(number, lanes, site)
            if self._recorder.recording:
                self._recorder.arrives(number, lanes, True, site)
                self._recorder.completes(number, None)
            batch.barrier_clocks()
            if not nobody_ended:
                batch.checks.endings.gone_round(fragment, site)
            return fragment.at(following)
        if self._unseen and waits and predicate is None and self._pass_alone(barrier, lanes, count):
            self._scheduler.push(fragment.at(following))
            return None
        self._checks.comes(barrier, lanes, count, operation, site)
        self._enter(barrier, lanes, predicate, waits, count)
        self._checks.arrives(number, lanes, waits, site)
        self._recorder.arrives(number, lanes, waits, site)
        if waits:
            barrier.waiting.append(Arrival(fragment, following, site, target, operation))
        self._complete(barrier)
        if waits:
            return None
        return fragment.at(following)

    def _pass_alone(self, barrier: Barrier, lanes: Lanes, count: int | None) -> bool:
        """Whether lanes are all that their CTAs wait for, so that the barrier does not change."""
        warps, mask = given(lanes)
        many, batch = -1 if count is None else count, self._batch
        return pass_alone(warps, mask, batch.alive_bits, many, barrier.lanes, batch.alive_by_cta, self._alone)

    def rounds(self, fragment: Fragment, number: int, count: int | None) -> list[Fragment]:
        """The lanes grouped by the round of the barrier in which they are counted; nearly always one group."""
        if count is None or count <= 0 or not self._last_round(fragment.lanes, self._barrier(number), count):
            return [fragment]
        return self._by_round(fragment, np.repeat(self._rounds[fragment.window.warps], WARP))

    def _last_round(self, lanes: Lanes, barrier: Barrier, count: int) -> int:
        """The last round in which an arriving lane is counted, for a barrier for `count` threads."""
        warps, mask = given(lanes)
        known = (self._batch.alive_bits, barrier.came, barrier.units)
        return find_rounds(warps, mask, *known, count, self._sums, self._rounds)

    def _by_round(self, fragment: Fragment, rounds: Array) -> list[Fragment]:
        parts = []
        for number in np.unique(rounds).tolist():
            lanes = fragment.lanes.select(rounds == number)
            if lanes is not None:
                parts.append(self._scheduler.fragment(fragment, lanes, fragment.block))
        return parts

    def _enter(self, barrier: Barrier, lanes: Lanes, predicate: Array | None, waits: bool, count: int | None) -> None:
        counted = (barrier.lanes, barrier.units, barrier.expected, barrier.came, barrier.present)
        enter(*given(lanes), self._batch.alive_bits, waits, -1 if count is None else count, *counted)
        if predicate is not None:
            votes = (predicate & lanes.active()).reshape(-1, WARP).sum(axis=1)
            np.add.at(barrier.votes, lanes.warp_numbers() % self._batch.ctas, votes)

    def recheck(self) -> None:
        """Lanes have exited: a barrier that only waited for them may be complete."""
        for barrier in self._barriers.values():
            if barrier.waiting:
                self._complete(barrier)

    def _complete(self, barrier: Barrier) -> None:
        batch = self._batch
        done: Array = np.empty(batch.ctas, bool)
        count, whole = complete(barrier.lanes, barrier.units, barrier.expected, batch.alive_by_cta, done)
        if not count:
            return
        self._checks.completes(barrier.number, done, barrier.present, barrier.came)
        self._recorder.completes(barrier.number, done)
        waiting, barrier.waiting = barrier.waiting, []
        if whole and batch.alive_count < batch.launch.threads * batch.ctas:
            for arrival in waiting:
                batch.checks.endings.gone_round(arrival.fragment, arrival.site)
        for arrival in waiting:
            self._release(barrier, arrival, done)
        counted = (barrier.lanes, barrier.units, barrier.expected, barrier.votes, barrier.came, barrier.present)
        begin_again(done, *counted)

    def _release(self, barrier: Barrier, arrival: Arrival, done: Array) -> None:
        """Lanes of complete CTAs continue with their result, the others keep waiting."""
        going, staying = self._parted(arrival.fragment, done)
        if staying is not None:
            barrier.waiting.append(Arrival(staying, arrival.following, arrival.site, arrival.target, arrival.operation))
        if going is None:
            return
        if arrival.target is not None:
            votes = barrier.votes[going.window.warps % self._batch.ctas]
            members = barrier.lanes[going.window.warps % self._batch.ctas]
            result = _RESULTS[arrival.operation](votes, members)
            dtype = going.window.blank(arrival.target).dtype
            going.window.put(arrival.target, np.repeat(result, WARP).astype(dtype), going.lanes.mask)
        self._scheduler.push(going.at(arrival.following))

    def _parted(self, fragment: Fragment, done: Array) -> tuple[Fragment | None, Fragment | None]:
        """The lanes of complete CTAs, and the others."""
        chosen = done[fragment.window.warps % self._batch.ctas]
        if np.count_nonzero(chosen) == len(chosen):
            return fragment, None
        return self._scheduler.split(fragment, np.repeat(chosen, WARP))

    def waiting_bits(self) -> Array:
        """For each warp, the lanes that wait at any barrier, as bits."""
        found = np.zeros(self._batch.warps, np.uint32)
        for _, _, arrival in self.waiting():
            found[arrival.fragment.window.warps] |= active_bits(arrival.fragment.lanes)
        return found

    def waiting(self) -> list[tuple[int, Barrier, Arrival]]:
        """All waiting fragments: barrier number, barrier, arrival."""
        return [(n, barrier, arrival) for n, barrier in self._barriers.items() for arrival in barrier.waiting]


_RESULTS = {
    "popc": lambda votes, members: votes,
    "and": lambda votes, members: votes == members,
    "or": lambda votes, members: votes > 0,
}
