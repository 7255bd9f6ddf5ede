"""Slots: what an operation can read or write, numbered once per program.

A slot is a register, a constant, a special register, a symbol's address or a value of the kernel's parameters. A window
has one array of unsigned bits for each slot, so a decoded operation is a function and a few slot numbers.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.arrays import Int64s

BANKS = ("bool", "uint8", "uint16", "uint32", "uint64")


@dataclass(frozen=True, slots=True)
class RegisterSlot:
    """Row `row` of `bank`."""

    bank: str
    row: int

    @property
    def dtype(self) -> str:
        """The NumPy type of the row's bits."""
        return self.bank


@dataclass(frozen=True, slots=True)
class ConstantSlot:
    """A value that every lane reads; `spread` gives it a full row, for functions that take only rows."""

    bits: int
    dtype: str
    spread: bool = False


@dataclass(frozen=True, slots=True)
class SpecialSlot:
    """A special register, read as `dtype`."""

    name: str
    dtype: str


@dataclass(frozen=True, slots=True)
class SymbolSlot:
    """An address fixed at launch, plus `offset`: of a variable of `space`, or of the frame of function `name`."""

    space: str
    name: str
    offset: int
    dtype: str = "uint64"


@dataclass(frozen=True, slots=True)
class ArgumentSlot:
    """A value at `offset` of parameter `name`, which every lane reads: a row of a table filled at launch."""

    row: int
    name: str
    offset: int
    dtype: str


# bytes of a row of that table
ARGUMENT_BYTES = 64

Slot = RegisterSlot | ConstantSlot | SpecialSlot | SymbolSlot | ArgumentSlot


class SlotTable:
    """Numbers slots and the rows of the register banks, until it is closed."""

    def __init__(self) -> None:
        self.slots: list[Slot] = []
        self.rows: dict[str, int] = dict.fromkeys(BANKS, 0)
        # slots of parameter values, by parameter, offset and type
        self.arguments: dict[tuple[str, int, str], ArgumentSlot] = {}
        self._numbers: dict[Slot, int] = {}
        self._closed = False

    def close(self) -> None:
        """Close the table: the program is decoded, and gets no more slots and rows."""
        self._closed = True

    def new_row(self, bank: str, count: int = 1) -> int:
        """Allocate `count` rows of a bank, and return the first."""
        assert not self._closed, "a program that is decoded gets no more rows"
        row = self.rows[bank]
        self.rows[bank] = row + count
        return row

    def number(self, slot: Slot) -> int:
        """The slot's number."""
        known = self._numbers.get(slot)
        if known is not None:
            return known
        assert not self._closed, f"a program that is decoded gets no more slots: {slot}"
        number = self._numbers[slot] = len(self.slots)
        self.slots.append(slot)
        return number

    def argument(self, name: str, offset: int, dtype: str) -> int:
        """The slot of a value at an offset of a kernel's parameter."""
        key = name, offset, dtype
        if key not in self.arguments:
            self.arguments[key] = ArgumentSlot(len(self.arguments), *key)
        return self.number(self.arguments[key])

    def constant(self, bits: int, dtype: str) -> int:
        """The slot of a constant given by its bits."""
        return self.number(ConstantSlot(bits & ((1 << _bits(dtype)) - 1), dtype))

    def spread(self, slot: int) -> int:
        """The slot of a constant with a full row; any other slot unchanged."""
        found = self.slots[slot]
        if isinstance(found, ConstantSlot):
            return self.number(ConstantSlot(found.bits, found.dtype, True))
        return slot


def numbers_of(registers: Sequence[tuple[str, int]]) -> Int64s:
    """Distinct numbers for registers, by bank and row, the same for all programs."""
    return np.array([row * len(BANKS) + BANKS.index(bank) for bank, row in registers], np.int64)


def _bits(dtype: str) -> int:
    return 1 if dtype == "bool" else 8 * int(np.dtype(dtype).itemsize)


def constant_array(bits: int, dtype: str) -> Array:
    """A zero-dimensional array of `dtype` with these bits."""
    if dtype == "bool":
        return np.array(bool(bits))
    return np.array(bits, dtype)
