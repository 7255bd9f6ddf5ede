"""What barriers with a thread count order: warps that wait acquire from all that arrived, others acquire nothing.

Hardware counts threads, whoever they are. So a warp that arrives while an earlier round of the same barrier may still
be open can be counted in that round instead. It must know that the round is over: because it waited there itself, or
because a warp that waited has published it since; of a round of arrivals alone, it must know of each arrival. The same
holds for a barrier without a count, which counts the whole block. A warp may arrive more than once at the open round:
if whoever comes later knows that the round is over, it is the same arrivals that complete it in every order.
"""

from typing import Protocol

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.barriers.barrier_kernels import count_others
from kernbench.ptx.emulator.checks.findings.reporter import Reporter, by_axis, thread_name
from kernbench.ptx.emulator.checks.happens_before.clock_kernels import close_round, count_unsure
from kernbench.ptx.emulator.checks.happens_before.clocks import Clocks
from kernbench.ptx.emulator.checks.happens_before.knowledge import Knowledge
from kernbench.ptx.emulator.lanes.lanes import WARP, Lanes
from kernbench.ptx.emulator.lanes.warp_bits import given
from kernbench.ptx.emulator.observer.meetings import BarrierObserver, MeetingPoint
from kernbench.ptx.emulator.program.hub import BatchHub
from kernbench.ptx.emulator.program.program import Site
from kernbench.result.finding import Other

# there was no such round
_NEVER = np.zeros((0, 0), np.int64)


class BarrierChecks(Protocol):
    """What the checks of barriers need from the other checks of their batch."""

    clocks: Clocks

    def met(
        self, done: Array | None, present: Array | None, given: Array | None, published: dict[int, Knowledge] | None
    ) -> None:
        """Warps met at a CTA barrier; `given` and `published` are what warps that only arrived released."""

    def arrived(self, warps: Array, published: dict[int, Knowledge]) -> None:
        """Warps arrive at a CTA barrier and do not wait."""


class NamedBarriers(BarrierObserver):
    """The barriers of one batch's CTAs, by number."""

    def __init__(self, batch: BatchHub, checks: BarrierChecks, reporter: Reporter):
        self._batch, self._checks, self._reporter = batch, checks, reporter
        # joined vector clocks of warps that only arrived (a release without an acquire): [CTAs, actors]
        self._given: dict[int, Array] = {}
        self._published: dict[int, dict[int, Knowledge]] = {}
        # for each warp that waited in the last round, its clock at the end of it, -1 for the others: [CTAs, warps]
        self._last: dict[int, Array] = {}
        # the same for warps that only arrived: in the last round, if nobody waited in it, and in the open round
        self._last_arrivals: dict[int, Array] = {}
        self._arrivals: dict[int, Array] = {}
        # the operation of each open reduction, "" for sync and arrive: [CTAs]
        self._operations: dict[int, list[str]] = {}
        # how many arrivals of lanes of each warp the last round had: [CTAs, warps]
        self._came: dict[int, Array] = {}
        # where warps came last, and with whose arrival the last round was complete: [CTAs]
        self._here: dict[int, Site] = {}
        self._closing: dict[int, Array] = {}

    def comes_whole(self, number: int, lanes: Lanes, site: Site) -> None:
        """All living lanes of the batch arrive at once at a barrier without earlier arrivals."""
        if number in self._last:
            if self._unsure(number, lanes):
                warps, _ = lanes.present()
                self._in_turn(number, warps % self._batch.ctas, warps // self._batch.ctas, site)
            # every warp has waited in this round, so the next round is unambiguous for all
            del self._last[number]
            self._last_arrivals.pop(number, None)

    def arrives(self, number: int, lanes: Lanes, waits: bool, site: Site) -> None:
        """Lanes arrive at a barrier; they continue at once unless they wait."""
        self._here[number] = site
        unsure = self._unsure(number, lanes)
        if waits and not unsure:
            return
        warps, _ = lanes.present()
        ctas, inside = warps % self._batch.ctas, warps // self._batch.ctas
        if unsure:
            self._in_turn(number, ctas, inside, site)
        if waits:
            return
        clocks = self._checks.clocks
        clocks.part(warps)
        arrived = self._given.get(number)
        if arrived is None:
            arrived = self._given[number] = np.zeros((self._batch.ctas, clocks.columns), np.int32)
            self._arrivals[number] = np.full((self._batch.ctas, self._batch.warps_per_cta), -1, np.int64)
        np.maximum.at(arrived, ctas, clocks.clocks[ctas, inside])
        self._arrivals[number][ctas, inside] = clocks.clocks[ctas, inside, inside] - 1
        self._checks.arrived(warps, self._published.setdefault(number, {}))
        clocks.advance(warps)

    def _unsure(self, number: int, lanes: Lanes) -> int:
        """Count the arriving warps that may be counted in another round."""
        clocks, actors = self._checks.clocks, self._batch.launch.actors
        last = _NEVER if clocks.exhausted else self._last.get(number, _NEVER)
        known = (clocks.clocks, actors.lane(0) if actors.asynchronous else -1)
        return count_unsure(*given(lanes), last, *known, self._last_arrivals.get(number, _NEVER))

    def comes(self, barrier: MeetingPoint, lanes: Lanes, count: int | None, operation: str, site: Site) -> None:
        """Check that lanes about to arrive agree with earlier arrivals of this round: thread count and reduction."""
        everybody = self._batch.warps_per_cta * WARP
        threads, (warps, mask) = everybody if count is None else count, given(lanes)
        if count_others(warps, mask, barrier.lanes, barrier.expected, everybody, threads):
            self._same_count(barrier, lanes.present()[0] % self._batch.ctas, count, site)
        if operation or barrier.number in self._operations:
            self._same_operation(barrier, lanes.present()[0] % self._batch.ctas, operation, site)

    def _same_count(self, barrier: MeetingPoint, ctas: Array, count: int | None, site: Site) -> None:
        """Report arrivals whose thread count differs from that of earlier arrivals of this round."""
        everybody = self._batch.warps_per_cta * WARP
        others = np.where(barrier.expected < 0, everybody, barrier.expected)[ctas]
        bad = np.flatnonzero((barrier.lanes[ctas] > 0) & (others != (everybody if count is None else count)))
        if not len(bad):
            return
        mine = f"{everybody} threads, the whole block" if count is None else f"{count} threads"
        message = (
            f"barrier {barrier.number} is for {mine} here, and others of block "
            f"{by_axis(int(self._batch.numbers[ctas[bad[0]]]), self._batch.launch.grid)} came to the same round for "
            f"{int(others[bad[0]])}: PTX leaves open when it opens"
        )
        hint = "give every bar.sync, bar.arrive and bar.red of one barrier the same number of threads"
        self._reporter.add("misuse", site, message, hint, about="count")

    def _same_operation(self, barrier: MeetingPoint, ctas: Array, operation: str, site: Site) -> None:
        """Report arrivals whose reduction differs from that of earlier arrivals of this round."""
        held = self._operations.setdefault(barrier.number, [""] * self._batch.ctas)
        for cta in set(ctas.tolist()):
            if barrier.lanes[cta] > 0 and held[cta] != operation:
                names = [f"bar.red.{name}" if name else "bar.sync or bar.arrive" for name in (operation, held[cta])]
                message = (
                    f"barrier {barrier.number} is come to by {names[0]} here, and others of block "
                    f"{by_axis(int(self._batch.numbers[cta]), self._batch.launch.grid)} came to the same round by "
                    f"{names[1]}: PTX leaves open what happens then"
                )
                hint = "let all who come to one round of a barrier run the same bar.red, or none of them"
                self._reporter.add("misuse", site, message, hint, about="operation")
            held[cta] = operation

    def completes(self, number: int, done: Array, waiting: Array, came: Array) -> None:
        """A round is complete in the CTAs of `done`: the `waiting` warps continue; `came` counts arrivals of lanes."""
        clocks = self._checks.clocks
        arrived = self._given.get(number)
        published = self._published.get(number, {})
        self._checks.met(done, waiting, arrived, published)
        if arrived is not None:
            arrived[done] = 0
        for cta in [cta for cta in published if done[cta]]:
            del published[cta]
        last = self._last.get(number)
        if last is None:
            last = self._last[number] = np.full(waiting.shape, -1, np.int64)
            self._came[number], self._closing[number] = np.zeros(came.shape, np.int64), np.full(len(done), None, object)
        close_round(done, waiting, clocks.clocks, came, last, self._came[number])
        self._closing[number][done] = self._here[number]
        if number in self._arrivals:
            before = self._last_arrivals.setdefault(number, np.full(waiting.shape, -1, np.int64))
            nobody = ~waiting[done].any(axis=1, keepdims=True)
            before[done] = np.where(nobody, self._arrivals[number][done], -1)
            self._arrivals[number][done] = -1

    def _in_turn(self, number: int, ctas: Array, inside: Array, site: Site) -> None:
        """Report warps that do not know that the last round is over."""
        last, batch = self._last.get(number), self._batch
        clocks = self._checks.clocks
        if last is None or clocks.exhausted:
            return
        ends = last[ctas]
        waited = ends >= 0
        rows = clocks.clocks[ctas, inside]
        knows = rows[:, : ends.shape[1]] > ends
        if batch.launch.actors.asynchronous:
            first = batch.launch.actors.lane(0)
            knows |= rows[:, first : first + ends.shape[1]] >> 5 > ends
        # safe: the warp waited in that round itself, or has acquired from one that did, after that one went on
        sure = waited[np.arange(len(ctas)), inside] | (waited & knows).any(axis=1)
        sure |= ~waited.any(axis=1) & self._knows_arrivals(number, ctas, inside, rows)
        if not sure.all():
            self._mixed(number, int(np.argmin(sure)), ctas, inside, site)

    def _knows_arrivals(self, number: int, ctas: Array, inside: Array, rows: Array) -> Array:
        """For each warp, whether its clocks `rows` cover every arrival of the last round, in which nobody waited."""
        last = self._last_arrivals.get(number)
        if last is None:
            return np.ones(len(ctas), bool)
        known = rows[:, : last.shape[1]] > last[ctas]
        known[np.arange(len(ctas)), inside] = True
        return np.asarray(known.all(axis=1))

    def _mixed(self, number: int, which: int, ctas: Array, inside: Array, site: Site) -> None:
        who = thread_name(self._batch, int(inside[which] * self._batch.ctas + ctas[which]) * WARP)
        came = self._came[number][ctas[which]]
        before = [f"{one} (more than once)" if came[one] > WARP else str(one) for one in np.flatnonzero(came).tolist()]
        again, counted = (" again", "counted twice") if came[inside[which]] else ("", "counted")
        message = (
            f"the warp of {who} comes to barrier {number}{again}, and nothing says that the last round there, of warps "
            f"{', '.join(before)}, is over: it may be {counted} in that round"
        )
        hint = (
            "give each group of warps a barrier of its own, count every warp that comes, or let those who come next "
            "wait, at another barrier, for those who wait here"
        )
        closing: Site = self._closing[number][ctas[which]]
        others = (Other("the arrival that completed that round", self._reporter.location(closing)),)
        self._reporter.add("race", site, message, hint, 1, others, about="barrier")
