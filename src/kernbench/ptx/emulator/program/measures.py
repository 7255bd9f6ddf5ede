"""Counts per basic block and lane: instructions, bytes and floating-point operations by kind.

Programs have hundreds of blocks with several kinds each. They are stored as columns once, so that a launch sums up in a
few steps.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from kernbench.common.dtypes import Array

if TYPE_CHECKING:
    from kernbench.ptx.emulator.program.program import Block

# a measure: a group, and a name in it
_Measure = tuple[int, str]
_THREADS, _FLOPS, _KINDS, _MOVED = range(4)


class Measures:
    """The counts of one program's blocks."""

    def __init__(self, blocks: Sequence["Block"]):
        found: dict[_Measure, list[tuple[int, int]]] = {}
        for number, block in enumerate(blocks):
            for measure, amount in _measured(block):
                found.setdefault(measure, []).append((number, amount))
        self._names = sorted(found)
        rows = [row for name in self._names for row in found[name]]
        table: Array = np.array(rows, np.int64).reshape(-1, 2)
        self._blocks, self._amounts = table[:, 0], table[:, 1]
        lengths = [len(found[name]) for name in self._names]
        self._begins: Array = np.cumsum([0, *lengths[:-1]])
        self._sizes: Array = np.array([len(block.sites) for block in blocks], np.int64)

    def of(self, lanes: Mapping[int, int]) -> tuple[int, int, dict[str, int], dict[str, int]]:
        """Instructions, flops, instructions by kind and bytes by direction, given how many lanes ran each block."""
        groups: tuple[dict[str, int], ...] = ({}, {}, {}, {})
        if self._names and lanes:
            sums = np.add.reduceat(self._by_block(lanes)[self._blocks] * self._amounts, self._begins)
            for (group, name), amount in zip(self._names, sums.tolist(), strict=True):
                if amount:
                    groups[group][name] = amount
        return groups[_THREADS].get("", 0), groups[_FLOPS].get("", 0), groups[_KINDS], groups[_MOVED]

    def instructions(self, warps: Mapping[int, int]) -> int:
        """Warp instructions, given how many warps ran each block."""
        return self.instructions_in(self._by_block(warps))

    def instructions_in(self, warps: Array) -> int:
        """Warp instructions, given for each block how many warps ran it."""
        return int(warps @ self._sizes)

    def _by_block(self, counted: Mapping[int, int]) -> Array:
        counts: Array = np.zeros(len(self._sizes), np.int64)
        counts[list(counted)] = list(counted.values())
        return counts


def _measured(block: "Block") -> Iterator[tuple[_Measure, int]]:
    if block.sites:
        yield (_THREADS, ""), len(block.sites)
    if block.flops:
        yield (_FLOPS, ""), block.flops
    for kind, count in block.kinds.items():
        yield (_KINDS, kind), count
    for (space, direction), nbytes in block.traffic.items():
        yield (_MOVED, f"{space}.{direction}"), nbytes
