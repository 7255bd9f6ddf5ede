"""Merges operations of single lanes into events of warps: those with the same object and phase are one event."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.arrays import Int64s


@dataclass(frozen=True, slots=True, eq=False)
class Grouped:
    """Events of distinct warps: the first operation of each, its number of operations, and how to sum over them.

    `starts` are the beginnings of groups among the operations, in the order of `order` (None: unchanged).
    """

    first: Int64s
    counts: Int64s
    order: Int64s | None
    starts: Int64s

    def total(self, rows: Array) -> Array:
        """Rows of operations, summed for each event."""
        given = rows if self.order is None else rows[self.order]
        single = len(given) == len(self.starts)
        found: Array = given if single else np.add.reduceat(given, self.starts, axis=0)
        return found


def grouped(warps: Int64s, objects: Array, phases: Array) -> Iterator[Grouped]:
    """Events of operations, with each warp at most once in each batch; nearly always there is one batch."""
    count = len(warps)
    begins = np.ones(count, bool)
    begins[1:] = warps[1:] != warps[:-1]
    same = (objects[1:] == objects[:-1]) & (phases[1:] == phases[:-1])
    in_order = bool((warps[1:] >= warps[:-1]).all())
    if in_order and bool((same | begins[1:]).all()):
        starts = np.flatnonzero(begins)
        yield Grouped(starts, np.diff(np.append(starts, count)), None, starts)
        return
    yield from _by_level(warps, objects, phases)


def _by_level(warps: Int64s, objects: Array, phases: Array) -> Iterator[Grouped]:
    """The first group of each warp, then the second of each, and so on."""
    keys = np.column_stack([warps, objects, phases])
    _, first, inverse = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    inverse = inverse.reshape(-1)
    ranked = np.lexsort((first, warps[first]))
    level = np.zeros(len(first), np.int64)
    index = np.arange(len(first))
    start = np.searchsorted(warps[first][ranked], warps[first][ranked])
    level[ranked] = index - start
    sizes, members = np.bincount(inverse, minlength=len(first)), np.argsort(inverse, kind="stable")
    ends = np.cumsum(sizes)
    for number in range(int(level.max()) + 1):
        chosen = ranked[level[ranked] == number]
        order = np.concatenate([members[ends[group] - sizes[group] : ends[group]] for group in chosen])
        counts = sizes[chosen]
        yield Grouped(first[chosen], counts, order, np.cumsum(counts) - counts)
