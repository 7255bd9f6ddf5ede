"""Clocks of single lanes, and what is known of them by name, within their CTAs: rows of arrays for a whole batch.

A few lanes of a CTA wait, commit and arrive for their warps (elect.sync), and those of all CTAs of a batch do it in the
same step. So their clocks are rows of arrays: a step of all CTAs is a few NumPy operations. Three kinds of holders have
rows:

- a lane that knows more than its warp: a vector clock of the actors of its CTA, and clocks of single lanes by name;
- a warp: names only, as its vector clock is in `Clocks.clocks`;
- an mbarrier: what was released to it by lanes that know more than compiled loops pass on. It is not split by phases: a
  wait acquires everything released until then.

Lanes of a CTA have a column for their names from when one of them, in any CTA of the batch, first releases without the
rest of its warp. Those are few, usually one for each warp. Joining takes the larger of each entry.

That suffices as long as nothing of another CTA is acquired. From then on, and in clusters from the beginning, clocks
are kept by name (`Knowledge`), and only the rows of lanes that compiled loops read remain here.
"""

from dataclasses import dataclass

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.checks.happens_before.knowledge import Knowledge
from kernbench.ptx.emulator.lanes.arrays import Int32s, Int64s
from kernbench.ptx.emulator.lanes.compiled import kernel
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.program.hub import BatchHub


@kernel
def take_rows(clocks: Int32s, met: Int64s, lanes: Int64s, rows: Int32s) -> None:
    """Copy the vector clocks of the lanes' warps; for the own warp, the clock at which it last met."""
    ctas = clocks.shape[0]
    for i in range(lanes.size):
        warp = lanes[i] // WARP
        inside = warp // ctas
        known = clocks[warp % ctas, inside]
        for column in range(rows.shape[1]):
            rows[i, column] = known[column]
        rows[i, inside] = met[warp]


@kernel
def _join_warps(rows: Int32s, inside: Int64s, warps: Int64s, near_of: Int64s, near: Int32s) -> None:
    """Join the vector clocks of warps with those of their single lanes; a warp's own clock stays."""
    for i in range(warps.size):
        own = rows[i, inside[i]]
        for lane in range(warps[i] * WARP, (warps[i] + 1) * WARP):
            row = near_of[lane]
            if row >= 0:
                for column in range(rows.shape[1]):
                    if near[row, column] > rows[i, column]:
                        rows[i, column] = near[row, column]
        rows[i, inside[i]] = own


@kernel
def join_rows(rows: Int32s, lanes: Int64s, near_of: Int64s, near: Int32s) -> None:
    """Join rows of lanes with what these lanes know beyond their warps."""
    for i in range(lanes.size):
        row = near_of[lanes[i]]
        if row >= 0:
            for column in range(rows.shape[1]):
                if near[row, column] > rows[i, column]:
                    rows[i, column] = near[row, column]


@dataclass(frozen=True, slots=True, eq=False)
class Groups:
    """Lanes of warps grouped by what they do together: all lanes, the group of each lane, and per group the rest.

    `firsts` are the lowest lanes of the groups in their warps.
    """

    lanes: Array
    numbers: Array
    warps: Array
    keys: Array
    masks: Array
    firsts: Array


def grouped(lanes: Array, keys: Array) -> Groups:
    """Group lanes by warp and key, as `lanes.group` does."""
    warps = lanes >> 5
    later, more = warps[1:] - warps[:-1], keys[1:] - keys[:-1]
    if ((later < 0) | ((later == 0) & (more < 0))).any():
        order = np.lexsort((keys, warps))
        lanes, keys, warps = lanes[order], keys[order], warps[order]
        later, more = warps[1:] - warps[:-1], keys[1:] - keys[:-1]
    begins = np.r_[True, (later != 0) | (more != 0)][: len(lanes)]
    starts, inside = np.flatnonzero(begins), lanes & (WARP - 1)
    masks = np.bitwise_or.reduceat(np.int64(1) << inside, starts) if len(starts) else starts
    firsts = np.minimum.reduceat(inside, starts) if len(starts) else starts
    return Groups(lanes, np.cumsum(begins) - 1, warps[starts], keys[starts], masks, firsts)


def each_alone(lanes: Array) -> Groups:
    """Groups of one lane each."""
    inside = lanes % WARP
    return Groups(lanes, np.arange(len(lanes)), lanes // WARP, inside, np.int64(1) << inside, inside)


def join_at(target: Array, where: Array, rows: Array) -> None:
    """Join rows into `target` at the indices `where`, which may repeat; the rows may be narrower."""
    if not len(where) or not rows.shape[1]:
        return
    if (where[1:] <= where[:-1]).any():
        order = np.argsort(where, kind="stable")
        where = where[order]
        starts = np.flatnonzero(np.r_[True, where[1:] != where[:-1]])
        where, rows = where[starts], np.maximum.reduceat(rows[order], starts)
    width = rows.shape[1]
    target[where, :width] = np.maximum(target[where, :width], rows)


def _widened(old: Array, count: int, width: int) -> Array:
    """A copy with more rows or columns, filled with zeros."""
    fresh: Array = np.zeros((count, width), np.int32)
    fresh[: old.shape[0], : old.shape[1]] = old
    return fresh


class NearRows:
    """What single lanes of one batch know, and what others know of single lanes."""

    def __init__(self, batch: BatchHub, firsts: Array, columns: int):
        self._ctas, self._warps = batch.ctas, batch.warps_per_cta
        # the numbers of the CTAs' first actors in the grid
        self._firsts = firsts
        # whether rows hold everything: nothing of another CTA has been acquired
        alone = batch.launch.actors.asynchronous and batch.cluster.size == 1
        self.suffices: bool = alone and batch.launch.fast.clock_rows
        # lanes that know more than their warps, the row of each (-1: none), and the free rows
        self.special: Array = np.zeros(batch.lanes, bool)
        self._row_of: Array = np.full(batch.lanes, -1)
        self._rows: Array = np.zeros((1, columns), np.int32)
        self._row_names: Array = np.zeros((1, 0), np.int32)
        self._free = [0]
        # the column of names of each lane of a CTA, and the lane of each column
        self._column_of: Array = np.full(self._warps * WARP, -1)
        self._named: Array = np.zeros(0, np.int64)
        # what warps know of single lanes, whether they know of any, and a number that warps with equal names share
        self._warp_names: Array = np.zeros((batch.warps, 0), np.int32)
        self.aware: Array = np.zeros(batch.warps, bool)
        self.shared: Array = np.zeros(batch.warps, np.int64)
        self._shares = 0
        # what was released to mbarriers, by slot; which have a release; their CTAs
        self._slot_rows: Array = np.zeros((0, columns), np.int32)
        self._slot_names: Array = np.zeros((0, 0), np.int32)
        self.released: Array = np.zeros(0, bool)
        self._slot_ctas: Array = np.zeros(0, np.int64)

    @property
    def any(self) -> bool:
        """Whether some lane knows more than its warp."""
        return len(self._free) < len(self._rows)

    @property
    def by_lane(self) -> tuple[Array, Array]:
        """For compiled loops: the row of each lane, -1 where it has none, and the rows."""
        return self._row_of, self._rows

    def names(self, count: int) -> Array:
        """Empty names for some groups."""
        empty: Array = np.zeros((count, len(self._named)), np.int32)
        return empty

    def names_of(self, warps: Array) -> Array:
        """What warps know of single lanes, as a copy."""
        found: Array = self._warp_names[warps]
        return found

    def helps(self, warps: Array) -> Array:
        """Which warps know of single lanes by name."""
        return np.asarray(self._warp_names[warps].any(axis=1))

    def columns_of(self, lanes: Array) -> Array:
        """The name columns of lanes of the batch; missing columns are added."""
        inside = lanes // WARP // self._ctas * WARP + lanes % WARP
        columns: Array = self._column_of[inside]
        if (columns < 0).any():
            fresh = np.unique(inside[columns < 0])
            self._column_of[fresh] = len(self._named) + np.arange(len(fresh))
            self._named = np.concatenate([self._named, fresh])
            width = len(self._named)
            self._row_names = _widened(self._row_names, len(self._row_names), width)
            self._warp_names = _widened(self._warp_names, len(self._warp_names), width)
            self._slot_names = _widened(self._slot_names, len(self._slot_names), width)
            columns = self._column_of[inside]
        return columns

    def add_own(self, these: Groups, rows: Array, names: Array) -> None:
        """Join what groups release with what their lanes know beyond their warps."""
        held = self._row_of[these.lanes]
        some = held >= 0
        if some.any():
            join_at(rows, these.numbers[some], self._rows[held[some]])
            join_at(names, these.numbers[some], self._row_names[held[some]])

    def add(self, lanes: Array, rows: Array, names: Array | None) -> None:
        """Distinct lanes acquire rows and names for themselves."""
        fresh = lanes[self._row_of[lanes] < 0]
        if len(fresh):
            self._row_of[fresh] = self._taken(len(fresh))
            self.special[fresh] = True
        held = self._row_of[lanes]
        self._rows[held] = np.maximum(self._rows[held], rows)
        if names is not None:
            join_at(self._row_names, held, names)

    def put(self, lane: int, row: Array | None) -> None:
        """Set the clocks that a lane knows of the actors of its CTA."""
        if self._row_of[lane] < 0:
            self._row_of[lane] = self._taken(1)[0]
            self.special[lane] = True
        self._rows[self._row_of[lane]] = 0 if row is None else row

    def _taken(self, count: int) -> list[int]:
        """Allocate rows of zeros."""
        many = len(self._rows)
        if len(self._free) < count:
            grown = max(2 * many, many + count)
            self._rows = _widened(self._rows, grown, self._rows.shape[1])
            self._row_names = _widened(self._row_names, grown, self._row_names.shape[1])
            self._free += range(many, grown)
        taken = self._free[-count:]
        del self._free[-count:]
        self._rows[taken], self._row_names[taken] = 0, 0
        return taken

    def forget(self, lanes: Array) -> None:
        """Free the rows of lanes."""
        self.special[lanes] = False
        self._free += self._row_of[lanes].tolist()
        self._row_of[lanes] = -1

    def collapsed(self, warps: Array) -> tuple[Array, Array, Array]:
        """Take from single lanes what they know; returns their warps, with joined rows and names."""
        special = self.special.reshape(-1, WARP)
        warps = np.unique(warps[special[warps].any(axis=1)])
        which, inside = np.nonzero(special[warps])
        lanes, starts = warps[which] * WARP + inside, np.flatnonzero(np.r_[True, which[1:] != which[:-1]])
        held = self._row_of[lanes]
        if not len(warps):
            return warps, self._rows[:0], self._row_names[:0]
        rows, names = (np.maximum.reduceat(one[held], starts) for one in (self._rows, self._row_names))
        self.forget(lanes)
        return warps, rows, names

    def learn(self, warps: Array, names: Array) -> None:
        """Distinct warps acquire names of single lanes."""
        named = names.any(axis=1)
        warps = warps[named]
        if len(warps):
            join_at(self._warp_names, warps, names[named])
            self.aware[warps] = True
            self.shared[warps] = self._shares + 1 + np.arange(len(warps))
            self._shares += len(warps)

    def share(self, ctas: Array, present: Array) -> None:
        """Warps of CTAs have met, those of `present` in each: they share what they know of single lanes.

        Warps that already share one set of names, and have learned nothing since, stay as they are.
        """
        members = present[ctas]
        warps = np.arange(self._warps) * self._ctas + ctas[:, None]
        known, shared = members & self.aware[warps], self.shared[warps]
        most, least = (edge(np.where(members, shared, fill), 1) for edge, fill in ((np.max, -1), (np.min, 1 << 62)))
        alike = (known == members).all(axis=1) & (most == least)
        some = known.any(axis=1) & ~alike
        if not some.any():
            return
        members, warps, known = members[some], warps[some], known[some]
        names = np.where(known[:, :, None], self._warp_names[warps], 0).max(axis=1)
        # names of lanes of the warps that have just met are obsolete: the vector clocks cover them
        names[members[:, self._named // WARP]] = 0
        which, inside = np.nonzero(members)
        warps = warps[which, inside]
        self._warp_names[warps], self.aware[warps] = names[which], True
        self.shared[warps] = self._shares + 1 + which
        self._shares += len(members)

    def show(self, warps: Array, columns: list[int]) -> None:
        """A proxy fence of warps: ordinary accesses that their lanes know become visible to the async proxy."""
        lanes = np.flatnonzero(self.special.reshape(-1, WARP)[warps].reshape(-1))
        held = self._row_of.reshape(-1, WARP)[warps].reshape(-1)[lanes]
        rows = self._rows[held]
        for first in columns:
            part = rows[:, first : first + self._warps]
            np.maximum(part, rows[:, : self._warps], out=part)
        self._rows[held] = rows

    def release(self, slots: Array, ctas: Array, rows: Array, names: Array) -> None:
        """Groups of lanes release rows and names, each to an mbarrier of its CTA."""
        if not len(slots):
            return
        most = int(slots.max()) + 1
        if most > len(self.released):
            count = max(most, 2 * len(self.released))
            self._slot_rows = _widened(self._slot_rows, count, self._slot_rows.shape[1])
            self._slot_names = _widened(self._slot_names, count, len(self._named))
            fresh = np.zeros(count - len(self.released), bool)
            self.released, self._slot_ctas = np.r_[self.released, fresh], np.r_[self._slot_ctas, fresh]
        join_at(self._slot_rows, slots, rows)
        join_at(self._slot_names, slots, names)
        self.released[slots], self._slot_ctas[slots] = True, ctas

    def were_released(self, slots: Array) -> Array:
        """Which mbarriers have a release."""
        there: Array = (slots >= 0) & (slots < len(self.released))
        there[there] = self.released[slots[there]]
        return there

    def taken(self, slots: Array) -> tuple[Array, Array]:
        """What was released to mbarriers: rows and names."""
        return self._slot_rows[slots], self._slot_names[slots]

    def join_lanes(self, rows: Array, lanes: Array) -> None:
        """Join rows with what lanes know beyond their warps."""
        if self.any:
            join_rows(rows, lanes, self._row_of, self._rows)

    def join_warps(self, rows: Array, inside: Array, warps: Array) -> None:
        """Join rows of warps with what their lanes know beyond them."""
        if self.any:
            _join_warps(rows, inside, warps, self._row_of, self._rows)

    def alone(self, lanes: Array, columns: Array) -> Array:
        """The clocks of actors of their CTAs that lanes know beyond their warps, 0 for none."""
        rows: Array = self._row_of[lanes]
        return np.where(rows >= 0, self._rows[np.maximum(rows, 0), columns], 0)

    def split(self, knowledge: Knowledge, cta: int) -> tuple[Array, Array] | None:
        """Convert knowledge of one CTA into a row and names; None if it is of other CTAs as well."""
        first, columns = int(self._firsts[cta]), self._rows.shape[1]
        threads = np.fromiter(knowledge.lanes, np.int64, len(knowledge.lanes)) - first * WARP
        known = knowledge.rows.keys() <= {first} and knowledge.dense is None
        if not known or ((threads < 0) | (threads >= self._warps * WARP)).any():
            return None
        lanes = (threads // WARP * self._ctas + cta) * WARP + threads % WARP
        named = self.columns_of(lanes)
        row, names = np.zeros((1, columns), np.int32), self.names(1)
        if first in knowledge.rows:
            row[0] = knowledge.rows[first]
        names[0, named] = list(knowledge.lanes.values())
        return row, names

    def piece(self, cta: int, row: Array | None, names: Array) -> Knowledge:
        """Convert a row and names into knowledge, the form that other CTAs can acquire."""
        first = int(self._firsts[cta])
        some = np.flatnonzero(names)
        threads = (first * WARP + self._named[some]).tolist()
        lanes = dict(zip(threads, names[some].tolist(), strict=True))
        return Knowledge({} if row is None else {first: row.copy()}, None, lanes)

    def of_lanes(self, warp: int) -> dict[int, Knowledge]:
        """What the lanes of a warp know beyond it, by lane."""
        lanes = np.flatnonzero(self.special[warp * WARP : (warp + 1) * WARP])
        held = self._row_of[warp * WARP + lanes].tolist()
        each = zip(lanes.tolist(), held, strict=True)
        return {lane: self.piece(warp % self._ctas, self._rows[row], self._row_names[row]) for lane, row in each}

    def of_warp(self, warp: int) -> Knowledge | None:
        """What a warp knows of single lanes, None if it knows of none."""
        return self.piece(warp % self._ctas, None, self._warp_names[warp]) if self.aware[warp] else None

    def of_slot(self, slot: int) -> Knowledge | None:
        """What was released to an mbarrier, None if nothing."""
        if not self.were_released(np.array([slot]))[0]:
            return None
        return self.piece(int(self._slot_ctas[slot]), self._slot_rows[slot], self._slot_names[slot])

    def of_warps(self) -> dict[int, Knowledge]:
        """What warps know of single lanes; warps that share names share one piece."""
        warps = np.flatnonzero(self.aware)
        pieces = {int(share): self.of_warp(int(warp)) for share, warp in zip(self.shared[warps], warps, strict=True)}
        found = ((int(warp), pieces[int(share)]) for share, warp in zip(self.shared[warps], warps, strict=True))
        return {warp: piece for warp, piece in found if piece is not None}
