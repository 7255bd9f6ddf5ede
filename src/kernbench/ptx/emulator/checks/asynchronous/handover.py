"""Happens-before through mbarriers: arrivals and commits release, waits acquire.

Compiled loops pass on the clocks of warps, phase by phase (`mbarrier_kernels`). This module passes on the rest: what
single lanes know for themselves, and what is known of single lanes by name. It is not split by phases: a wait acquires
everything released to its barrier so far. So it may also acquire from an arrival for the next phase: a race may be
missed, but none is invented.
"""

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.barriers.mbarrier_kernels import acquire
from kernbench.ptx.emulator.checks.asynchronous.hub import BatchFindings
from kernbench.ptx.emulator.checks.happens_before.knowledge import Knowledge, barrier_key
from kernbench.ptx.emulator.checks.happens_before.near_rows import grouped, join_at
from kernbench.ptx.emulator.lanes.lanes import WARP, group
from kernbench.ptx.emulator.units.batch import Batch


class Handover:
    """Releases and acquires through the mbarriers of one batch."""

    def __init__(self, batch: Batch, checks: BatchFindings):
        self._batch, self._checks, self._clocks = batch, checks, checks.clocks
        self._first_block = int(batch.numbers[0])

    def arriving(self, slots: Array, lanes: Array) -> None:
        """Lanes are about to arrive in their own CTAs: release what they know beyond their warps' clocks."""
        self._checks.along.arriving(lanes)
        alike = self._batch.launch.fast.warp_arrivals
        if alike and not self._clocks.any_aware(slots, lanes, self._batch.mbarriers.homes):
            return
        barriers = self._batch.mbarriers
        local = (slots >= 0) & (barriers.homes[slots] == (lanes // WARP) % self._batch.ctas)
        more = self._clocks.aware(lanes) & local
        if more.any() and self._clocks.near.suffices:
            these = grouped(lanes[more], slots[more])
            rows, names = self._clocks.released_by(these)
            if barriers.held.shape[1]:
                join_at(barriers.held, these.keys, rows)
            self._clocks.near.release(these.keys, barriers.homes[these.keys], rows, names)
            return
        for warp, slot, mask in group(lanes[more], slots[more]) if more.any() else ():
            knowledge = self._clocks.snapshot(warp).released_by(mask)
            near = knowledge.row(int(self._clocks.first_numbers[barriers.homes[slot]]), self._clocks.columns)
            if near is not None and barriers.held.shape[1]:
                np.maximum(barriers.held[slot], near, out=barriers.held[slot])
            self._clocks.publications.release(self.key(slot), knowledge)

    def committed(self, slots: Array, rows: Array, names: Array) -> None:
        """Release to barriers what threads of their own CTAs knew when they committed."""
        homes, near = self._batch.mbarriers.homes[slots], self._clocks.near
        if near.suffices:
            near.release(slots, homes, rows, names)
            return
        for i, slot in enumerate(slots.tolist()):
            self._clocks.publications.release(self.key(slot), near.piece(int(homes[i]), rows[i], names[i]))

    def key(self, slot: int, remote: bool = False) -> tuple[object, ...]:
        """The key under which arrivals on a barrier are published, by its own CTA or by others (`remote`)."""
        return barrier_key(self._first_block, slot, remote)

    def release(self, slot: int, knowledge: Knowledge, remote: bool) -> None:
        """Release knowledge to a barrier, from its own CTA or another (`remote`)."""
        near, home = self._clocks.near, int(self._batch.mbarriers.homes[slot])
        found = near.split(knowledge, home) if near.suffices and not remote else None
        if found is not None:
            near.release(np.array([slot]), np.array([home]), *found)
            return
        self._clocks.part_with_rows()
        self._clocks.publications.release(self.key(slot, remote), knowledge)

    def released(self, slot: int, remote: bool = False) -> Knowledge | None:
        """What was released to a barrier, None if nothing."""
        if self._clocks.near.suffices:
            return None if remote else self._clocks.near.of_slot(slot)
        return self._clocks.publications.released.get(self.key(slot, remote))

    def inform(self, slot: int, knowledge: Knowledge, remote: bool) -> None:
        """Release to a barrier what a thread of its own CTA or of another (`remote`) committed.

        The arrival is made by asynchronous work, on a barrier of the CTA that waits. So its completion is known in any
        scope, but earlier accesses of threads of the other CTA only to a wait of cluster scope.
        """
        self._clocks.publications.release(self.key(slot, remote), knowledge)
        if remote:
            self._clocks.publications.release(self.key(slot), self._checks.along.narrowly(knowledge))

    def arrived(self, slots: Array, lanes: Array, wide: bool) -> None:
        """Lanes have arrived, and begin a new epoch; other blocks acquire only if their scope is `wide`."""
        if self._batch.cluster.size > 1 and wide:
            homes = self._batch.mbarriers.homes[slots]
            remote = (slots >= 0) & (homes != (lanes // WARP) % self._batch.ctas)
            for warp, slot, mask in group(lanes[remote], slots[remote]):
                self._clocks.publications.release(
                    self.key(slot, remote=True), self._clocks.snapshot(warp).released_by(mask)
                )
        self._checks.along.arrived(lanes)
        self._clocks.advance_of(lanes)

    def acquired(self, slots: Array, lanes: Array, passed: Array, wide: bool) -> None:
        """Lanes have passed a wait: they acquire what the arrivals released."""
        batch, barriers, clocks = self._batch, self._batch.mbarriers, self._clocks
        whole = barriers.whole(lanes, batch.alive_bits, passed)
        known = (clocks.clocks, clocks.met_column, clocks.near.released)
        more = acquire(slots, lanes, passed, whole, batch.ctas, barriers.homes, barriers.done, *known)
        if more or not clocks.near.suffices:
            self._waited(slots[passed], lanes[passed], whole, wide)
        else:
            clocks.changed()

    def _waited(self, slots: Array, lanes: Array, whole: Array, wide: bool) -> None:
        """Waits of lanes are over; lanes of `whole` warps have acquired what was released in their CTA.

        From other blocks they acquire only if their scope is `wide`.
        """
        self._clocks.changed()
        barriers, any_released = self._batch.mbarriers, self._clocks.publications.released
        alone = (slots >= 0) & ~whole[lanes // WARP]
        if self._clocks.near.suffices:
            self._take_rows(slots, lanes, alone)
            return
        for warp, slot, mask in group(lanes[alone], slots[alone]) if alone.any() else ():
            cta = warp % self._batch.ctas
            if cta == barriers.homes[slot] and barriers.done.shape[1]:
                first = int(self._clocks.first_numbers[cta])
                self._clocks.acquire(warp, mask, Knowledge({first: barriers.done[slot].copy()}))
        clusters = self._batch.cluster.size > 1
        for warp, slot, mask in group(lanes, slots) if any_released else ():
            self._checks.patterns.take(warp, mask, self.key(slot))
            if not clusters:
                continue
            far = self._clocks.publications.released.get(self.key(slot, remote=True))
            if far is not None:
                self._clocks.acquire(warp, mask, far if wide else self._checks.along.narrowly(far))

    def _take_rows(self, slots: Array, lanes: Array, alone: Array) -> None:
        """Waits are over.

        Lanes in `alone` acquire the clocks of their CTA, all lanes what was released beside these.
        """
        barriers, near = self._batch.mbarriers, self._clocks.near
        alone = alone & (barriers.homes[slots] == lanes // WARP % self._batch.ctas)
        if alone.any() and barriers.done.shape[1]:
            these = grouped(lanes[alone], slots[alone])
            self._clocks.acquire_rows(these, barriers.done[these.keys], None)
        there = near.were_released(slots)
        if there.any():
            these = grouped(lanes[there], slots[there])
            self._clocks.acquire_rows(these, *near.taken(these.keys))
