"""The stack of each thread for alloca: at the end of its local memory, beyond all frames."""

from collections.abc import Callable

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.memory.arena import NOTHING, UNWRITTEN

# bytes per thread
STACK_BYTES = 1 << 14


class Stack:
    """Stacks of all lanes of a batch; `state` is that of local memory, a row for each lane.

    Unallocated bytes are not memory. `emptied` gets the offset of what is allocated, and its size.
    """

    def __init__(self, lanes: int, state: Array, begin: int, emptied: Callable[[Array, int], None]):
        self.nbytes = state.shape[1] - begin
        self._emptied = emptied
        self._state, self._begin = state, begin
        self._tops: Array = np.full(lanes, begin, np.int64)
        state[:, begin:] = NOTHING

    def tops(self, lanes: Array) -> Array:
        """The top of each lane's stack."""
        return self._tops[lanes]

    def take(self, lanes: Array, sizes: Array, step: int, mask: Mask | None) -> tuple[Array, Mask | None]:
        """Allocate for each lane; returns the offsets, and the lanes that did not fit (None if all did)."""
        starts: Array = -(-self._tops[lanes] // step) * step
        ends = starts + np.broadcast_to(sizes, lanes.shape)
        active = np.ones(len(lanes), bool) if mask is None else mask
        fits = (ends <= self._state.shape[1]) & (ends >= starts)
        for position in np.flatnonzero(active & fits):
            self._state[lanes[position], starts[position] : ends[position]] = UNWRITTEN
            first = int(lanes[position]) * self._state.shape[1] + int(starts[position])
            self._emptied(np.array([first]), int(ends[position] - starts[position]))
        taken = active & fits
        self._tops[lanes[taken]] = ends[taken]
        failed = active & ~fits
        return starts, failed if failed.any() else None

    def restore(self, lanes: Array, tops: Array, mask: Mask | None) -> None:
        """Free everything above the given tops."""
        active = np.ones(len(lanes), bool) if mask is None else mask
        wanted = np.clip(np.broadcast_to(tops, lanes.shape), self._begin, self._tops[lanes])
        for position in np.flatnonzero(active & (wanted < self._tops[lanes])):
            self._state[lanes[position], wanted[position] :] = NOTHING
        self._tops[lanes[active]] = wanted[active]
