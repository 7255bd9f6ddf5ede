"""mbarriers of a batch: their state, arrivals, and what waits acquire.

A phase completes when no arrival and no byte is pending. Barriers are found by CTA and address; each has a number in
its CTA, which determines the actor of copies that complete on it.
"""

from dataclasses import dataclass

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.barriers import mbarrier_kernels as kernels
from kernbench.ptx.emulator.barriers.hub import BarrierBatch
from kernbench.ptx.emulator.barriers.mbarrier_kernels import (
    ALIVE,
    BYTES_DELIVERED,
    BYTES_EXPECTED,
    EXPECTED,
    INVALID,
    LIVE,
    PENDING,
    PHASE,
    START,
    TOKEN_SHIFT,
    TX,
    WAITED,
)
from kernbench.ptx.emulator.barriers.use_kernels import count_new, open_new
from kernbench.ptx.emulator.lanes.lanes import NO_MASK, WARP
from kernbench.ptx.emulator.memory.pages.allocation import POOL
from kernbench.ptx.emulator.observer.asynchronous import Address
from kernbench.ptx.emulator.program.program import Site

_ALIGNMENT = 8
_TOUCHED = np.uint64(kernels.TOUCHED)
# more barriers than there are columns
_MANY = 1 << 20
_BY_THREADS: Array = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """The modifiers of an arrival."""

    drop: bool = False
    no_complete: bool = False
    release: bool = True
    # cluster scope
    wide: bool = True


class Mbarriers:
    """The mbarriers of one batch; `slots` number them, negative ones say why there is none."""

    def __init__(self, batch: BarrierBatch, columns: int):
        self._batch = batch
        self._fast = batch.launch.fast
        self._columns = columns
        words = batch.shared_stride // _ALIGNMENT
        self._lookup = POOL.full((batch.ctas, words), -1, np.int64)
        self._used = np.zeros(batch.ctas, np.int64)
        self._report = kernels.new_report()
        self._first_lane: int = batch.launch.actors.lane(0)
        # buffers for one step: participating lanes of each warp, and whether these are all
        self._counts: Array = np.zeros(batch.warps, np.int64)
        self._whole: Array = np.zeros(batch.warps, bool)
        self.count = 0
        # arrivals and transactions so far: progress, for deadlock detection
        self.events = 0
        # how often barriers were initialised or invalidated
        self.renewed = 0
        self._make(16)

    def _make(self, capacity: int) -> None:
        warps = self._batch.warps_per_cta
        shapes = {
            "state": (kernels.COLUMNS,),
            "held": (self._columns,),
            "done": (self._columns,),
            "arrivals": (warps, 2),
            "comers": (2, warps if self._columns else 0, WARP + 1),
            "homes": (),
            "offsets": (),
            "columns": (),
            "opened": (6,),
        }
        for name, shape in shapes.items():
            dtype = np.int32 if name in ("held", "done", "comers") else np.int64
            grown = np.zeros((capacity, *shape), dtype)
            old = getattr(self, name, None)
            if old is not None:
                grown[: len(old)] = old
            setattr(self, name, grown)
        self.capacity = capacity

    state: Array
    held: Array
    done: Array
    # for each warp of the CTA: the phase of its last arrival plus one, and the site
    arrivals: Array
    # for the last even and odd phase, and each warp of the CTA: the last arrival of each lane (its clock, or negative a
    # number of operations of the tensor core), and the phase plus one that these are of
    comers: Array
    # CTA in the batch, offset in its shared memory, and the actor's column
    homes: Array
    offsets: Array
    columns: Array
    # the initialising warp and its clock; the warp that fenced that, and its clock; the lane of each
    opened: Array

    def locate(self, addresses: Array, lanes: Array) -> Array:
        """The barrier at each lane's address: -1 if there never was one, -2 if invalid."""
        return self._located(addresses, lanes)[0]

    def _located(self, addresses: Array, lanes: Array) -> tuple[Array, int]:
        """As `locate`, and how many are usable."""
        slots: Array = np.empty(len(lanes), np.int64)
        return slots, kernels.locate(addresses, lanes, self._table, slots)

    @property
    def _table(self) -> kernels.GivenTable:
        batch = self._batch
        return batch.ctas, batch.cluster.size, batch.launch.shared_bytes, self._lookup, self.state

    def at(self, ctas: Array, offsets: Array) -> Array:
        """The barriers at offsets in CTAs of the batch, -1 for none."""
        slots: Array = self._lookup[ctas, np.clip(offsets, 0, self._batch.launch.shared_bytes) // _ALIGNMENT]
        return slots

    def _new(self, cta: int, offset: int) -> int:
        if self.count == self.capacity:
            self._make(2 * self.capacity)
        slot, number = self.count, int(self._used[cta])
        self.count += 1
        self._used[cta] += 1
        self._lookup[cta, offset // _ALIGNMENT] = slot
        self.homes[slot], self.offsets[slot] = cta, offset
        self.columns[slot] = self._batch.launch.actors.barrier(number) if self._columns else 0
        return slot

    def init(self, addresses: Array, lanes: Array, counts: Array, site: Site) -> None:
        """mbarrier.init: phase 0, with `counts` expected arrivals."""
        self.renewed += 1
        slots = self.locate(addresses, lanes)
        ctas, offsets = self._batch.cluster.find(addresses, lanes)
        new = self._fast.new_barriers and count_new(slots, counts) == len(slots)
        if new and (len(ctas) == 1 or len(set(ctas.tolist())) == len(ctas)):
            self._open_new(ctas, offsets, lanes, counts)
        else:
            self._open_each(slots, ctas, offsets, lanes, counts, addresses, site)
        self._batch.port.changes += 1
        if self._batch.recorder.recording:
            slots = self.locate(addresses, lanes)
            self._batch.recorder.mbarrier(site, slots, lanes, self.phases(slots))

    def _open_new(self, ctas: Array, offsets: Array, lanes: Array, counts: Array) -> None:
        """Initialise one barrier in each of some CTAs, where there was none before."""
        while self.count + len(ctas) > self.capacity:
            self._make(2 * self.capacity)
        column = self._batch.launch.actors.barrier
        columns = (column(0), column(_MANY)) if self._columns else (0, 0)
        rows = (self._used, self._lookup, self.homes, self.offsets, self.columns, self.state)
        open_new(ctas, offsets, counts, self.count, *columns, rows, (self._batch.shared_stride, self._bytes()))
        slots, self.count = slice(self.count, self.count + len(ctas)), self.count + len(ctas)
        moment = self._batch.checks.asynchronous.moment
        self.opened[slots] = [(*moment(lane), -1, 0, lane % WARP, 0) for lane in lanes.tolist()]

    def _open_each(
        self, slots: Array, ctas: Array, offsets: Array, lanes: Array, counts: Array, addresses: Array, site: Site
    ) -> None:
        """Initialise barriers one by one, reporting faults."""
        for i, slot in enumerate(slots.tolist()):
            if slot == -2:
                self._complain("outside", lanes[i : i + 1], site, -1, addresses[i])
                continue
            if slot < 0:
                slot = self._new(int(ctas[i]), int(offsets[i]))
            elif self.state[slot, LIVE] == ALIVE:
                self._complain("twice", lanes[i : i + 1], site, slot, addresses[i])
            self._open(slot, int(lanes[i]), int(counts[i]), site, addresses[i])

    def _open(self, slot: int, lane: int, count: int, site: Site, address: Address) -> None:
        if not 1 <= count <= kernels.LIMIT:
            self._complain("count", np.array([lane]), site, slot, address, count)
        row = self.state[slot]
        phase = (int(row[PHASE]) + 2) & ~1 if row[LIVE] else 0
        row[...] = 0
        row[LIVE], row[PENDING], row[EXPECTED], row[kernels.LAST_LANE] = ALIVE, count, count, -1
        row[PHASE] = row[WAITED] = row[START] = phase
        self.arrivals[slot] = 0
        self.opened[slot] = (*self._batch.checks.asynchronous.moment(lane), -1, 0, lane % WARP, 0)
        self._bytes()[self._words(np.array([slot]))] &= ~_TOUCHED

    def _bytes(self) -> Array:
        """The states of shared memory, eight bytes at once."""
        state: Array = self._batch.port.space("shared").state[8]
        return state

    def _words(self, slots: Array) -> Array:
        """Offsets of barriers, in units of eight bytes."""
        words: Array = (self.homes[slots] * self._batch.shared_stride + self.offsets[slots]) // _ALIGNMENT
        return words

    def invalidate(self, addresses: Array, lanes: Array, site: Site) -> None:
        """mbarrier.inval: the memory may be used for something else."""
        self.renewed += 1
        slots = self._known(addresses, lanes, site)
        if self._batch.recorder.recording:
            self._batch.recorder.mbarrier(site, slots, lanes, self.phases(slots))
        ending = slots[slots >= 0]
        outstanding = self.state[ending, TX]
        if outstanding.any():
            late = outstanding != 0
            first = int(np.argmax(late))
            self._complain(
                "awaited", lanes[slots >= 0][late], site, int(ending[first]), None, abs(int(outstanding[first]))
            )
        self.state[ending, LIVE] = INVALID

    def _known(self, addresses: Array, lanes: Array, site: Site) -> Array:
        """The usable barriers at addresses; reports a finding where there is none."""
        slots, usable = self._located(addresses, lanes)
        if usable < len(lanes) or self._batch.cluster.size > 1 or not self._fast.usable_barriers:
            return self._usable(slots, addresses, lanes, site)
        if usable:
            self._batch.checks.asynchronous.used(slots, lanes, site)
        return slots

    def _usable(self, slots: Array, addresses: Array, lanes: Array, site: Site, ctas: Array | None = None) -> Array:
        usable = (slots >= 0) & (self.state[slots, LIVE] == ALIVE)
        if not usable.all():
            bad = int(np.argmin(usable))
            slot = int(slots[bad])
            what = "outside" if slot == -2 else "unused" if slot < 0 else "dead"
            home = None if ctas is None else int(ctas[bad])
            self._complain(what, lanes[~usable], site, slot, addresses[bad], home=home)
        slots = np.where(usable, slots, -1)
        if self._batch.cluster.size > 1:
            self._batch.checks.asynchronous.reaches(np.where(slots >= 0, self.homes[slots], -1), lanes, site)
        if len(slots):
            self._batch.checks.asynchronous.used(slots, lanes, site)
        return slots

    def written(self) -> tuple[Array, int, Array]:
        """Arguments for `kernels.unordered`: offsets of barriers, the stride between CTAs, and the states of memory."""
        return self.offsets, self._batch.shared_stride, self._bytes()

    def arrive(
        self, addresses: Array, lanes: Array, counts: Array, transactions: Array, how: Arrival, site: Site
    ) -> Array:
        """Arrivals of lanes; returns the state before each."""
        slots = self._known(addresses, lanes, site)
        self.reach(slots, lanes, site)
        self._note("arrive", slots, lanes, counts, site)
        tokens: Array = np.empty(len(lanes), np.int64)
        if not how.release:
            self._batch.checks.asynchronous.arriving_relaxed(slots, lanes, how.wide)
        self._arrive(slots, lanes, counts, transactions, how, site, tokens, _BY_THREADS)
        if self._batch.recorder.recording:
            self._batch.recorder.mbarrier(site, slots, lanes, tokens >> TOKEN_SHIFT, transactions)
        return tokens

    def _arrive(
        self,
        slots: Array,
        lanes: Array,
        counts: Array,
        transactions: Array,
        how: Arrival,
        site: Site,
        tokens: Array,
        numbers: Array,
    ) -> None:
        batch, checks = self._batch, self._batch.checks
        self.events += 1
        if how.release:
            checks.asynchronous.arriving(slots, lanes)
        what = (slots, lanes, counts, transactions, how.drop, how.no_complete, how.release, site.number, numbers)
        barriers = (self.homes, self.columns, self.state, self.held, self.done, self.arrivals, self.comers)
        completed, troubles = kernels.arrive(what, self._who(lanes), barriers, tokens, self._report)
        batch.port.changes += completed
        checks.asynchronous.arrived(slots, lanes, how.release, how.wide)
        if troubles:
            self._report_trouble(lanes, site)

    def signal(self, slots: Array, lanes: Array, site: Site, numbers: Array | None = None) -> None:
        """Asynchronous work of `lanes` arrives once on each barrier, releasing what is in `held`.

        Of the tensor core's it is known to whoever knows of `numbers` operations of the lanes' warps.
        """
        zeros, ones = np.zeros(len(slots), np.int64), np.ones(len(slots), np.int64)
        self._note("commit", slots, lanes, ones, site)
        known = zeros if numbers is None else numbers
        self._arrive(slots, lanes, ones, zeros, Arrival(release=False), site, zeros.copy(), known)

    def publish(self, slots: Array, lanes: Array) -> None:
        """Release what the warps of `lanes` know now to these barriers' current phases."""
        # without columns in vector clocks nothing is released
        if not self._columns:
            return
        checks = self._batch.checks
        ctas = lanes // WARP % self._batch.ctas
        local = (slots >= 0) & (self.homes[slots] == ctas)
        who = self._who(lanes)
        checks.asynchronous.arriving(slots, lanes)
        kernels.publish(slots[local], lanes[local], who, self.held)
        checks.asynchronous.arrived(slots, lanes, True)

    def reach(self, slots: Array, lanes: Array, site: Site) -> None:
        """Lanes signal barriers, now or by operations that they begin; some may be in other CTAs."""
        if self._batch.cluster.size > 1:
            self._batch.checks.asynchronous.signals(slots, lanes, site)

    def known(self, addresses: Array, lanes: Array, site: Site) -> Array:
        """The barriers at addresses, -1 (with a finding) if there is none."""
        return self._known(addresses, lanes, site)

    def known_at(self, ctas: Array, offsets: Array, lanes: Array, site: Site) -> Array:
        """The barriers at offsets in CTAs of the batch, -1 (with a finding) if there is none."""
        return self._usable(self.at(ctas, offsets), offsets, lanes, site, ctas)

    def whole(self, lanes: Array, members: Array, chosen: Array = NO_MASK) -> Array:
        """For each warp of `lanes`, whether all its `members`, a mask for each warp, are among the (chosen) lanes.

        Other warps' entries are meaningless, and all entries are valid until the next step only.
        """
        kernels.cover(lanes, chosen, members, self._counts, self._whole)
        return self._whole

    def _who(self, lanes: Array) -> kernels.GivenPublishers:
        """What the arriving warps of `lanes` know: the parts of `kernels.Publishers`."""
        clocks, met, lane_arrivals = self._batch.checks.arrival_clocks()
        return self._publishers(lanes), self._batch.ctas, clocks, met, lane_arrivals, self._first_lane

    def _publishers(self, lanes: Array) -> Array:
        """For each warp of `lanes`, whether the arrival releases the warp's own clock; unused without clocks."""
        if not self._columns:
            return self._whole
        return self.whole(lanes, self._batch.checks.apart(self._batch.alive_bits))

    def raise_pending(self, slots: Array) -> None:
        """Add one expected arrival to the current phase of each barrier."""
        np.add.at(self.state[:, PENDING], slots, 1)

    def learn(self, slots: Array, columns: Array, clocks: Array) -> None:
        """Release clocks of actors of the barriers' CTAs to these barriers' current phases."""
        if self._columns:
            np.maximum.at(self.held, (slots, columns), clocks.astype(np.int32))

    def expect(self, addresses: Array, lanes: Array, amounts: Array, site: Site) -> None:
        """expect_tx of lanes, or complete_tx for negative amounts."""
        slots = self._known(addresses, lanes, site)
        self.reach(slots, lanes, site)
        if self._batch.recorder.recording:
            self._batch.recorder.mbarrier(site, slots, lanes, self.phases(slots), amounts)
        self._transact(slots, lanes, amounts, site)

    def _transact(self, slots: Array, lanes: Array, amounts: Array, site: Site) -> None:
        self.events += 1
        barriers = (self.state, self.held, self.done, self.columns)
        completed, troubles = kernels.expect(slots, amounts, site.number, *barriers, self._report)
        self._batch.port.changes += completed
        if troubles:
            self._report_trouble(lanes, site)

    def deliver(self, slots: Array, phases: Array, lanes: Array, amounts: Array, site: Site) -> None:
        """Copies begun in `phases` have moved their bytes: complete_tx on their barriers."""
        if self._batch.checks.checking:
            self._late(slots, phases, lanes, amounts, site)
        self._note("bytes", slots, lanes, amounts, site)
        self._transact(slots, lanes, -amounts, site)

    def _late(self, slots: Array, phases: Array, lanes: Array, amounts: Array, site: Site) -> None:
        """Report bytes that arrive after the phase they belong to."""
        here = np.where(slots >= 0, self.state[slots, PHASE], phases)
        if (here != phases).any():
            bad = int(np.argmax(here != phases))
            late = int(slots[bad]), int(phases[bad]), int(amounts[bad]), int(lanes[bad])
            self._batch.checks.asynchronous.late_bytes(*late, site)

    def test(self, addresses: Array, lanes: Array, wanted: Array, parity: bool, site: Site) -> tuple[Array, Array, int]:
        """The barriers, whether the phase each lane waits for has completed, and for how many lanes."""
        batch, passed = self._batch, np.empty(len(lanes), bool)
        slots: Array = np.empty(len(lanes), np.int64)
        count = kernels.look(addresses, lanes, wanted, parity, self._table, slots, passed)
        if count < 0 or not self._fast.usable_barriers:
            slots = self._usable(slots, addresses, lanes, site)
            count = kernels.test(slots, wanted, parity, self.state, passed)
        elif slots.size:
            batch.checks.asynchronous.used(slots, lanes, site)
        return slots, passed, count

    def completed(self, slots: Array, wanted: Array, parity: bool) -> int:
        """Count the lanes whose phase has completed, or whose barrier no longer exists."""
        return kernels.count_passed(slots, wanted, parity, self.state)

    def acquire(self, slots: Array, lanes: Array, passed: Array, wide: bool = True) -> None:
        """Lanes whose wait is over acquire what the arrivals released; from other blocks only if it is `wide`."""
        self._batch.checks.asynchronous.acquired(slots, lanes, passed, wide)
        self._batch.copies.passed(slots, passed)

    def see(self, slots: Array, lanes: Array, passed: Array, wide: bool = True) -> None:
        """Lanes whose relaxed wait is over observe what the arrivals released, and acquire it at a later fence."""
        self._batch.checks.asynchronous.seen(slots, lanes, passed, wide)
        self._batch.copies.passed(slots, passed)

    def phases(self, slots: Array) -> Array:
        """The current phases of barriers."""
        phases: Array = self.state[slots, PHASE]
        return phases

    def bytes_of(self, slot: int) -> tuple[int, int, int]:
        """Bytes expected and delivered in the current phase, and bytes outstanding."""
        row = self.state[slot]
        return int(row[BYTES_EXPECTED]), int(row[BYTES_DELIVERED]), int(row[TX])

    def history(self, slot: int, phase: int) -> tuple[int, int]:
        """Bytes that a phase expected and got before it completed, as far as recorded."""
        row = self.state[slot]
        before = int(row[kernels.BYTES_BEFORE]) if phase == row[PHASE] - 1 else 0
        return before, before

    def expecting(self, slot: int, phase: int) -> int:
        """The site of the last expect_tx in a phase, -1 if there was none or it is not recorded."""
        row = self.state[slot]
        if phase == row[PHASE]:
            return int(row[kernels.EXPECT_SITE]) - 1
        return int(row[kernels.EXPECT_BEFORE]) - 1 if phase == row[PHASE] - 1 else -1

    def _note(self, kind: str, slots: Array, lanes: Array, amounts: Array, site: Site) -> None:
        if self._batch.journal is not None:
            self._batch.journal.arrived(kind, slots, lanes, amounts, site)

    def _report_trouble(self, lanes: Array, site: Site) -> None:
        for code, what in _TROUBLE.items():
            count, position, slot = self._report[code].tolist()
            if count:
                self._complain(what, lanes[position : position + 1], site, slot, None)
        self._report[...] = 0

    def _complain(
        self,
        what: str,
        lanes: Array,
        site: Site,
        slot: int,
        address: Address,
        value: int | None = None,
        home: int | None = None,
    ) -> None:
        self._batch.checks.asynchronous.misuse(what, lanes, site, slot, address, value, home)


_TROUBLE = {
    kernels.TOO_MANY: "too many",
    kernels.RANGE: "range",
    kernels.COMPLETES: "completes",
}
