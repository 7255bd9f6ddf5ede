"""The order of accesses to tensor memory: what each warp began, has waited for, and knows of the others.

Three counters of each warp are followed: operations it began in the tensor core, and loads and stores it has waited
for. What a warp knows of the others' counters travels with its clock: through barriers, and through the mbarriers of
commits. Where a kernel uses tcgen05.fence, knowledge leaves a warp by fence::before_thread_sync and counts for it from
the next fence::after_thread_sync on; where it has none at all, as compilers write them, synchronisation alone orders.
"""

from typing import Any

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.checks.knowledge import EVERYBODY
from kernbench.ptx.emulator.checks.reporter import thread_name
from kernbench.ptx.emulator.checks.tensor_cells import COPY, FREE, LOAD, MULTIPLY, STORE, Cells, Region, Who
from kernbench.ptx.emulator.lanes import WARP
from kernbench.ptx.emulator.program import Site
from kernbench.result.finding import Other

_FAMILIES = 3
_EVERYTHING = 1 << 40
TENSOR, LOADED, STORED = range(3)


class TensorOrder:
    """The counters of one batch's warps, and the cells of its tensor memory."""

    def __init__(self, batch: Any):
        self._batch = batch
        self._reporter = batch.launch.checks.reporter
        self._clocks = batch.checks.clocks
        self._log = batch.checks.log
        self._cells = Cells(batch.ctas)
        warps = batch.warps_per_cta
        # how often each warp has begun an operation, loaded and stored; what of it is done; what was committed
        self.begun: Array = np.zeros((_FAMILIES, batch.warps), np.int64)
        self._done: Array = np.zeros((_FAMILIES, batch.warps), np.int64)
        self._committed: Array = np.zeros(batch.warps, np.int64)
        # the lane and site of each warp's last operation
        self._lanes: Array = np.zeros(batch.warps, np.int64)
        self._sites: dict[int, Site] = {}
        self._loads: dict[int, Array] = {}
        # the column of the first warp's counter of operations among the actors
        self.first: int = batch.launch.actors.tensor(0)
        self._fences = any("tcgen05.fence" in site.text for site in batch.program.sites)
        # knowledge of the three counters of all warps, as of the last fence
        self._known: Array = np.zeros((batch.ctas, warps, _FAMILIES * warps), np.int64)

    def _place(self, warps: Array) -> tuple[Array, Array]:
        return warps % self._batch.ctas, warps // self._batch.ctas

    def begin(self, lanes: Array, site: Site, pair: bool = False) -> None:
        """Lanes begin operations of the tensor core; those of two CTAs count for the same warp of the peer as well."""
        warps = lanes // WARP
        self.begun[TENSOR, warps] += 1
        if pair:
            self.begun[TENSOR, self.mirror(warps)] += 1
            self._committed[self.mirror(warps)] += 1
        self._lanes[warps] = lanes
        for warp in warps.tolist():
            self._sites[warp] = site

    def move(self, warps: Array, writes: bool, site: Site) -> None:
        """Warps begin to load, or to store."""
        family = STORED if writes else LOADED
        self.begun[family, warps] += 1
        if not writes:
            self._load_numbers(site.number)[warps] = self.begun[family, warps]

    def _load_numbers(self, site: int) -> Array:
        """For each warp the number of its last load at a site."""
        found = self._loads.get(site)
        if found is None:
            found = self._loads[site] = np.zeros(self._batch.warps, np.int64)
        return found

    def mirror(self, warps: Array) -> Array:
        """The same warps of the peer CTAs."""
        peers: Array = warps + 1 - 2 * (warps % self._batch.ctas % 2)
        return peers

    def commits(self, lanes: Array) -> tuple[Array, Array]:
        """Lanes commit: how many operations each warp had begun, and what it knew."""
        warps = lanes // WARP
        self._committed[warps] = self.begun[TENSOR, warps]
        if self._fences:
            self._publish(warps)
        begun: Array = self.begun[TENSOR, warps].copy()
        known: Array = self._clocks.rows_of(warps)
        return begun, known

    def committed(self, slots: Array, lanes: Array, begun: Array, known: Array) -> None:
        """What was begun before a commit is done, and whoever waits for the barriers knows.

        Operations come after all that their warp knew when it began them, so that is known as well.
        """
        warps, barriers = lanes // WARP, self._batch.mbarriers
        homes = barriers.homes[slots]
        columns = self.first + warps // self._batch.ctas
        local = homes == warps % self._batch.ctas
        np.maximum.at(barriers.held, slots[local], known[local].astype(barriers.held.dtype))
        barriers.learn(slots[local], columns[local], begun[local])
        if self._batch.places.size == 1:
            return
        peer = homes == self.mirror(warps) % self._batch.ctas
        barriers.learn(slots[peer], columns[peer], self.begun[TENSOR, self.mirror(warps[peer])])
        for slot, warp in zip(slots[~local].tolist(), warps[~local].tolist(), strict=True):
            self._batch.checks.patterns.publish(warp, EVERYBODY, ("mbarrier", int(self._batch.numbers[0]), slot))

    def waited(self, warps: Array, loads: bool) -> None:
        """wait::ld or wait::st."""
        family = LOADED if loads else STORED
        self._done[family, warps] = self.begun[family, warps]
        if not self._fences:
            self._publish(warps)

    def used(self, load: int, warps: Array) -> None:
        """Registers of the load at a site are used, so it is done, and so are those before it."""
        self._done[LOADED, warps] = np.maximum(self._done[LOADED, warps], self._load_numbers(load)[warps])
        if not self._fences:
            self._publish(warps)

    def _publish(self, warps: Array) -> None:
        """Others may learn of what the warps have waited for."""
        ctas, inside = self._place(warps)
        for family in (LOADED, STORED):
            columns = self.first + family * self._batch.warps_per_cta + inside
            self._clocks.clocks[ctas, inside, columns] = self._done[family, warps]

    def fenced(self, warps: Array, before: bool) -> None:
        """fence::before_thread_sync or fence::after_thread_sync."""
        if before:
            self._publish(warps)
            return
        ctas, inside = self._place(warps)
        width = _FAMILIES * self._batch.warps_per_cta
        self._known[ctas, inside] = self._clocks.rows_of(warps)[:, self.first : self.first + width]

    def filled(self, warps: Array, region: Region, what: str, site: Site) -> None:
        """What is read was written, by an operation that has begun at least."""
        empty = self._cells.never_written(warps % self._batch.ctas, region)
        if empty >= 0:
            who = thread_name(self._batch, int(warps[empty]) * WARP)
            message = f"{what} that {who} reads, columns {region.first} to {region.last}, was not written"
            hint = "clear the predicate that adds D in the first product, or store to tensor memory first"
            self._reporter.add("uninitialised-read", site, message, hint, about=what)

    def loaded(self, warps: Array, region: Region) -> None:
        """What warps load may be empty: that is told where it decides something."""
        cells, ctas = self._cells, warps % self._batch.ctas
        if cells.never_written(ctas, region) >= 0:
            empty = [int(w) for w in warps if cells.never_written(np.array([w % self._batch.ctas]), region) >= 0]
            self._batch.checks.definedness.meet_empty(empty)

    def _knowledge(self, warps: Array, frees: bool) -> Array:
        """For each warp what it knows of the counters of all: [warps, families, warps of the CTA]; its own are sure."""
        ctas, inside = self._place(warps)
        count = self._batch.warps_per_cta
        known = self._clocks.rows_of(warps)[:, self.first : self.first + _FAMILIES * count].astype(np.int64)
        if self._fences and not frees:
            known = self._known[ctas, inside]
        known = known.reshape(len(warps), _FAMILIES, count)
        done = self._done.reshape(_FAMILIES, count, -1)
        rows = np.arange(len(warps))
        for family in (LOADED, STORED):
            if frees:
                known[:, family] = done[family][:, ctas].T
            known[rows, family, inside] = self._done[family, warps]
        result: Array = known
        return result

    def enter_peers(self, warps: Array, region: Region, writes: bool, what: int, site: Site) -> None:
        """Operations of warps access a region of their peers' tensor memory: what was there before is not looked at."""
        ctas, inside = self._place(self.mirror(warps))
        number = self.begun[TENSOR, self.mirror(warps)]
        known = np.full((len(warps), _FAMILIES, self._batch.warps_per_cta), _EVERYTHING)
        clocks = self._clocks.rows_of(warps)[:, : self._batch.warps_per_cta].astype(np.int64)
        own = clocks[np.arange(len(warps)), inside]
        self._cells.enter(region, writes, what, site.number, Who(ctas, inside, number, own, known, clocks))

    def enter(self, warps: Array, region: Region, writes: bool, what: int, site: Site) -> None:
        """Warps access a region; what nothing orders before that is a race."""
        ctas, inside = self._place(warps)
        number = self.begun[{LOAD: LOADED, STORE: STORED}.get(what, TENSOR), warps]
        clocks = self._clocks.rows_of(warps)[:, : self._batch.warps_per_cta].astype(np.int64)
        own = clocks[np.arange(len(warps)), inside]
        who = Who(ctas, inside, number, own, self._knowledge(warps, what == FREE), clocks)
        if self._log is not None:
            family, groups = {LOAD: LOADED, STORE: STORED}.get(what, TENSOR), self._cells.groups(region)
            self._log.tensor(writes, site, who, family, groups, (region.first, region.last))
        found = self._cells.enter(region, writes, what, site.number, who)
        if found is not None and not self._clocks.exhausted:
            self._race(found, warps, writes, what, site)

    def _race(self, found: Any, warps: Array, writes: bool, what: int, site: Site) -> None:
        sites = self._reporter.program.sites
        other = sites[found.site] if found.site < len(sites) else site
        warp = int(warps[found.operation])
        verb = "frees" if what == FREE else "writes" if writes else "reads"
        them = f"warp {found.warp} of {self._batch.checks.block_name(warp % self._batch.ctas)}"
        message = (
            f"{thread_name(self._batch, warp * WARP)} {verb} column {found.column} of tensor memory; {them} began "
            f"line {other.line} (`{other.text}`) there, and nothing says that it is done"
        )
        others = (Other(f"the other access, by {them}", self._reporter.place(other)),)
        self._reporter.add(
            "race", site, message, _HINTS[found.what], found.count, others, about=self._reporter.place(other)
        )

    def uncommitted(self) -> list[tuple[int, Site]]:
        """Lanes whose last operations no commit follows, and those operations."""
        late = np.flatnonzero(self.begun[TENSOR] > self._committed)
        return [(int(self._lanes[warp]), self._sites[warp]) for warp in late.tolist()]


_HINTS = {
    LOAD: "run tcgen05.wait::ld after the load, before the barrier that lets others write there",
    STORE: "run tcgen05.wait::st after the store, then synchronise (fence::before_thread_sync, barrier, "
    "fence::after_thread_sync)",
    MULTIPLY: "let tcgen05.commit arrive on an mbarrier, wait for that phase, then fence::after_thread_sync",
    COPY: "let tcgen05.commit arrive on an mbarrier, wait for that phase, then fence::after_thread_sync",
}
