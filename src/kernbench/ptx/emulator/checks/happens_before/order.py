"""The log of accesses from which a run's happens-before relation is derived: opt-in, to compare two runs.

Beside each access the log keeps the clocks that the checker compares it with. A clock value means little by itself: it
advances at every release. So afterwards each value is replaced by the accesses that its actor had made by then. Two
runs agree exactly if the checker would order the same accesses.
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.checks.happens_before.clocks import Clocks
from kernbench.ptx.emulator.checks.happens_before.conflicts import Meetings, unordered
from kernbench.ptx.emulator.checks.happens_before.flow import WORD, Flow, Words, mixed, words_of
from kernbench.ptx.emulator.checks.happens_before.relation import AccessOrder, packed
from kernbench.ptx.emulator.lanes.actors import Actors
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.memory.cells import CLOCK_LIMIT
from kernbench.ptx.emulator.memory.shadow import Ranges
from kernbench.ptx.emulator.program.hub import BatchHub
from kernbench.ptx.emulator.program.program import Site

# memories whose accesses can conflict; tensor memory has two: completed accesses, and begun ones
DOMAINS = ("shared", "global", "tensor", "begun")
# columns of tensor memory, and groups of sixteen lanes times columns
COLUMNS = 512
_TENSOR_CELLS = 8 * COLUMNS
KINDS = tuple(f"{what} of {domain} memory" for domain in DOMAINS for what in ("load", "store", "read", "write"))


@dataclass(frozen=True, slots=True, eq=False)
class Events:
    """Accesses at one site: one entry a warp (threads), or one an operation.

    `actors` and `clocks` are the epochs of the accesses, `lanes` the participating lanes as bits. `rows` are the clocks
    that each access knows of the actors of its block, `far` those of the whole grid (None: nothing).
    """

    domain: int
    writes: bool
    operation: bool
    line: int
    ctas: Array
    warps: Array
    lanes: Array
    actors: Array
    clocks: Array
    rows: Array
    far: Array | None


class OrderLog:
    """The log of one launch."""

    def __init__(self, actors: Actors, words: int, conflicts: bool):
        self._actors = actors
        # whether to record the conflicts at each word
        self.conflicts = conflicts
        words = words if conflicts else 0
        self.events: list[Events] = []
        self.flow = Flow()
        # the words of global memory
        self.words, self.meetings = Words(words), Meetings(words)
        # number of entries so far, and pairs of conflicting accesses
        self.count = 0
        self.pairs: list[Array] = []

    def batch(self, batch: BatchHub, clocks: Clocks) -> "BatchLog":
        """The log of one batch."""
        return BatchLog(self, batch, clocks)

    def order(self) -> AccessOrder:
        """The relation, after the launch has ended."""
        relation = Relation(self._actors, self.events)
        pairs = np.concatenate([np.zeros((0, 2), np.int64), *self.pairs])
        return relation.order(self.flow.digest, unordered(relation, pairs))


class TensorAccesses(Protocol):
    """Accesses to tensor memory: CTA, warp, number and clock of each, and what each knows of counters."""

    @property
    def ctas(self) -> Array:
        """The CTAs of the batch."""

    @property
    def warps(self) -> Array:
        """The warps, by their index in their CTAs."""

    @property
    def numbers(self) -> Array:
        """The index of each access among those of its warp."""

    @property
    def clocks(self) -> Array:
        """The clocks of the warps."""

    @property
    def known(self) -> Array:
        """For each access, the completed operations that it knows, by counter and warp."""


class BatchLog:
    """Records the accesses of one batch."""

    def __init__(self, log: OrderLog, batch: BatchHub, clocks: Clocks):
        self._log = log
        self._batch = batch
        self._clocks = clocks
        self._actors = batch.launch.actors
        words = (batch.ctas * batch.shared_stride // WORD + 1, 0, batch.ctas * _TENSOR_CELLS)
        words = words if log.conflicts else (0, 0, 0)
        self._words = [Words(count) for count in words]
        self._words[DOMAINS.index("global")] = log.words
        self._meetings = [Meetings(words[0]), log.meetings]
        # how often each lane has executed a site, by line and kind
        self._times: dict[tuple[int, int], Array] = {}

    def _names(self, kind: int, line: int, lanes: Array) -> Array:
        """A hash that identifies each access: its thread, its line, and how often the thread has been there."""
        times = self._times.setdefault((line, kind), np.zeros(self._batch.lanes, np.int64))
        turns = times[lanes].copy()
        times[lanes] += 1
        warps = lanes // WARP
        threads = (self._batch.numbers[warps % self._batch.ctas] * 64 + warps // self._batch.ctas) * WARP + lanes % WARP
        names: Array = mixed(mixed(mixed(threads) ^ np.uint64(line * 64 + kind)) ^ turns.astype(np.uint64))
        return names

    def threads(
        self, space: str, writes: bool, site: Site, lanes: Array, mask: Array | None, starts: Array, nbytes: int
    ) -> None:
        """Active lanes load or store bytes from `starts` on."""
        chosen = lanes if mask is None else lanes[mask]
        if space == "local" or not len(chosen):
            return
        domain = DOMAINS.index(space)
        warps, inverse = np.unique(chosen // WARP, return_inverse=True)
        if self._log.conflicts:
            starts = (starts if mask is None else starts[mask]).astype(np.int64)
            self._touch(domain, writes, site, chosen, inverse, starts, nbytes)
        self._threads(domain, writes, site, chosen, warps, inverse)

    def _touch(
        self, domain: int, writes: bool, site: Site, chosen: Array, inverse: Array, starts: Array, nbytes: int
    ) -> None:
        """Record the words that lanes touch."""
        memory = self._words[domain]
        inside = (starts >= 0) & (starts + nbytes <= len(memory.writers) * WORD)
        names = self._names(domain * 2 + writes, site.line, chosen)
        which = np.flatnonzero(inside)
        words, owners = words_of(starts[which], np.full(len(which), nbytes), which)
        self._log.flow.add(names, memory.meet(words, owners, names, writes))
        self._meet(domain, words, inverse[owners], chosen[owners] % WARP, writes)

    def _meet(self, domain: int, words: Array, entries: Array, lanes: Array, writes: bool) -> None:
        """Record that the log's next entries touch words, each by one of its lanes."""
        tags = (self._log.count + entries) * 64 + lanes
        self._log.pairs.append(self._meetings[domain].meet(words, tags, writes))

    def _threads(self, domain: int, writes: bool, site: Site, chosen: Array, warps: Array, inverse: Array) -> None:
        bits = np.zeros(len(warps), np.uint32)
        np.bitwise_or.at(bits, inverse, (np.int64(1) << (chosen % WARP)).astype(np.uint32))
        ctas, inside = warps % self._batch.ctas, warps // self._batch.ctas
        rows = self._clocks.rows_of(warps)
        # an access counts for others at its warp's clock; the warp itself knows its lanes' accesses up to their last
        # meeting
        own = rows[np.arange(len(warps)), inside]
        rows[np.arange(len(warps)), inside] = self._clocks.met[warps]
        self._add(domain, writes, False, site, ctas, inside, bits, ctas, inside, own, rows)

    def operations(
        self,
        space: str,
        writes: bool,
        site: Site,
        lanes: Array,
        columns: Array,
        clocks: Array,
        homes: Array | None,
        knowledge: Array,
        ranges: Ranges,
    ) -> None:
        """Asynchronous operations begun by lanes access ranges of memory, as actors of `columns` of blocks `homes`."""
        warps = lanes // WARP
        ctas, inside = warps % self._batch.ctas, warps // self._batch.ctas
        bits = (np.int64(1) << (lanes % WARP)).astype(np.uint32)
        owners = ctas if homes is None else homes
        columns, clocks = (np.broadcast_to(one, len(lanes)) for one in (columns, clocks))
        domain = DOMAINS.index(space)
        if self._log.conflicts:
            names = self._names(16 + domain * 2 + writes, site.line, lanes)
            words, whose = words_of(ranges.starts, ranges.lengths, ranges.owners)
            self._log.flow.add(names, self._words[domain].meet(words, whose, names, writes))
            self._meet(domain, words, whose, lanes[whose] % WARP, writes)
        self._add(domain, writes, True, site, ctas, inside, bits, owners, columns, clocks, knowledge.copy())

    def tensor(
        self, writes: bool, site: Site, who: TensorAccesses, family: int, groups: Array, first_last: tuple[int, int]
    ) -> None:
        """Warps access columns of groups of tensor memory lanes, counted by `family`: logged as completed and begun."""
        if self._log.conflicts:
            self._tensor_flow(writes, site, who, groups, np.arange(*first_last))
        count, warps = len(who.ctas), self._actors.warps
        rows = self._clocks.clocks[who.ctas, who.warps]
        first = self._actors.tensor(0)
        known = who.known.reshape(count, -1)
        rows[:, first : first + known.shape[1]] = np.minimum(known, CLOCK_LIMIT)
        # operations of one warp are ordered by its program
        rows[np.arange(count), who.warps] = 0
        bits = np.ones(count, np.uint32)
        for domain, columns, clocks in (
            ("tensor", first + family * warps + who.warps, who.numbers),
            ("begun", who.warps, who.clocks),
        ):
            self._add(
                DOMAINS.index(domain), writes, True, site, who.ctas, who.warps, bits, who.ctas, columns, clocks, rows
            )

    def _tensor_flow(self, writes: bool, site: Site, who: TensorAccesses, groups: Array, columns: Array) -> None:
        lanes = (who.warps * self._batch.ctas + who.ctas) * WARP
        names = self._names(32 + writes, site.line, lanes)
        cells = (groups[:, None] * COLUMNS + columns[None, :]).reshape(-1)
        words = (who.ctas[:, None] * _TENSOR_CELLS + cells[None, :]).reshape(-1)
        owners = np.repeat(np.arange(len(lanes)), len(cells))
        met = self._words[DOMAINS.index("tensor")].meet(words, owners, names, writes)
        self._log.flow.add(names, met)

    def _add(
        self,
        domain: int,
        writes: bool,
        operation: bool,
        site: Site,
        ctas: Array,
        inside: Array,
        bits: Array,
        owners: Array,
        columns: Array,
        clocks: Array,
        rows: Array,
    ) -> None:
        numbers = self._batch.numbers
        far = self._clocks.known_rows[inside * self._batch.ctas + ctas]
        beyond = None
        if (far >= 0).any():
            beyond = np.where(far[:, None] >= 0, self._clocks.known[np.maximum(far, 0)], 0)
        actors = numbers[owners] * self._actors.count + columns
        self._log.count += len(ctas)
        self._log.events.append(
            Events(
                domain,
                writes,
                operation,
                site.line,
                numbers[ctas],
                inside.astype(np.int64),
                bits,
                actors.astype(np.int64),
                np.array(clocks, np.int64),
                rows.astype(np.int32),
                beyond,
            )
        )


@dataclass(frozen=True, slots=True, eq=False)
class History:
    """The accesses of one actor in one domain, by clock: their number up to each clock, and their fingerprint."""

    clocks: Array
    counts: Array
    prints: Array

    def until(self, clocks: Array) -> tuple[Array, Array]:
        """Number and fingerprint of the accesses up to clocks."""
        index = np.searchsorted(self.clocks, clocks, side="right")
        return self.counts[index], self.prints[index]


def _history(clocks: Array, counts: Array, prints: Array) -> History:
    order = np.argsort(clocks, kind="stable")
    totals = (np.concatenate([np.zeros(1, x.dtype), np.cumsum(x[order])]) for x in (counts, prints))
    return History(clocks[order], *totals)


class Relation:
    """Turns a log into an order."""

    def __init__(self, actors: Actors, events: list[Events]):
        self.actors = self._actors = actors
        self._events = events
        self._columns: int = actors.count
        self._flatten()

    def _flatten(self) -> None:
        """Concatenate all events, with a weight for each access: a hash of its lane, its line and its thread."""
        events = self._events
        sizes = [len(e.ctas) for e in events]
        self.event = np.repeat(np.arange(len(events)), sizes)
        self.domain, self.line = (
            np.repeat(np.array(values, np.int64), sizes)
            for values in ([e.domain for e in events], [e.line for e in events])
        )
        self.writes = np.repeat(np.array([e.writes for e in events], bool), sizes)
        self.operation = np.repeat(np.array([e.operation for e in events], bool), sizes)
        empty = np.zeros(0, np.int64)
        self.cta, self.warp, self.lanes, self.actor, self.clock = (
            np.concatenate([empty, *(getattr(e, name) for e in events)]).astype(np.int64)
            for name in ("ctas", "warps", "lanes", "actors", "clocks")
        )
        self.rows = np.concatenate([np.zeros((0, self._columns), np.int32), *(e.rows for e in events)])
        starts = np.cumsum([0, *sizes])
        distant = [(start, e.far) for start, e in zip(starts.tolist(), events, strict=False) if e.far is not None]
        self._distant = np.concatenate([empty, *(start + np.arange(len(far)) for start, far in distant)])
        width = max((far.shape[1] for _, far in distant), default=0)
        self._far = np.concatenate([np.zeros((0, width), np.int32), *(far for _, far in distant)])
        self.members = (self.lanes[:, None] >> np.arange(WARP)) & 1
        threads = mixed((self.cta * WARP + self.warp)[:, None] * WARP + np.arange(WARP))
        accessed: Array = (self.line * 4 + self.domain) * 2
        what = mixed(accessed + self.writes)
        self.weights = mixed(threads ^ what[:, None]) * self.members.astype(np.uint64)

    def distant(self, entries: Array, actors: Array) -> Array:
        """The clocks of actors of other blocks that entries know, 0 for none."""
        rows = np.full(len(self.cta), -1)
        rows[self._distant] = np.arange(len(self._distant))
        found = rows[entries]
        known = (found >= 0) & (actors < self._far.shape[1])
        result: Array = np.zeros(len(entries), np.int64)
        result[known] = self._far[found[known], actors[known]]
        return result

    def order(self, flow: str, apart: dict[tuple[int, int], int]) -> AccessOrder:
        """The relation; `flow` is the digest of the data flow, `apart` the unordered pairs of lines."""
        counts, prints = np.zeros(len(self.cta), np.int64), np.zeros(len(self.cta), np.uint64)
        for domain in range(len(DOMAINS)):
            self._domain(domain, counts, prints)
        return self._accesses(counts, prints, flow, apart)

    def _domain(self, domain: int, counts: Array, prints: Array) -> None:
        inside = self.domain == domain
        if not inside.any():
            return
        for actor in np.unique(self.actor[inside]).tolist():
            mine = inside & (self.actor == actor)
            self._whole(inside, self._history(mine), actor, counts, prints)
            cta, column = divmod(actor, self._columns)
            if self._actors.asynchronous and column < self._actors.warps:
                self._proxied(domain, self._history(mine & self.writes), cta, column, counts, prints)
                self._single_lanes(inside, mine, cta, column, counts, prints)

    def _history(self, mine: Array) -> History:
        return _history(self.clock[mine], self.members[mine].sum(axis=1), self.weights[mine].sum(axis=1))

    def _whole(self, inside: Array, history: History, actor: int, counts: Array, prints: Array) -> None:
        """Count an actor's accesses for all entries that know its clock."""
        cta, column = divmod(actor, self._columns)
        near = np.flatnonzero(inside & (self.cta == cta))
        self._enter(near, history, self.rows[near, column], actor, counts, prints)
        if actor < self._far.shape[1]:
            which = inside[self._distant] & (self.cta[self._distant] != cta)
            self._enter(self._distant[which], history, self._far[which, actor], actor, counts, prints)

    def _proxied(self, domain: int, history: History, cta: int, column: int, counts: Array, prints: Array) -> None:
        """Count a warp's ordinary writes for the operations to which a proxy fence has made them visible."""
        near = np.flatnonzero((self.domain == domain) & (self.cta == cta) & self.operation)
        known = self.rows[near, self._actors.proxied(column, DOMAINS[domain])]
        self._enter(near, history, known, (1 << 40) + column, counts, prints)

    def _single_lanes(self, inside: Array, mine: Array, cta: int, column: int, counts: Array, prints: Array) -> None:
        """Count accesses of single lanes of a warp, beyond those known of all its lanes."""
        near = np.flatnonzero(inside & (self.cta == cta) & (self.warp != column))
        actor, lanes = cta * self._columns + column, self._actors.lane(column)
        shares = [(near, self.rows[near, lanes], self.rows[near, column])]
        if actor + self._actors.lane(0) < self._far.shape[1]:
            which = inside[self._distant] & (self.cta[self._distant] != cta)
            beyond = self._far[which]
            shares.append((self._distant[which], beyond[:, actor + self._actors.lane(0)], beyond[:, actor]))
        for entries, known, whole in shares:
            for lane in np.unique(known & (WARP - 1)).tolist():
                more = (known & (WARP - 1) == lane) & (known >> 5 > whole)
                took = mine & (self.members[:, lane] == 1)
                if more.any() and took.any():
                    history = _history(self.clock[took], self.members[took, lane], self.weights[took, lane])
                    self._beyond(entries[more], history, known[more] >> 5, whole[more], actor, counts, prints)

    def _beyond(
        self, which: Array, history: History, known: Array, whole: Array, salt: int, counts: Array, prints: Array
    ) -> None:
        """Count an actor's accesses after clock `whole` up to `known`."""
        more, extra = history.until(known)
        less, minus = history.until(whole)
        counts[which] += more - less
        prints[which] += (extra - minus) * (mixed(np.uint64(salt)) | np.uint64(1))

    def _enter(self, which: Array, history: History, known: Array, salt: int, counts: Array, prints: Array) -> None:
        more, extra = history.until(known)
        counts[which] += more
        prints[which] += extra * (mixed(np.uint64(salt)) | np.uint64(1))

    def _accesses(self, counts: Array, prints: Array, flow: str, apart: dict[tuple[int, int], int]) -> AccessOrder:
        """One entry for each lane and access, in the order of their keys."""
        entry, lane = np.nonzero(self.members)
        kind = self.domain * 4 + self.operation * 2 + self.writes
        keys = packed(cta=self.cta[entry], warp=self.warp[entry], lane=lane, line=self.line[entry], kind=kind[entry])
        order = np.argsort(keys, kind="stable")
        keys, entry = keys[order], entry[order]
        first = np.r_[True, keys[1:] != keys[:-1]] if len(keys) else np.zeros(0, bool)
        starts = np.maximum.accumulate(np.where(first, np.arange(len(keys)), 0))
        return AccessOrder(keys, np.arange(len(keys)) - starts, counts[entry], prints[entry], KINDS, flow, apart)
