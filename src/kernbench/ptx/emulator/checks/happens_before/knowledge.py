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
# rows of more CTAs than this become one row of the grid
_SPARSE = 48
# what is known of more single threads than this counts for their warps: thousands of threads that each release to a
# location of their own (a gradient that all blocks add to) would know of each other by name, which takes the square of
# their number. More is known then than is true, so that a race may stay hidden and none is made up.
_MOST_NAMED = 1024


def bits(mask: int) -> Iterator[int]:
    """The lanes of a mask."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


@dataclass(frozen=True, slots=True, eq=False)
class Knowledge:
    """Clocks of actors: `rows` by the number of a CTA's first actor, `dense` for the grid; `lanes` of single threads.

    A thread's number is its warp's number in the grid times 32, plus its lane.
    """

    rows: dict[int, Array] = field(default_factory=dict)
    dense: Array | None = None
    lanes: dict[int, int] = field(default_factory=dict)

    def join(self, other: "Knowledge", actors: int) -> "Knowledge":
        """What two pieces of knowledge hold together; `actors` are those of the grid."""
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
        """What is known of the actors of one CTA, None if nothing."""
        dense = None if self.dense is None else self.dense[first : first + columns]
        return _larger(self.rows.get(first), dense)

    def only(self, kept: Array) -> "Knowledge":
        """What is known of the actors of some columns of each CTA, with ones in `kept`, and of no single threads."""
        dense = None if self.dense is None else self.dense * np.resize(kept, len(self.dense))
        return Knowledge({first: row * kept[: len(row)] for first, row in self.rows.items()}, dense)

    def clock(self, number: int, columns: int) -> int:
        """The clock up to which all of an actor is known."""
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
    """A row of the grid that may be written."""
    return np.zeros(actors, np.int32) if dense is None else dense.copy()


def _larger(one: Array | None, two: Array | None) -> Array | None:
    if one is None or two is None or one is two:
        return two if one is None else one
    return np.maximum(one, two)


def _latest(one: dict[int, int], two: dict[int, int]) -> dict[int, int]:
    if not one or not two or one is two:
        return one or two
    few, many = (one, two) if len(one) <= len(two) else (two, one)
    # who acquires what was published after it most often knows nothing beside that
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
    """What several pieces of knowledge hold together: as `join` of one after the other, without what is in between."""
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
    """A strong operation's scope and where its thread is: number of its CTA and of its cluster."""

    scope: int
    cta: int
    cluster: int

    def meets(self, other: "Reach") -> bool:
        """Whether each operation's scope holds the other's thread."""
        if self.cta == other.cta:
            return min(self.scope, other.scope) >= CTA_SCOPE
        near = CLUSTER_SCOPE if self.cluster == other.cluster else GPU_SCOPE
        return min(self.scope, other.scope) >= near


@dataclass(frozen=True, slots=True, eq=False)
class Release:
    """What a release pattern publishes: by which lanes of which warp, and the reach of its first operation.

    `sequential` patterns begin with fence.sc. With `distant` that fence was another thread's, met at a barrier since:
    then only another such fence learns of it, as the order of these fences is the one in which they are seen.
    """

    knowledge: Knowledge
    reach: Reach
    number: int
    mask: int
    sequential: bool = False
    distant: bool = False

    def is_in(self, later: "Release") -> bool:
        """Whether a release by one who has acquired this one publishes it as well, to all who would see it."""
        plain = not (self.sequential or self.distant or later.sequential or later.distant)
        return plain and self.reach.scope == later.reach.scope == GPU_SCOPE


@dataclass(slots=True, eq=False)
class Location:
    """A location in memory: the reach of its last strong write, and the releases that who reads that write sees."""

    carrier: Reach
    releases: list[Release]

    def write(
        self, carrier: Reach, own: list[Release], update: bool, number: int, mask: int, actors: int, acquired: bool
    ) -> None:
        """A strong write: an update hands on what it saw, a store only what its own thread released before.

        As in a release sequence of C++11: updates by anybody, and stores of the releasing thread, follow the release.
        An update that has `acquired` what it saw releases it with what it knows: the last of `own` has it all.
        """
        if update and self.carrier.meets(carrier):
            kept = [one for one in self.releases if not one.is_in(own[-1])] if acquired and own else self.releases
        else:
            kept = [one for one in self.releases if one.number == number and one.mask == mask]
        self.carrier = carrier
        self.releases = _merged([*kept, *own], actors) if own else kept


def _merged(releases: list[Release], actors: int) -> list[Release]:
    """Releases of one reach that are far too many to look at one by one become one.

    Exact, as whoever reads the location sees all of them: it would acquire each, and their join is the same.
    """
    if len(releases) <= 8:
        return releases
    kinds: dict[object, list[Release]] = {}
    for one in releases:
        cta = -1 if one.reach.scope == GPU_SCOPE else one.reach.cta
        kinds.setdefault((one.reach.scope, cta, one.sequential, one.distant), []).append(one)
    return [as_one(alike, actors) for alike in kinds.values()]


def as_one(releases: list[Release], actors: int) -> Release:
    """Releases alike in reach and kind, joined."""
    last, knowledge = releases[-1], releases[0].knowledge
    for one in releases[1:]:
        knowledge = knowledge.join(one.knowledge, actors)
    mask = last.mask if len(releases) == 1 else 0
    return Release(knowledge, last.reach, last.number, mask, last.sequential, last.distant)


def barrier_key(first_block: int, slot: int, remote: bool = False) -> tuple[object, ...]:
    """What arrivals on an mbarrier of a batch by its own CTA, or by others (`remote`), are published under."""
    return ("mbarrier" if remote else "mbarrier of a CTA", first_block, slot)


class Publications:
    """What was released at which location in memory, for the whole launch."""

    def __init__(self, actors: int):
        self.actors = actors
        self.locations: dict[object, Location] = {}
        # whether some warp released more often than shadow cells can count, so that races were no longer looked for
        self.exhausted = False
        # what was released to barriers, by key
        self.released: dict[object, Knowledge] = {}

    def release(self, key: object, knowledge: Knowledge) -> None:
        """Add to what whoever passes a barrier acquires."""
        before = self.released.get(key)
        self.released[key] = knowledge if before is None else before.join(knowledge, self.actors)
