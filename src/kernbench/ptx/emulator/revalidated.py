"""Loads that only begin a compare-and-swap: a stale value makes the swap fail, so that they need no order of their own.

Such a load's value may be computed with, be what a compare-and-swap of the same place expects or stores, and decide
whether its loop goes round again; nothing else. Data flow follows it from the load on, over the blocks of a function.
"""

from kernbench.ptx.emulator.dataflow import bits
from kernbench.ptx.emulator.decode import Body
from kernbench.ptx.emulator.meanings import lanewise, moves
from kernbench.ptx.emulator.memory.order import Order
from kernbench.ptx.emulator.operands import Decoding

_COMPUTES = frozenset((*lanewise.MEANINGS, *moves.MEANINGS))


def mark_revalidated(body: Body) -> None:
    """Let loads that a compare-and-swap makes good count as strong as that one."""
    swaps = [
        (block, d)
        for block, decodings in enumerate(body.decodings)
        for d in decodings
        if d.resolved.meaning == "atom" and d.mod("op") == "cas"
    ]
    if not swaps:
        return
    for block, decodings in enumerate(body.decodings):
        for place, load in enumerate(decodings):
            if load.resolved.meaning == "ld" and not load.order.scope and load.writes:
                same = [(at, d) for at, d in swaps if _address(d) == _address(load)]
                if same and _Walk(body, same).only_swapped(block, place + 1, bits(load.writes)):
                    load.order = Order(min(d.order.scope for _, d in same))


def _address(d: Decoding) -> tuple[int | None, int]:
    return d.address_slot, d.address_offset


class _Walk:
    """Following one load's value."""

    def __init__(self, body: Body, swaps: list[tuple[int, Decoding]]):
        self._body = body
        self._swaps = [d for _, d in swaps]
        homes = {block for block, _ in swaps}
        # blocks of loops around the swaps, where the value may decide
        self._around = {block for loop in body.order.loops if homes & loop.blocks for block in loop.blocks}
        self._reached = False

    def only_swapped(self, block: int, place: int, followed: int) -> bool:
        """Whether the registers `followed` go nowhere else, and to a swap."""
        after = self._through(block, place, followed)
        if after is None:
            return False
        entering: dict[int, int] = {}
        pending = [(following, after) for following in self._body.edges[block]]
        while pending:
            block, value = pending.pop()
            joined = entering.get(block, 0) | value
            if not value or joined == entering.get(block):
                continue
            entering[block] = joined
            after = self._through(block, 0, joined)
            if after is None:
                return False
            pending += [(following, after) for following in self._body.edges[block]]
        return self._reached

    def _through(self, block: int, place: int, followed: int) -> int | None:
        """The registers that hold the value at the end of a block; None where it goes astray."""
        checked = 0
        for d in self._body.decodings[block][place:]:
            used = bits(d.reads) & followed
            guard = bits([self._guard(d)]) & followed if d.instruction.guard is not None else 0
            if used | guard and not self._allowed(d, block, used, guard):
                return None
            if guard & checked:
                # equal to what the swap found, or to be loaded anew
                return 0
            written = bits(d.writes)
            if used and d.resolved.meaning in _COMPUTES:
                followed |= written
                checked = checked | written if self._compares(d, block) else checked & ~written
            elif d.instruction.guard is None:
                followed &= ~written
        return followed

    def _guard(self, d: Decoding):  # type: ignore[no-untyped-def]
        assert d.instruction.guard is not None
        return d.scope.register(d.instruction.guard.register)

    def _allowed(self, d: Decoding, block: int, used: int, guard: int) -> bool:
        if d.resolved.meaning == "bra":
            return block in self._around
        if guard:
            return False
        if d in self._swaps:
            self._reached = True
            return not used & bits(d.address_reads)
        return d.resolved.meaning in _COMPUTES

    def _compares(self, d: Decoding, block: int) -> bool:
        """Whether a comparison is with what a swap found."""
        found = bits(register for swap in self._swaps for register in swap.writes)
        return d.instruction.opcode == "setp" and bool(bits(d.reads) & found)
