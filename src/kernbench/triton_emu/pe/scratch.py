"""Scratch memory of one PE: values get space when made and give it back when no handle refers to them any more.

Freed space is reused by exact size first, the longest free block before others (its last reader is the likeliest to be
done, so that engines wait less for each other), then from the gaps between live blocks, lowest address first.

The same kernel gets the same addresses with every Python (docs/adr/0040). Which handles end between two allocations is
up to the kernel, in which order is up to the interpreter: their blocks are reused oldest value first. Handles that only
Python's collector of cycles finds dead give their space back when the memory is full.
"""

import gc
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from kernbench.common.errors import MisuseError
from kernbench.safety.collector import collecting

__kernbench_internal__ = True

ALIGNMENT = 64
# a plain constructor would double the cost of an allocation, which every command has
_new_block = object.__new__
_address = attrgetter("addr")
# moments that follow each other on a shelf, and in each the numbers of values
_age = attrgetter("freed", "number")
# positions from the end of a shelf that are looked at one by one
_NEAR = -6


# what the log of a pool consists of
Noted = tuple[int, int, int, int] | NDArray[np.int64]


class Counts(Protocol):
    """How many commands and views a program has recorded so far."""

    steps: int
    _views_made: int


class Block:
    """One allocation. `users` counts the handles on it, 0 while it is free; `data` is the array of the value that owns
    it, `number` its handle number, `used` its bytes, `shelf` where it waits for its next use since the moment `freed`.

    `live_in` is the pool while the value is there, None once another value took over its space in place (`replaced`).
    `sends` are asynchronous sends still reading it, `arriving` the receive that will fill it; a `pinned` block is never
    given back.
    """

    __slots__ = (
        "addr",
        "arriving",
        "data",
        "freed",
        "live_in",
        "nbytes",
        "number",
        "pinned",
        "pool",
        "replaced",
        "sends",
        "shelf",
        "used",
        "users",
    )

    addr: int
    arriving: Any
    nbytes: int
    data: Any
    freed: int
    number: int
    pool: "ScratchPool"
    live_in: "ScratchPool | None"
    pinned: bool
    replaced: bool
    shelf: "deque[Block]"
    used: int
    sends: tuple[object, ...]
    users: int


class ScratchPool:
    """Hands out blocks of [base, base + size). Past the end it goes on handing out, and calls `on_overflow` first."""

    def __init__(
        self,
        base: int,
        size: int,
        location_of: Callable[[Any], Any],
        on_overflow: Callable[[int], None],
        context: Counts | None = None,
    ):
        if base < 0 or size < 0:
            raise MisuseError(f"scratch_base and scratch_size must not be negative; got {base} and {size}")
        self.base = base
        self.size = size
        self._end = base + size
        self.location_of = location_of
        self.context = context
        self.used = 0
        self.peak = 0
        self._on_overflow = on_overflow
        # moves on with each allocation
        self.moment = 0
        # blocks whose handles Python's collector found dead, which runs when it likes
        self._found: list[Block] = []
        # free blocks by their size; the same shelves by the bytes that were asked for
        self._shelves: dict[int, deque[Block]] = {}
        self._shelf_for: dict[int, deque[Block]] = {}
        self._gaps: list[tuple[int, int]] = [(base, base + size)]
        # by address: live blocks, and free ones until their space is merged into a gap
        self._blocks: dict[int, Block] = {}
        self._collections_left = 3
        # the smallest size that found no room since space was last given back
        self._too_large = 1 << 62
        # how often space came from gaps, where it depends on what lies around, and not from a shelf
        self.searches = 0
        # while loops are watched: (commands and views so far, address, bytes; -1 where it is given back), or many of
        # them as rows of an array
        self.log: list[Noted] = []
        # of that, what was given back since the last allocation: handle numbers and addresses
        self._given_back: list[tuple[int, int]] = []
        # whether blocks came to shelves by an order of somebody else's
        self._is_out_of_order = False
        # shelves that whoever makes a value takes blocks from without asking; none while allocations are noted
        self.at_hand = self._shelf_for
        # blocks past the end live here, out of the way of every real address
        self._beyond = base + size + (1 << 36)

    def allocate(self, nbytes: int) -> Block:
        """A block of `nbytes`, rounded up to the alignment."""
        self.moment += 1
        shelf = self._shelf_for.get(nbytes)
        if shelf:
            block = shelf.popleft()
            block.users = 1
        else:
            block = self._first_of(nbytes)
        block.used = nbytes
        self.used = used = self.used + block.nbytes
        if used > self.peak:
            self.peak = used
        return block

    def _first_of(self, nbytes: int) -> Block:
        """A block when the shelf is empty, or nobody asked for so many bytes yet."""
        size = (nbytes + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT or ALIGNMENT
        shelf = self._shelf_for[nbytes] = self._shelves.setdefault(size, deque())
        if shelf:
            block = shelf.popleft()
            block.users = 1
            return block
        addr = self._from_gaps(size)
        block = self._blocks[addr] = self._block(addr, size)
        # space past the end is not used twice
        block.shelf = shelf if addr < self._end else deque(maxlen=0)
        return block

    def _block(self, addr: int, nbytes: int) -> Block:
        block: Block = _new_block(Block)
        block.pool = block.live_in = self
        block.addr = addr
        block.nbytes = nbytes
        block.users = 1
        block.replaced = False
        block.pinned = False
        block.sends = ()
        block.arriving = None
        block.number = block.freed = -1
        return block

    def release(self, block: Block) -> None:
        """Take back a block nobody refers to; the object itself serves again with its space."""
        if block.pinned or collecting:
            block.users = 1
            if not block.pinned:
                self._found.append(block)
            return
        self.used -= block.nbytes
        block.users = 0
        block.data = None
        block.sends = ()
        block.arriving = None
        block.freed = now = self.moment
        shelf = block.shelf
        if shelf and (last := shelf[-1]).freed == now and last.number > block.number:
            self._shelve_in_order(block)
        else:
            shelf.append(block)
        self._too_large = 1 << 62

    def _shelve_in_order(self, block: Block) -> None:
        """Put a block among those that were given back since the last allocation, oldest value first.

        Not lowest address first: alike iterations have alike values, but may have them elsewhere.
        """
        shelf, moment, number = block.shelf, block.freed, block.number
        at, before = -1, len(shelf) - 1
        while before and (other := shelf[at - 1]).freed == moment and other.number > number:
            at, before = at - 1, before - 1
            if at == _NEAR and not self._is_out_of_order:
                # Python drops the elements of a list from its end: of many, each belongs before all others
                at = bisect_right(shelf, (moment, number), hi=before, key=_age) - len(shelf)
                break
        shelf.insert(at, block)

    def again(self, events: list[tuple[int, int]], blocks: list[Block]) -> list[int]:
        """Allocations and releases that were made before, done again in the same order; the address of each allocation.

        Events are (index, bytes), -1 for a release: the block of an allocation comes to `blocks[index]`, that of a
        release is taken from there, and given back after all others: the caller knows the order. As `allocate` and
        `release` would do it, in a loop that calls neither.
        """
        self._is_out_of_order = True
        known, used, peak, has_room = self._shelf_for.get, self.used, self.peak, False
        addresses = [0] * len(blocks)
        for index, nbytes in events:
            if nbytes < 0:
                block = blocks[index]
                used -= block.nbytes
                block.users = 0
                block.data = block.arriving = None
                block.sends = ()
                block.shelf.append(block)
                has_room = True
                continue
            shelf = known(nbytes)
            if shelf:
                block = shelf.popleft()
                block.users = 1
            else:
                self.used, self.peak = used, peak
                self._too_large = 1 << 62 if has_room else self._too_large
                block, has_room = self._first_of(nbytes), False
                used = self.used
            block.used = nbytes
            used += block.nbytes
            if used > peak:
                peak = used
            blocks[index], addresses[index] = block, block.addr
        self.used, self.peak, self.moment = used, peak, self.moment + 1
        self._too_large = 1 << 62 if has_room else self._too_large
        return addresses

    def settle(self) -> None:
        """What was given back so far comes before what is given back from now on, as after an allocation."""
        self.moment += 1

    def block_at(self, addr: int, nbytes: int) -> Block | None:
        """The live block that holds [addr, addr + nbytes)."""
        block = self._blocks.get(addr)
        if block is not None and block.users and nbytes <= block.nbytes:
            return block
        return next((b for b in self._live() if b.addr <= addr and addr + nbytes <= b.addr + b.nbytes), None)

    def replace(self, block: Block) -> Block:
        """A new block in the place of a live one, which is marked as replaced and has nothing to give back."""
        fresh = self._blocks[block.addr] = self._block(block.addr, block.nbytes)
        fresh.shelf = block.shelf
        fresh.pinned = block.pinned
        block.replaced = block.pinned = True
        block.live_in = None
        return fresh

    def _live(self) -> Iterator[Block]:
        return (block for block in self._blocks.values() if block.users)

    def live(self) -> Iterator[Block]:
        """Blocks in use, largest first."""
        return iter(sorted(self._live(), key=lambda b: (-b.nbytes, b.addr)))

    def start_log(self) -> None:
        """Note each allocation and release from now on, until `stop_log`."""
        # on the object, so that those who are not watched pay nothing
        self.at_hand = {}
        self.allocate = self._allocate_noted  # type: ignore[method-assign]
        self.release = self._release_noted  # type: ignore[method-assign]
        self.settle = self._settle_noted  # type: ignore[method-assign]

    def stop_log(self) -> None:
        """Note nothing any more."""
        self.log.clear()
        self._given_back.clear()
        self.at_hand = self._shelf_for
        del self.allocate, self.release, self.settle

    def _allocate_noted(self, nbytes: int) -> Block:
        context = self.context
        assert context is not None
        if self._given_back:
            self._note_given_back()
        block = ScratchPool.allocate(self, nbytes)
        self.log.append((context.steps, context._views_made, block.addr, nbytes))
        return block

    def _release_noted(self, block: Block) -> None:
        if not block.pinned and not collecting:
            self._given_back.append((block.number, block.addr))
        ScratchPool.release(self, block)

    def _settle_noted(self) -> None:
        if self._given_back:
            self._note_given_back()
        ScratchPool.settle(self)

    def _note_given_back(self) -> None:
        """In the order in which it will be used again."""
        assert self.context is not None
        given_back, steps, views = self._given_back, self.context.steps, self.context._views_made
        given_back.sort()
        for _, addr in given_back:
            self.log.append((steps, views, addr, -1))
        given_back.clear()

    def _from_gaps(self, size: int) -> int:
        self.searches += 1
        addr = None if size >= self._too_large else self._room_for(size)
        if addr is None:
            self._too_large = min(self._too_large, size)
            self._on_overflow(size)
            addr = self._beyond
            self._beyond += size
        return addr

    def _room_for(self, size: int) -> int | None:
        addr = self._first_fit(size)
        if addr is None:
            self._collect_gaps()
            addr = self._first_fit(size)
        if addr is None and self._collections_left:
            # handles in reference cycles may be dead already; looking for them is slow, so not for ever
            self._collections_left -= 1
            gc.collect()
            self._release_found()
            self._collect_gaps()
            addr = self._first_fit(size)
        return addr

    def _release_found(self) -> None:
        """Take back what the collector has found, now or earlier."""
        found, self._found = self._found, []
        for block in found:
            block.users -= 1
            if not block.users:
                self.release(block)

    def _first_fit(self, size: int) -> int | None:
        for i, (start, end) in enumerate(self._gaps):
            if end - start >= size:
                self._gaps[i] = (start + size, end)
                return start
        return None

    def _collect_gaps(self) -> None:
        """Forget the free blocks and merge all free space into gaps."""
        for shelf in self._shelves.values():
            shelf.clear()
        live = sorted([block for block in self._blocks.values() if block.users], key=_address)
        self._blocks = {block.addr: block for block in live}
        self._gaps = []
        cursor = self.base
        for block in live:
            addr = block.addr
            if addr >= self._end:
                break
            if addr > cursor:
                self._gaps.append((cursor, addr))
            cursor = addr + block.nbytes
        self._gaps.append((cursor, self._end))

    def largest_gap(self) -> int:
        """The largest block that would still fit."""
        self.searches += 1
        self._collect_gaps()
        return max(end - start for start, end in self._gaps)
