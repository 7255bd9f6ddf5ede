"""Bulk groups: copies out of shared memory that a thread gathers in groups and waits for."""

from typing import Any

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.asynchronous.agents import Agent
from kernbench.ptx.emulator.lanes import WARP
from kernbench.ptx.emulator.program import Site

_NEVER = np.iinfo(np.int64).max


class BulkGroups:
    """The bulk groups of one batch's threads."""

    def __init__(self, batch: Any):
        self._batch = batch
        # groups each lane has committed, and those it knows to have been read and to be done
        self.committed: Array = np.zeros(batch.lanes, np.int64)
        self.used = False
        # one more than the group of each lane's last copy, and the number of its site
        self._last: Array = np.zeros(batch.lanes, np.int64)
        self._sites: Array = np.zeros(batch.lanes, np.int64)
        self._known = {True: np.full(batch.lanes, _NEVER), False: np.full(batch.lanes, _NEVER)}

    def issue(self, lanes: Array, site: Site) -> Array:
        """Lanes begin a copy; gives the groups they belong to."""
        self.used = True
        self._sites[lanes] = site.number
        for known in self._known.values():
            first = lanes[known[lanes] == _NEVER]
            known[first] = self.committed[first]
        groups: Array = self.committed[lanes]
        self._last[lanes] = groups + 1
        return groups

    def unread(self, lanes: Array) -> Array:
        """Those of the lanes that do not know whether their copies have been read."""
        found: Array = lanes[self._last[lanes] > self._known[True][lanes]]
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
        for known in (self._known[True],) if reading else self._known.values():
            began = lanes[known[lanes] != _NEVER]
            known[began] = np.maximum(known[began], limit[began])
        self._learn(np.unique(lanes // WARP), reading)

    def _learn(self, warps: Array, reading: bool) -> None:
        """A warp knows that a group is done when each of its threads that copies anything knows."""
        checks = self._batch.checks
        if checks is None:
            return
        for sources in (True,) if reading else (True, False):
            clocks = self._known[sources].reshape(-1, WARP)[warps].min(axis=1)
            began = clocks != _NEVER
            checks.asynchronous.groups_done(warps[began], clocks[began], sources)


def _before(agent: Agent, limit: Array) -> Array:
    assert agent.group is not None
    before: Array = agent.group < limit[agent.lanes]
    return before
