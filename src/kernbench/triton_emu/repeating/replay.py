"""Scratch memory of repeated iterations: where each value lies that they make.

Most kernels take their blocks from shelves. Then the blocks only change places from one boundary to the next, always in
the same way, and the addresses of iteration n are those of the first under the n-th power of a permutation (`Turning`).
In a memory that is nearly full space is also taken from gaps, which depends on what lies around it: then allocations
and releases are done again, one by one, without the kernel (`Replaying`).
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernbench.triton_emu.pe.scratch import Block, Noted, ScratchPool

__kernbench_internal__ = True

Ints = NDArray[np.int64]
Slot = tuple[Any, ...]


class NotAlikeError(Exception):
    """Two boundaries are not alike."""


class UnlikeIterationError(BaseException):
    """An iteration would do something else than those before it, and it is too late to run them; no `Exception`, as
    kernels may catch those.
    """


def as_rows(log: list[Noted]) -> Ints:
    """What the allocator noted, one row for each event."""
    parts: list[Ints] = []
    single: list[tuple[int, ...]] = []
    for entry in log:
        if type(entry) is tuple:
            single.append(entry)
            continue
        if single:
            parts.append(np.array(single, np.int64))
            single = []
        parts.append(np.asarray(entry))
    parts.append(np.array(single or np.empty((0, 4)), np.int64))
    return np.concatenate(parts)


class Turning:
    """Blocks that change slots. `before` and `after` map slots to addresses, at the two boundaries."""

    def __init__(self, before: dict[Slot, int], after: dict[Slot, int], sizes: dict[int, int]):
        if before.keys() != after.keys():
            raise NotAlikeError
        self._slots = list(before)
        self._addresses = np.array([before[slot] for slot in self._slots], np.int64)
        self._sizes = np.array([sizes[address] for address in before.values()], np.int64)
        where = {int(address): i for i, address in enumerate(self._addresses)}
        try:
            self._turn: Ints = np.array([where[after[slot]] for slot in self._slots], np.int64)
        except KeyError:
            raise NotAlikeError from None
        self._now = self._turn
        self._held: dict[int, Block] = {}
        self._order = np.argsort(self._addresses)

    def sources(self, steps: Ints, views: bool, addresses: Ints) -> tuple[Ints, Ints]:
        """For each address at the first boundary: its column in what `next` gives (-1: it stays), and the offset."""
        if not len(self._order):
            return np.full(len(addresses), -1), np.zeros(len(addresses), np.int64)
        ordered = self._addresses[self._order]
        at = np.searchsorted(ordered, addresses, side="right") - 1
        slot, offset = self._order[at], addresses - ordered[at]
        return np.where((at >= 0) & (offset < self._sizes[slot]), slot, -1), offset

    def next(self, count: int) -> Ints:
        """The addresses of `count` further iterations, a row for each."""
        powers = np.empty((count + 1, len(self._turn)), np.int64)
        powers[0] = self._now
        known, turn = 1, self._turn
        while known <= count:
            more = min(known, count + 1 - known)
            powers[known : known + more] = powers[:more][:, turn]
            known += more
            turn = turn[turn]
        self._now = powers[count]
        return self._addresses[powers[:count]]

    def events(self, log: Ints, addresses: Ints) -> Ints:
        """The address of each event of the log, in the iterations whose addresses `next` gave."""
        ordered = self._addresses[self._order]
        at = np.minimum(np.searchsorted(ordered, log[:, 2]), len(ordered) - 1)
        if not len(ordered) or (ordered[at] != log[:, 2]).any():
            raise NotAlikeError
        found: Ints = addresses[:, self._order[at]]
        return found

    def begin(self, held: dict[int, Block]) -> None:
        """The blocks behind the handles, as they are now."""
        self._held = held

    def settle(self, pool: ScratchPool) -> dict[int, Block]:
        """Move the blocks behind handles, and those on shelves, to where they are now; those behind handles."""
        for slot, addr in zip(self._slots, self._addresses[self._now].tolist(), strict=True):
            if slot[0] == "held":
                self._held[slot[1]].addr = addr
            elif slot[0] == "free":
                pool._shelves[slot[1]][slot[2]].addr = addr
        pool._blocks = {block.addr: block for block in pool._blocks.values()}
        return self._held


class Replaying:
    """Allocations and releases done again. A column is an allocation of the iteration, or a block held before it."""

    def __init__(self, pool: ScratchPool, noted: Ints, before: dict[Slot, int], after: dict[Slot, int]):
        self._pool = pool
        self._log = log = noted.tolist()
        held = {slot[1]: address for slot, address in before.items() if slot[0] == "held"}
        self._held = list(held)
        self._first_held = sum(nbytes >= 0 for *_, nbytes in log)
        # what each address is, as the iteration goes on
        self._at = {address: self._first_held + i for i, address in enumerate(held.values())}
        self._start = dict(self._at)
        self._events = self._as_events()
        final = {slot[1]: address for slot, address in after.items() if slot[0] == "held"}
        if final.keys() != held.keys():
            raise NotAlikeError
        self._end = [self._at[final[number]] for number in self._held]
        self._blocks: list[Block] = []

    def _as_events(self) -> list[tuple[int, int]]:
        """(column, bytes) for each allocation and release."""
        events, made = [], 0
        for *_, address, nbytes in self._log:
            if nbytes >= 0:
                self._at[address] = made
                events.append((made, nbytes))
                made += 1
            elif address in self._at:
                events.append((self._at.pop(address), -1))
            else:
                raise NotAlikeError
        return events

    def sources(self, steps: Ints, views: bool, addresses: Ints) -> tuple[Ints, Ints]:
        """For each address, that a row (or view) of number `steps` has: its column, -1 where it stays; the offset."""
        at, sizes, position = dict(self._start), {}, 0
        columns, offsets = np.full(len(addresses), -1), np.zeros(len(addresses), np.int64)
        made = 0
        for i, (step, address) in enumerate(zip(steps.tolist(), addresses.tolist(), strict=True)):
            while position < len(self._log) and self._log[position][views] <= step:
                *_, where, nbytes = self._log[position]
                if nbytes >= 0:
                    at[where], sizes[where] = made, nbytes
                    made += 1
                else:
                    at.pop(where, None)
                position += 1
            if address in at:
                columns[i] = at[address]
            elif views:
                columns[i], offsets[i] = self._around(at, address)
        return columns, offsets

    def events(self, log: Ints, addresses: Ints) -> Ints:
        """The address of each event of the log, in the iterations whose addresses `next` gave."""
        found: Ints = addresses[:, [column for column, _ in self._events]]
        return found

    def _around(self, at: dict[int, int], address: int) -> tuple[int, int]:
        """The block that a view lies inside of."""
        low = max((begin for begin in at if begin <= address), default=None)
        block = None if low is None else self._pool._blocks.get(low)
        if low is None or (block is not None and address >= low + block.nbytes):
            return -1, 0
        return at[low], address - low

    def begin(self, held: dict[int, Block]) -> None:
        """The blocks behind the handles, as they are now."""
        self._blocks = [held[number] for number in self._held]

    def next(self, count: int) -> Ints:
        """Do it `count` times; the addresses of the columns, a row for each time."""
        pool, events, end, blocks = self._pool, self._events, self._end, self._blocks
        first = self._first_held
        found: list[int] = []
        for _ in range(count):
            held = [block.addr for block in blocks]
            made: list[Any] = [None] * first + blocks
            found += pool.again(events, made)[:first] + held
            blocks = [made[column] for column in end]
        self._blocks = blocks
        return np.array(found, np.int64).reshape(count, first + len(blocks))

    def settle(self, pool: ScratchPool) -> dict[int, Block]:
        """The blocks that are behind the handles now."""
        return dict(zip(self._held, self._blocks, strict=True))
