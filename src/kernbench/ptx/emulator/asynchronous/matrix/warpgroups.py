"""wgmma: operations of warpgroups, which begin when issued and are complete when a wait covers their group.

The four warps of a warpgroup work together: what one of them waits for is complete for all four, once all have issued
it. Each computes its sixteen rows of D; operations on the same accumulators need no wait in between.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import NamedTuple

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.asynchronous.matrix.fragment_kernels import put_accumulators, take_accumulators, take_left
from kernbench.ptx.emulator.asynchronous.matrix.observer import MatrixBatch
from kernbench.ptx.emulator.lanes.arrays import Flag, Int64s
from kernbench.ptx.emulator.lanes.compiled import kernel
from kernbench.ptx.emulator.lanes.fragment import Fragment
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.memory.tiles import (
    HALVES,
    Operand,
    are_equal,
    gather,
    gather_halves,
    layout_of,
    tiles_of,
)
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.numerics.matrix.descriptors import wgmma_descriptor
from kernbench.ptx.numerics.matrix.exact import exact_sums
from kernbench.ptx.numerics.matrix.sparse import columns_of, expanded
from kernbench.ptx.numerics.matrix.warpgroup import accumulators, operand_a, registers_of
from kernbench.ptx.numerics.matrix.wide import accumulate, float32_of, float32_table, product

WARPS = 4
# maximal number of cached sets of warps
_MOST_CREWS = 1 << 10


@dataclass(frozen=True, slots=True, eq=False)
class Form:
    """The static part of an instruction: shape and types, register rows of D and A (None: a descriptor), and signs."""

    n: int
    k: int
    kinds: tuple[str, str, str]
    d_rows: Array
    a_rows: Array | None
    transposed: tuple[bool, bool]
    negated: bool
    saturates: bool
    site: Site
    # which lanes of four hold the metadata of a sparse A; None for a dense A
    selector: int | None = None
    # identifies the accumulators: their type and registers
    accumulators: tuple[str, bytes] = field(init=False)
    # bit sets of the rows of D, and of A
    written: int = field(init=False)
    read: int = field(init=False)
    a_operand: Operand = field(init=False)
    b_operand: Operand = field(init=False)

    def __post_init__(self) -> None:
        rows = () if self.a_rows is None else self.a_rows.tolist()
        found = {
            "accumulators": (self.kinds[0], self.d_rows.tobytes()),
            "written": sum(1 << row for row in set(self.d_rows.tolist())),
            "read": sum(1 << row for row in set(rows)),
            "a_operand": Operand(16 * WARPS, self.held, self.kinds[1], self.transposed[0]),
            "b_operand": Operand(self.n, self.k, self.kinds[2], self.transposed[1]),
        }
        for name, value in found.items():
            object.__setattr__(self, name, value)

    @property
    def held(self) -> int:
        """Stored elements of a row of A."""
        return self.k if self.selector is None else self.k // 2


@dataclass(eq=False)
class Issued:
    """One instruction issued by some warps: descriptors, whether D is read, and each warp's count of operations.

    `meta` is the metadata of a sparse A: [warps, 32].
    """

    form: Form
    warps: Array
    a: Array | None
    b: Array
    adds: Array
    ordinals: Array
    groups: Array
    meta: Array | None = None

    def __post_init__(self) -> None:
        # how many of the warps read D, and whether all had issued the same number of operations before
        self.adding = int(np.count_nonzero(self.adds))
        self.level = bool(are_equal(self.ordinals))

    def part(self, chosen: Array) -> "Issued":
        """The same for some of the warps."""
        a = None if self.a is None else self.a[chosen]
        b, adds, ordinals, groups = (part[chosen] for part in (self.b, self.adds, self.ordinals, self.groups))
        meta = None if self.meta is None else self.meta[chosen]
        return Issued(self.form, self.warps[chosen], a, b, adds, ordinals, groups, meta)


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """Warps that wait for other warps of their warpgroup to issue operations."""

    fragment: Fragment
    keep: int
    following: int
    site: Site


class Crew(NamedTuple):
    """A set of warps: the warpgroup members of each, [warps, 4], and an order with warpgroups contiguous.

    A missing warp is represented by the last one. `ordered` are the warps in that order; `whole` says that all four
    warps of each warpgroup are there; `bits` is the bit set of the warps.
    """

    mates: Array
    leaders: Array
    order: Array
    ordered: Array
    whole: bool
    bits: int


class Warpgroups:
    """The wgmma operations of one batch."""

    def __init__(self, batch: MatrixBatch, eager: bool = False):
        self._batch = batch
        self._eager = eager
        self._checks = batch.checks.warpgroups
        self._pending: list[Issued] = []
        # operations that warps have not waited for, for the checks only
        self._unwaited: list[Issued] = []
        self.issued: Array = np.zeros(batch.warps, np.int64)
        self.committed: Array = np.zeros(batch.warps, np.int64)
        self.waiting: list[Waiting] = []
        # by the bytes of warp numbers
        self._crews: dict[bytes, Crew] = {}
        # the same by the identity of arrays, which windows keep
        self._named: dict[int, tuple[Array, Crew]] = {}
        self._performer: _Performer | None = None

    def issue(
        self, form: Form, warps: Array, a: Array | None, b: Array, adds: Array, meta: Array | None = None
    ) -> None:
        """Warps issue an operation; descriptors and `adds` have one entry for each warp, `meta` one for each lane."""
        event = Issued(form, warps, a, b, adds, self.issued[warps], self.committed[warps], meta)
        self.issued[warps] += 1
        self._pending.append(event)
        if self._batch.journal is not None:
            self._batch.journal.used(warps, form.site)
        if self._batch.checks.checking:
            self._unwaited.append(event)
            self._checks.issued(event, self.crew(warps))
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
        """Whether checked operations are in flight."""
        return bool(self._unwaited)

    def touched(self, warps: Array, row: int, name: str, verb: str, as_operand: bool, site: Site) -> None:
        """Warps access a register of a bank's row: a fault if an operation that they have not waited for owns it."""
        for event in self._unwaited:
            rows = event.form.a_rows if as_operand else event.form.d_rows
            if rows is not None and row in rows:
                bad = np.intersect1d(warps, event.warps)
                if len(bad):
                    self._checks.touched(bad, name, verb, as_operand, event.form.site, site)

    def unfenced(self, lanes: Array, name: str, site: Site) -> None:
        """Lanes have accessed a register that an operation uses, without a wgmma.fence in between."""
        self._checks.unfenced(lanes, name, site)

    def wait(self, fragment: Fragment, keep: int, following: int, site: Site) -> Fragment | None:
        """Complete all groups but the last `keep`; lanes whose warpgroups have issued them all continue."""
        scheduler = self._batch.scheduler
        lanes = fragment.lanes
        # the array cached by the window, if possible, since results are cached by its identity
        warps = fragment.window.warps if lanes.live == lanes.warp_count else lanes.present()[0]
        done = self.committed[warps] - keep
        group: Array = np.full(self._batch.warps, -1, np.int64)
        group[warps] = done
        need: Array = np.zeros(self._batch.warps, np.int64)
        for event in self._pending:
            raise_needs(event.warps, event.groups, event.ordinals, group, need)
        crew, limit = self.crew(warps), np.zeros(self._batch.warps, np.int64)
        if not spread_limits(warps, crew.mates, need, self.issued, limit):
            late = np.zeros(self._batch.warps, bool)
            late[warps[self._least_issued(warps) < need[warps]]] = True
            staying, going = scheduler.split(fragment, np.repeat(late[fragment.window.warps], WARP))
            assert staying is not None
            self.waiting.append(Waiting(staying, keep, following, site))
            if going is None:
                return None
            scheduler.push(going)
            return None
        self._complete(limit)
        self._forget(group)
        self._checks.waited(warps, crew.leaders, np.maximum(done, 0))
        return fragment.at(following)

    def _forget(self, group: Array) -> None:
        """Release the registers of operations that warps have waited for: those of groups below `group`."""
        staying = []
        for event in self._unwaited:
            count = count_below(event.groups, event.warps, group)
            if not count:
                staying.append(event)
            elif count < len(event.warps):
                staying.append(event.part(event.groups >= group[event.warps]))
        self._unwaited = staying

    def crew(self, warps: Array) -> Crew:
        """What is known of a set of warps, cached."""
        last = self._named.get(id(warps))
        if last is not None and last[0] is warps:
            return last[1]
        key = warps.tobytes()
        found = self._crews.get(key)
        if found is None:
            if len(self._crews) >= _MOST_CREWS:
                self._crews.clear()
            found = self._crews[key] = self._crew(warps)
        if len(self._named) >= _MOST_CREWS:
            self._named.clear()
        self._named[id(warps)] = warps, found
        return found

    def _crew(self, warps: Array) -> Crew:
        ctas, inside = self._batch.ctas, warps // self._batch.ctas
        members = inside[:, None] // WARPS * WARPS + np.arange(WARPS)[None, :]
        members = np.minimum(members, self._batch.warps_per_cta - 1)
        mates = members * ctas + (warps % ctas)[:, None]
        order, whole = _by_warpgroup(warps, ctas)
        bits = sum(1 << warp for warp in warps.tolist())
        return Crew(mates, np.ascontiguousarray(mates[:, 0]), order, warps[order], whole, bits)

    def _least_issued(self, warps: Array) -> Array:
        """The number of operations that all warps of each warp's warpgroup have issued."""
        least: Array = self.issued[self.crew(warps).mates].min(axis=1)
        return least

    def _complete(self, limit: Array) -> None:
        """Perform the operations of each warp below its limit, in order."""
        staying, going = [], []
        for event in self._pending:
            count = count_below(event.ordinals, event.warps, limit)
            if count == len(event.warps):
                going.append(event)
            elif not count:
                staying.append(event)
            else:
                chosen = event.ordinals < limit[event.warps]
                staying.append(event.part(~chosen))
                going.append(event.part(chosen))
        self._pending = staying
        if going:
            if self._performer is None:
                self._performer = _Performer(self._batch, self.crew)
            self._performer.perform(going)


@kernel
def raise_needs(warps: Int64s, groups: Int64s, ordinals: Int64s, group: Int64s, need: Int64s) -> None:
    """Raise each warp's number of operations to complete to cover its groups below `group`."""
    for i in range(warps.size):
        warp = warps[i]
        if groups[i] < group[warp] and need[warp] < ordinals[i] + 1:
            need[warp] = ordinals[i] + 1


@kernel
def spread_limits(warps: Int64s, mates: Int64s, need: Int64s, issued: Int64s, limit: Int64s) -> Flag:
    """Whether the warpgroup members of warps have issued all operations that these need.

    Then it is their limit, too.
    """
    for i in range(warps.size):
        wanted = need[warps[i]]
        for k in range(WARPS):
            mate = mates[i, k]
            if issued[mate] < wanted:
                return False
            if limit[mate] < wanted:
                limit[mate] = wanted
    return True


@kernel
def count_below(values: Int64s, warps: Int64s, limits: Int64s) -> int:
    """Count values, one for each warp, below the limits of their warps."""
    count = 0
    for i in range(warps.size):
        if values[i] < limits[warps[i]]:
            count += 1
    return count


class _Chain(NamedTuple):
    """Operations in sequence on the same accumulators of warps, which are given as a bit set."""

    events: list[Issued]
    warps: int


class _Performer:
    """Performs operations in order, with an H200's bits; accumulators stay matrices while they are reused."""

    def __init__(self, batch: MatrixBatch, crew: Callable[[Array], Crew]):
        self._batch, self._crew = batch, crew
        bank = self._bank = batch.banks["uint32"]
        self._registers = bank[:, : batch.lanes].reshape(len(bank), -1, WARP)

    def perform(self, events: list[Issued]) -> None:
        for chain in chains_of(events, self._crew):
            self._accumulate(chain)

    def _accumulate(self, events: list[Issued]) -> None:
        """Operations of the same warps on the same accumulators."""
        crew, form = self._crew(events[0].warps), events[0].form
        sums = None
        if events[0].adding:
            sums = self._accumulators(form, crew.ordered)
        for event in events:
            sums = self._added(event.part(crew.order), sums, together(event, crew))
        assert sums is not None
        if form.kinds[0] == "f16":
            self._registers[form.d_rows[:, None], crew.ordered[None, :]] = registers_of(sums, "f16")
        else:
            put_accumulators(self._bank, form.d_rows, crew.ordered, sums)

    def _accumulators(self, form: Form, warps: Array) -> Array:
        """The contents of D of warps: [warps, 16, n]."""
        if form.kinds[0] == "f16":
            return accumulators(self._registers[form.d_rows[:, None], warps[None, :]], "f16")
        found: Array = np.empty((len(warps), 16, 2 * len(form.d_rows)), np.uint32)
        take_accumulators(self._bank, form.d_rows, warps, found)
        return found

    def _added(self, event: Issued, kept: Array | None, units: int) -> Array:
        """The accumulators after an operation of warps in the order of their warpgroups, with the hardware's bits."""
        form, ctas = event.form, event.warps[::units] % self._batch.ctas
        b = self._gathered(event.b[::units], ctas, form.b_operand)
        a = self._left(event, units, ctas)
        if form.negated:
            a = -a
        addend = _addend(event, kept)
        if form.kinds[0] == "s32":
            made: Array = product(a, b).reshape(len(event.warps), 16, -1)
            found: Array = accumulate(made, addend, "s32", form.saturates)
            return found
        if addend is not None:
            addend = addend.reshape(len(b), 16 * units, -1)
        return exact_sums(a, b, addend, form.kinds).reshape(len(event.warps), 16, -1)

    def _gathered(self, descriptors: Array, ctas: Array, operand: Operand) -> Array:
        """The tiles of descriptors."""
        if operand.kind in HALVES and self._batch.launch.fast.half_tiles:
            layout = layout_of(descriptors.tobytes(), operand, wgmma_descriptor)
            return gather_halves(self._batch, ctas, layout, operand)
        return gather(self._batch, ctas, tiles_of(descriptors, operand, wgmma_descriptor), operand)

    def _left(self, event: Issued, units: int, ctas: Array) -> Array:
        """A as [warpgroups, 64, k], or [warps, 16, k] if these are not contiguous."""
        held, form = self._held(event, units, ctas), event.form
        if event.meta is None or form.selector is None:
            return held
        where = columns_of(event.meta, f"m16n8k{form.k}", form.kinds[1], form.selector)
        whole: Array = expanded(held.reshape(-1, 16, form.held), where, form.k)
        return whole.reshape(-1, 16 * units, form.k)

    def _held(self, event: Issued, units: int, ctas: Array) -> Array:
        """The stored elements of A."""
        form, warps = event.form, event.warps
        if form.a_rows is not None and form.kinds[1] in HALVES and self._batch.launch.fast.half_tiles:
            taken: Array = np.empty((1, len(warps), 16, form.held), np.float32)
            take_left(self._bank, form.a_rows[None], warps, float32_table(form.kinds[1]), taken)
            return taken.reshape(-1, 16 * units, form.held)
        if form.a_rows is not None:
            found = self._registers[form.a_rows[:, None], warps[None, :]].reshape(len(form.a_rows), -1, WARP)
            held: Array = float32_of(operand_a(found, form.kinds[1]), form.kinds[1])
            return held.reshape(-1, 16 * units, form.held)
        assert event.a is not None
        tiles = self._gathered(event.a[::units], ctas, form.a_operand)
        if units == WARPS:
            return tiles
        own: Array = tiles.reshape(-1, WARPS, 16, form.held)[np.arange(len(warps)), warps // self._batch.ctas % WARPS]
        return own


def chains_of(events: list[Issued], crew: Callable[[Array], Crew]) -> list[list[Issued]]:
    """Group operations of the same warps on the same accumulators, each chain in order.

    An operation may join a chain past operations of other warps, or on other accumulators. If A is in accumulators of
    one of them, none overtakes another, since chains read A before they write.
    """
    first = events[0]
    if all(event.warps is first.warps and event.form.accumulators == first.form.accumulators for event in events):
        return [events]
    written = reduce(or_, (event.form.written for event in events))
    in_turn = any(event.form.read & written for event in events)
    chains: list[_Chain] = []
    for event in events:
        bits = crew(event.warps).bits
        chain = _chain_for(event, bits, chains[-1:] if in_turn else chains)
        if chain is None:
            chains.append(_Chain([event], bits))
        else:
            chain.events.append(event)
    return [chain.events for chain in chains]


def _chain_for(event: Issued, bits: int, chains: list[_Chain]) -> _Chain | None:
    """The chain that an operation of the warps in `bits` continues, past those that it may overtake."""
    for chain in reversed(chains):
        if _continues(chain.events[0], event):
            return chain
        if bits & chain.warps and chain.events[0].form.written & event.form.written:
            return None
    return None


def _continues(first: Issued, event: Issued) -> bool:
    """Whether an operation adds to the accumulators of another, in the same warps."""
    if first.form.accumulators != event.form.accumulators:
        return False
    return first.warps is event.warps or np.array_equal(first.warps, event.warps)


def _by_warpgroup(warps: Array, ctas: int) -> tuple[Array, bool]:
    """The order in which the warps of each warpgroup are contiguous, and whether all four of each are there."""
    cta, inside = warps % ctas, warps // ctas
    keys = (inside // WARPS * ctas + cta) * WARPS + inside % WARPS
    order = np.argsort(keys, kind="stable")
    if len(keys) % WARPS:
        return order, False
    found = keys[order].reshape(-1, WARPS)
    return order, bool((found == found[:, :1] + np.arange(WARPS)).all() and (found[:, 0] % WARPS == 0).all())


def together(event: Issued, crew: Crew) -> int:
    """How many contiguous warps share a tile of B; warps of a warpgroup may be in different iterations of a loop."""
    if not crew.whole:
        return 1
    if event.level:
        return WARPS
    ordinals = event.ordinals[crew.order].reshape(-1, WARPS)
    return WARPS if (ordinals == ordinals[:, :1]).all() else 1


def _addend(event: Issued, kept: Array | None) -> Array | None:
    """What the products are added to: accumulators of the warps that add, zeros for others; None if none adds."""
    if not event.adding or kept is None or event.adding == len(event.adds):
        return kept if event.adding else None
    found: Array = np.where(event.adds[:, None, None], kept, kept.dtype.type(0))
    return found
