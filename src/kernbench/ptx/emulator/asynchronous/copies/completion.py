"""How asynchronous copies complete: by bytes on an mbarrier, or in a bulk group; and as which actor they act."""

from dataclasses import dataclass

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.asynchronous.agents import Chosen
from kernbench.ptx.emulator.asynchronous.copies.begin_kernels import find_distinct, have_neighbours
from kernbench.ptx.emulator.asynchronous.hub import AsynchronousBatch
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.memory.shadow import Ranges
from kernbench.ptx.emulator.program.program import Site


@dataclass(frozen=True, slots=True, eq=False)
class OnBarrier:
    """Each operation of `lanes` moves `amounts` bytes and completes them on the barrier of its slot.

    `generic` operations run in the generic proxy as a thread of their own, as st.async and red.async; others belong to
    the async proxy, to which earlier writes and the barrier must be visible. Faults of operations that are `apart` are
    reported separately.
    """

    batch: AsynchronousBatch
    lanes: Array
    amounts: Array
    slots: Array
    phases: Array
    site: Site
    generic: bool = False
    apart: bool = False

    kind = "copy"

    @property
    def group(self) -> None:
        """Copies on barriers have no group."""
        return None

    def signal(self, chosen: Chosen) -> None:
        """The bytes of some operations have arrived."""
        if self.apart and not np.array_equal(self.batch.mbarriers.phases(self.slots), self.phases):
            for one in chosen:
                self._deliver(chosen[chosen == one])
        else:
            self._deliver(chosen)

    def _deliver(self, chosen: Chosen) -> None:
        slots, phases, lanes, amounts = self.slots, self.phases, self.lanes, self.amounts
        # all are chosen
        if len(chosen) < len(slots):
            slots, phases, lanes, amounts = slots[chosen], phases[chosen], lanes[chosen], amounts[chosen]
        self.batch.mbarriers.deliver(slots, phases, lanes, amounts, self.site)

    def enter(self, space: str, writes: bool, ranges: Ranges, atomic: bool = False) -> None:
        """Check races of accesses that may happen from now on."""
        barriers = self.batch.mbarriers
        if len(self.slots):
            columns, homes = barriers.columns[self.slots], barriers.homes[self.slots]
            clocks = self.phases + 1
            self.batch.checks.asynchronous.access(
                space, writes, ranges, self.lanes, columns, clocks, self.site, homes, atomic, self.generic
            )


@dataclass(frozen=True, slots=True, eq=False)
class InGroup:
    """Each operation belongs to the current bulk group of its lane, and has an index among those of its warp."""

    batch: AsynchronousBatch
    lanes: Array
    group: Array
    numbers: Array
    site: Site

    kind = "bulk"

    signal = None

    def enter(self, space: str, writes: bool, ranges: Ranges, atomic: bool = False) -> None:
        """Check races of accesses that may happen from now on."""
        if len(self.lanes):
            actors, inside = self.batch.launch.actors, self.lanes // WARP // self.batch.ctas
            columns = actors.copied(inside) if writes else actors.bulk(inside)
            self.batch.checks.asynchronous.access(
                space, writes, ranges, self.lanes, columns, self.numbers + 1, self.site, atomic=atomic
            )


Completion = OnBarrier | InGroup


def on_barrier(
    batch: AsynchronousBatch,
    lanes: Array,
    slots: Array,
    amounts: Array,
    site: Site,
    generic: bool = False,
    shown: bool = False,
    apart: bool = False,
) -> OnBarrier:
    """Completion on barriers, found by `Mbarriers.known`; `shown` says that their visibility is already checked."""
    if not generic and not shown:
        batch.checks.asynchronous.completes_on(slots, lanes, site)
    phases = batch.mbarriers.phases(slots)
    return OnBarrier(batch, lanes, amounts.astype(np.int64), slots, phases, site, generic, apart)


def in_group(batch: AsynchronousBatch, lanes: Array, site: Site) -> InGroup:
    """Completion in the lanes' current bulk groups."""
    groups, numbers = batch.groups.issue(lanes, site)
    return InGroup(batch, lanes, groups, numbers, site)


def distinct(lanes: Array, *keys: Array) -> Array:
    """Positions of distinct operations: identical ones of a warp's lanes count once."""
    if not have_neighbours(lanes):
        return np.arange(len(lanes))
    found: Array = np.empty(len(lanes), np.int64)
    table = np.column_stack(keys)
    count = find_distinct(lanes, table, found)
    if count >= 0:
        return found[:count]
    _, first = np.unique(np.column_stack([lanes // WARP, table]), axis=0, return_index=True)
    return np.sort(first)
