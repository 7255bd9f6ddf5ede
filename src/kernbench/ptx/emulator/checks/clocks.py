"""Happens-before: what each warp knows of the others, advanced by barriers, fences and synchronising accesses.

`clocks[cta, w, u]` is the last clock of actor u that warp w has seen; its own where u = w. The first actors of a CTA
are its warps, the others what works beside them (`asynchronous.actors`). Between CTAs knowledge travels through memory:
a strong write after a fence publishes what the writer knew at the fence; a strong read of the same address takes it.
"""

from typing import Any

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes import WARP, Mask
from kernbench.ptx.emulator.memory.cells import CLOCK_LIMIT, WARP_LIMIT, stamp


class Publications:
    """What was published at which address, for the whole launch: one clock for each actor of the grid."""

    def __init__(self, actors: int):
        self.actors = actors
        self.at: dict[Any, Array] = {}

    def publish(self, key: Any, first: int, clocks: Array, more: Array | None) -> None:
        """Add a warp's knowledge of its CTA, and what its CTA knows of others, to an address."""
        known = self.at.get(key)
        if known is None:
            known = self.at[key] = np.zeros(self.actors, np.int32)
        part = known[first : first + len(clocks)]
        np.maximum(part, clocks, out=part)
        if more is not None:
            np.maximum(known, more, out=known)


class Clocks:
    """The clocks of one batch."""

    def __init__(self, batch: Any, publications: Publications):
        self._batch = batch
        self._publications = publications
        ctas, warps = batch.ctas, batch.warps_per_cta
        self.columns: int = batch.launch.actors.count
        self.clocks: Array = np.zeros((ctas, warps, self.columns), np.int32)
        self._own = np.arange(warps)
        # where what is known of single lanes begins; without it lanes of a warp meet whenever its clock advances
        self._lane: int = batch.launch.actors.lane(0) if batch.launch.actors.asynchronous else -1
        self._met = self._own + max(self._lane, 0)
        self.clocks[:, self._own, self._own] = 1
        self.known: Array = np.zeros((1, 1), np.int32)
        self.known_rows: Array = np.full(ctas, -1, np.int64)
        self._fenced: dict[int, Array] = {}
        self.exhausted = False
        warp = np.arange(batch.warps)
        # the number of each CTA's first actor in the grid; those of very large grids repeat
        self.first_numbers: Array = batch.numbers % (WARP_LIMIT // self.columns) * self.columns
        self._numbers = self.first_numbers[warp % ctas] + warp // ctas
        self._stale = True
        self._stamps: Array = np.zeros(batch.warps, np.int64)
        self._floors: Array = np.zeros(batch.warps, np.int64)

    def stamps_and_floors(self) -> tuple[Array, Array]:
        """For each warp its clock and number as cells have them, and the clock up to which its CTA is ordered."""
        if self._stale:
            self._stale = False
            own = self.clocks[:, self._own, self._own]
            others = self.clocks[:, :, : len(self._own)].copy()
            others[:, self._own, self._own] = own - 1 if self._lane < 0 else self.clocks[:, self._own, self._met]
            self._stamps = stamp(own.T.reshape(-1), self._numbers)
            self._floors = np.ascontiguousarray(others.min(axis=2).T).reshape(-1).astype(np.int64)
        return self._stamps, self._floors

    def identity(self, first_byte: int) -> Array:
        """What the compiled kernels want to know of each warp; `first_byte` is where the space's cells begin."""
        batch = self._batch
        table = np.zeros((batch.warps + 1, 4), np.int64)
        warps = np.arange(batch.warps)
        table[:-1, 0] = warps % batch.ctas
        table[:-1, 1] = warps // batch.ctas
        table[:-1, 2] = self._numbers
        table[-1, 0] = batch.warps_per_cta
        table[-1, 1] = first_byte
        table[-1, 2] = self.columns
        table[-1, 3] = self._lane
        return table

    def barrier(self, done: Array | None, present: Array | None, given: Array | None = None) -> None:
        """Warps met at a CTA barrier: all of them, or those of `present` in the CTAs of `done`.

        `given` has for each CTA what others contribute who do not wait.
        """
        clocks, own = self.clocks, self._own
        if done is None or present is None:
            joined = clocks.max(axis=1)
            clocks[...] = joined[:, None, :]
            if self._lane >= 0:
                clocks[:, own, self._met] = clocks[:, own, own]
            clocks[:, own, own] += 1
            self._changed()
            return
        ctas = np.flatnonzero(done)
        alike = present[ctas]
        for group in [ctas] if (alike == alike[0]).all() else ctas[:, None]:
            self._join(group, np.flatnonzero(present[group[0]]), given)
        self._changed()

    def _join(self, ctas: Array, members: Array, given: Array | None) -> None:
        """The same warps of some CTAs meet."""
        if not len(members):
            return
        clocks, rows = self.clocks, ctas[:, None]
        joined = clocks[rows, members].max(axis=1)
        if given is not None:
            np.maximum(joined, given[ctas], out=joined)
        clocks[rows, members] = joined[:, None, :]
        if self._lane >= 0:
            clocks[rows, members, members + self._lane] = joined[:, members]
        clocks[rows, members, members] = joined[:, members] + 1

    def meet(self, warps: Array) -> None:
        """The lanes of warps meet: each knows what the others did before."""
        if self._lane >= 0:
            ctas, inside = warps % self._batch.ctas, warps // self._batch.ctas
            self.clocks[ctas, inside, inside + self._lane] = self.clocks[ctas, inside, inside]
        self.advance(warps)

    def met(self, warp: int, clock: int) -> None:
        """The lanes of a warp know of each other what happened up to a clock."""
        if self._lane >= 0:
            cta, inside = warp % self._batch.ctas, warp // self._batch.ctas
            place = inside + self._lane
            self.clocks[cta, inside, place] = max(int(self.clocks[cta, inside, place]), clock)
            self._stale = True

    def own(self, warp: int) -> int:
        """A warp's own clock."""
        inside = warp // self._batch.ctas
        return int(self.clocks[warp % self._batch.ctas, inside, inside])

    def advance(self, warps: Array) -> None:
        """Warps release: what follows is later."""
        ctas, inside = warps % self._batch.ctas, warps // self._batch.ctas
        self.clocks[ctas, inside, inside] += 1
        self._changed()

    def _changed(self) -> None:
        self._stale = True
        if self.clocks.size and int(self.clocks[0, 0, 0]) >= CLOCK_LIMIT - 2:
            self.exhausted = True

    def fence(self, warps: Array) -> None:
        """Warps pass a fence: a later strong write publishes what they know now."""
        batch = self._batch
        for warp in warps:
            cta, inside = int(warp) % batch.ctas, int(warp) // batch.ctas
            self._fenced[int(warp)] = self.clocks[cta, inside].copy()
        self.advance(warps)

    def synchronise(self, what: str, space: str, lanes: Array, addresses: Array, ordered: bool) -> None:
        """Strong accesses of lanes to addresses: reads take what was published, writes publish."""
        if not self._publications.at and not self._fenced and not ordered:
            return
        warps = lanes // WARP
        pairs = np.unique(np.stack([warps.astype(np.uint64), addresses]), axis=1)
        reads, writes = what != "store", what != "load"
        for warp, address in pairs.T.tolist():
            key = (int(address), self._cluster_number(int(warp))) if space == "shared" else int(address)
            if reads:
                self._acquire(int(warp), key)
            if writes:
                self._release(int(warp), key, ordered)

    def of_others(self, ctas: Array, homes: Array, columns: Array) -> Array:
        """What CTAs know of the clocks of actors of other CTAs, 0 where nothing."""
        rows = self.known_rows[ctas]
        numbers = self.first_numbers[homes] + np.maximum(columns, 0)
        known: Array = self.known[np.maximum(rows, 0), np.minimum(numbers, self.known.shape[1] - 1)]
        return np.where(rows >= 0, known, 0)

    def changed(self) -> None:
        """Knowledge was added from outside."""
        self._changed()

    def publish(self, warp: int, key: Any, ordered: bool = True, lane: int = -1) -> None:
        """A warp releases what it knows to a key, for warps of other CTAs; not `ordered`, what it knew at its fence.

        A single `lane` speaks for the others of its warp only as far as they have met.
        """
        self._release(warp, key, ordered, lane)

    def take(self, warp: int, key: Any) -> None:
        """A warp learns what was released to a key."""
        self._acquire(warp, key)

    def _cluster_number(self, warp: int) -> int:
        cta, size = warp % self._batch.ctas, self._batch.places.size
        return int(self._batch.numbers[cta - cta % size])

    def _release(self, warp: int, key: Any, ordered: bool, lane: int = -1) -> None:
        batch = self._batch
        cta, inside = warp % batch.ctas, warp // batch.ctas
        found = self.clocks[cta, inside] if ordered else self._fenced.get(warp)
        if found is None:
            return
        held = found.copy()
        if self._lane >= 0:
            met = self._met[inside]
            alone = held[inside] * WARP + lane if lane >= 0 else 0
            held[inside] = held[met] if lane >= 0 else held[inside]
            held[met] = alone
        row = int(self.known_rows[cta])
        first = int(self.first_numbers[cta])
        self._publications.publish(key, first, held, self.known[row] if row >= 0 else None)
        if ordered:
            self.advance(np.array([warp]))

    def _acquire(self, warp: int, key: Any) -> None:
        published = self._publications.at.get(key)
        if published is None:
            return
        batch = self._batch
        cta, inside = warp % batch.ctas, warp // batch.ctas
        first = int(self.first_numbers[cta])
        mine = self.clocks[cta, inside]
        kept = mine[[inside, self._met[inside]]].copy()
        np.maximum(mine, published[first : first + self.columns], out=mine)
        mine[[inside, self._met[inside]]] = kept
        self._stale = True
        row = self._row(cta)
        np.maximum(self.known[row], published, out=self.known[row])

    def _row(self, cta: int) -> int:
        """The row of what a CTA knows of other CTAs' warps."""
        row = int(self.known_rows[cta])
        if row < 0:
            row = int((self.known_rows >= 0).sum())
            if self.known.shape[1] != self._publications.actors or row >= len(self.known):
                grown = np.zeros((max(4, 2 * row), self._publications.actors), np.int32)
                if row:
                    grown[:row] = self.known[:row]
                self.known = grown
            self.known_rows[cta] = row
        return row


def active_lanes(window: Any, mask: Mask | None) -> Array:
    """Lane numbers of the active positions."""
    lanes: Array = window.lane_numbers
    return lanes if mask is None else lanes[mask]
