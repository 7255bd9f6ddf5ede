"""All pairs of conflicting accesses, without the limits of the shadow cells: which access meets which at each word.

The shadow cells keep the last write and two reads of a word. Here all readers since the last write are kept, in a
linked list for each word. Older writes are not needed: a write ordered after the last write is ordered after the ones
before it, or these are an unordered pair themselves. This is slow, and serves only to compare two runs.

A *tag* identifies an access of the log: the number of its entry times 64, plus the lane, or 32 if several lanes of a
warp touch the same word.
"""

from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.lanes import WARP

if TYPE_CHECKING:
    from kernbench.ptx.emulator.checks.happens_before.order import Relation

_LANES = 64


class Meetings:
    """For each word of one memory: the last writer, and all readers since."""

    def __init__(self, count: int):
        self._writers: Array = np.full(count, -1, np.int64)
        self._heads: Array = np.full(count, -1, np.int64)
        # linked lists of readers: the tag, and the index of the previous reader of the same word
        self._tags: Array = np.zeros(1024, np.int64)
        self._before: Array = np.zeros(1024, np.int64)
        self._count = 0

    def meet(self, words: Array, tags: Array, writes: bool) -> Array:
        """Record accesses to words, and return pairs of tags: a new access, and an earlier conflicting one."""
        words, tags = _several(words, tags)
        pairs = [np.stack([tags, self._writers[words]], axis=1)]
        if not writes:
            self._read(words, tags)
            return _distinct(pairs)
        # several entries write the same word in one step
        beside = np.flatnonzero(words[1:] == words[:-1])
        pairs.append(np.stack([tags[beside + 1], tags[beside]], axis=1))
        here = self._heads[words]
        while (here >= 0).any():
            going = here >= 0
            pairs.append(np.stack([tags[going], self._tags[here[going]]], axis=1))
            here = np.where(going, self._before[np.maximum(here, 0)], -1)
        self._writers[words] = tags
        self._heads[words] = -1
        return _distinct(pairs)

    def _read(self, words: Array, tags: Array) -> None:
        order = np.argsort(words, kind="stable")
        words, tags = words[order], tags[order]
        entries = self._count + np.arange(len(words))
        self._grow(self._count + len(words))
        again = np.r_[False, words[1:] == words[:-1]] if len(words) else np.zeros(0, bool)
        self._before[entries] = np.where(again, entries - 1, self._heads[words])
        self._tags[entries] = tags
        self._heads[words] = entries
        self._count += len(words)

    def _grow(self, count: int) -> None:
        if count > len(self._tags):
            more = np.zeros(count, np.int64)
            self._tags = np.concatenate([self._tags, more])
            self._before = np.concatenate([self._before, more])


def _several(words: Array, tags: Array) -> tuple[Array, Array]:
    """Merge lanes of one entry that touch the same word into one access, with the tag of several lanes."""
    order = np.lexsort((tags, words))
    words, tags = words[order], tags[order]
    entries = tags // _LANES
    same = (words[1:] == words[:-1]) & (entries[1:] == entries[:-1])
    first = np.r_[True, ~same] if len(words) else np.zeros(0, bool)
    alone = np.r_[first[1:], True] if len(words) else first
    return words[first], np.where(alone[first], tags[first], entries[first] * _LANES + WARP)


def _distinct(pairs: list[Array]) -> Array:
    found = np.concatenate(pairs)
    found = found[found[:, 1] >= 0]
    return np.unique(found, axis=0) if len(found) else found


def unordered(relation: "Relation", pairs: Array) -> dict[tuple[int, int], int]:
    """The pairs of source lines whose accesses conflict and are not ordered, with how often."""
    x, y = pairs[:, 0] // _LANES, pairs[:, 1] // _LANES
    my_lane, their_lane = pairs[:, 0] % _LANES, pairs[:, 1] % _LANES
    thread = ~relation.operation[x] & ~relation.operation[y]
    warp = (relation.cta[x] == relation.cta[y]) & (relation.warp[x] == relation.warp[y])
    ordered = thread & warp & (my_lane == their_lane) & (my_lane < WARP)
    ordered |= _covered(relation, x, y, their_lane)
    bad = np.flatnonzero(~ordered)
    lines = zip(relation.line[y[bad]].tolist(), relation.line[x[bad]].tolist(), strict=True)
    return dict(Counter(lines))


def _covered(relation: "Relation", x: Array, y: Array, lanes: Array) -> Array:
    """Whether the clocks of each of `x` cover access `y`: by the clock of its lane, its warp, or another actor."""
    actors, columns = relation.actors, relation.rows.shape[1]
    column = relation.actor[y] - relation.cta[x] * columns
    near = (column >= 0) & (column < columns)
    inside = np.where(near, column, 0)
    clock = relation.clock[y]
    covered: Array = near & (clock <= relation.rows[x, inside])
    if actors.asynchronous:
        ordinary = near & (column < actors.warps) & ~relation.operation[y]
        who = np.where(ordinary, column, 0)
        known = relation.rows[x, actors.lane(0) + who].astype(np.int64)
        other = relation.operation[x] | (relation.warp[x] != column)
        covered |= ordinary & other & (known % WARP == lanes) & (clock <= known // WARP)
        # an asynchronous operation sees an ordinary write only after a proxy fence
        fenced = np.zeros(len(x), bool)
        for domain, space in enumerate(("shared", "global")):
            shown = clock <= relation.rows[x, actors.proxied(0, space) + who]
            fenced |= (relation.domain[x] == domain) & shown
        covered &= fenced | ~(ordinary & relation.operation[x] & relation.writes[y])
    covered |= ~near & (clock <= relation.distant(x, relation.actor[y]))
    if actors.asynchronous:
        known = relation.distant(x, relation.actor[y] + actors.lane(0))
        thread = ~near & ~relation.operation[y]
        covered |= thread & (known % WARP == lanes) & (clock <= known // WARP)
    return covered
