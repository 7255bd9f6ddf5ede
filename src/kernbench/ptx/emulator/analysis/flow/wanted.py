"""Dead slots after steps that whole warps have run: their values need not be stored."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property

from kernbench.ptx.emulator.analysis.flow.dataflow import bits, live_at_blocks
from kernbench.ptx.emulator.instructions.decode import Body
from kernbench.ptx.emulator.lanes.slots import RegisterSlot, SlotTable
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.scopes import Register
from kernbench.ptx.emulator.program.steps import Step

# a block and one of its steps
Where = tuple[int, int]
# steps of a block, with the index of each one's instruction; negative for steps without one
Owned = Callable[[int], tuple[Sequence[Step], Sequence[int]]]


def rows_of(registers: list[Register]) -> Iterator[tuple[str, int]]:
    """The rows of registers, with their banks."""
    return ((one.bank, row) for one in registers for row in range(one.row, one.row + one.rows))


class Wanted:
    """Liveness in one function.

    Result registers are read by the caller, checkpoints may read any register of the function, and asynchronous work
    reads registers later than its instruction.
    """

    def __init__(self, body: Body, owned: Owned):
        self._body, self._owned = body, owned

    @cached_property
    def _live(self) -> list[int]:
        return live_at_blocks(self._body)

    @cached_property
    def _registers(self) -> dict[tuple[str, int], int]:
        """Registers of the text, by row."""
        found: dict[tuple[str, int], int] = {}
        for decoding in self._decodings():
            for register in (*decoding.reads, *decoding.writes):
                for row in rows_of([register]):
                    found[row] = found.get(row, 0) | 1 << register.number
        return found

    @cached_property
    def _kept(self) -> int:
        """Registers that are live everywhere; the addresses that a waiting loop has read are needed for reports."""
        found = 0
        for decoding in self._decodings():
            found |= bits(decoding.address_reads)
            if decoding.effects.asynchronous:
                found |= bits(decoding.reads) | bits(decoding.writes)
        for spec in [self._table.slots[slot] for slot in self._body.code.formals.values()]:
            if isinstance(spec, RegisterSlot):
                found |= self._registers.get((spec.bank, spec.row), 0)
        return found

    @cached_property
    def _table(self) -> SlotTable:
        return next(self._decodings()).table

    def _decodings(self) -> Iterator[Decoding]:
        return (decoding for decodings in self._body.decodings for decoding in decodings)

    def dead(self, begin: Where, end: Where, exchanged: Sequence[int] = ()) -> frozenset[int]:
        """Slots that the steps from `begin` on write, or that are exchanged, and nothing reads from `end` on."""
        blocks = range(begin[0], end[0] + 1)
        if self._body.looked_at or any(owner < 0 for block in blocks for owner in self._owned(block)[1]):
            return frozenset()
        steps, owners = self._owned(end[0])
        # the instruction of the last step may have more steps
        cut = 0 < end[1] < len(owners) and owners[end[1]] == owners[end[1] - 1]
        rest = owners[end[1] - 1] + (0 if cut else 1) if end[1] else 0
        live = self._live_before(end[0], rest) | self._kept
        found = {slot for slot in exchanged if self._is_unread(slot, live, False)}
        for block in blocks:
            steps, owners = self._owned(block)
            first = begin[1] if block == begin[0] else 0
            last = end[1] if block == end[0] else len(steps)
            for step, owner in zip(steps[first:last], owners[first:last], strict=True):
                relaxed = step.computed is not None and step.computed.relaxed
                item = step.computed if step.loaded is None else step.loaded
                own = relaxed and (block < end[0] or owner < rest)
                targets = () if item is None else item.targets
                found.update(slot for slot in targets if self._is_unread(slot, live, own))
        return frozenset(found)

    def _live_before(self, block: int, instruction: int) -> int:
        live = 0
        for following in self._body.edges[block]:
            live |= self._live[following]
        for decoding in reversed(self._body.decodings[block][instruction:]):
            if decoding.instruction.guard is None:
                live &= ~bits(decoding.writes)
            live |= bits(decoding.reads)
        return live

    def _is_unread(self, slot: int, live: int, own: bool) -> bool:
        """Whether a slot is dead; `own` says that temporaries are read only by their own instruction."""
        spec = self._table.slots[slot]
        if not isinstance(spec, RegisterSlot):
            return False
        registers = self._registers.get((spec.bank, spec.row), 0)
        return not registers & live if registers else own
