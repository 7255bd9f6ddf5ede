"""Bulk groups: copies out of shared memory that a thread gathers in groups and waits for.

Threads of a warp may have committed different numbers of groups, an elected one some empty ones more, say. So what a
warp knows is counted in its copies: the first that one of its threads has not waited for.
"""

from dataclasses import dataclass

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.asynchronous.agents import Agent
from kernbench.ptx.emulator.asynchronous.hub import AsynchronousBatch
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.program.program import Site

_NEVER = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True, eq=False)
class _Begun:
    """Copies of one instruction: who began them, in which group of each lane, and the how manieth of each warp."""

    lanes: Array
    groups: Array
    numbers: Array

    def part(self, chosen: Array) -> "_Begun":
        """The same for some of the lanes."""
        return _Begun(self.lanes[chosen], self.groups[chosen], self.numbers[chosen])


class BulkGroups:
    """The bulk groups of one batch's threads."""

    def __init__(self, batch: AsynchronousBatch):
        self._batch = batch
        # groups each lane has committed, and those it knows to have been read and to be done
        self.committed: Array = np.zeros(batch.lanes, np.int64)
        self.used = False
        # one more than the group of each lane's last copy, and the number of its site
        self._last: Array = np.zeros(batch.lanes, np.int64)
        self._sites: Array = np.zeros(batch.lanes, np.int64)
        # sites of all copies
        self.sites: set[int] = set()
        self._read: Array = np.full(batch.lanes, _NEVER)
        # instructions that each warp has begun copies with, and those copies that are not known to be read, or done
        self._begun: Array = np.zeros(batch.warps, np.int64)
        self._open: dict[bool, list[_Begun]] = {True: [], False: []}

    def issue(self, lanes: Array, site: Site) -> tuple[Array, Array]:
        """Lanes begin a copy; gives the groups they belong to, and the number of the copy in each lane's warp."""
        self.used = True
        self._sites[lanes] = site.number
        self.sites.add(site.number)
        first = lanes[self._read[lanes] == _NEVER]
        self._read[first] = self.committed[first]
        groups, numbers = self.committed[lanes], self._begun[lanes // WARP]
        self._begun[np.unique(lanes // WARP)] += 1
        self._last[lanes] = groups + 1
        # what warps know of their copies matters for findings alone
        if self._batch.checks.checking:
            for begun in self._open.values():
                begun.append(_Begun(lanes, groups, numbers))
        return groups, numbers

    def unread(self, lanes: Array) -> Array:
        """Those of the lanes that do not know whether their copies have been read."""
        found: Array = lanes[self._last[lanes] > self._read[lanes]]
        return found

    def last_site(self, lane: int) -> Site:
        """Where a lane began its last copy."""
        site: Site = self._batch.program.sites[int(self._sites[lane])]
        return site

    def commit(self, lanes: Array) -> None:
        """Close the lanes' current group."""
        self.committed[lanes] += 1

    def wait(self, lanes: Array, keep: int, reading: bool) -> None:
        """Complete all groups of lanes but the last `keep`, or with `reading` take what they read."""
        limit = np.full(self._batch.lanes, -1, np.int64)
        limit[lanes] = self.committed[lanes] - keep
        self._batch.agents.complete("bulk", lambda agent: _before(agent, limit), reading)
        began = lanes[self._read[lanes] != _NEVER]
        self._read[began] = np.maximum(self._read[began], limit[began])
        for sources in (True,) if reading else (True, False):
            self._learn(np.unique(lanes // WARP), limit, sources)

    def _learn(self, warps: Array, limit: Array, sources: bool) -> None:
        """Warps know that copies are done, or with `sources` read, when each thread that began one knows."""
        staying, first = [], self._begun.copy()
        for begun in self._open[sources]:
            left = begun.groups >= limit[begun.lanes]
            if left.any():
                staying.append(begun if left.all() else begun.part(left))
                np.minimum.at(first, staying[-1].lanes // WARP, staying[-1].numbers)
        self._open[sources] = staying
        warps = warps[self._begun[warps] > 0]
        self._batch.checks.asynchronous.groups_done(warps, first[warps], sources)


def _before(agent: Agent, limit: Array) -> Array:
    assert agent.group is not None
    before: Array = agent.group < limit[agent.lanes]
    return before
