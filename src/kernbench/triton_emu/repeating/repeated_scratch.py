"""Scratch memory of a routine that is recorded again: where its values lie then.

A call that took all its blocks from shelves does so again if those shelves have as many blocks: the blocks only change
positions (`Shelves`). A call that also took space from gaps, as the first ones of a program do, is given memory anew:
its allocations and releases are done again, one by one, without the kernel (`Events`).
"""

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kernbench.triton_emu.pe.scratch import Block, Noted, ScratchPool
from kernbench.triton_emu.repeating.affine import Watched
from kernbench.triton_emu.repeating.recorder import Recorder
from kernbench.triton_emu.repeating.replay import NotAlikeError, UnlikeIterationError, as_rows

if TYPE_CHECKING:
    from kernbench.triton_emu.repeating.template import Start

__kernbench_internal__ = True

Ints = NDArray[np.int64]
Log = list[Noted]


class Taken(Protocol):
    """What of scratch memory is known of a call: its row and view addresses, and the blocks behind its results."""

    def fits(self, pool: ScratchPool) -> bool:
        """Whether it can be repeated in a pool as it is now."""

    def would(self, pool: ScratchPool) -> tuple[Ints, Ints] | None:
        """Addresses of made values and of views if it was repeated now, as far as that can be said beforehand."""

    def take(self, context: Recorder) -> tuple[Ints, Ints, list[Block]]:
        """Repeat it: addresses of made values and of views, and the blocks of the results."""


class Shelves:
    """Blocks of shelves that change places."""

    def __init__(self, pool: ScratchPool, start: "Start", made: Ints, views: Ints, results: list[int]):
        """`made`, `views` and `results` are addresses."""
        sizes = sorted(start.taken)
        # (bytes, how many free blocks there were)
        self._shelves = [(size, len(start.free.get(size, ()))) for size in sizes]
        before = [address for size in sizes for address in start.free.get(size, ())]
        position = {address: i for i, address in enumerate(before)}
        try:
            self._after = [[position[block.addr] for block in pool._shelves.get(size, ())] for size in sizes]
            self._results = [position[address] for address in results]
        except KeyError:
            raise NotAlikeError from None
        if sorted([i for shelf in self._after for i in shelf] + self._results) != list(range(len(before))):
            raise NotAlikeError
        addresses = np.array(before, np.int64)
        ends = addresses + np.array([start.sizes[address] for address in before], np.int64)
        self._made, offset = _inside(made, addresses, ends)
        self._views, self._offset = _inside(views, addresses, ends)
        if offset.any():
            raise NotAlikeError
        self._most = start.most

    def fits(self, pool: ScratchPool) -> bool:
        """With more blocks, or fewer, their order would be another."""
        return all(len(pool._shelves.get(size, ())) == count for size, count in self._shelves)

    def would(self, pool: ScratchPool) -> tuple[Ints, Ints]:
        """The same blocks in the order in which they lie on the shelves now."""
        addresses = np.array([block.addr for block in self._blocks(pool)] or [0], np.int64)
        return addresses[self._made], addresses[self._views] + self._offset

    def _blocks(self, pool: ScratchPool) -> list[Block]:
        return [block for size, _ in self._shelves for block in pool._shelves.get(size, ())]

    def take(self, context: Recorder) -> tuple[Ints, Ints, list[Block]]:
        """Leave the shelves as the call would."""
        pool = context._scratch
        made, views = self.would(pool)
        blocks = self._blocks(pool)
        for (size, _), order in zip(self._shelves, self._after, strict=True):
            if size in pool._shelves:
                shelf = pool._shelves[size]
                shelf.clear()
                shelf.extend(blocks[i] for i in order)
        pool.peak = max(pool.peak, pool.used + self._most)
        results = [blocks[i] for i in self._results]
        for block in results:
            block.users = 1
            pool.used += block.nbytes
        return made, views, results


class Events:
    """Allocations and releases that are done again."""

    def __init__(
        self, pool: ScratchPool, start: "Start", numbers: tuple[Ints, Ints], made: Ints, views: Ints, results: list[int]
    ):
        """`numbers` are those of the commands that made values, and of the views."""
        if start.log is None or pool._collections_left != start.collections:
            raise NotAlikeError
        # worked out when first needed: most calls are the only ones of their kind
        self._given: tuple[Log, tuple[Ints, Ints], Ints, Ints, list[int]] | None = (
            start.log,
            numbers,
            made,
            views,
            results,
        )
        # (column, bytes), -1 for a release; columns count the allocations
        self._events: list[tuple[int, int]] = []
        self._is_known = False

    def _work_out(self, log: Log, numbers: tuple[Ints, Ints], made: Ints, views: Ints, results: list[int]) -> None:
        """The events of the log, and which of them is behind each address."""
        known = Lives(as_rows(log))
        self._events = known.events
        self._made, offset = known.blocks_of(0, numbers[0], made)
        if offset.any() or len(known.left) != len(results) or not known.left.keys() >= set(results):
            raise NotAlikeError
        self._results = [known.left[address] for address in results]
        self._views, self._offset = known.blocks_of(1, numbers[1], views)
        self._is_known = True

    def fits(self, pool: ScratchPool) -> bool:
        """In any pool, if it is known which block is which."""
        if self._given is not None:
            given, self._given = self._given, None
            with suppress(NotAlikeError):
                self._work_out(*given)
        return self._is_known

    def would(self, pool: ScratchPool) -> None:
        """Only doing it shows."""

    def take(self, context: Recorder) -> tuple[Ints, Ints, list[Block]]:
        """Do it; what does not fit the memory any more can only be reported by the kernel's own lines."""
        pool, watched = context._scratch, Watched()
        context.watch.open(watched)
        effects, collections = context._port.effects, pool._collections_left
        try:
            addresses, blocks = self._done(pool)
            if context._port.effects != effects or pool._collections_left != collections:
                context.folded_wrongly = True
                raise UnlikeIterationError
        finally:
            context.watch.close(watched)
        return addresses[self._made], addresses[self._views] + self._offset, [blocks[i] for i in self._results]

    def _done(self, pool: ScratchPool) -> tuple[Ints, list[Block]]:
        blocks: list[Any] = [None] * len(self._events)
        addresses = pool.again(self._events, blocks)
        return np.array(addresses or [0], np.int64), blocks


class Lives:
    """Of the allocations in a log, when each was made and given back: which of them an address lay in at a moment.

    `events` are (index, bytes) for an allocation, (index of the allocation, -1) for a release; `left` is what was not
    given back, by address.
    """

    def __init__(self, log: Ints):
        self._log = log
        self.events: list[tuple[int, int]] = []
        self.left: dict[int, int] = {}
        # where the log comes to the release of each allocation
        self._end = np.full(len(log) + 1, len(log), np.int64)
        for i, (address, nbytes) in enumerate(log[:, 2:].tolist()):
            if nbytes >= 0:
                self.left[address] = i
                self.events.append((i, nbytes))
            else:
                made = self.left.pop(address, None)
                if made is None:
                    raise NotAlikeError
                self.events.append((made, -1))
                self._end[made] = i
        made_at = np.flatnonzero(self._log[:, 3] >= 0)
        self._begins, of = np.unique(self._log[made_at, 2], return_inverse=True)
        # allocations by their address, and in the order of time where that is the same
        self._keys = of * (len(log) + 1) + made_at
        order = np.argsort(self._keys)
        self._keys, self._made = self._keys[order], made_at[order]

    def blocks_of(self, count: int, numbers: Ints, addresses: Ints) -> tuple[Ints, Ints]:
        """The allocation behind each address at the time of its command (`count` 0) or view (1) of these numbers, and
        how far in it lies.
        """
        time = np.searchsorted(self._log[:, count], numbers, side="right")
        # the nearest block at or below the address that was there at the time
        below = np.searchsorted(self._begins, addresses, side="right") - 1
        found = np.full(len(addresses), -1, np.int64)
        looking = np.arange(len(addresses))
        while len(looking):
            if (below[looking] < 0).any():
                raise NotAlikeError
            block, moment = below[looking], time[looking]
            latest = np.searchsorted(self._keys, block * (len(self._log) + 1) + moment) - 1
            made = np.where(latest >= 0, self._made[latest], len(self._log))
            begins = self._begins[below[looking]]
            is_there = (latest >= 0) & (self._end[made] >= time[looking])
            is_there &= self._log[np.minimum(made, len(self._log) - 1), 2] == begins
            found[looking[is_there]] = made[is_there]
            looking = looking[~is_there]
            below[looking] -= 1
        offsets = addresses - self._log[found, 2]
        if (offsets >= np.maximum(self._log[found, 3], 1)).any():
            raise NotAlikeError
        return found, offsets


def _inside(values: Ints, begins: Ints, ends: Ints) -> tuple[Ints, Ints]:
    """For each address the block that it lies in, and how far."""
    if not len(values):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    order = np.argsort(begins)
    at = np.searchsorted(begins[order], values, side="right") - 1
    if not len(begins) or (at < 0).any():
        raise NotAlikeError
    position = order[at]
    if (values >= ends[position]).any():
        raise NotAlikeError
    return position, values - begins[position]
