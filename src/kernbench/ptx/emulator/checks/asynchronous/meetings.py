"""The four warps of a warpgroup meet in a wgmma operation: it begins when the last of them has issued it.

So it knows what each of them knew when it issued: the joined vector clocks of all four. That is how a GPU runs it (see
ADR 157), and what wgmma.fence is for: what the warps of the warpgroup have written before is ordered before. Each
writer still needs its own proxy fence, as the columns of the async proxy are joined like all others.
"""

from typing import NamedTuple

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.asynchronous.matrix.warpgroups import WARPS, Crew, Issued, together
from kernbench.ptx.emulator.checks.happens_before.clocks import Clocks
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.units.batch import Batch


class Met(NamedTuple):
    """Operations that begin now: who issued them, with the vector clock of each warp then.

    `now` says which of the warps issue just now, so that their clocks are still as they were.
    """

    event: Issued
    known: Array
    now: Array


class _Part(NamedTuple):
    """Warps that have issued an operation before the rest of their warpgroup; `keys` name the operations."""

    event: Issued
    known: Array
    keys: Array

    def chosen(self, which: Array) -> "_Part":
        """The same for some of the warps."""
        return _Part(self.event.part(which), self.known[which], self.keys[which])


class Meetings:
    """Warps of one batch that have issued operations, and wait there for the rest of their warpgroups."""

    def __init__(self, batch: Batch, clocks: Clocks):
        self._batch, self._clocks = batch, clocks
        self._parts: list[_Part] = []

    def come(self, event: Issued, crew: Crew) -> list[Met]:
        """Warps issue an operation: returns the operations for which nobody is missing any more."""
        known = self._known(event.warps)
        if together(event, crew) == WARPS:
            return [Met(event, known, np.ones(len(known), bool))]
        keys = crew.leaders * (1 << 32) + event.ordinals
        self._parts.append(_Part(event, known, keys))
        # what these warps do from here on does not happen before the operation
        self._clocks.advance(np.unique(event.warps))
        complete = self._batch.warpgroups.issued[crew.mates].min(axis=1) > event.ordinals
        return self._taken(np.unique(keys[complete]), event.warps) if complete.any() else []

    def _known(self, warps: Array) -> Array:
        """The vector clocks of warps; of their own, the accesses before they last met, and those of the first lane."""
        rows: Array = self._clocks.own_rows(warps * WARP)
        inside, first = warps // self._batch.ctas, self._batch.launch.actors.lane(0)
        own = self._clocks.clocks[warps % self._batch.ctas, inside, inside]
        rows[np.arange(len(warps)), first + inside] = own * WARP
        return rows

    def _taken(self, keys: Array, warps: Array) -> list[Met]:
        """Take the parts of operations whose last `warps` have come; those of one instruction become one."""
        staying: list[_Part] = []
        going: dict[int, list[_Part]] = {}
        for part in self._parts:
            complete = np.isin(part.keys, keys)
            if complete.any():
                going.setdefault(part.event.form.site.number, []).append(part.chosen(complete))
            if not complete.all():
                staying.append(part.chosen(~complete))
        self._parts = staying
        return [_joined(parts, warps) for parts in going.values()]


def _joined(parts: list[_Part], warps: Array) -> Met:
    """One event of parts, of which `warps` issue just now."""
    events, first = [part.event for part in parts], parts[0].event
    event = Issued(
        first.form,
        np.concatenate([one.warps for one in events]),
        None if first.a is None else np.concatenate([one.a for one in events if one.a is not None]),
        np.concatenate([one.b for one in events]),
        np.concatenate([one.adds for one in events]),
        np.concatenate([one.ordinals for one in events]),
        np.concatenate([one.groups for one in events]),
        None if first.meta is None else np.concatenate([one.meta for one in events if one.meta is not None]),
    )
    return Met(event, np.concatenate([part.known for part in parts]), np.isin(event.warps, warps))
