"""What relaxed arrivals and waits on mbarriers carry: nothing by themselves, and much by the fences beside them.

Two kinds of fence make use of them. An ordinary one, as everywhere in PTX's memory model: what was known at a fence
that releases goes with later arrivals, and a fence that acquires takes what a wait before it has seen. And
tcgen05.fence: by PTX's canonical patterns a commit, or an arrival behind fence::before_thread_sync, is ordered before
the operations of tcgen05 that follow a relaxed wait and fence::after_thread_sync. That says of operations of the tensor
core, and of loads and stores of tensor memory that were waited for, that they are done, and of nothing else.
"""

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.checks.asynchronous.hub import BatchFindings
from kernbench.ptx.emulator.checks.happens_before.knowledge import EVERYBODY, Knowledge, together
from kernbench.ptx.emulator.lanes.lanes import group
from kernbench.ptx.emulator.program.access_order import CLUSTER_SCOPE, CTA_SCOPE
from kernbench.ptx.emulator.units.batch import Batch


class RelaxedSignals:
    """Relaxed arrivals and waits of one batch."""

    def __init__(self, batch: Batch, checks: BatchFindings):
        self._batch, self._checks = batch, checks
        self._clocks = checks.clocks
        self._actors = checks.clocks.publications.actors
        self._fences = batch.program.fences_tensor
        # what lanes saw since their warp last passed fence::after_thread_sync, by warp, barrier and mask
        self._seen: dict[int, dict[tuple[int, int], Knowledge]] = {}
        # what warps knew of tcgen05 when they last passed fence::before_thread_sync
        self._before: dict[int, Knowledge] = {}

    def _tensor(self, knowledge: Knowledge) -> Knowledge:
        """What is known of operations of the tensor core, loads and stores alone."""
        kept = np.zeros(self._clocks.columns, np.int32)
        actors = self._batch.launch.actors
        for first in (actors.tensor(0), actors.loaded(0), actors.stored(0)):
            kept[first : first + self._batch.warps_per_cta] = 1
        return knowledge.only(kept)

    def carried(self, warp: int, mask: int, scope: int) -> Knowledge | None:
        """What an arrival of lanes carries by the fences before it, None if nothing."""
        pieces = self._checks.patterns.behind_fences(warp, mask, scope)
        pieces += [self._before[warp]] if warp in self._before else []
        return together(pieces, self._actors) if pieces else None

    def arriving(self, slots: Array, lanes: Array, wide: bool) -> None:
        """Lanes are about to arrive, relaxed; for other blocks only if their scope is `wide`."""
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
            self._clocks.publications.release(self._checks.asynchronous.key(slot, remote), knowledge)

    def passed(self, slots: Array, lanes: Array, wide: bool) -> None:
        """Relaxed waits of lanes are over: what the arrivals carried is seen, and waits for a fence."""
        for warp, slot, mask in group(lanes[slots >= 0], slots[slots >= 0]):
            near, far = self._carried_by(slot, warp % self._batch.ctas, wide)
            for knowledge, scope in ((near, CTA_SCOPE), (far, CLUSTER_SCOPE)):
                if knowledge is not None:
                    key = (*self._checks.asynchronous.key(slot), scope)
                    self._checks.patterns.saw(warp, mask, key, knowledge, scope)
            if self._fences:
                pieces = [one for one in (near, far) if one is not None]
                if pieces:
                    self._seen.setdefault(warp, {})[slot, mask] = self._tensor(together(pieces, self._actors))

    def _carried_by(self, slot: int, cta: int, wide: bool) -> tuple[Knowledge | None, Knowledge | None]:
        """What arrivals of a barrier's own CTA, and of others, carried."""
        barriers, released = self._batch.mbarriers, self._clocks.publications.released
        pieces = [released[key] for key in [self._checks.asynchronous.key(slot)] if key in released]
        if cta == barriers.homes[slot] and barriers.done.shape[1]:
            pieces.append(Knowledge({int(self._clocks.first_numbers[cta]): barriers.done[slot].copy()}))
        far = released.get(self._checks.asynchronous.key(slot, remote=True))
        if far is not None and not wide:
            far = self._checks.along.narrowly(far)
        return together(pieces, self._actors) if pieces else None, far

    def publish(self, warp: int, key: object) -> None:
        """A warp arrives, relaxed, at a barrier of the cluster: its fence::before_thread_sync counts there, too."""
        if warp in self._before:
            self._clocks.publications.release(key, self._before[warp])

    def fenced(self, warps: Array, before: bool) -> None:
        """Warps pass fence::before_thread_sync, or fence::after_thread_sync."""
        for warp in warps.tolist():
            if before:
                self._before[warp] = self._tensor(self._clocks.snapshot(warp).released_by(EVERYBODY))
                continue
            for (_, mask), knowledge in self._seen.pop(warp, {}).items():
                self._clocks.acquire(warp, mask, knowledge)
        if not before:
            self._clocks.changed()
