"""Vector clocks as they travel: what an actor releases, and another acquires.

A piece of knowledge is a vector clock over all actors of the grid, stored by CTA, since most of it is zero, and with
single lanes named where only they have released. It is immutable; joining two (the larger of each entry) makes a
third. Rows are shared between pieces. A zero means that nothing is known: clocks begin at one.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.program.access_order import CLUSTER_SCOPE, CTA_SCOPE, GPU_SCOPE

EVERYBODY = (1 << WARP) - 1
# knowledge of more CTAs than this is stored as one row of the grid
_SPARSE = 48
# If more single threads than this are named, they count for their whole warps. Thousands of threads that each release
# to a location of their own (a gradient that all blocks add to) would otherwise name each other, which is quadratic in
# their number. The result claims more order than there is: a race may be missed, but none is invented.
_MOST_NAMED = 1024


def bits(mask: int) -> Iterator[int]:
    """The lanes of a mask."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


@dataclass(frozen=True, slots=True, eq=False)
class Knowledge:
    """Clocks of actors: `rows` by the number of a CTA's first actor, `dense` for the grid, `lanes` for single threads.

    A thread's number is its warp's number in the grid times 32, plus its lane.
    """

    rows: dict[int, Array] = field(default_factory=dict)
    dense: Array | None = None
    lanes: dict[int, int] = field(default_factory=dict)

    def join(self, other: "Knowledge", actors: int) -> "Knowledge":
        """The join of two vector clocks; `actors` is the number of actors of the grid."""
        rows = self.rows or other.rows
        if self.rows and other.rows:
            rows = dict(self.rows)
            for first, row in other.rows.items():
                mine = rows.get(first)
                rows[first] = row if mine is None or mine is row else np.maximum(mine, row)
        dense = self.dense if other.dense is None else _larger(self.dense, other.dense)
        lanes = _latest(self.lanes, other.lanes)
        if len(rows) > _SPARSE:
            dense = _fresh(dense, actors)
            for first, row in rows.items():
                part = dense[first : first + len(row)]
                np.maximum(part, row[: len(part)], out=part)
            rows = {}
        if len(lanes) > _MOST_NAMED:
            dense = _fresh(dense, actors)
            threads = np.fromiter(lanes, np.int64, len(lanes))
            np.maximum.at(dense, threads // WARP, np.fromiter(lanes.values(), np.int32, len(lanes)))
            lanes = {}
        return Knowledge(rows, dense, lanes)

    def row(self, first: int, columns: int) -> Array | None:
        """The clocks of the actors of one CTA, None if nothing is known."""
        dense = None if self.dense is None else self.dense[first : first + columns]
        return _larger(self.rows.get(first), dense)

    def only(self, kept: Array) -> "Knowledge":
        """The clocks of those columns of each CTA that have a one in `kept`, and of no single threads."""
        dense = None if self.dense is None else self.dense * np.resize(kept, len(self.dense))
        return Knowledge({first: row * kept[: len(row)] for first, row in self.rows.items()}, dense)

    def clock(self, number: int, columns: int) -> int:
        """The clock up to which all accesses of an actor are known."""
        first = number - number % columns
        row = self.rows.get(first)
        found = 0 if row is None else int(row[number - first])
        return found if self.dense is None else max(found, int(self.dense[number]))

    def left(self, number: int, clock: int, mask: int, columns: int) -> int:
        """The lanes of `mask` of a warp whose access at `clock` is not known."""
        if clock <= self.clock(number, columns):
            return 0
        if self.lanes:
            for lane in bits(mask):
                if self.lanes.get(number * WARP + lane, 0) >= clock:
                    mask &= ~(1 << lane)
        return mask


def _fresh(dense: Array | None, actors: int) -> Array:
    """A writable copy of a row of the grid."""
    return np.zeros(actors, np.int32) if dense is None else dense.copy()


def _larger(one: Array | None, two: Array | None) -> Array | None:
    if one is None or two is None or one is two:
        return two if one is None else one
    return np.maximum(one, two)


def _latest(one: dict[int, int], two: dict[int, int]) -> dict[int, int]:
    if not one or not two or one is two:
        return one or two
    few, many = (one, two) if len(one) <= len(two) else (two, one)
    # mostly an actor that acquires has nothing beyond what was released to it
    if few.items() <= many.items():
        return many
    found = dict(many)
    _add_latest(found, few)
    return found


def _add_latest(found: dict[int, int], more: dict[int, int]) -> None:
    for thread, clock in more.items():
        if found.get(thread, 0) < clock:
            found[thread] = clock


def together(pieces: list[Knowledge], actors: int) -> Knowledge:
    """The join of several pieces of knowledge, as `join` one after the other, without the intermediate copies."""
    if len(pieces) == 1 and len(pieces[0].rows) <= _SPARSE and len(pieces[0].lanes) <= _MOST_NAMED:
        return pieces[0]
    lanes = dict(pieces[0].lanes)
    whole = Knowledge(pieces[0].rows, pieces[0].dense)
    for piece in pieces[1:]:
        _add_latest(lanes, piece.lanes)
        whole = whole.join(Knowledge(piece.rows, piece.dense), actors)
    return whole.join(Knowledge(lanes=lanes), actors)


@dataclass(frozen=True, slots=True)
class Reach:
    """The scope of a strong operation, and the numbers of its thread's CTA and cluster."""

    scope: int
    cta: int
    cluster: int

    def meets(self, other: "Reach") -> bool:
        """Whether each operation's scope includes the other's thread, as moral strength requires."""
        if self.cta == other.cta:
            return min(self.scope, other.scope) >= CTA_SCOPE
        near = CLUSTER_SCOPE if self.cluster == other.cluster else GPU_SCOPE
        return min(self.scope, other.scope) >= near


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """What a release pattern publishes: its lanes of a warp, and the reach of its first operation.

    A `sequential` pattern begins with fence.sc. If it is `distant`, another thread ran that fence, and a barrier came
    between the fence and the write. Then only another fence.sc acquires it: fence.sc are ordered among themselves by
    observation, and barriers may take part in that; plain release patterns are of one thread.
    """

    knowledge: Knowledge
    reach: Reach
    number: int
    mask: int
    sequential: bool = False
    distant: bool = False

    def is_in(self, later: "Release") -> bool:
        """Whether `later`, by a thread that acquired this release, publishes it to all who could acquire it here."""
        plain = not (self.sequential or self.distant or later.sequential or later.distant)
        return plain and self.reach.scope == later.reach.scope == GPU_SCOPE


@dataclass(slots=True, eq=False)
class Location:
    """A location in memory: the reach of its last strong write, and the releases that a read of that write observes."""

    carrier: Reach
    releases: list[Release]

    def write(
        self, carrier: Reach, own: list[Release], update: bool, number: int, mask: int, actors: int, acquired: bool
    ) -> None:
        """A strong write: an update keeps the releases it observed, a store keeps only those of its own thread.

        This is a release sequence of C++11: updates by any thread, and stores of the releasing thread, continue it. An
        update that has `acquired` what it observed passes it on in its own release, the last of `own`.
        """
        if update and self.carrier.meets(carrier):
            kept = [one for one in self.releases if not one.is_in(own[-1])] if acquired and own else self.releases
        else:
            kept = [one for one in self.releases if one.number == number and one.mask == mask]
        self.carrier = carrier
        self.releases = _merged([*kept, *own], actors) if own else kept


def _merged(releases: list[Release], actors: int) -> list[Release]:
    """Join releases of the same reach and kind, if there are many.

    This is exact: whoever reads the location observes all of them and acquires each, and their join is the same.
    """
    if len(releases) <= 8:
        return releases
    kinds: dict[object, list[Release]] = {}
    for one in releases:
        cta = -1 if one.reach.scope == GPU_SCOPE else one.reach.cta
        kinds.setdefault((one.reach.scope, cta, one.sequential, one.distant), []).append(one)
    return [as_one(alike, actors) for alike in kinds.values()]


def as_one(releases: list[Release], actors: int) -> Release:
    """The join of releases that are alike in reach and kind."""
    last, knowledge = releases[-1], releases[0].knowledge
    for one in releases[1:]:
        knowledge = knowledge.join(one.knowledge, actors)
    mask = last.mask if len(releases) == 1 else 0
    return Release(knowledge, last.reach, last.number, mask, last.sequential, last.distant)


def barrier_key(first_block: int, slot: int, remote: bool = False) -> tuple[object, ...]:
    """The key under which arrivals on an mbarrier are published, by its own CTA or by others (`remote`)."""
    return ("mbarrier" if remote else "mbarrier of a CTA", first_block, slot)


class Publications:
    """What was released at each location in memory and to each barrier, for the whole launch."""

    def __init__(self, actors: int):
        self.actors = actors
        self.locations: dict[object, Location] = {}
        # True once a warp has released more often than shadow cells can count: races are no longer checked
        self.exhausted = False
        # what was released to barriers, by key
        self.released: dict[object, Knowledge] = {}

    def release(self, key: object, knowledge: Knowledge) -> None:
        """Add to what a thread acquires when it passes a barrier."""
        before = self.released.get(key)
        self.released[key] = knowledge if before is None else before.join(knowledge, self.actors)
