"""Finds loads and stores of one program that share a byte: the memory dependences that its engines keep.

Accesses repeat a few different tiles: a tile is an address and an access pattern. Two tiles overlap
exactly if their patterns share a byte, so columns of the same rows, or interleaved heads, do not. Tiles are sorted
by their first byte, and only those whose bounding intervals overlap are compared exactly.
"""

from dataclasses import dataclass

import numpy as np

from kernbench.common.compiled import part
from kernbench.common.deferred import deferred
from kernbench.common.dtypes import Array
from kernbench.result.recording import NONE, Pattern, Tables
from kernbench.timing.graph import Ints, Small

# limit of exact comparisons for one cluster of tiles: per tile, and in any case. A larger cluster counts as one tile:
# its accesses are all kept in order, which is more than needed, but never less.
_LOOKS_PER_TILE, _LOOKS = 64, 1 << 23
_FIRST_PAIRS = 1024


@dataclass(frozen=True)
class Conflicts:
    """The tile of each command of a program, -1 if its bytes conflict with nothing; the neighbours of tile t, which
    share a byte with it, are rows offsets[t] to offsets[t + 1] of `neighbours`.
    """

    tile: Small
    offsets: Small
    neighbours: Small

    @property
    def tiles(self) -> int:
        """How many tiles there are."""
        return len(self.offsets) - 1

    @property
    def arrays(self) -> tuple[Small, Small, Small]:
        """As arguments of compiled code."""
        return self.tile, self.offsets, self.neighbours


@dataclass(frozen=True)
class Layout:
    """All patterns of a recording, in normal form: bytes from `low` to `high` around the address, in runs of `run`
    bytes at all sums of `count` steps of `step` from `low` on; axes of pattern p are rows first[p] to first[p + 1].
    """

    low: Ints
    high: Ints
    run: Ints
    first: Ints
    count: Ints
    step: Ints

    @property
    def arrays(self) -> tuple[Ints, Ints, Ints, Ints]:
        """As arguments of the compiled test."""
        return self.run, self.first, self.count, self.step


def no_conflicts(commands: int) -> Conflicts:
    """For a program whose transfers are in order anyway."""
    return Conflicts(np.full(commands, NONE, np.int32), np.zeros(1, np.int32), np.zeros(0, np.int32))


def layout(tables: Tables) -> Layout:
    """The normal form of all patterns."""
    forms = [normal_form(pattern) for pattern in tables.patterns] or [(0, 0, 0, ())]
    axes = [axis for *_, own in forms for axis in own]
    first = np.concatenate([[0], np.cumsum([len(own) for *_, own in forms])])
    low, high, run = (np.array([form[i] for form in forms], np.int64) for i in range(3))
    count, step = (np.array([axis[i] for axis in axes], np.int64) for i in range(2))
    return Layout(low, high, run, first.astype(np.int64), count, step)


def normal_form(pattern: Pattern) -> tuple[int, int, int, tuple[tuple[int, int], ...]]:
    """First byte and one past the last, length of a run, and (count, step) of each axis, finest first.

    Steps are positive: an axis that goes backwards begins at its other end. Axes that are contiguous with a run, or
    with the axis before them, are merged into it.
    """
    if not pattern.nbytes:
        return 0, 0, 0, ()
    if pattern.strides is None:
        return 0, pattern.nbytes, pattern.nbytes, ()
    given = [(step, count) for count, step in zip(pattern.shape, pattern.strides, strict=True) if count > 1 and step]
    low = sum((count - 1) * step for step, count in given if step < 0)
    axes: list[tuple[int, int]] = []
    run = pattern.itemsize
    for step, count in sorted((abs(step), count) for step, count in given):
        if not axes and step <= run:
            run += (count - 1) * step
        elif axes and step == axes[-1][0] * axes[-1][1]:
            axes[-1] = (axes[-1][0], axes[-1][1] * count)
        else:
            axes.append((step, count))
    high = low + run + sum((count - 1) * step for step, count in axes)
    return low, high, run, tuple((count, step) for step, count in axes)


def find_conflicts(
    address: Ints, pattern: Ints, is_store: Array, commands: Ints, total: int, given: Layout
) -> Conflicts:
    """The conflicts among the loads and stores of a program of `total` commands; `commands` are their numbers."""
    chosen = _near_stores(address + given.low[pattern], address + given.high[pattern], is_store)
    if not len(chosen):
        return no_conflicts(total)
    address, pattern, is_store = address[chosen], pattern[chosen], is_store[chosen]
    order = np.lexsort((pattern, address + given.low[pattern]))
    begins, form = (address + given.low[pattern])[order], pattern[order]
    fresh = np.concatenate([[True], (np.diff(begins) != 0) | (np.diff(form) != 0)])
    number = np.cumsum(fresh) - 1
    stored = np.zeros(int(number[-1]) + 1, np.bool_)
    stored[number[is_store[order]]] = True
    begins, form = begins[fresh], form[fresh]
    ends = begins + (given.high - given.low)[form]
    same, pairs = _pairs(begins, ends, form, stored, given)
    tile = np.full(total, NONE, np.int32)
    tile[commands[chosen[order]]] = same[number]
    return Conflicts(tile, *_neighbours(len(begins), pairs))


def _near_stores(low: Ints, high: Ints, is_store: Array) -> Ints:
    """The accesses whose bounding interval overlaps that of a store: the others conflict with nothing."""
    there = high > low
    stores = np.flatnonzero(is_store & there)
    if not len(stores):
        return stores
    order = stores[np.argsort(low[stores], kind="stable")]
    reach = np.maximum.accumulate(high[order])
    # of the stores that begin before an access ends, does one end after its begin?
    before = np.searchsorted(low[order], high, side="left") - 1
    return np.flatnonzero(there & (before >= 0) & (reach[np.maximum(before, 0)] > low))


def _pairs(begins: Ints, ends: Ints, form: Ints, stored: Array, given: Layout) -> tuple[Small, tuple[Small, Small]]:
    """For each tile its representative (itself, except in clusters above the limit), and the pairs that share a
    byte of which at least one is stored to.
    """
    same = np.arange(len(begins), dtype=np.int32)
    reach = np.maximum.accumulate(ends)
    cuts = np.concatenate([[0], np.flatnonzero(begins[1:] >= reach[:-1]) + 1, [len(begins)]]).astype(np.int64)
    room = _FIRST_PAIRS
    deepest = int(np.diff(given.first).max(initial=0))
    work = np.empty((4, 2 * deepest + 1), np.int64)
    while True:
        one, other = np.empty((2, room), np.int32)
        count = _sweep(cuts, begins, ends, form, stored, given.arrays, work, same, one, other)
        if count <= room:
            return same, (one[:count], other[:count])
        room = count


def _neighbours(tiles: int, pairs: tuple[Small, Small]) -> tuple[Small, Small]:
    source, target = np.concatenate(pairs), np.concatenate(pairs[::-1])
    offsets = np.zeros(tiles + 1, np.int32)
    np.cumsum(np.bincount(source, minlength=tiles), out=offsets[1:])
    return offsets, target[np.argsort(source, kind="stable")]


@deferred(lambda cuts, begins, *_: len(begins) ** 2)
def _sweep(cuts, begins, ends, form, stored, patterns, work, same, one, other):  # type: ignore[no-untyped-def]
    """Write the pairs of all clusters up to the capacity; returns their number."""
    found = 0
    for cluster in range(len(cuts) - 1):
        first, stop = cuts[cluster], cuts[cluster + 1]
        left = _LOOKS + _LOOKS_PER_TILE * (stop - first)
        kept = found
        for i in range(first, stop):
            j = i + 1
            while j < stop and begins[j] < ends[i] and left > 0:
                left -= 1
                if stored[i] or stored[j]:
                    hit, left = overlaps(form[i], form[j], begins[j] - begins[i], patterns, work, left)
                    if hit:
                        if found < len(one):
                            one[found], other[found] = i, j
                        found += 1
                j += 1
        for i in range(first, stop):
            same[i] = first if left <= 0 else i
        if left <= 0:
            found = kept
    return found


@part
def overlaps(a, b, distance, patterns, work, left):  # type: ignore[no-untyped-def]
    """Whether two patterns, the second of which begins `distance` bytes after the first, share a byte; and how many of
    the `left` comparisons remain.

    The begin of a run of b minus that of a run of a is `distance`, plus multiples of b's steps, minus multiples of
    a's. Counted from the other end, a's steps are added, too: is there a sum between 1 - (run of b) and (run of a) - 1?
    Equal steps of both are one axis. From the coarsest axis on, only multiples are tried from which the finer ones
    can still reach this range.
    """
    run, first, count, step = patterns
    steps, most, reach, tried = work
    low, high = 1 - run[b], run[a] - 1
    # merge the axes of both, coarsest first
    depth = 0
    i, j = first[a + 1] - 1, first[b + 1] - 1
    begin = distance
    while i >= first[a] or j >= first[b]:
        take_a = i >= first[a] and (j < first[b] or step[i] >= step[j])
        take_b = j >= first[b] and (i < first[a] or step[j] >= step[i])
        most[depth] = 0
        if take_a:
            steps[depth] = step[i]
            most[depth] += count[i] - 1
            begin -= (count[i] - 1) * step[i]
            i -= 1
        if take_b:
            steps[depth] = step[j]
            most[depth] += count[j] - 1
            j -= 1
        depth += 1
    if depth > 1 and not _in_step(begin, low, high, steps, depth):
        return False, left - depth
    reach[depth] = 0
    for d in range(depth - 1, -1, -1):
        reach[d] = reach[d + 1] + most[d] * steps[d]
    # depth first: `tried` is the current multiple of each axis, `begin` the sum so far
    d = 0
    if depth:
        tried[0] = max(0, -((begin + reach[1] - low) // steps[0]))
    while True:
        if d == depth:
            if low <= begin <= high:
                return True, left
            d -= 1
        else:
            # the first multiple from which the range can be reached, unless it is already past it
            if tried[d] <= most[d] and begin + tried[d] * steps[d] <= high:
                begin += tried[d] * steps[d]
                d += 1
                if d < depth:
                    tried[d] = max(0, -((begin + reach[d + 1] - low) // steps[d]))
                continue
            d -= 1
        left -= 1
        if d < 0 or left <= 0:
            return False, left
        begin -= tried[d] * steps[d]
        tried[d] += 1


@part
def _in_step(begin, low, high, steps, depth):  # type: ignore[no-untyped-def]
    """Whether a number between `low` and `high` is congruent to `begin` modulo the common divisor of all steps."""
    common = steps[0]
    for d in range(1, depth):
        other = steps[d]
        while other:
            common, other = other, common % other
    return begin + -((begin - low) // common) * common <= high
