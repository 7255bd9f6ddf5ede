"""Bulk groups: copies out of shared memory that a thread collects in groups and waits for.

Threads of a warp may have committed different numbers of groups; an elected one, for instance, additional empty ones.
So a warp's clock counts its copies: the first one that one of its threads has not waited for.
"""

from dataclasses import dataclass

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.asynchronous.agents import Agent
from kernbench.ptx.emulator.asynchronous.hub import AsynchronousBatch
from kernbench.ptx.emulator.lanes.arrays import Int, Int64s
from kernbench.ptx.emulator.lanes.compiled import kernel
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.program.program import Site

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class _Begun:
    """Copies of one instruction: the lanes, the group of each lane, and the index of the copy in its warp."""

    lanes: Array
    groups: Array
    numbers: Array

    def part(self, chosen: Array) -> "_Begun":
        """The copies of some of the lanes."""
        return _Begun(self.lanes[chosen], self.groups[chosen], self.numbers[chosen])


class BulkGroups:
    """The bulk groups of one batch's threads."""

    def __init__(self, batch: AsynchronousBatch):
        self._batch = batch
        # groups each lane has committed, and the groups it knows to be read and to be complete
        self.committed: Array = np.zeros(batch.lanes, np.int64)
        self.used = False
        # the group of each lane's last copy plus one, and the number of its site
        self._last: Array = np.zeros(batch.lanes, np.int64)
        self._sites: Array = np.zeros(batch.lanes, np.int64)
        # sites of all copies
        self.sites: set[int] = set()
        self._read: Array = np.full(batch.lanes, _NEVER)
        # number of copy instructions of each warp; the copies not known to be read, and not known to be complete
        self._begun: Array = np.zeros(batch.warps, np.int64)
        self._open: dict[bool, list[_Begun]] = {True: [], False: []}

    def issue(self, lanes: Array, site: Site) -> tuple[Array, Array]:
        """Lanes begin a copy; returns their groups, and the index of the copy in each lane's warp."""
        self.used = True
        self.sites.add(site.number)
        groups, numbers = np.empty((2, len(lanes)), np.int64)
        begin_groups(
            lanes, site.number, self.committed, self._read, self._last, self._sites, self._begun, groups, numbers
        )
        # what warps know of their copies matters for findings only
        if self._batch.checks.checking:
            for begun in self._open.values():
                begun.append(_Begun(lanes, groups, numbers))
        return groups, numbers

    def unread(self, lanes: Array) -> Array:
        """The lanes that do not know whether their copies have been read."""
        found: Array = lanes[self._last[lanes] > self._read[lanes]]
        return found

    def apart(self, warp: int, site: Site) -> tuple[Array, Array]:
        """The lanes of a warp whose last copy was begun at a site: those that have waited for less than others do.

        And the others; none of the first if all have waited alike.
        """
        lanes = np.arange(warp * WARP, (warp + 1) * WARP)
        begun = lanes[(self._last[lanes] > 0) & (self._sites[lanes] == site.number)]
        less = self._read[begun] < self._read[begun].max(initial=0)
        return begun[less], begun[~less]

    def last_site(self, lane: int) -> Site:
        """The site of a lane's last copy."""
        site: Site = self._batch.program.sites[int(self._sites[lane])]
        return site

    def commit(self, lanes: Array) -> None:
        """Close the lanes' current group."""
        self.committed[lanes] += 1

    def wait(self, lanes: Array, keep: int, reading: bool) -> None:
        """Complete all groups of lanes but the last `keep`; with `reading`, only read their sources."""
        if not self.used:
            return
        limit: Array = np.full(self._batch.lanes, -1, np.int64)
        wait_groups(lanes, keep, self.committed, self._read, limit)
        self._batch.agents.complete("bulk", lambda agent: _before(agent, limit), reading)
        warps: Array = np.empty(len(lanes), np.int64)
        count = find_warps(lanes, self._begun, warps)
        if count:
            for sources in (True,) if reading else (True, False):
                self._learn(warps[:count], limit, sources)

    def _learn(self, warps: Array, limit: Array, sources: bool) -> None:
        """Warps know that copies are complete (with `sources`, read) once each thread that began one knows."""
        staying, first = [], self._begun.copy()
        for begun in self._open[sources]:
            left = find_first(begun.lanes, begun.groups, begun.numbers, limit, first)
            if left:
                staying.append(begun if left == len(begun.lanes) else begun.part(begun.groups >= limit[begun.lanes]))
        self._open[sources] = staying
        self._batch.checks.asynchronous.groups_done(warps, first[warps], sources)


def _before(agent: Agent, limit: Array) -> Array:
    assert agent.group is not None
    before: Array = agent.group < limit[agent.lanes]
    return before


@kernel
def begin_groups(
    lanes: Int64s,
    site: Int,
    committed: Int64s,
    read: Int64s,
    last: Int64s,
    sites: Int64s,
    begun: Int64s,
    groups: Int64s,
    numbers: Int64s,
) -> None:
    """Lanes begin a copy instruction: the group of each lane, and the copy's index in the lane's warp."""
    for i in range(lanes.size):
        lane = lanes[i]
        groups[i], numbers[i] = committed[lane], begun[lane // WARP]
        if read[lane] == _NEVER:
            read[lane] = committed[lane]
        last[lane], sites[lane] = committed[lane] + 1, site
    for i in range(lanes.size):
        # one more copy for each warp
        begun[lanes[i] // WARP] = numbers[i] + 1


@kernel
def wait_groups(lanes: Int64s, keep: Int, committed: Int64s, read: Int64s, limit: Int64s) -> None:
    """The first group of each lane that it does not wait for; groups before it are known to be read."""
    for i in range(lanes.size):
        lane = lanes[i]
        limit[lane] = committed[lane] - keep
        if read[lane] != _NEVER:
            read[lane] = max(read[lane], limit[lane])


@kernel
def find_warps(lanes: Int64s, begun: Int64s, warps: Int64s) -> int:
    """The warps of lanes that have begun a copy, without consecutive duplicates; returns their number."""
    count = 0
    for i in range(lanes.size):
        warp = lanes[i] // WARP
        if begun[warp] > 0 and (count == 0 or warps[count - 1] != warp):
            warps[count] = warp
            count += 1
    return count


@kernel
def find_first(lanes: Int64s, groups: Int64s, numbers: Int64s, limit: Int64s, first: Int64s) -> int:
    """Lower each warp's first unawaited copy to those of one instruction; returns how many are unawaited."""
    count = 0
    for i in range(lanes.size):
        if groups[i] >= limit[lanes[i]]:
            warp = lanes[i] // WARP
            first[warp] = min(first[warp], numbers[i])
            count += 1
    return count
