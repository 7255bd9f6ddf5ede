"""The barrier of a cluster: every thread of its CTAs arrives, and waits later."""

from dataclasses import dataclass

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.barriers.hub import BarrierScheduler
from kernbench.ptx.emulator.lanes.fragment import Fragment
from kernbench.ptx.emulator.lanes.lanes import WARP, Mask, group
from kernbench.ptx.emulator.program.program import Site


@dataclass(eq=False, slots=True)
class Waiter:
    """Lanes that wait for their cluster."""

    fragment: Fragment
    following: int
    site: Site
    acquires: bool


class ClusterBarrier:
    """The cluster barriers of one batch."""

    def __init__(self, scheduler: BarrierScheduler):
        self._scheduler = scheduler
        self._batch = scheduler.batch
        clusters = self._batch.ctas // self._batch.cluster.size
        self.phase: Array = np.zeros(clusters, np.int64)
        self.arrived: Array = np.zeros(clusters, np.int64)
        # the phase of each lane's last arrival, -1 for none
        self._lane_phase: Array = np.full(self._batch.lanes, -1, np.int64)
        # lanes that have arrived and not yet waited
        self._unwaited: Mask = np.zeros(self._batch.lanes, bool)
        self.waiting: list[Waiter] = []

    def arrive(self, fragment: Fragment, site: Site, releases: bool) -> None:
        """Lanes arrive."""
        lanes = _lanes(fragment)
        clusters = self._cluster(lanes)
        again = self._lane_phase[lanes] == self.phase[clusters]
        twice = again | self._unwaited[lanes]
        if twice.any():
            self._batch.checks.asynchronous.arrived_twice(lanes[twice], site)
        self._release(lanes, releases)
        self._unwaited[lanes] = True
        first = ~again
        self._lane_phase[lanes[first]] = self.phase[clusters[first]]
        if self._batch.recorder.recording:
            self._batch.recorder.cluster_barrier(lanes, self._lane_phase[lanes], False, site)
        np.add.at(self.arrived, clusters[first], 1)
        self._batch.mbarriers.events += 1
        self._complete()

    def _release(self, lanes: Array, releases: bool) -> None:
        """Arrivals release what their lanes know; relaxed ones what they knew at their last fence."""
        for warp, cluster, mask in group(lanes, self._cluster(lanes)):
            self._batch.checks.cluster_arrives(warp, mask, self._key(warp, int(self.phase[cluster])), releases)

    def _key(self, warp: int, phase: int) -> tuple[str, int, int]:
        size = self._batch.cluster.size
        leader = warp % self._batch.ctas // size * size
        return ("cluster", int(self._batch.numbers[leader]), phase)

    def _cluster(self, lanes: Array) -> Array:
        clusters: Array = (lanes // WARP) % self._batch.ctas // self._batch.cluster.size
        return clusters

    def _complete(self) -> None:
        """Advance the phase of clusters whose living threads have all arrived."""
        alive = self._batch.alive_by_cta.reshape(-1, self._batch.cluster.size).sum(axis=1)
        done = (self.arrived > 0) & (self.arrived >= alive)
        self.phase[done] += 1
        self.arrived[done] = 0

    def wait(self, fragment: Fragment, waiter: Waiter, again: bool = False) -> Fragment | None:
        """Lanes wait for the phase in which they arrived."""
        if self._batch.recorder.recording and not again:
            lanes = _lanes(fragment)
            self._batch.recorder.cluster_barrier(lanes, self._lane_phase[lanes], True, waiter.site)
        passed = self._passed(fragment)
        going, staying = self._scheduler.split(fragment, passed)
        if staying is not None:
            self.waiting.append(Waiter(staying, waiter.following, waiter.site, waiter.acquires))
        if going is None:
            return None
        self._acquire(going, waiter)
        if staying is None:
            return fragment.at(waiter.following)
        self._scheduler.push(going.at(waiter.following))
        return None

    def _passed(self, fragment: Fragment) -> Mask:
        lanes = fragment.window.lane_numbers
        passed: Mask = self._lane_phase[lanes] < self.phase[self._cluster(lanes)]
        return passed

    def _acquire(self, fragment: Fragment, waiter: Waiter) -> None:
        checks = self._batch.checks
        lanes = _lanes(fragment)
        never = lanes[~self._unwaited[lanes]]
        self._unwaited[lanes] = False
        if len(never):
            checks.asynchronous.never_arrived(never, waiter.site)
        checks.cluster_waited(lanes)
        if waiter.acquires:
            for warp, cluster, mask in group(lanes, self._cluster(lanes)):
                checks.cluster_passes(warp, mask, self._key(warp, int(self.phase[cluster]) - 1))

    def wake(self) -> bool:
        """Nothing else can run: lanes whose cluster has arrived continue."""
        if not self.waiting:
            return False
        self._complete()
        waiting, self.waiting = self.waiting, []
        for one in waiting:
            going = self.wait(one.fragment, one, again=True)
            if going is not None:
                self._scheduler.push(going)
        return bool(self._scheduler.ready)

    def went_on_without(self, lane: int) -> bool:
        """Whether the last phase of a lane's cluster was completed without the lane, which has exited."""
        phase = int(self.phase[self._cluster(np.array([lane]))[0]])
        return bool(phase > 0 and not self._batch.alive[lane] and self._lane_phase[lane] < phase - 1)

    def exited_before(self, lane: int) -> Array:
        """Warps of a lane's block that had exited when the phase was complete that the lane waited for last."""
        phase, ctas = int(self.phase[self._cluster(np.array([lane]))[0]]), self._batch.ctas
        if self._unwaited[lane] or self._lane_phase[lane] < phase - 1 or not phase:
            return np.zeros(0, np.int64)
        gone = (~self._batch.alive & (self._lane_phase < phase - 1)).reshape(-1, WARP).all(axis=1)
        warps = np.flatnonzero(gone)
        found: Array = warps[warps % ctas == lane // WARP % ctas]
        return found

    def absent(self, cluster: int) -> Array:
        """Living lanes of a cluster that have not arrived in its phase."""
        lanes = np.flatnonzero(self._batch.alive)
        missing: Array = lanes[(self._cluster(lanes) == cluster) & (self._lane_phase[lanes] < self.phase[cluster])]
        return missing


def _lanes(fragment: Fragment) -> Array:
    lanes: Array = fragment.window.lane_numbers
    return lanes if fragment.lanes.mask is None else lanes[fragment.lanes.mask]
