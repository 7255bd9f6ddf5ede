"""Races of asynchronous operations: their byte ranges are entered in the shadow cells, as accesses of actors.

An operation knows what the warp, or the four warps, that began it know. But it sees ordinary writes only after a proxy
fence; ordinary reads need no fence. Its own accesses happen before everything that acquires its actor's clock: by a
wait on the mbarrier it completes on, or for the group it belongs to.
"""

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.arrays import Bools, Int32s, Int64s
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.memory.access_sites import AccessSites
from kernbench.ptx.emulator.memory.cells import CELLS, CLOCK_LIMIT, SITE_SHIFT, STRONG, decode
from kernbench.ptx.emulator.memory.shadow_kernels import FENCE, RACE, GivenMemory, describe, note_ranges
from kernbench.ptx.emulator.program.hub import BatchHub
from kernbench.ptx.emulator.program.program import Site


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """Bytes that operations access: begin and length of each range, and the operation it belongs to.

    Offsets are into the space's array: for shared memory CTA after CTA of the batch, for global memory the arena. Races
    of operations that are `apart` are reported separately.
    """

    starts: Array
    lengths: Array
    owners: Array
    apart: bool = False

    @staticmethod
    def each(starts: Array, length: int) -> "Ranges":
        """One range of the same length for each operation."""
        count = len(starts)
        return Ranges(starts.astype(np.int64), np.full(count, length, np.int64), np.arange(count))


@dataclass(frozen=True, slots=True, eq=False)
class Trouble:
    """A kind of fault, "race" or "missing-fence": how often, the operation and byte of the first, and the other's cell.

    `mask` are the other's lanes, if it is a warp; `reason` says why it is formal (`released_along`), 0 if it is not.
    """

    kind: str
    count: int
    operation: int
    offset: int
    cell: int
    mask: int
    reason: int = 0


class Together(NamedTuple):
    """Lanes that begin operations together: all of them, the operation of each, and what each operation knows.

    `knowledge` may have more than these lanes know now: that of others who came earlier.
    """

    lanes: Array
    operations: Array
    knowledge: Int32s


@dataclass(frozen=True, slots=True, eq=False)
class Begun:
    """Operations that lanes have begun, as the actors of `columns` at `clocks`, and what they know.

    `knowledge` has a vector clock for each, `found` the results of `describe`.
    """

    lanes: Array
    columns: Array
    clocks: Array
    site: Site
    homes: Array | None
    knowledge: Array
    found: Array
    together: Together | None = None

    def lanes_of(self, operation: int) -> list[int]:
        """The lanes that have begun an operation."""
        found: list[int] = []
        if self.together is not None:
            found = self.together.lanes[self.together.operations == operation].tolist()
        return found or [int(self.lanes[operation])]


class LaneClocks(Protocol):
    """The vector clocks of warps and lanes: see `checks.happens_before.clocks`."""

    clocks: Int32s
    known: Int32s
    known_column: Int64s
    peers: Int32s
    first_numbers: Int64s

    def own_rows(self, lanes: Array) -> Int32s:
        """The vector clocks of lanes."""

    def helps(self, lanes: Array) -> Bools:
        """Which lanes may know more than the compiled loops."""


class AccessLog(Protocol):
    """The log of all accesses, if a launch keeps one."""

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
        """Operations access ranges of a space."""


class ShadowChecks(Protocol):
    """What the shadow needs from the checks of its batch."""

    sites: AccessSites

    @property
    def clocks(self) -> LaneClocks:
        """The vector clocks."""

    @property
    def log(self) -> AccessLog | None:
        """The log of all accesses, if there is one."""

    def agent_memory(self, space: str) -> "GivenMemory":
        """The parts of `Memory`, for a space that agents access."""

    def agent_meets_copies(self, writes: bool, ranges: "Ranges", lanes: Array, site: Site) -> None:
        """Operations that lanes began access ranges of shared memory, which copies of threads may still fill."""

    def agent_trouble(self, space: str, writes: bool, lane: int, site: Site, trouble: Trouble) -> None:
        """An access of an agent is not ordered."""

    def unknown(self, lane: int, cell: int, mask: int) -> int:
        """The lanes of a cell's access that a lane does not know."""

    def alike(self, lanes: Array, found: Array, site: Site) -> Int64s:
        """For each race in global memory, why it is formal, as in `released_along`."""

    def released_along(self, lanes: Array, cells: Array) -> Int64s:
        """For each lane and the cell of an earlier, unordered access: why that access is complete."""

    def shown_along(self, cells: Array, site: Site) -> Int64s:
        """For the cell of each write without a proxy fence: why that is formal, as in `released_along`."""


class Shadow:
    """Enters the accesses of agents of one batch."""

    def __init__(self, batch: BatchHub, checks: ShadowChecks):
        self._batch = batch
        self._checks = checks
        self._clocks = checks.clocks
        # rows: operation, byte, the other access's cell and lanes, and the kind of fault
        self._suspects = np.empty((1 << 15, 5), np.int64)
        self._line = np.zeros(CELLS, np.uint64)
        # by space: the constant parts of `Order`
        actors = batch.launch.actors
        self._columns = {
            space: (batch.warps_per_cta, actors.lane(0), actors.proxied(0, space)) for space in ("shared", "global")
        }

    def enter(
        self,
        space: str,
        writes: bool,
        ranges: Ranges,
        lanes: Array,
        columns: Array,
        clocks: Array,
        site: Site,
        ahead: Array | None = None,
        homes: Array | None = None,
        atomic: bool = False,
    ) -> None:
        """Operations begun by `lanes` access ranges, as the actors of `columns` at `clocks`.

        Actors belong to the CTAs `homes` of the batch, or to those of the lanes. `ahead` are columns that an operation
        knows completely, for units that work in order. `atomic` accesses do not race with each other.
        """
        self.access(space, writes, ranges, self.begun(lanes, columns, clocks, site, ahead, homes, atomic))

    def begun(
        self,
        lanes: Array,
        columns: Array,
        clocks: Array,
        site: Site,
        ahead: Array | None = None,
        homes: Array | None = None,
        atomic: bool = False,
        together: Together | None = None,
    ) -> "Begun":
        """Operations that lanes begin now, each alone or `together` with others, for all accesses: see `enter`."""
        known = self._clocks
        first_lane = self._batch.launch.actors.lane(0) if together is None else -1
        knowledge = known.own_rows(lanes) if together is None else together.knowledge
        if ahead is not None:
            knowledge[np.arange(len(lanes)), ahead] = CLOCK_LIMIT
        base = np.int64(self._checks.sites.number(site)) << SITE_SHIFT | np.int64(STRONG if atomic else 0)
        found = np.empty((4, len(lanes)), np.int64)
        who = lanes, columns, clocks, lanes[:0] if homes is None else homes
        describe(*who, base, known.clocks, known.first_numbers, first_lane, knowledge, found)
        return Begun(lanes, columns, clocks, site, homes, knowledge, found, together)

    def access(self, space: str, writes: bool, ranges: Ranges, by: "Begun") -> None:
        """Operations access ranges."""
        if space == "shared":
            self._checks.agent_meets_copies(writes, ranges, by.lanes, by.site)
        if self._checks.log is not None:
            who = by.lanes, by.columns, by.clocks, by.homes
            self._checks.log.operations(space, writes, by.site, *who, by.knowledge, ranges)
        known, (warps, ctas, firsts, stamps) = self._clocks, by.found
        what = (ranges.starts, ranges.lengths, ranges.owners, by.knowledge, firsts, stamps, ctas, warps)
        order = (known.known, known.known_column, known.peers, *self._columns[space])
        memory = self._checks.agent_memory(space)
        count = note_ranges(writes, what, memory, order, self._suspects, self._line)
        if count:
            suspects = self._suspects[: min(count, len(self._suspects))]
            for one in range(len(by.lanes)) if ranges.apart else ():
                self._report(space, writes, by, suspects[suspects[:, 0] == one])
            if not ranges.apart:
                self._report(space, writes, by, suspects)

    def _report(self, space: str, writes: bool, by: Begun, found: Array) -> None:
        """Report suspects that the own knowledge of single lanes does not order either."""
        for code, kind in enumerate(("race", "missing-fence")):
            these = found[found[:, 4] == code]
            these = these[~(self._known(by, these) if code == RACE else self._allocators(these, writes))]
            reasons = self._reasons(code, space, by, these)
            for reason in np.unique(reasons).tolist():
                alike = these[reasons == reason]
                operation, offset, cell, mask, _ = alike[0].tolist()
                trouble = Trouble(kind, len(alike), operation, offset, cell, mask, reason)
                self._checks.agent_trouble(space, writes, int(by.lanes[operation]), by.site, trouble)

    def _reasons(self, code: int, space: str, by: Begun, found: Array) -> Array:
        """Why races or missing fences are formal, as in `released_along`."""
        if code == FENCE or not len(found):
            return self._checks.shown_along(found[:, 2], by.site)
        return self._along(by, found) if space == "shared" else self._checks.alike(by.lanes, found, by.site)

    def _along(self, by: Begun, found: Array) -> Array:
        """Why races are formal; writes of the own block's threads must also be visible to the async proxy."""
        each = [by.lanes_of(operation) for operation in found[:, 0].tolist()]
        counts = [len(lanes) for lanes in each]
        starts, lanes = np.cumsum([0, *counts[:-1]]), np.concatenate(each)
        known = self._checks.released_along(lanes, np.repeat(found[:, 2], counts))
        reasons: Array = np.maximum.reduceat(known, starts)
        actors = self._batch.launch.actors
        for i in np.flatnonzero(reasons).tolist():
            number, actor, clock = decode(int(found[i, 2]) & ((1 << 64) - 1))
            column, warp = actor % actors.count, int(by.lanes[found[i, 0]]) // WARP
            thread = column < self._batch.warps_per_cta and self._checks.sites.numbered[number].effects.writes
            if thread and actor - column == self._clocks.first_numbers[warp % self._batch.ctas]:
                reasons[i] *= clock <= by.knowledge[found[i, 0], actors.proxied(column)]
        return reasons

    def _allocators(self, found: Array, writes: bool) -> Array:
        """Which suspects are words written by tcgen05.alloc and overwritten here.

        Writes of the tensor unit need no fence.
        """
        sites = self._checks.sites
        numbers = [decode(int(cell) & ((1 << 64) - 1))[0] for cell in found[:, 2]] if writes else []
        known = [sites.numbered[number].effects.allocates for number in numbers]
        return np.array(known, bool) if writes else np.zeros(len(found), bool)

    def _known(self, by: Begun, found: Array) -> Array:
        """Which suspects are ordered by what the beginning lanes alone know."""
        known = np.zeros(len(found), bool)
        if not len(found) or not self._clocks.helps(by.lanes if by.together is None else by.together.lanes).any():
            return known
        different, which = np.unique(found[:, [0, 2, 3]], axis=0, return_inverse=True)
        ordered: Array = np.array([not self._left(by, *one) for one in different.tolist()])[which.reshape(-1)]
        return ordered

    def _left(self, by: Begun, operation: int, cell: int, mask: int) -> int:
        """The lanes of a cell's access that none of an operation's lanes knows."""
        for lane in by.lanes_of(operation):
            mask = self._checks.unknown(lane, cell, mask) if mask else 0
        return mask
