"""Happens-before by vector clocks: what each warp, and each lane beyond its warp, knows of the others.

An actor has a program order of its own: a warp, or asynchronous work beside the warps (`lanes.actors`). Each actor
counts its releases, and the count is its clock. To *release* is to pass a copy of one's vector clock to whoever
acquires it, and then to advance one's own clock, so that later accesses have a later epoch. To *acquire* is to join
another's vector clock (the larger of each entry) with one's own. An access at epoch (u, c) happens before everything an
actor does whose vector clock has at least c for u. `memory.cells` checks that for every access.

A full vector clock would have an entry for each lane of the grid. It is compressed without loss:

- *Lanes to warps.* `clocks[cta, w, u]` is the last clock of actor u that **all** lanes of warp w have acquired (its own
  clock where u = w). What one lane has acquired for itself is in `near`, or in `_private`, until its warp meets
  (`meet`, `barrier`) and all lanes know it (`_collapse`). A release by part of a warp publishes the warp's clock as of
  when its lanes last met (`met`), and names the releasing lanes beside it (`Knowledge.lanes`), so that nobody acquires
  accesses of lanes that did not release. Beyond a thousand named lanes, their warps count as a whole.
- *The grid to a CTA.* Most order is within a CTA. A warp gets a row of `known` when it first acquires something of
  other CTAs (`_beyond` has the same in the form that can be passed on). A warp without a row knows nothing of them.
- *Exited lanes* never release their last accesses; `ended_lanes` keeps them out of their warp's clock.

The async proxy has columns of its own: `proxied(w)` says which ordinary accesses of w asynchronous operations may see.
A proxy fence copies the warps' columns there (`show_proxy`). An operation compares ordinary writes with these columns,
since a write may happen before it and still not be visible to it. `patterns` says how clocks travel through memory.
"""

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.checks.happens_before import clock_kernels as kernels
from kernbench.ptx.emulator.checks.happens_before.ended_lanes import EndedLanes, Forget
from kernbench.ptx.emulator.checks.happens_before.knowledge import (
    EVERYBODY,
    Knowledge,
    Publications,
    barrier_key,
    bits,
    together,
)
from kernbench.ptx.emulator.checks.happens_before.near_rows import Groups, NearRows, take_rows
from kernbench.ptx.emulator.checks.happens_before.snapshot import Snapshot
from kernbench.ptx.emulator.lanes.lanes import WARP, Mask, lane_bits
from kernbench.ptx.emulator.lanes.window import Window
from kernbench.ptx.emulator.memory.cells import (
    CLOCK_LIMIT,
    CTA,
    INSIDE,
    KNOWN,
    MET,
    NUMBER,
    TABLE,
    WARP_LIMIT,
)
from kernbench.ptx.emulator.program.hub import BatchHub

_NOTHING = Knowledge()
_NOBODY: dict[int, Knowledge] = {}
_NO_CLOCKS = np.zeros((0, 0), np.int32)


class Clocks:
    """The vector clocks of one batch."""

    def __init__(self, batch: BatchHub, publications: Publications, forget: Forget):
        self._batch = batch
        self._fast = batch.launch.fast
        self.publications = publications
        ctas, warps = batch.ctas, batch.warps_per_cta
        actors = batch.launch.actors
        self.columns: int = actors.count
        self.clocks: Array = np.zeros((ctas, warps, self.columns), np.int32)
        self._own = np.arange(warps)
        # the first column of the clocks of single lanes, -1 if there are none
        self._lane: int = actors.lane(0) if actors.asynchronous else -1
        self.clocks[:, self._own, self._own] = 1
        # peers[w, i, j]: the clock up to which lane i of warp w knows lane j's accesses; row WARP: the clocks at which
        # each lane last arrived on an mbarrier alone
        self.peers: Array = np.zeros((batch.warps + 1 if actors.asynchronous else 1, WARP + 1, WARP), np.int32)
        self.known: Array = np.zeros((1, 1), np.int32)
        self._beyond: dict[int, Knowledge] = {}
        self._private: dict[int, dict[int, Knowledge]] = {}
        # warps of which some lanes have ever met without the others, and warps of which some have since all met
        self._peered: set[int] = set()
        self._partly_met: Array = np.zeros(batch.warps, bool)
        self._seen: Array = np.zeros(batch.warps, bool)
        self._all_ctas, self._all_warps = np.ones(ctas, bool), np.ones((ctas, warps), bool)
        self._left = EndedLanes(batch, forget)
        self.touched = self._left.touched
        # True once a warp has released more often than cells can count: from then on races are not checked
        self.exhausted = False
        self._changes, self._look_again = 0, CLOCK_LIMIT // 2
        warp = np.arange(batch.warps)
        # the number of each CTA's first actor in the grid; in very large grids numbers repeat
        self.first_numbers: Array = batch.numbers % (WARP_LIMIT // self.columns) * self.columns
        self._firsts: list[int] = self.first_numbers.tolist()
        # what single lanes have acquired within their CTAs; while `near.suffices`, `_beyond` and `_private` are empty
        self.near = NearRows(batch, self.first_numbers, self.columns)
        # lanes that have acquired something that their warp has not
        self.special: Array = self.near.special
        self._table: Array = np.zeros((batch.warps + 1, TABLE), np.int64)
        each = self._table[:-1]
        each[:, CTA], each[:, INSIDE] = warp % ctas, warp // ctas
        each[:, NUMBER], each[:, KNOWN] = self.first_numbers[warp % ctas] + warp // ctas, -1
        self._table[-1, :3] = warps, self.columns, self._lane
        self.numbers: Array = each[:, NUMBER]
        # the clock up to which the lanes of each warp know each other's accesses
        self.met: Array = each[:, MET]
        self.known_rows: Array = each[:, KNOWN]
        # both for compiled loops, with one row too many: NumPy calls a column of a single row contiguous, and the loops
        # would be compiled a second time for launches of one warp
        self.met_column: Array = self._table[:, MET]
        self.known_column: Array = self._table[:, KNOWN]
        self._stale = True

    @property
    def all_touched(self) -> bool:
        """Whether every lane has accessed memory."""
        return self._left.all_touched

    def table(self) -> Array:
        """Per-warp data for the compiled loops: see `cells`."""
        if self._stale:
            self._stale = False
            kernels.fill_table(self.clocks, self._table)
            if not self._fast.clock_floors:
                kernels.drop_floors(self._table)
        return self._table

    def alive(self, warp: int) -> int:
        """The living lanes of a warp, as a mask."""
        return int(self._batch.alive_bits[warp])

    def apart(self) -> Array:
        """For each warp, the lanes that its clock counts for: the living, and the exited until `part`."""
        living: Array = self._batch.alive_bits
        return living | self._left.masks if self._left.any else living

    def ended(self, warps: Array, active: Mask) -> None:
        """Lanes of warps exit: their last accesses are never released."""
        ctas, inside = warps % self._batch.ctas, warps // self._batch.ctas
        self._left.ended(warps, active, self.clocks[ctas, inside, inside])

    def part(self, warps: Array) -> None:
        """Call before warps publish their own clocks: exited lanes are taken out of them first."""
        self._left.part(warps)

    def own(self, warp: int) -> int:
        """A warp's own clock."""
        inside = warp // self._batch.ctas
        return int(self.clocks[warp % self._batch.ctas, inside, inside])

    def advance(self, warps: Array) -> None:
        """Begin a new epoch in warps whose lanes have released: an acquire from them does not cover later accesses."""
        ctas, inside = warps % self._batch.ctas, warps // self._batch.ctas
        self.clocks[ctas, inside, inside] += 1
        self.changed()

    def advance_of(self, lanes: Array) -> None:
        """As `advance`, given lanes; each warp advances once."""
        kernels.advance_once(lanes, self.clocks, self._seen)
        self.changed()

    def changed(self) -> None:
        """Record that clocks have changed, and check now and then that none is about to overflow."""
        self._stale = True
        # a clock grows by one for each change at most, so the next check can wait for half of what is left
        self._changes += 1
        if self._changes >= self._look_again:
            largest = int(self.clocks[:, self._own, self._own].max(initial=0))
            self._look_again = self._changes + max((CLOCK_LIMIT - 2 - largest) // 2, 1)
            if largest >= CLOCK_LIMIT - 2:
                self.exhausted = self.publications.exhausted = True

    def snapshot(self, warp: int) -> Snapshot:
        """A copy of what a warp and its lanes know now."""
        batch = self._batch
        cta, inside = warp % batch.ctas, warp // batch.ctas
        row = self.clocks[cta, inside].copy()
        own, row[inside] = int(row[inside]), self.met[warp]
        return Snapshot(
            self._firsts[cta], inside, own, row, int(batch.alive_bits[warp] | self._left.masks[warp]),
            self._of_warp(warp) or _NOTHING, dict(sorted(self._of_lanes(warp).items())),
            self.peers[warp].copy() if warp in self._peered else None, self.publications.actors,
            self._lane,
        )  # fmt: skip

    def _of_lanes(self, warp: int) -> dict[int, Knowledge]:
        """What lanes of a warp have acquired beyond their warp, by lane."""
        if self.near.suffices:
            return self.near.of_lanes(warp) if self.near.any else _NOBODY
        return self._private.get(warp, _NOBODY)

    def _of_warp(self, warp: int) -> Knowledge | None:
        """What a warp knows beyond its vector clock: clocks of other CTAs, and of single lanes by name."""
        return self.near.of_warp(warp) if self.near.suffices else self._beyond.get(warp)

    def part_with_rows(self) -> None:
        """Convert rows to knowledge by name: something of another CTA is acquired, and rows cannot hold it."""
        if not self.near.suffices:
            return
        near, self.near.suffices = self.near, False
        self._beyond = near.of_warps()
        for warp in np.unique(np.flatnonzero(self.special) // WARP).tolist():
            self._private[warp] = near.of_lanes(warp)
        for slot in np.flatnonzero(near.released).tolist():
            knowledge = near.of_slot(slot)
            assert knowledge is not None
            self.publications.released[barrier_key(int(self._batch.numbers[0]), slot)] = knowledge

    def released_by(self, these: Groups) -> tuple[Array, Array]:
        """What groups of lanes release, as rows and names, while rows suffice: see `Snapshot.released_by`."""
        warps, each = these.warps, np.arange(len(these.warps))
        ctas, inside = warps % self._batch.ctas, warps // self._batch.ctas
        rows = self.clocks[ctas, inside]
        own, whole = rows[each, inside].copy(), self.apart()[warps].astype(np.int64) & ~these.masks == 0
        # a whole warp publishes its own clock; a part of it the clock at which the warp met, and its own lanes by name
        rows[each, inside] = np.where(whole, own, self.met[warps])
        some = np.flatnonzero(~whole)
        rows[some, self._lane + inside[some]] = own[some] * WARP + these.firsts[some]
        named = np.flatnonzero(~whole[these.numbers])
        columns, by = self.near.columns_of(these.lanes[named]), these.numbers[named]
        parted = [i for i in some.tolist() if int(warps[i]) in self._peered] if self._peered else []
        peers = [(i, *self._peers_of(int(warps[i]), int(these.masks[i]))) for i in parted]
        names = self.near.names_of(warps)
        for i, where, clocks in peers:
            names[i, where] = clocks
        names[by, columns] = own[by]
        self.near.add_own(these, rows, names)
        return rows, names

    def _peers_of(self, warp: int, mask: int) -> tuple[Array, Array]:
        """What lanes know of other lanes of their warp: columns of names, and clocks."""
        known = self.peers[warp, list(bits(mask))].max(axis=0)
        lanes = np.flatnonzero(known)
        return self.near.columns_of(warp * WARP + lanes), known[lanes]

    def acquire_rows(self, these: Groups, rows: Array, names: Array | None) -> None:
        """Groups of distinct lanes acquire rows and names, while rows suffice: see `acquire`."""
        alive = self._batch.alive_bits[these.warps].astype(np.int64)
        whole = alive & ~these.masks == 0
        if whole.any():
            self._join_whole(these.warps[whole], rows[whole], None if names is None else names[whole])
        if not whole.all():
            by, inside = these.numbers, these.lanes % WARP
            chosen = ~whole[by] & (alive[by] >> inside & 1 == 1)
            by = by[chosen]
            self.near.add(these.lanes[chosen], rows[by], None if names is None else names[by])

    def _join_whole(self, warps: Array, rows: Array, names: Array | None) -> None:
        """Distinct warps acquire rows and names, all their lanes together."""
        ctas, inside, each = warps % self._batch.ctas, warps // self._batch.ctas, np.arange(len(warps))
        mine = self.clocks[ctas, inside]
        own = mine[each, inside]
        np.maximum(mine, rows, out=mine)
        mine[each, inside] = own
        self.clocks[ctas, inside] = mine
        self.met[warps] = np.maximum(self.met[warps], rows[each, inside])
        self._stale = True
        if names is not None:
            self.near.learn(warps, names)

    def acquire(self, warp: int, mask: int, knowledge: Knowledge) -> None:
        """Lanes of a warp acquire what others released: the whole warp if all its living lanes do."""
        alive = self.alive(warp)
        if not alive & ~mask:
            self._acquire_together(warp, knowledge)
            return
        if self._is_near(warp, knowledge, mask & alive):
            return
        alone = self._private.get(warp, _NOBODY)
        for lane in bits(mask & alive):
            known = alone[lane].join(knowledge, self.publications.actors) if lane in alone else knowledge
            self._know(warp * WARP + lane, known)

    def _is_near(self, warp: int, knowledge: Knowledge, mask: int | None = None) -> bool:
        """Acquire knowledge as a row, for lanes of a warp or all; False if rows cannot hold it, which ends them."""
        if not self.near.suffices:
            return False
        found = self.near.split(knowledge, warp % self._batch.ctas)
        if found is None:
            self.part_with_rows()
        elif mask is not None:
            lanes = warp * WARP + np.array(list(bits(mask)), np.int64)
            self.near.add(lanes, *(np.repeat(one, len(lanes), axis=0) for one in found))
        else:
            self._join_whole(np.array([warp]), *found)
        return found is not None

    def _know(self, lane: int, knowledge: Knowledge) -> None:
        """Set all that a lane knows beyond its warp."""
        self._private.setdefault(lane // WARP, {})[lane % WARP] = knowledge
        self.near.put(lane, knowledge.row(self._first(lane // WARP), self.columns))

    def _forget(self, warp: int) -> list[Knowledge]:
        """Take away what the lanes of a warp know beyond it, and return it."""
        alone = sorted(self._private.pop(warp).items())
        self.near.forget(warp * WARP + np.array([lane for lane, _ in alone]))
        return [knowledge for _, knowledge in alone]

    def _acquire_together(self, warp: int, knowledge: Knowledge) -> None:
        if self._is_near(warp, knowledge):
            return
        cta, inside = warp % self._batch.ctas, warp // self._batch.ctas
        first = self._firsts[cta]
        near = knowledge.row(first, self.columns)
        if near is not None:
            mine = self.clocks[cta, inside]
            own = mine[inside]
            # Join the two vector clocks, except for the warp's own entry, which counts its releases. What others know
            # of this warp says up to which clock its lanes now know each other's accesses.
            np.maximum(mine, near, out=mine)
            mine[inside] = own
            self.met[warp] = max(self.met[warp], near[inside])
            self._stale = True
        far = {number: row for number, row in knowledge.rows.items() if number != first}
        if not far and knowledge.dense is None and not knowledge.lanes:
            return
        beyond = Knowledge(far, knowledge.dense, knowledge.lanes)
        before = self._beyond.get(warp)
        joined = self._beyond[warp] = beyond if before is None else before.join(beyond, self.publications.actors)
        if far or joined.dense is not None:
            row = self._row(warp)
            if joined.dense is not None:
                np.maximum(self.known[row], joined.dense, out=self.known[row])
            for number, clocks in far.items():
                part = self.known[row, number : number + len(clocks)]
                np.maximum(part, clocks[: len(part)], out=part)

    def _row(self, warp: int) -> int:
        """The row of `known` of a warp, made unshared first if other warps use it, too (copy-on-write)."""
        row = int(self.known_rows[warp])
        if row >= 0 and int(np.count_nonzero(self.known_rows == row)) == 1:
            return row
        fresh = self._free_row()
        self.known[fresh] = self.known[row] if row >= 0 else 0
        self.known_rows[warp] = fresh
        return fresh

    def _free_row(self) -> int:
        used = np.zeros(len(self.known), bool)
        used[self.known_rows[self.known_rows >= 0]] = True
        if self.known.shape[1] != self.publications.actors or used.all():
            grown = np.zeros((max(4, 2 * int(used.sum())), self.publications.actors), np.int32)
            if used.any():
                grown[: len(self.known)] = self.known
            used = np.pad(used, (0, len(grown) - len(used)))
            self.known = grown
        return int(np.argmin(used))

    def unknown(self, lane: int, number: int, clock: int, mask: int) -> int:
        """Of the lanes of warp `number` (in the grid), those whose access at `clock` is unordered with `lane` now."""
        warp = lane // WARP
        # program order, and what lanes of one warp know of each other
        if number == self.numbers[warp]:
            mask &= ~(1 << lane % WARP)
            if len(self.peers) > 1:
                mask &= ~sum(1 << other for other in np.flatnonzero(self.peers[warp, lane % WARP] >= clock).tolist())
        if self._lane >= 0 and self._first(warp) == number - number % self.columns:
            mask = self._left_by_lane(
                self.clocks[warp % self._batch.ctas, warp // self._batch.ctas], number, clock, mask
            )
        for knowledge in (self._of_warp(warp), self._of_lanes(warp).get(lane % WARP)):
            if knowledge is None:
                continue
            mask = knowledge.left(number, clock, mask, self.columns)
            if mask and self._lane >= 0:
                row = knowledge.row(number - number % self.columns, self.columns)
                mask = self._left_by_lane(row, number, clock, mask)
        return mask

    def unknown_to_cta(self, cta: int, number: int, clock: int, mask: int) -> int:
        """Of the lanes of a warp, those whose access at `clock` no lane of a CTA knows."""
        for warp in (self._own * self._batch.ctas + cta).tolist():
            for lane in range(warp * WARP, (warp + 1) * WARP):
                if self.special[lane] or lane % WARP == 0:
                    mask = self.unknown(lane, number, clock, mask)
        return mask

    def _first(self, warp: int) -> int:
        return self._firsts[warp % self._batch.ctas]

    def _left_by_lane(self, row: Array | None, number: int, clock: int, mask: int) -> int:
        """The lanes of `mask` whose access at `clock` no column of single lanes covers, as `cells.knows_lane`."""
        column = number % self.columns
        if row is None or column >= self._batch.warps_per_cta or clock > row[self._lane + column] >> 5:
            return mask
        mask &= ~(1 << int(row[self._lane + column] & 31))
        warp = np.flatnonzero(self.numbers == number)
        for lane in bits(mask) if len(warp) else ():
            if self.peers[warp[0], WARP, lane] >= clock:
                mask &= ~(1 << lane)
        return mask

    def of_others(self, warps: Array, homes: Array, columns: Array) -> Array:
        """The clocks of actors of other CTAs that warps know, 0 for none."""
        rows = self.known_rows[warps]
        numbers = self.first_numbers[homes] + np.maximum(columns, 0)
        known: Array = self.known[np.maximum(rows, 0), np.minimum(numbers, self.known.shape[1] - 1)]
        known = np.where(rows >= 0, known, 0)
        for i in np.flatnonzero(self.special.reshape(-1, WARP)[warps].any(axis=1)).tolist() if self._private else ():
            alone = [one.clock(int(numbers[i]), self.columns) for one in self._private[int(warps[i])].values()]
            known[i] = max(known[i], *alone)
        return known

    def of_cta(self, cta: int) -> tuple[Array, Array]:
        """What the warps of a CTA together know of the actors of their CTA, and of those of other CTAs."""
        warps = np.arange(len(self._own)) * self._batch.ctas + cta
        rows = self.known_rows[warps]
        known = self.known[rows[rows >= 0]].max(axis=0) if (rows >= 0).any() else np.zeros(1, np.int32)
        return self.rows_of(warps).max(axis=0), known

    def aware(self, lanes: Array) -> Array:
        """For each lane, whether it or its warp knows more than compiled loops pass on."""
        found: Array = self.special[lanes] | self._partly_met[lanes // WARP] | self.near.aware[lanes // WARP]
        if self._beyond:
            warps = np.zeros(self._batch.warps, bool)
            warps[list(self._beyond)] = True
            found = found | warps[lanes // WARP]
        return found

    def any_aware(self, slots: Array, lanes: Array, homes: Array) -> bool:
        """Whether `aware` holds for a lane that arrives on an mbarrier of its own CTA; `homes` are their CTAs."""
        known = (self.special, self._partly_met, self.near.aware)
        return bool(self._beyond) or kernels.count_aware(slots, lanes, self._batch.ctas, homes, *known) > 0

    def helps(self, lanes: Array) -> Array:
        """For each lane, whether `unknown` may know more than the compiled loops."""
        found: Array = self.special[lanes]
        if self.near.suffices:
            return found | self.near.helps(lanes // WARP)
        if self._beyond:
            aware = np.zeros(self._batch.warps, bool)
            aware[[warp for warp, knowledge in self._beyond.items() if knowledge.lanes]] = True
            found = found | aware[lanes // WARP]
        return found

    def own_rows(self, lanes: Array) -> Array:
        """The vector clocks of lanes over the actors of their CTAs.

        For the own warp, the clock at which it last met.
        """
        rows: Array = np.empty((len(lanes), self.columns), np.int32)
        take_rows(self.clocks, self.met_column, lanes, rows)
        self.near.join_lanes(rows, lanes)
        return rows

    def rows_of(self, warps: Array) -> Array:
        """The vector clocks of warps over the actors of their CTAs, joined with those of their single lanes."""
        ctas, inside = warps % self._batch.ctas, warps // self._batch.ctas
        rows: Array = self.clocks[ctas, inside]
        self.near.join_warps(rows, inside, warps)
        return rows

    def show_proxy(self, warps: Array, columns: list[int]) -> None:
        """A proxy fence: ordinary accesses that warps know become visible to the async proxy, from `columns` on."""
        self._left.part(warps)
        kernels.show(warps, columns[0], columns[-1], self.clocks)
        count = self._batch.warps_per_cta
        if self.near.suffices and self.near.any:
            self.near.show(warps, columns)
        for warp in [warp for warp in warps.tolist() if warp in self._private]:
            for lane, known in sorted(self._private[warp].items()):
                if (near := known.row(self._first(warp), self.columns)) is None:
                    continue
                shown = near.copy()
                for first in columns:
                    np.maximum(shown[first : first + count], shown[:count], out=shown[first : first + count])
                known = known.join(Knowledge({self._first(warp): shown}), self.publications.actors)
                self._know(warp * WARP + lane, known)
        self.changed()

    def meet_whole(self, warps: Array, mask: Array, named: Array) -> bool:
        """The fast path of `meet`, if whole warps meet and no lane knows anything for itself; returns whether so.

        `named` are the masks that lanes give; `mask` says which lanes are active, empty means all.
        """
        if self.near.any or self._private or self._left.any or not self._fast.whole_warp_clocks:
            return False
        known = (self._batch.alive_bits, self.clocks, self.met_column, self._partly_met)
        if not kernels.meet_whole(warps, mask, named, *known):
            return False
        self.changed()
        return True

    def meet(self, warps: Array, masks: Array) -> None:
        """Lanes of warps meet (bar.warp.sync): each acquires from the other lanes of its mask.

        A whole warp advances `met`, which orders all earlier accesses of its lanes by one comparison. Parts of a warp
        keep a matrix of lanes (`peers`), which is seldom needed.
        """
        self._left.part(warps)
        named = masks.astype(np.uint32)
        whole = (self.apart()[warps] & ~named) == 0
        together = warps[whole]
        ctas, inside = together % self._batch.ctas, together // self._batch.ctas
        self.met[together] = self.clocks[ctas, inside, inside]
        self._partly_met[together] = False
        self._collapse(together)
        for warp, mask in zip(warps[~whole].tolist(), masks[~whole].tolist(), strict=True):
            self._meet_some(warp, mask & int(self.apart()[warp]))
        self.advance(np.unique(warps))

    def _meet_some(self, warp: int, mask: int) -> None:
        if len(self.peers) == 1:
            self.peers = np.zeros((self._batch.warps + 1, WARP + 1, WARP), np.int32)
        here = list(bits(mask))
        if not here:
            return
        self._partly_met[warp] = True
        self._peered.add(warp)
        known = self.peers[warp, here].max(axis=0)
        known[here] = self.own(warp)
        self.peers[warp, here] = known
        alone = self._of_lanes(warp)
        private = [alone[lane] for lane in here if lane in alone]
        for knowledge in private:
            self.acquire(warp, mask, knowledge)

    def _collapse(self, warps: Array) -> None:
        """What single lanes have acquired becomes known to their warps, whose lanes have met."""
        if self.near.suffices:
            if self.near.any:
                self._join_whole(*self.near.collapsed(warps))
            return
        for warp in [warp for warp in warps.tolist() if warp in self._private] if self._private else ():
            self._acquire_together(warp, together(self._forget(warp), self.publications.actors))

    def barrier(
        self,
        done: Array | None,
        present: Array | None,
        given: Array | None = None,
        published: dict[int, Knowledge] | None = None,
    ) -> None:
        """Warps meet at a CTA barrier: all of them, or those of `present` in the CTAs of `done`.

        `given` has for each CTA the joined vector clocks of warps that only arrived; `published` has what these know
        beyond their vector clocks.
        """
        if done is None or present is None:
            done, present = self._all_ctas, self._all_warps
        if self.near.any or self._private or self._left.any:
            inside, ctas = np.nonzero((present & done[:, None]).T)
            self._collapse(inside * self._batch.ctas + ctas)
            self._left.part(inside * self._batch.ctas + ctas)
        arrived, near = _NO_CLOCKS if given is None else given, self.near
        known = (self.clocks, self.met_column, self._partly_met, near.aware, near.shared)
        unlike = kernels.join_round(done, present, arrived, *known)
        for cta, knowledge in published.items() if published else ():
            for one in np.flatnonzero(present[cta] & done[cta]).tolist():
                self._acquire_together(one * self._batch.ctas + cta, knowledge)
        if unlike or published or self._beyond:
            self._share(np.flatnonzero(done), present)
        self.changed()

    def _share(self, ctas: Array, present: Array) -> None:
        """The warps of a barrier share what they know of other CTAs and of single lanes."""
        if self.near.suffices:
            self.near.share(ctas, present)
            return
        aware = {warp % self._batch.ctas for warp in self._beyond}
        for cta in aware.intersection(ctas.tolist()):
            warps = (np.flatnonzero(present[cta]) * self._batch.ctas + cta).tolist()
            known = [self._beyond[warp] for warp in warps if warp in self._beyond]
            if not known or (len(known) == len(warps) and all(one is known[0] for one in known)):
                continue
            joined = known[0]
            for knowledge in known[1:]:
                joined = joined if knowledge is joined else joined.join(knowledge, self.publications.actors)
            self._give(warps, self._without(joined, cta, present[cta]))

    def _without(self, knowledge: Knowledge, cta: int, present: Array) -> Knowledge:
        """Knowledge without the names of lanes of warps that have just met: vector clocks cover these lanes now."""
        first = self._firsts[cta]
        here = {first + inside for inside in np.flatnonzero(present).tolist()}
        lanes = {thread: clock for thread, clock in knowledge.lanes.items() if thread // WARP not in here}
        return Knowledge(knowledge.rows, knowledge.dense, lanes)

    def _give(self, warps: list[int], knowledge: Knowledge) -> None:
        """Set what warps know of other CTAs to the same knowledge; they share one row of `known`."""
        for warp in warps:
            self._beyond[warp] = knowledge
        held = self.known_rows[warps]
        if knowledge.dense is not None or (held != held[0]).any():
            row, dense, held = self._free_row(), knowledge.dense, np.unique(held)
            self.known[row] = self.known[held[held >= 0]].max(axis=0, initial=0)
            if dense is not None:
                np.maximum(self.known[row], dense, out=self.known[row])
            self.known_rows[warps] = row


def masks_of(window: Window, mask: Mask | None) -> tuple[Array, Array]:
    """The warps of a window that have active lanes, and these lanes as masks."""
    warps: Array = window.warps
    if mask is None:
        return warps, np.full(len(warps), EVERYBODY, np.int64)
    found = lane_bits(mask).astype(np.int64)
    return warps[found != 0], found[found != 0]
