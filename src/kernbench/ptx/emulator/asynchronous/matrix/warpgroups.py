"""wgmma: operations of warpgroups, which begin when issued and are complete when a wait covers their group.

The four warps of a warpgroup work together: what one of them waits for is complete for all four, once all have issued
it. Each computes its sixteen rows of D; operations on the same accumulators follow each other without a wait.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.checks.asynchronous.warpgroups import WarpgroupChecks
from kernbench.ptx.emulator.lanes.fragment import Fragment
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.memory.tiles import Operand, gather, tiles_of
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.numerics.matrix.descriptors import wgmma_descriptor
from kernbench.ptx.numerics.matrix.sparse import expanded, places
from kernbench.ptx.numerics.matrix.warpgroup import accumulators, operand_a, registers_of
from kernbench.ptx.numerics.matrix.wide import accumulate, float32_of, product

WARPS = 4


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """What an instruction says: shape and types, register rows of D and of A (None: a descriptor), and signs."""

    n: int
    k: int
    kinds: tuple[str, str, str]
    d_rows: Array
    a_rows: Array | None
    transposed: tuple[bool, bool]
    negated: bool
    saturates: bool
    site: Site
    # which lanes of four hold the metadata of a sparse A; None: A is dense
    selector: int | None = None

    @property
    def held(self) -> int:
        """Elements of a row of A that are there."""
        return self.k if self.selector is None else self.k // 2

    def operand(self, which: str, rows: int) -> Operand:
        """The tile of A or B in shared memory."""
        side = 0 if which == "a" else 1
        return Operand(rows, (self.held, self.k)[side], self.kinds[1 + side], self.transposed[side])


@dataclass(eq=False)
class Issued:
    """One instruction issued by some warps: their descriptors, whether D is read, and how far each warp had come.

    `meta` are the metadata of a sparse A: [warps, 32].
    """

    form: Form
    warps: Array
    a: Array | None
    b: Array
    adds: Array
    ordinals: Array
    groups: Array
    meta: Array | None = None

    def part(self, chosen: Array) -> "Issued":
        """The same for some of the warps."""
        a = None if self.a is None else self.a[chosen]
        b, adds, ordinals, groups = (part[chosen] for part in (self.b, self.adds, self.ordinals, self.groups))
        meta = None if self.meta is None else self.meta[chosen]
        return Issued(self.form, self.warps[chosen], a, b, adds, ordinals, groups, meta)


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """Warps that wait for others of their warpgroup to issue what they wait for."""

    fragment: Fragment
    keep: int
    following: int
    site: Site


class Warpgroups:
    """The wgmma operations of one batch."""

    def __init__(self, batch: Any, eager: bool = False):
        self._batch = batch
        self._eager = eager
        self._checks = WarpgroupChecks(batch) if batch.checks is not None else None
        self._pending: list[Issued] = []
        # operations that warps have not waited for, kept for the checks only
        self._unwaited: list[Issued] = []
        self.issued: Array = np.zeros(batch.warps, np.int64)
        self.committed: Array = np.zeros(batch.warps, np.int64)
        self.waiting: list[Waiting] = []

    def issue(
        self, form: Form, warps: Array, a: Array | None, b: Array, adds: Array, meta: Array | None = None
    ) -> None:
        """Warps issue an operation; descriptors and `adds` have one entry a warp, `meta` one for each lane."""
        event = Issued(form, warps, a, b, adds, self.issued[warps], self.committed[warps], meta)
        self.issued[warps] += 1
        self._pending.append(event)
        if self._batch.journal is not None:
            self._batch.journal.used(warps * WARP, form.site)
        if self._checks is not None:
            self._unwaited.append(event)
            self._checks.issued(event, self.mates(event.warps)[:, 0])
        if self._eager:
            self._complete(self._least_issued(np.arange(self._batch.warps)))
        if self.waiting:
            waiting, self.waiting = self.waiting, []
            for one in waiting:
                going = self.wait(one.fragment, one.keep, one.following, one.site)
                if going is not None:
                    self._batch.scheduler.push(going)

    def commit(self, warps: Array) -> None:
        """Close the current group of each warp."""
        self.committed[warps] += 1

    @property
    def watched(self) -> bool:
        """Whether anything is checked, and in flight."""
        return bool(self._unwaited)

    def touched(self, warps: Array, row: int, name: str, verb: str, as_operand: bool, site: Site) -> None:
        """Warps touch a register of a bank's row: that is wrong where an operation they have not waited for owns it."""
        for event in self._unwaited:
            rows = event.form.a_rows if as_operand else event.form.d_rows
            if rows is not None and row in rows:
                bad = np.intersect1d(warps, event.warps)
                if len(bad) and self._checks is not None:
                    self._checks.touched(bad, name, verb, as_operand, event.form.site, site)

    def unfenced(self, lanes: Array, name: str, site: Site) -> None:
        """Lanes have touched a register that an operation uses, with no wgmma.fence between."""
        if self._checks is not None:
            self._checks.unfenced(lanes, name, site)

    def wait(self, fragment: Fragment, keep: int, following: int, site: Site) -> Fragment | None:
        """Complete all groups but the last `keep`; lanes go on whose warpgroups have issued it all."""
        scheduler = self._batch.scheduler
        warps, _ = fragment.lanes.present()
        done = self.committed[warps] - keep
        need = self._needed(warps, done)
        ready = self._least_issued(warps) >= need[warps]
        if not ready.all():
            late = np.zeros(self._batch.warps, bool)
            late[warps[~ready]] = True
            staying, going = scheduler.split(fragment, np.repeat(late[fragment.window.warps], WARP))
            self.waiting.append(Waiting(staying, keep, following, site))
            if going is None:
                return None
            scheduler.push(going)
            return None
        limit = np.zeros(self._batch.warps, np.int64)
        for mates in self.mates(warps).T:
            np.maximum.at(limit, mates, need[warps])
        self._complete(limit)
        if self._checks is not None:
            self._forget(warps, done)
            self._checks.waited(warps, self.mates(warps)[:, 0], np.maximum(done, 0))
        return fragment.at(following)

    def _forget(self, warps: Array, done: Array) -> None:
        """The registers of operations that warps have waited for are theirs again."""
        group = np.full(self._batch.warps, -1, np.int64)
        group[warps] = done
        staying = []
        for event in self._unwaited:
            kept = event.groups >= group[event.warps]
            if kept.any():
                staying.append(event if kept.all() else event.part(kept))
        self._unwaited = staying

    def _needed(self, warps: Array, done: Array) -> Array:
        """For each warp of the batch, how many operations must be complete before its groups below `done` are."""
        group = np.full(self._batch.warps, -1, np.int64)
        group[warps] = done
        need = np.zeros(self._batch.warps, np.int64)
        for event in self._pending:
            inside = event.groups < group[event.warps]
            np.maximum.at(need, event.warps[inside], event.ordinals[inside] + 1)
        return need

    def mates(self, warps: Array) -> Array:
        """The warps of each warp's warpgroup: [warps, 4]; a warp that does not exist is the last one."""
        ctas, inside = self._batch.ctas, warps // self._batch.ctas
        places = inside[:, None] // WARPS * WARPS + np.arange(WARPS)[None, :]
        places = np.minimum(places, self._batch.warps_per_cta - 1)
        found: Array = places * ctas + (warps % ctas)[:, None]
        return found

    def _least_issued(self, warps: Array) -> Array:
        """How many operations all warps of each warp's warpgroup have issued."""
        least: Array = self.issued[self.mates(warps)].min(axis=1)
        return least

    def _complete(self, limit: Array) -> None:
        """Perform the operations of each warp below its limit, in order."""
        staying, going = [], []
        for event in self._pending:
            chosen = event.ordinals < limit[event.warps]
            if chosen.all():
                going.append(event)
                continue
            staying.append(event.part(~chosen) if chosen.any() else event)
            if chosen.any():
                going.append(event.part(chosen))
        self._pending = staying
        if going:
            _Performer(self._batch).perform(going)


class _Performer:
    """Performs operations one after the other; accumulators stay matrices while they are used again."""

    def __init__(self, batch: Any):
        self._batch = batch
        bank = batch.banks["uint32"]
        self._registers = bank[:, : batch.lanes].reshape(len(bank), -1, WARP)
        self._form: Form | None = None
        self._warps: Array = np.zeros(0, np.int64)
        self._sums: Array = np.zeros(0)

    def perform(self, events: list[Issued]) -> None:
        for event in events:
            event, units = self._ordered(event)
            if not self._continues(event):
                self._put_back()
                self._take(event)
            self._add(event, units)
        self._put_back()

    def _ordered(self, event: Issued) -> tuple[Issued, int]:
        """The event with the warps of each warpgroup side by side, and how many warps share a tile of B."""
        ctas = self._batch.ctas
        cta, inside = event.warps % ctas, event.warps // ctas
        order = np.lexsort((inside, cta, inside // WARPS))
        event = event.part(order)
        # warps of one warpgroup may stand in different rounds of a loop
        found = np.stack([inside[order] // WARPS, cta[order], event.ordinals])
        together = len(order) % WARPS == 0 and all(
            np.array_equal(found[:, q::WARPS], found[:, ::WARPS]) and bool((inside[order][q::WARPS] % WARPS == q).all())
            for q in range(WARPS)
        )
        return event, WARPS if together else 1

    def _continues(self, event: Issued) -> bool:
        form = self._form
        return (
            form is not None
            and form.kinds[0] == event.form.kinds[0]
            and np.array_equal(form.d_rows, event.form.d_rows)
            and np.array_equal(self._warps, event.warps)
        )

    def _take(self, event: Issued) -> None:
        self._form, self._warps = event.form, event.warps
        found = self._registers[event.form.d_rows[:, None], event.warps[None, :]]
        self._sums = accumulators(found, event.form.kinds[0])

    def _put_back(self) -> None:
        if self._form is None:
            return
        found = registers_of(self._sums, self._form.kinds[0])
        self._registers[self._form.d_rows[:, None], self._warps[None, :]] = found
        self._form = None

    def _add(self, event: Issued, units: int) -> None:
        form = event.form
        ctas = event.warps[::units] % self._batch.ctas
        b_tile = form.operand("b", form.n)
        b = gather(self._batch, ctas, tiles_of(event.b[::units], b_tile, wgmma_descriptor), b_tile)
        sums = product(self._left(event, units, ctas), b).reshape(self._sums.shape)
        if form.negated:
            np.negative(sums, out=sums)
        kept = self._sums if event.adds.any() else None
        if kept is not None and not event.adds.all():
            kept = np.where(event.adds[:, None, None], kept, kept.dtype.type(0))
        self._sums = accumulate(sums, kept, form.kinds[0], form.saturates)

    def _left(self, event: Issued, units: int, ctas: Array) -> Array:
        """A as [warpgroups, 64, k], or [warps, 16, k] where warpgroups are not together."""
        held, form = self._held(event, units, ctas), event.form
        if event.meta is None or form.selector is None:
            return held
        where = places(event.meta, f"m16n8k{form.k}", form.kinds[1], form.selector)
        whole: Array = expanded(held.reshape(-1, 16, form.held), where, form.k)
        return whole.reshape(-1, 16 * units, form.k)

    def _held(self, event: Issued, units: int, ctas: Array) -> Array:
        """The elements of A that are there."""
        form = event.form
        if event.a is None:
            assert form.a_rows is not None
            bits = operand_a(self._registers[form.a_rows[:, None], event.warps[None, :]], form.kinds[1])
            held: Array = float32_of(bits, form.kinds[1])
            return held.reshape(-1, 16 * units, form.held)
        tile = form.operand("a", 16 * WARPS)
        found = gather(self._batch, ctas, tiles_of(event.a[::units], tile, wgmma_descriptor), tile)
        if units == WARPS:
            return found
        part = event.warps // self._batch.ctas % WARPS
        own: Array = found.reshape(-1, WARPS, 16, form.held)[np.arange(len(part)), part]
        return own
