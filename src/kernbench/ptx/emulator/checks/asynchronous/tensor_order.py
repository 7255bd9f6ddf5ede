"""The order of accesses to tensor memory: what each warp began, has waited for, and knows of other warps.

Each warp has three counters: operations it began in the tensor core, and loads and stores it has waited for. A warp
acquires other warps' counters together with their clocks: through barriers, and through the mbarriers of commits. If a
kernel uses tcgen05.fence, a warp releases its counters at fence::before_thread_sync, and acquired ones count from the
next fence::after_thread_sync on. If it has no such fence at all, as compilers write it, synchronisation alone orders.
An access whose warp has acquired that the earlier one is complete, or that its warp has waited for it, is formal: only
the fences are missing.
"""

from dataclasses import dataclass

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.checks.asynchronous.hub import BatchFindings
from kernbench.ptx.emulator.checks.asynchronous.tensor_cells import (
    COPY,
    FREE,
    LOAD,
    MULTIPLY,
    STORE,
    Cells,
    Found,
    Region,
    Who,
)
from kernbench.ptx.emulator.checks.asynchronous.tensor_entries import (
    GivenKnowledge,
    begin_moves,
    count_operations,
    enter_moves,
    enter_regions,
    hold_commits,
    note_commits,
    publish,
)
from kernbench.ptx.emulator.checks.findings.reporter import block_name, thread_name
from kernbench.ptx.emulator.checks.happens_before.knowledge import Knowledge
from kernbench.ptx.emulator.checks.happens_before.near_rows import each_alone
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.emulator.units.batch import Batch

_FAMILIES = 3
_EVERYTHING = 1 << 40
TENSOR, LOADED, STORED = range(3)
# the counter of an access; all others are operations of the tensor core
_FAMILY = {LOAD: LOADED, STORE: STORED}
# remembered waits of each warp
_WAITS = 16
_NO_LOADS: Array = np.zeros(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Commit:
    """What lanes knew when they committed: the actors of their CTAs, and everything if some lane knew more.

    The latter is `near`, rows and names, as long as rows suffice, else `far`.
    """

    lanes: Array
    rows: Array
    # who knows of so many operations of the lane's warp knows that this commit has arrived
    numbers: Array
    near: tuple[Array, Array] | None
    far: list[Knowledge]


class Waits:
    """The last waits of each warp for its loads and stores: how many were complete then, and the warp's clock."""

    def __init__(self, families: int, warps: int):
        self._last: Array = np.zeros((families, _WAITS, 2, warps), np.int64)
        self._count: Array = np.zeros((families, warps), np.int64)

    def note(self, family: int, warps: Array, done: Array, clocks: Array) -> None:
        """Warps have waited for so many operations, at these clocks."""
        at = self._count[family, warps] % _WAITS
        self._last[family, at, 0, warps], self._last[family, at, 1, warps] = done, clocks
        self._count[family, warps] += 1

    def since(self, family: int, warp: int, number: int) -> int | None:
        """The warp's clock at its first wait, among the last ones, for an operation; None without any."""
        done, clocks = self._last[family, :, :, warp].T
        found = clocks[done >= number]
        return int(found.min()) if len(found) else None


class TensorOrder:
    """The counters of one batch's warps, and the cells of its tensor memory."""

    def __init__(self, batch: Batch, checks: BatchFindings):
        self._batch, self._checks = batch, checks
        self._reporter = checks.reporter
        self._clocks = checks.clocks
        self._log = checks.log
        self._enters_each = checks.log is not None or not batch.launch.fast.tensor_entries
        self._cells = Cells(batch.ctas)
        warps = batch.warps_per_cta
        # for each warp: operations, loads and stores begun; those complete; operations committed
        self.begun: Array = np.zeros((_FAMILIES, batch.warps), np.int64)
        self._done: Array = np.zeros((_FAMILIES, batch.warps), np.int64)
        self._committed: Array = np.zeros(batch.warps, np.int64)
        # the lane and site of each warp's last operation
        self._last: Array = np.zeros((2, batch.warps), np.int64)
        self._loads: dict[int, Array] = {}
        # the first column of operation counters among the actors
        self.first: int = batch.launch.actors.tensor(0)
        self._first_lane: int = batch.launch.actors.lane(0)
        self._fences: bool = batch.program.fences_tensor
        # when warps waited for their loads and stores, where fences may be missing behind that
        self._waits: Waits | None = Waits(_FAMILIES, batch.warps) if self._fences else None
        # what each warp knows of the three counters of all warps, as of the last fence
        self._known: Array = np.zeros((batch.ctas, warps, _FAMILIES * warps), np.int64)
        # buffer for compiled loops: what one warp knows
        self._room: Array = np.zeros((_FAMILIES + 1, warps), np.int64)

    def _cta_and_warp(self, warps: Array) -> tuple[Array, Array]:
        return warps % self._batch.ctas, warps // self._batch.ctas

    def begin(self, lanes: Array, site: Site, pair: bool = False) -> None:
        """Lanes begin operations of the tensor core; those of a CTA pair also count for the same warp of the peer."""
        count_operations(lanes, site.number, self.begun, self._last)
        if pair:
            peers = self.mirror(lanes // WARP)
            self.begun[TENSOR, peers] += 1
            self._committed[peers] += 1

    def _load_numbers(self, site: int) -> Array:
        """For each warp the index of its last load at a site."""
        found = self._loads.get(site)
        if found is None:
            found = self._loads[site] = np.zeros(self._batch.warps, np.int64)
        return found

    def mirror(self, warps: Array) -> Array:
        """The same warps of the peer CTAs."""
        peers: Array = warps + 1 - 2 * (warps % self._batch.ctas % 2)
        return peers

    def commits(self, lanes: Array) -> "Commit":
        """Lanes commit: what they know now, and how many tensor core operations their warps have begun.

        They begin a new epoch, which this commit does not release.
        """
        warps = lanes // WARP
        # tcgen05.commit is one of the synchronous instructions, which keep their order (PTX ISA, 9.7.16.6.1): who sees
        # a later one, which is known by the operations that it covers in addition, may rely on this one's arrival
        numbers = self.begun[TENSOR, warps] + (self.begun[TENSOR, warps] == self._committed[warps])
        self._committed[warps] = self.begun[TENSOR, warps]
        if self._fences:
            self._publish(warps)
        rows = self._clocks.own_rows(lanes)
        note_commits(lanes, self.first, self._first_lane, self.begun, self._clocks.clocks, rows)
        more = self._batch.cluster.size > 1 or bool(self._clocks.aware(lanes).any())
        near, far = None, []
        if more and self._clocks.near.suffices:
            known, names = self._clocks.released_by(each_alone(lanes))
            near = np.maximum(known, rows), names
        elif more:
            far = [self._far(int(lane), row) for lane, row in zip(lanes, rows, strict=True)]
        self._clocks.advance_of(lanes)
        return Commit(lanes, rows, numbers, near, far)

    def _far(self, lane: int, row: Array) -> Knowledge:
        """All that a committing lane knows, of any CTA, with the operations its warp has begun.

        Operations of a CTA pair also count for the same warp of the peer CTA, and are complete there, too.
        """
        warp, firsts, actors = lane // WARP, self._clocks.first_numbers, self._clocks.publications.actors
        cta, inside = warp % self._batch.ctas, warp // self._batch.ctas
        begun = {int(firsts[cta]): row}
        if self._batch.cluster.size > 1:
            peer = int(self.mirror(np.array([warp]))[0])
            theirs = begun[int(firsts[peer % self._batch.ctas])] = np.zeros_like(row)
            theirs[self.first + inside] = self.begun[TENSOR, peer]
        known: Knowledge = self._clocks.snapshot(warp).released_by(1 << lane % WARP)
        return known.join(Knowledge(begun), actors)

    def committed(self, slots: Array, owners: Array, commit: "Commit") -> Array:
        """What was begun before a commit is complete, and known to all that wait for the barriers; its `numbers`.

        `owners` are positions among the committing lanes. An operation happens after everything its thread knew when it
        began it, so that is released as well.
        """
        barriers, ctas = self._batch.mbarriers, self._batch.ctas
        hold_commits(slots, owners, commit.lanes, barriers.homes, ctas, commit.rows, barriers.held)
        handover = self._checks.asynchronous.handover
        if commit.near is not None:
            handover.committed(slots, *(one[owners] for one in commit.near))
        if commit.far:
            local = barriers.homes[slots] == commit.lanes[owners] // WARP % ctas
            for slot, owner, near in zip(slots.tolist(), owners.tolist(), local.tolist(), strict=True):
                handover.inform(slot, commit.far[owner], remote=not near)
        numbers: Array = commit.numbers[owners]
        return numbers

    def waited(self, warps: Array, loads: bool) -> None:
        """wait::ld or wait::st."""
        family = LOADED if loads else STORED
        self._done[family, warps] = self.begun[family, warps]
        self._awaited(family, warps)

    def used(self, load: int, warps: Array) -> None:
        """Registers of the load at a site are used, so that load and all before it are complete."""
        done, number = self._done[LOADED, warps], self._load_numbers(load)[warps]
        if (number > done).any():
            self._done[LOADED, warps] = np.maximum(done, number)
            self._awaited(LOADED, warps)

    def _awaited(self, family: int, warps: Array) -> None:
        """Warps have waited for loads or stores: they are released at once, or at the next fence, if there is any."""
        if self._waits is None:
            self._publish(warps)
        else:
            ctas, inside = self._cta_and_warp(warps)
            self._waits.note(family, warps, self._done[family, warps], self._clocks.clocks[ctas, inside, inside])

    def _publish(self, warps: Array) -> None:
        """Release the loads and stores that the warps have waited for."""
        publish(warps, self.first, self._done, self._clocks.clocks)

    def fenced(self, warps: Array, before: bool) -> None:
        """fence::before_thread_sync or fence::after_thread_sync."""
        if before:
            self._publish(warps)
        self._checks.asynchronous.relaxed.fenced(warps, before)
        if before:
            return
        ctas, inside = self._cta_and_warp(warps)
        width = _FAMILIES * self._batch.warps_per_cta
        self._known[ctas, inside] = self._clocks.rows_of(warps)[:, self.first : self.first + width]

    def filled(self, warps: Array, region: Region, what: str, site: Site) -> None:
        """Check that what is read was written, at least by an operation that has begun."""
        empty = self._cells.never_written(warps % self._batch.ctas, region)
        if empty >= 0:
            who = thread_name(self._batch, int(warps[empty]) * WARP)
            message = f"{what} that {who} reads, columns {region.first} to {region.last}, was not written"
            hint = "store it to tensor memory first, or copy it there"
            if "accumulator" in what:
                hint = "clear the predicate that adds D in the first product, or store to tensor memory first"
            self._reporter.add("uninitialised-read", site, message, hint, about=what)

    def loaded(self, warps: Array, region: Region) -> None:
        """Warps may load unwritten memory: this is reported where it has an effect."""
        cells, ctas = self._cells, warps % self._batch.ctas
        if cells.never_written(ctas, region) >= 0:
            empty = [int(w) for w in warps if cells.never_written(np.array([w % self._batch.ctas]), region) >= 0]
            self._checks.definedness.meet_empty(empty)

    def _knowledge(self, warps: Array, clocks: Array, frees: bool) -> Array:
        """For each warp, what it knows of all counters: [warps, families, warps of the CTA]; its own are exact.

        `clocks` are the vector clocks of the warps.
        """
        ctas, inside = self._cta_and_warp(warps)
        count = self._batch.warps_per_cta
        if self._fences and not frees:
            known = self._known[ctas, inside]
        else:
            known = clocks[:, self.first : self.first + _FAMILIES * count].astype(np.int64)
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
        """Operations of warps access a region of their peers' tensor memory: earlier accesses are not checked."""
        ctas, inside = self._cta_and_warp(self.mirror(warps))
        number = self.begun[TENSOR, self.mirror(warps)]
        known = np.full((len(warps), _FAMILIES, self._batch.warps_per_cta), _EVERYTHING)
        clocks = self._clocks.rows_of(warps)[:, : self._batch.warps_per_cta].astype(np.int64)
        own = clocks[np.arange(len(warps)), inside]
        self._cells.enter(region, writes, what, self._number(site), Who(ctas, inside, number, own, known, clocks))

    def _knowledge_of_all(self) -> GivenKnowledge:
        """Arguments for compiled loops: see `tensor_entries`."""
        clocks = self._clocks
        row_of, rows = clocks.near.by_lane
        return clocks.clocks, self.first, row_of, rows, self._known, self._fences, self.begun, self._done

    def enter_regions(
        self, start: int, regions: Array, warps: Array, owner: Array, writes: bool, what: int, site: Site
    ) -> int:
        """Enter accesses to regions from `start` on; returns the first with a fault, which is left to `enter`.

        `owner` is the allocation of each column.
        """
        if self._enters_each:
            return start
        access, tensor = (what, self._number(site), writes), (self._cells.cells, owner)
        return enter_regions(start, regions, warps, access, tensor, self._knowledge_of_all(), self._room)

    def begin_moves(
        self, warps: Array, addresses: Array, spans: Array, lanes: int, owner: Array, writes: bool, site: Site
    ) -> tuple[int, Array]:
        """Warps begin loads or stores.

        Returns the result of `tensor_entries.begin_moves`, and the order of the warps.
        """
        last, order = _NO_LOADS if writes else self._load_numbers(site.number), np.empty((2, len(warps)), np.int64)
        access, tensor = (STORE if writes else LOAD, self._number(site), writes), (self._cells.cells, owner)
        what, known = (spans, lanes, last, not self._enters_each), (self._knowledge_of_all(), self._room)
        return begin_moves(warps, addresses, what, order, access, tensor, *known), order

    def enter_moves(
        self, start: int, order: Array, spans: Array, lanes: int, warps: Array, owner: Array, writes: bool, site: Site
    ) -> int:
        """Enter sorted loads or stores from `start` on; returns the first with a fault."""
        if self._enters_each:
            return start
        access, tensor = (STORE if writes else LOAD, self._number(site), writes), (self._cells.cells, owner)
        return enter_moves(start, order, spans, lanes, warps, access, tensor, self._knowledge_of_all(), self._room)

    def enter(self, warps: Array, region: Region, writes: bool, what: int, site: Site) -> None:
        """Warps access a region; unordered earlier accesses are races."""
        ctas, inside = self._cta_and_warp(warps)
        number, rows = self.begun[_FAMILY.get(what, TENSOR), warps], self._clocks.rows_of(warps)
        clocks = rows[:, : self._batch.warps_per_cta].astype(np.int64)
        own = clocks[np.arange(len(warps)), inside]
        who = Who(ctas, inside, number, own, self._knowledge(warps, rows, what == FREE), clocks)
        if self._log is not None:
            family, groups = _FAMILY.get(what, TENSOR), self._cells.groups(region)
            self._log.tensor(writes, site, who, family, groups, (region.first, region.last))
        races, formal = self._enter(region, writes, what, site, who)
        for found in races:
            if not self._clocks.exhausted:
                self._race(found, warps, writes, what, site, formal)

    def _enter(self, region: Region, writes: bool, what: int, site: Site, who: Who) -> tuple[list[Found], str]:
        """Enter accesses to a region: those that are not ordered before, and why they are formal, if they are.

        Who frees columns may know that they are done with by a barrier that others have exited before.
        """
        number = self._number(site)
        if what != FREE:
            return self._cells.enter(region, writes, what, number, who), ""
        before = self._cells.cells[who.ctas].copy()
        found = self._cells.enter(region, writes, what, number, who)
        more = self._with_exited(who) if found else None
        if more is None:
            return found, ""
        self._cells.cells[who.ctas] = before
        again = self._cells.enter(region, writes, what, number, more)
        return (again, "") if again else (found, _EXITED_FORMAL)

    def _with_exited(self, who: Who) -> Who | None:
        """A warp with what those knew that had exited when the cluster's barrier let it go on; None without any."""
        count, ctas = self._batch.warps_per_cta, self._batch.ctas
        warp = int(who.warps[0]) * ctas + int(who.ctas[0])
        exited = self._batch.scheduler.cluster.exited_before(warp * WARP)
        if not len(exited):
            return None
        rows = self._clocks.rows_of(exited)
        theirs = rows[:, self.first : self.first + _FAMILIES * count].max(axis=0).reshape(_FAMILIES, count)
        known, clocks = np.maximum(who.known, theirs), np.maximum(who.known_clocks, rows[:, :count].max(axis=0))
        return Who(who.ctas, who.warps, who.numbers, who.clocks, known, clocks)

    def _number(self, site: Site) -> int:
        return int(self._checks.sites.number(site))

    def _race(self, found: Found, warps: Array, writes: bool, what: int, site: Site, formal: str = "") -> None:
        other = self._checks.sites.numbered[found.site]
        warp = int(warps[found.operation])
        verb = "frees" if what == FREE else "writes" if writes else "reads"
        them = f"warp {found.warp} of {block_name(self._batch, warp % self._batch.ctas)}"
        message = (
            f"{thread_name(self._batch, warp * WARP)} {verb} column {found.column} of tensor memory; {them} began "
            f"line {other.line} (`{other.text}`) there, and nothing says that it is done"
        )
        others = self._reporter.other(f"the other access, by {them}", other)
        hint, about = _HINTS[found.what], self._reporter.location(other)
        formal = formal or (_LATE_FORMAL if found.late else "")
        if not formal and self._lacks_only_the_fence(found, warp):
            hint, formal = _AFTER_HINT, _AFTER_FORMAL
        elif not formal and self._waited_before(found, warp):
            hint, formal = _BEFORE_HINT, _BEFORE_FORMAL
        self._reporter.add(
            "race", site, message, hint, found.count, others, about=about, array="tensor", cause=other, formal=formal
        )

    def _lacks_only_the_fence(self, found: Found, warp: int) -> bool:
        """Whether a warp has acquired that the other access is complete, without fence::after_thread_sync since."""
        column = self.first + _FAMILY.get(found.what, TENSOR) * self._batch.warps_per_cta + found.warp
        return bool(self._clocks.rows_of(np.array([warp]))[0, column] >= found.number)

    def _waited_before(self, found: Found, warp: int) -> bool:
        """Whether a warp has met the other one, directly or not, since that waited for its load or store."""
        if self._waits is None or found.what not in _FAMILY:
            return False
        cta = warp % self._batch.ctas
        since = self._waits.since(_FAMILY[found.what], found.warp * self._batch.ctas + cta, found.number)
        known = self._clocks.rows_of(np.array([warp]))[0]
        return since is not None and max(known[found.warp], known[self._first_lane + found.warp] // WARP) >= since

    def uncommitted(self) -> list[tuple[int, Site]]:
        """Lanes whose last operations are not followed by a commit, and those operations."""
        late = np.flatnonzero(self.begun[TENSOR] > self._committed)
        sites = self._reporter.program.sites
        return [(lane, sites[number]) for lane, number in self._last[:, late].T.tolist()]


_LATE_FORMAL = (
    "nobody reads these columns any more, and every GPU so far lands a store long before another block is given them"
)
_AFTER_FORMAL = (
    "the warp has waited for it (at the mbarrier of its commit, or at a barrier that came after it), and only "
    "fence::after_thread_sync is missing behind that wait: every GPU so far begins what follows a wait after it"
)
_EXITED_FORMAL = (
    "a warp that had seen that it is done has exited since, and the cluster's barrier at which this warp has waited "
    "was complete only then: every GPU so far counts a thread as exited after its last wait is over"
)
_BEFORE_FORMAL = (
    "its warp has waited for it (tcgen05.wait) before the arrival or barrier that this warp has seen, and only "
    "fence::before_thread_sync is missing there: on every GPU so far it is complete when that wait is over"
)
_BEFORE_HINT = (
    "put tcgen05.fence::before_thread_sync behind tcgen05.wait, before the arrival or barrier, and "
    "fence::after_thread_sync behind the other warp's wait"
)
_AFTER_HINT = "put tcgen05.fence::after_thread_sync behind the wait or barrier, before this access"
_HINTS = {
    LOAD: "run tcgen05.wait::ld after the load, before the barrier that lets others write there",
    STORE: "run tcgen05.wait::st after the store, then synchronise (fence::before_thread_sync, barrier, "
    "fence::after_thread_sync)",
    MULTIPLY: "let tcgen05.commit arrive on an mbarrier, wait for that phase, then fence::after_thread_sync",
    COPY: "let tcgen05.commit arrive on an mbarrier, wait for that phase, then fence::after_thread_sync",
}
