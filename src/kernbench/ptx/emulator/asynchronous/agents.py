"""Agents: asynchronous operations in flight. Their effects are visible when they complete, and no earlier.

An instruction begins an agent for the lanes that run it: `perform(chosen)` moves the data of some of them, and then
`signal(chosen)` notifies those that wait (an mbarrier). Agents complete as late as they may: when a wait of their own
thread covers them (`Agents.complete`), or when no warp can continue (`Agents.drain`); with an eager schedule, at once.
Races are checked when the agent begins, since from then on its accesses may happen: see `shadow`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.asynchronous.hub import AsynchronousBatch
from kernbench.ptx.emulator.program.program import Site

# positions in an agent's lanes
Chosen = Array


@dataclass(eq=False)
class Agent:
    """One instruction's asynchronous work for some lanes (lane numbers in the batch, one for each operation).

    - `group`: the group of the issuing thread that each operation belongs to, None if they complete on a barrier.
    - `kind`: the queue ("copy", "bulk", "tensor"); a wait completes agents of its own kind only.
    - `reads`: called before `perform`, if sources may be released before the whole operation is complete.
    - `together`, `work`: consecutive agents with the same `together` are performed by one call of it, with the `work`
      of each.
    """

    kind: str
    site: Site
    lanes: Array
    perform: Callable[[Chosen], None]
    signal: Callable[[Chosen], None] | None = None
    reads: Callable[[Chosen], None] | None = None
    group: Array | None = None
    together: Callable[[list[Any]], None] | None = None
    work: object = None
    # called with the operations that are performed next
    noting: Callable[[Chosen], None] | None = None

    def __post_init__(self) -> None:
        # positions of incomplete operations, and of those whose sources have not been read
        self._left: Array = np.arange(len(self.lanes))
        self._unread = self._left

    @property
    def done(self) -> bool:
        """Whether all operations have completed."""
        return not len(self._left)

    def read(self, chosen: Array) -> None:
        """Read the sources of some operations, once."""
        now, self._unread = _parted(self._unread, chosen)
        if len(now) and self.reads is not None:
            self.reads(now)

    def finish(self, chosen: Array | None = None) -> None:
        """Complete some operations, or all of them, once."""
        now, left = (self._left, _NONE) if chosen is None else _parted(self._left, chosen)
        if not len(now):
            return
        unread = now
        if self._unread is self._left:
            self._unread = left
        else:
            some: Array = np.zeros(len(self.lanes), bool)
            some[now] = True
            unread, self._unread = _parted(self._unread, some)
        if self.reads is not None and len(unread):
            self.reads(unread)
        self._left = left
        if self.noting is not None:
            self.noting(now)
        self.perform(now)
        if self.signal is not None:
            self.signal(now)

    def handed_over(self) -> object:
        """Take the work of all operations, none of which has completed, to complete it elsewhere."""
        now, self._left = self._left, _NONE
        if self.noting is not None:
            self.noting(now)
        return self.work


_NONE: Array = np.arange(0)


def _parted(positions: Array, chosen: Array) -> tuple[Array, Array]:
    """The positions where `chosen` holds, and the others."""
    count = np.count_nonzero(chosen)
    if not count or not len(positions):
        return _NONE, positions
    if count == len(chosen):
        return positions, _NONE
    which = chosen[positions]
    return positions[which], positions[~which]


class Agents:
    """The agents of one batch, in the order of their beginning."""

    def __init__(self, batch: AsynchronousBatch, eager: bool = False):
        self._batch = batch
        self._eager = eager
        self._flying: list[Agent] = []
        # agents begun and completed: progress, for deadlock detection
        self.progress = 0

    def __len__(self) -> int:
        return len(self._flying)

    def begin(self, agent: Agent) -> None:
        """Begin asynchronous work."""
        self.progress += 1
        if self._batch.journal is not None:
            self._batch.journal.issued(agent)
        if self._eager:
            agent.finish()
        else:
            self._flying.append(agent)

    def complete(self, kind: str, chosen: Callable[[Agent], Array], reading: bool = False) -> None:
        """Complete the operations of a kind for which `chosen(agent)` holds.

        With `reading`, only read their sources.
        """
        for agent in [a for a in self._flying if a.kind == kind]:
            if reading:
                agent.read(chosen(agent))
            else:
                agent.finish(chosen(agent))
        self._sweep()

    def pending(self, kind: str) -> list[Agent]:
        """Agents of a kind with operations in flight."""
        return [agent for agent in self._flying if agent.kind == kind]

    def drain(self) -> bool:
        """No warp can continue: complete everything in flight, in the order of beginning."""
        flying, self._flying = self._flying, []
        position = 0
        while position < len(flying):
            agent, end = flying[position], position + 1
            if agent.together is not None and self._batch.launch.fast.products_together:
                while end < len(flying) and flying[end].together is agent.together:
                    end += 1
            if end - position > 1 and agent.together is not None:
                agent.together([one.handed_over() for one in flying[position:end]])
            else:
                agent.finish()
            position = end
        self.progress += len(flying)
        return bool(flying)

    def _sweep(self) -> None:
        before = len(self._flying)
        self._flying = [agent for agent in self._flying if not agent.done]
        self.progress += before - len(self._flying)
