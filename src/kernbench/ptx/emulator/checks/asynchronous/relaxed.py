"""Relaxed arrivals and waits on mbarriers: they order nothing by themselves, but complete the patterns of fences.

Two kinds of fence use them:

- Ordinary fences, as everywhere in PTX's memory model: later arrivals release the clocks of a releasing fence, and an
  acquiring fence acquires what an earlier wait observed.
- tcgen05.fence: by PTX's canonical patterns a commit, or an arrival after fence::before_thread_sync, is ordered before
  tcgen05 operations that follow a relaxed wait and fence::after_thread_sync. This says that operations of the tensor
  core, and awaited accesses to tensor memory, are complete, and nothing else.
"""

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.checks.asynchronous.handover import Handover
from kernbench.ptx.emulator.checks.asynchronous.hub import BatchFindings
from kernbench.ptx.emulator.checks.happens_before.knowledge import EVERYBODY, Knowledge, together
from kernbench.ptx.emulator.lanes.lanes import group
from kernbench.ptx.emulator.program.access_order import CLUSTER_SCOPE, CTA_SCOPE
from kernbench.ptx.emulator.units.batch import Batch


class RelaxedSignals:
    """Relaxed arrivals and waits of one batch."""

    def __init__(self, batch: Batch, checks: BatchFindings, handover: Handover):
        self._batch, self._checks, self._handover = batch, checks, handover
        self._clocks = checks.clocks
        self._actors = checks.clocks.publications.actors
        self._fences = batch.program.fences_tensor
        # what lanes have observed since their warp's last fence::after_thread_sync, by warp, barrier and mask
        self._seen: dict[int, dict[tuple[int, int], Knowledge]] = {}
        # what warps knew of tcgen05 at their last fence::before_thread_sync: as rows of their CTAs, or by name
        self._before: dict[int, Knowledge] = {}
        self._before_rows: Array = np.zeros((batch.warps if self._fences else 0, checks.clocks.columns), np.int32)
        self._has_row: Array = np.zeros(batch.warps, bool)
        # the columns of tensor core operations, tensor loads and tensor stores
        self._kept: Array = np.zeros(checks.clocks.columns, np.int32)
        actors = batch.launch.actors
        for first in (actors.tensor(0), actors.loaded(0), actors.stored(0)) if self._fences else ():
            self._kept[first : first + batch.warps_per_cta] = 1

    def _tensor(self, knowledge: Knowledge) -> Knowledge:
        """The part of knowledge that is about tensor core operations, tensor loads and tensor stores."""
        return knowledge.only(self._kept)

    def _at_fence(self, warp: int) -> Knowledge | None:
        """What a warp knew at its last fence::before_thread_sync."""
        if self._has_row[warp]:
            first = int(self._clocks.first_numbers[warp % self._batch.ctas])
            return Knowledge({first: self._before_rows[warp].copy()})
        return self._before.get(warp)

    def carried(self, warp: int, mask: int, scope: int) -> Knowledge | None:
        """What an arrival of lanes releases by earlier fences, None if nothing."""
        pieces = self._checks.patterns.behind_fences(warp, mask, scope)
        before = self._at_fence(warp)
        pieces += [] if before is None else [before]
        return together(pieces, self._actors) if pieces else None

    def arriving(self, slots: Array, lanes: Array, wide: bool) -> None:
        """Lanes are about to arrive, relaxed; other blocks observe it only if their scope is `wide`."""
        barriers, here = self._batch.mbarriers, slots >= 0
        for warp, slot, mask in group(lanes[here], slots[here]):
            home = int(barriers.homes[slot])
            remote = home != warp % self._batch.ctas
            knowledge = self.carried(warp, mask, CLUSTER_SCOPE if remote else CTA_SCOPE)
            if knowledge is None or (remote and not wide):
                continue
            near = knowledge.row(int(self._clocks.first_numbers[home]), self._clocks.columns)
            if not remote and near is not None and barriers.held.shape[1]:
                np.maximum(barriers.held[slot], near, out=barriers.held[slot])
            self._handover.release(slot, knowledge, remote)

    def passed(self, slots: Array, lanes: Array, wide: bool) -> None:
        """Relaxed waits of lanes are over: what the arrivals released is observed, and acquired at a fence."""
        for warp, slot, mask in group(lanes[slots >= 0], slots[slots >= 0]):
            near, far = self._carried_by(slot, warp % self._batch.ctas, wide)
            for knowledge, scope in ((near, CTA_SCOPE), (far, CLUSTER_SCOPE)):
                if knowledge is not None:
                    key = (*self._handover.key(slot), scope)
                    self._checks.patterns.saw(warp, mask, key, knowledge, scope)
            if self._fences:
                pieces = [one for one in (near, far) if one is not None]
                if pieces:
                    self._seen.setdefault(warp, {})[slot, mask] = self._tensor(together(pieces, self._actors))

    def _carried_by(self, slot: int, cta: int, wide: bool) -> tuple[Knowledge | None, Knowledge | None]:
        """What arrivals from a barrier's own CTA, and from others, released."""
        barriers, near = self._batch.mbarriers, self._handover.released(slot)
        pieces = [] if near is None else [near]
        if cta == barriers.homes[slot] and barriers.done.shape[1]:
            pieces.append(Knowledge({int(self._clocks.first_numbers[cta]): barriers.done[slot].copy()}))
        far = self._handover.released(slot, remote=True)
        if far is not None and not wide:
            far = self._checks.along.narrowly(far)
        return together(pieces, self._actors) if pieces else None, far

    def publish(self, warp: int, key: object) -> None:
        """A warp arrives, relaxed, at the cluster's barrier: its fence::before_thread_sync counts there, too."""
        before = self._at_fence(warp)
        if before is not None:
            self._clocks.publications.release(key, before)

    def fenced(self, warps: Array, before: bool) -> None:
        """Warps pass fence::before_thread_sync or fence::after_thread_sync."""
        if before:
            self._keep(warps)
            return
        for warp in warps.tolist() if self._seen else ():
            for (_, mask), knowledge in self._seen.pop(warp, {}).items():
                self._clocks.acquire(warp, mask, knowledge)
        self._clocks.changed()

    def _keep(self, warps: Array) -> None:
        """Save what warps and their lanes know of tcgen05 at fence::before_thread_sync."""
        self._has_row[warps] = self._clocks.near.suffices
        if self._clocks.near.suffices:
            self._before_rows[warps] = self._clocks.rows_of(warps) * self._kept
            return
        for warp in warps.tolist():
            self._before[warp] = self._tensor(self._clocks.snapshot(warp).released_by(EVERYBODY))
