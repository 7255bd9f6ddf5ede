"""Chains: consecutive arithmetic steps, loads and exchanges of whole warps, across basic blocks, as one call.

Like runs they are interpreted step by step until machine code pays. If a load has a fault, the call does nothing, and
the steps run one by one and report it; so the findings are theirs.
"""

from typing import NamedTuple

import numpy as np

from kernbench.common.native.machine import Code
from kernbench.ptx.emulator.fused import chain_code, code
from kernbench.ptx.emulator.fused.chain_code import Item, Part
from kernbench.ptx.emulator.fused.runs import Costs
from kernbench.ptx.emulator.program.steps import AnyWindow, Computed, Direct, Exchanged, Step

_NO_PLAN, _NO_MEMORY = np.zeros(0, np.uint64), np.zeros(0, np.uint8)
# after this many more calls with faults than half as many without, the chain is no longer tried
_PATIENCE = 32


class Left(NamedTuple):
    """How far a chain came: the number of blocks completed, and the remaining steps of the next one."""

    block: int
    steps: tuple[Direct, ...]


class _Made(NamedTuple):
    """A part with its machine code, None for a single step."""

    part: Part
    code: Code | None


class Chain:
    """Steps at the end of a block, and at the beginning of later blocks, with exchanges that end blocks between them.

    `pieces` are the steps of each block, `exchanges` the exchanges between them; `dead` slots are not read afterwards.
    `first` is the index of the block's first fused step that belongs to the chain, `last` the number of such steps in
    the last block.
    """

    def __init__(
        self,
        pieces: tuple[tuple[Step, ...], ...],
        exchanges: tuple[Exchanged, ...],
        dead: frozenset[int],
        first: int,
        last: int,
        sites: int,
    ):
        self.pieces, self.exchanges, self.dead = pieces, exchanges, dead
        self.first, self.last = first, last
        # number of instructions of all its blocks but the first
        self.sites = sites
        self._items, self._owners = _listed(pieces, exchanges)
        self._costs = Costs(len(self._items))
        self._parts: list[Part] | None = None
        self._made: tuple[_Made, ...] | None = None
        self._refused = 0

    def __reduce__(self) -> tuple[object, ...]:
        return Chain, (self.pieces, self.exchanges, self.dead, self.first, self.last, self.sites)

    @property
    def further(self) -> int:
        """The number of blocks after the first."""
        return len(self.exchanges)

    def run(self, window: AnyWindow) -> Left | None:
        """Run it for all lanes of a run of warps; None if nothing was done."""
        if self._made is None and not self._is_made(window):
            return None
        if self._refused > _PATIENCE:
            return None
        assert self._made is not None
        for number, (part, made) in enumerate(self._made):
            if made is None and isinstance(self._items[part.begin], Computed):
                self._step(part.begin).direct(window)
            elif made is None or not self._is_done(made, part, window):
                return self._left(part.begin) if number else None
        self._refused = max(self._refused - 1, 0)
        return Left(self.further, ())

    def _is_done(self, made: Code, part: Part, window: AnyWindow) -> bool:
        given: tuple[object, ...] | None = (_NO_PLAN, _NO_MEMORY, _NO_MEMORY)
        if part.loads:
            given = window.batch.port.plain_loads(part.loads, window)
        assert part.written is not None
        specials = [window.rows[slot] for slot in part.written.specials]
        if given is not None and made(window.layout, *given, *specials) == 1:
            return True
        self._refused += 2
        return False

    def _left(self, item: int) -> Left:
        """The steps that remain from an item on, to the end of its block."""
        block = self._owners[item][0]
        behind = [owner for owner in self._owners[item:] if owner[0] == block and owner[1] >= 0]
        return Left(block, tuple(self.pieces[block][number].direct for _, number in behind))

    def _step(self, item: int) -> Step:
        block, number = self._owners[item]
        return self.pieces[block][number]

    def _is_made(self, window: AnyWindow) -> bool:
        """Count the cost of running step by step; returns whether there is machine code, made if it pays by now."""
        if not self._costs.are_enough(window.size) or not code.is_possible():
            return False
        if self._parts is None:
            slots, state = window.batch.table.slots, window.batch.port.written
            self._parts = chain_code.parts_of(slots, self._items, self.dead, state)
            self._costs.price = sum(part.written.price for part in self._parts if part.written is not None)
        make = self._costs.pay
        made = []
        for part in self._parts:
            found = None if part.written is None else code.machine_code(part.written, make)
            if part.written is not None and found is None:
                self._costs.wait(make)
                return False
            made.append(_Made(part, found))
        self._made = tuple(made)
        return True


def _listed(
    pieces: tuple[tuple[Step, ...], ...], exchanges: tuple[Exchanged, ...]
) -> tuple[list[Item], list[tuple[int, int]]]:
    """All items in order, each with its block and its index there; -1 for an exchange, which ends its block."""
    items: list[Item] = []
    owners: list[tuple[int, int]] = []
    for block, steps in enumerate(pieces):
        for number, step in enumerate(steps):
            item = step.computed if step.loaded is None else step.loaded
            assert item is not None
            items.append(item)
            owners.append((block, number))
        if block < len(exchanges):
            items.append(exchanges[block])
            owners.append((block, -1))
    return items, owners


class Stretch:
    """Arithmetic steps and loads of one block: a chain, or its plain steps as long as a chain does not pay."""

    def __init__(self, chain: Chain, plain: tuple[Direct, ...]):
        self._chain, self._plain = chain, plain

    def __reduce__(self) -> tuple[object, ...]:
        return Stretch, (self._chain, self._plain)

    def direct(self, window: AnyWindow) -> None:
        """Run for all lanes of a window of a run of warps."""
        left = self._chain.run(window)
        for step in self._plain if left is None else left.steps:
            step(window)
