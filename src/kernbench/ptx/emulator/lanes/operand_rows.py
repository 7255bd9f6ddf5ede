"""The operands of an instruction that few lanes run: one loop reads them all, whatever their kinds of slots.

An asynchronous operation, begun by one lane of a block, has up to ten operands. Reading each by several NumPy functions
over rows of one entry would take longer than the operation itself.
"""

from collections.abc import Sequence

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.arrays import Bools, Int64s, UInt32s, UInt64s
from kernbench.ptx.emulator.lanes.compiled import kernel
from kernbench.ptx.emulator.lanes.slots import ConstantSlot, RegisterSlot, SlotTable
from kernbench.ptx.emulator.lanes.window import Storage

_NARROW = (1 << 32) - 1
# where a value is: in a slot the loop cannot read, in the plan itself, or in a bank
_ELSEWHERE, _CONSTANT, _BANK32, _BANK64, _FLAGS = range(5)
_BANKS = {"uint32": _BANK32, "uint64": _BANK64, "bool": _FLAGS}


class OperandRows:
    """The address operands of an instruction, and its other operands, which are signed 32-bit numbers.

    Addresses are slots with offsets; 32-bit ones wrap around. Descriptors and predicates are passed as addresses.
    """

    def __init__(self, table: SlotTable, addresses: Sequence[tuple[int, int]], numbers: Sequence[int]):
        self._addresses, self._numbers = tuple(addresses), tuple(numbers)
        slots = [*(slot for slot, _ in addresses), *numbers]
        self._plan: Int64s = np.zeros((len(slots), 3), np.int64)
        for k, number in enumerate(slots):
            slot, offset = table.slots[number], addresses[k][1] if k < len(addresses) else 0
            if isinstance(slot, RegisterSlot):
                self._plan[k] = _BANKS.get(slot.bank, _ELSEWHERE), slot.row, _signed(offset, 64)
            elif isinstance(slot, ConstantSlot):
                value = slot.bits + offset if k < len(addresses) else _signed(slot.bits, 32)
                self._plan[k] = (
                    _CONSTANT,
                    0,
                    _signed(value & _NARROW if slot.dtype == "uint32" and k < len(addresses) else value, 64),
                )
        self._elsewhere = np.flatnonzero(self._plan[:, 0] == _ELSEWHERE).tolist()

    def take(self, batch: Storage, lanes: Array) -> tuple[Array, Array]:
        """Addresses [operands, lanes] as unsigned numbers, and the other operands [lanes, operands] as signed ones."""
        count = len(self._addresses)
        addresses: Array = np.empty((count, len(lanes)), np.uint64)
        numbers: Array = np.empty((len(lanes), len(self._numbers)), np.int64)
        banks = batch.banks
        take_operands(banks["bool"], banks["uint32"], banks["uint64"], self._plan, lanes, addresses, numbers)
        for k in self._elsewhere:
            if k < count:
                slot, offset = self._addresses[k]
                row = _values(batch.row(slot), lanes)
                found = row.astype(np.uint64) + np.uint64(offset)
                addresses[k] = found & np.uint64(_NARROW) if row.dtype == np.uint32 else found
            else:
                row = _values(batch.row(self._numbers[k - count]), lanes)
                numbers[:, k - count] = row.astype(np.uint32).view(np.int32)
        return addresses, numbers


def _signed(value: int, bits: int) -> int:
    """The lowest `bits` bits of a number, as a signed number."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def _values(row: Array, lanes: Array) -> Array:
    """The lanes' values; a single one for a constant."""
    found: Array = row[lanes] if row.ndim else row.reshape(1)
    return found


@kernel
def take_operands(
    flags: Bools,
    bank32: UInt32s,
    bank64: UInt64s,
    plan: Int64s,
    lanes: Int64s,
    addresses: UInt64s,
    numbers: Int64s,
) -> None:
    """Read addresses and numbers of lanes; a row of the plan has the kind, the row in its bank, and what to add."""
    count = addresses.shape[0]
    for k in range(plan.shape[0]):
        kind, row, more = plan[k, 0], plan[k, 1], plan[k, 2]
        for i in range(lanes.size):
            value = more
            if kind == _BANK32:
                value = np.int64(bank32[row, lanes[i]]) + (more if k < count else 0)
                if k < count:
                    value &= _NARROW
                elif value >> 31:
                    value -= 1 << 32
            elif kind == _BANK64:
                value = np.int64(bank64[row, lanes[i]]) + more
            elif kind == _FLAGS:
                value = np.int64(flags[row, lanes[i]])
            if k < count:
                addresses[k, i] = np.uint64(value)
            else:
                numbers[i, k - count] = value
