"""Order through memory, by the PTX memory model: release and acquire patterns, fences, and their scopes.

A release pattern is a release operation, or a fence and a later strong write by the same thread. An acquire pattern is
an acquire operation, or a strong read and a later fence. The second thread acquires what the first released if it reads
that write, or an update that continues its release sequence, and if each operation is in the scope of the other. Fences
of kind sc (and membar) are also ordered among themselves: if the effect of one was observed before the other, it comes
first. There barriers may lie between the fence and the write, and between the read and the fence.
"""

from collections.abc import Set as AnySet
from dataclasses import dataclass, replace
from itertools import islice

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.checks.happens_before.clocks import Clocks
from kernbench.ptx.emulator.checks.happens_before.knowledge import Knowledge, Location, Reach, Release, as_one
from kernbench.ptx.emulator.checks.happens_before.snapshot import Snapshot
from kernbench.ptx.emulator.lanes.lanes import WARP, group
from kernbench.ptx.emulator.memory.arena import LOCAL_BASE, SHARED_BASE
from kernbench.ptx.emulator.program.access_order import CLUSTER_SCOPE, CTA_SCOPE, Order
from kernbench.ptx.emulator.program.hub import BatchHub

_WINDOW = (1 << 44) - 1
# how many locations are searched for a release when a race is reported
_LOOKED_AT = 4096


@dataclass(frozen=True, slots=True, eq=False)
class _Fence:
    """Lanes that passed a releasing fence, with a snapshot of the clocks then: later strong writes release that."""

    mask: int
    scope: int
    snapshot: Snapshot
    sequential: bool


@dataclass(frozen=True, slots=True, eq=False)
class _Observed:
    """Lanes that read a release with a strong read; a fence, or an acquire of the same location, completes the pattern.

    Lanes that did not read it themselves, but met a thread that did (`heard`), acquire it by fence.sc only. `site` is
    the instruction that read it, and `clock` that of its warp then.
    """

    mask: int
    key: object
    release: Release
    heard: bool = False
    site: int = -1
    clock: int = 0


class MemoryOrder:
    """The order that fences and strong accesses of one batch create."""

    def __init__(self, batch: BatchHub, clocks: Clocks):
        self._batch = batch
        self._clocks = clocks
        self._publications = clocks.publications
        self._fences: dict[int, list[_Fence]] = {}
        self._observed: dict[int, list[_Observed]] = {}
        # proxy fences after which relaxed arrivals at a cluster's barrier publish stores, as a compiler assumes
        self._shown: dict[int, list[_Fence]] = {}
        # what a write after a barrier publishes of other threads' fence.sc before it, by warp
        self._distant: dict[int, list[Release]] = {}
        # warps with fence.sc, or reads of releases, that have not been passed on at a barrier yet
        self._fresh: set[int] = set()

    @property
    def unheard(self) -> bool:
        """Whether `meet` has anything to pass on."""
        return bool(self._fresh)

    def _reach(self, warp: int, scope: int) -> Reach:
        batch = self._batch
        cta = warp % batch.ctas
        return Reach(scope, int(batch.numbers[cta]), int(batch.numbers[cta - cta % batch.cluster.size]))

    def fence(self, warps: Array, masks: Array, order: Order) -> None:
        """Lanes of warps pass a fence: it acquires what they observed before, and later strong writes release by it."""
        for warp, mask in zip(warps.tolist(), masks.tolist(), strict=True):
            if order.acquires and warp in self._observed:
                self._acquire_observed(warp, mask, self._reach(warp, order.scope), None, order.sequential)
            if order.releases:
                # Later writes release the clocks as of this fence. It replaces older fences of these lanes that are no
                # stronger.
                older = [_without(one, mask, order) for one in self._fences.get(warp, ())]
                fresh = _Fence(mask, order.scope, self._clocks.snapshot(warp), order.sequential)
                self._fences[warp] = [*(one for one in older if one.mask), fresh]
                if order.sequential:
                    self._fresh.add(warp)
        if order.releases:
            self._clocks.advance(warps)

    def show(self, warps: Array, masks: Array) -> None:
        """Lanes of warps pass a proxy fence: relaxed arrivals at a cluster's barrier publish their clocks as of now."""
        for warp, mask in zip(warps.tolist(), masks.tolist(), strict=True):
            older = [replace(one, mask=one.mask & ~mask) for one in self._shown.get(warp, ())]
            fresh = _Fence(mask, CLUSTER_SCOPE, self._clocks.snapshot(warp), False)
            self._shown[warp] = [*(one for one in older if one.mask), fresh]
        self._clocks.advance(warps)

    def access(self, space: str, lanes: Array, addresses: Array, order: Order, site: int = -1) -> Array:
        """Strong accesses of lanes to addresses, at the site of a number.

        Returns the releasing warps, whose clocks the caller advances afterwards.
        """
        if space == "local" or not (self._publications.locations or self._fences or order.releases):
            return np.zeros(0, np.int64)
        groups = group(lanes, addresses)
        for warp, address, mask in groups:
            key = self._key(space, warp, int(address))
            if key is None:
                continue
            reach = self._reach(warp, order.scope)
            if order.reads:
                self._read(warp, mask, key, reach, order.acquires, site)
            if order.writes:
                self._write(warp, mask, key, reach, order)
        return np.array(sorted({warp for warp, _, _ in groups}) if order.releases else [], np.int64)

    def _key(self, space: str, warp: int, address: int) -> object | None:
        """The key of a location: an address, with the cluster for shared memory; None for a thread's local memory."""
        window = address >> 44
        if space == "generic" and window == LOCAL_BASE >> 44:
            return None
        if space == "global" or (space == "generic" and window != SHARED_BASE >> 44):
            return address
        return address & _WINDOW, self._reach(warp, 0).cluster

    def _read(self, warp: int, mask: int, key: object, reach: Reach, acquires: bool, site: int) -> None:
        location = self._publications.locations.get(key)
        # reads-from counts only between morally strong operations: each in the scope of the other
        if location is not None and location.carrier.meets(reach):
            for release in location.releases:
                if acquires and not release.distant and release.reach.meets(reach):
                    self._clocks.acquire(warp, mask, release.knowledge)
                # a relaxed read waits for a later fence; so does fence.sc order, which an acquire alone does not
                # establish
                if not acquires or release.sequential:
                    clock = self._clocks.own(warp)
                    self._observed.setdefault(warp, []).append(_Observed(mask, key, release, False, site, clock))
                    self._fresh.add(warp)
        if warp in self._observed:
            if acquires:
                self._acquire_observed(warp, mask, reach, key, False)
            self._tidy(warp)

    def _acquire_observed(self, warp: int, mask: int, reach: Reach, key: object | None, sequential: bool) -> None:
        """Lanes acquire what they observed before: at location `key`, or anywhere if it is None."""
        left = []
        for seen in self._observed[warp]:
            here, release = seen.mask & mask, seen.release
            # across a barrier only two fence.sc are ordered, not a plain pattern
            far = (seen.heard or release.distant) and not sequential
            if not here or far or (key is not None and seen.key != key) or not release.reach.meets(reach):
                left.append(seen)
                continue
            self._clocks.acquire(warp, here, release.knowledge)
            if seen.mask & ~mask or (release.sequential and not sequential):
                rest = seen.mask if release.sequential and not sequential else seen.mask & ~mask
                left.append(replace(seen, mask=rest))
        self._observed[warp] = left

    def _tidy(self, warp: int) -> None:
        """Remove duplicates, which polling loops make."""
        seen = self._observed[warp]
        if len(seen) > 32:
            unique = {(one.mask, one.key, id(one.release), one.heard): one for one in seen}
            self._observed[warp] = list(unique.values())

    def _write(self, warp: int, mask: int, key: object, reach: Reach, order: Order) -> None:
        number, actors = int(self._clocks.numbers[warp]), self._publications.actors
        # a write releases by each fence before it, by other threads' fence.sc before a barrier, and by itself if it
        # releases
        own = [self._by_fence(warp, one, mask) for one in self._fences.get(warp, ()) if one.mask & mask]
        own += [one for one in self._distant.get(warp, ()) if one.mask & mask]
        if order.releases:
            own.append(Release(self._clocks.snapshot(warp).released_by(mask), reach, number, mask))
        location = self._publications.locations.get(key)
        if location is not None:
            location.write(reach, own, order.updates, number, mask, actors, order.acquires and order.releases)
        elif own:
            self._publications.locations[key] = Location(reach, own)

    def _by_fence(self, warp: int, fence: _Fence, mask: int, distant: bool = False) -> Release:
        """The release pattern of a fence that lanes have passed, and their write after it."""
        knowledge, reach = fence.snapshot.released_by(fence.mask & mask), self._reach(warp, fence.scope)
        return Release(knowledge, reach, int(self._clocks.numbers[warp]), mask, fence.sequential, distant)

    def meet(self, groups: list[tuple[int, int]]) -> None:
        """Lanes of one CTA, as warps and masks, meet: they share each other's fence.sc, and releases they observed."""
        if self._fresh.isdisjoint(warp for warp, _ in groups):
            return
        published: list[Release] = []
        heard: list[_Observed] = []
        for warp, mask in groups:
            self._fresh.discard(warp)
            fences = [one for one in self._fences.get(warp, ()) if one.sequential and one.mask & mask]
            published += [self._by_fence(warp, one, mask, distant=True) for one in fences]
            published += [one for one in self._distant.get(warp, ()) if one.mask & mask]
            heard += [one for one in self._observed.get(warp, ()) if one.release.sequential and one.mask & mask]
        for warp, mask in groups:
            self._hear(warp, mask, published, heard)

    def _hear(self, warp: int, mask: int, published: list[Release], heard: list[_Observed]) -> None:
        number, actors = int(self._clocks.numbers[warp]), self._publications.actors
        kept = [one for one in self._distant.get(warp, ()) if one.mask & ~mask]
        mine = [Release(one.knowledge, one.reach, number, mask, True, True) for one in published]
        by_scope = [[one for one in mine if one.reach.scope == scope] for scope in {one.reach.scope for one in mine}]
        joined = [replace(as_one(alike, actors), mask=mask) for alike in by_scope]
        self._distant[warp] = kept + joined
        if heard:
            known = {(one.key, id(one.release)) for one in self._observed.get(warp, ()) if not mask & ~one.mask}
            new = {(one.key, id(one.release)): one for one in heard}
            fresh = [_Observed(mask, one.key, one.release, True) for key, one in new.items() if key not in known]
            self._observed[warp] = [*self._observed.get(warp, ()), *fresh]

    def missing(self, lane: int, number: int, clock: int, mask: int) -> str:
        """Which part of a release-acquire pattern is missing between another thread's access and a racing lane.

        - "fence": the lane has read a release made after the access, but has not acquired it.
        - "acquire": the access was released, but the lane has not read the release.
        - "release": the access was not released.
        """
        columns = self._clocks.columns

        def covers(release: Release) -> bool:
            return not release.knowledge.left(number, clock, mask, columns)

        seen = [one.release for one in self._observed.get(lane // WARP, ()) if one.mask >> lane % WARP & 1]
        if any(map(covers, seen)):
            return "fence"
        locations = islice(self._publications.locations.values(), _LOOKED_AT)
        return "acquire" if any(covers(one) for location in locations for one in location.releases) else "release"

    def returned(
        self, lane: int, missed: tuple[int, int, int], decided: AnySet[int], before_barriers: AnySet[int]
    ) -> bool:
        """Whether an atomic that has read a release of another thread's access has surely returned, as a lane stores.

        `missed` is that access: warp, clock and lanes. Either the atomic is the lane's own, and one of those that have
        `decided` about the store. Or it is that of a thread of its block, and one that returns `before_barriers`, and
        the lane has met that thread since.
        """
        ctas, columns = self._batch.ctas, self._clocks.columns
        for inside in range(self._batch.warps_per_cta):
            warp = inside * ctas + lane // WARP % ctas
            for seen in self._observed.get(warp, ()):
                if seen.heard or seen.release.knowledge.left(*missed, columns):
                    continue
                mine = warp == lane // WARP and seen.mask >> lane % WARP & 1
                if mine and seen.site in decided:
                    return True
                if seen.site in before_barriers and self._has_met(lane, warp, seen):
                    return True
        return False

    def _has_met(self, lane: int, warp: int, seen: _Observed) -> bool:
        """Whether a lane has met one of the lanes of a warp of its block that have read something, since they did."""
        clocks, ctas, own = self._clocks, self._batch.ctas, lane // WARP
        if own == warp:
            return bool(clocks.met[warp] >= seen.clock)
        known = clocks.clocks[own % ctas, own // ctas, warp // ctas]
        number, readers = int(clocks.numbers[warp]), seen.mask
        return bool(known >= seen.clock) or clocks.unknown(lane, number, seen.clock, readers) != readers

    def publish(self, warp: int, mask: int, key: object, ordered: bool = True) -> None:
        """Lanes release to a barrier of several CTAs: their clocks now, or as of their fences if not `ordered`."""
        if ordered:
            self._publications.release(key, self._clocks.snapshot(warp).released_by(mask))
            self._clocks.advance(np.array([warp]))
            return
        for one in (*self._fences.get(warp, ()), *self._shown.get(warp, ())):
            if one.mask & mask:
                self._publications.release(key, one.snapshot.released_by(one.mask & mask))

    def behind_fences(self, warp: int, mask: int, scope: int) -> list[Knowledge]:
        """What a relaxed arrival of lanes releases: their clocks as of earlier fences of at least this scope."""
        passed = [one for one in self._fences.get(warp, ()) if one.mask & mask and one.scope >= scope]
        return [one.snapshot.released_by(one.mask & mask) for one in passed]

    def saw(self, warp: int, mask: int, key: object, knowledge: Knowledge, scope: int) -> None:
        """A relaxed wait of lanes observes what arrivals released: a later fence of at least this scope acquires it.

        A later observation at the same barrier includes all earlier ones, so it replaces them.
        """
        cta, cluster = self._reach(warp, 0).cta, self._reach(warp, 0).cluster
        reach = Reach(scope, cta if scope == CTA_SCOPE else -1, cluster)
        others = [one for one in self._observed.get(warp, ()) if (one.key, one.mask) != (key, mask)]
        seen = _Observed(mask, key, Release(knowledge, reach, int(self._clocks.numbers[warp]), mask))
        self._observed[warp] = [*others, seen]

    def take(self, warp: int, mask: int, key: object) -> None:
        """Lanes acquire what was released to a barrier."""
        knowledge: Knowledge | None = self._publications.released.get(key)
        if knowledge is not None:
            self._clocks.acquire(warp, mask, knowledge)


def _without(fence: _Fence, mask: int, order: Order) -> _Fence:
    """A fence without lanes that have passed a later one, of at least its scope and kind."""
    if fence.scope > order.scope or (fence.sequential and not order.sequential):
        return fence
    return replace(fence, mask=fence.mask & ~mask)
