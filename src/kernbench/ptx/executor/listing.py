"""Rows as text, the same for the same rows, so that two programs can be compared line by line."""

from collections.abc import Iterator
from textwrap import wrap

import numpy as np

from kernbench.ptx.emulator.lanes.slots import ArgumentSlot, ConstantSlot, Slot, SpecialSlot, SymbolSlot
from kernbench.ptx.emulator.program.program import Program, Site
from kernbench.ptx.executor.compiling import Warpwide
from kernbench.ptx.executor.ops import flow
from kernbench.ptx.executor.ops.layout import IMMEDIATE, OPERANDS, RECORD_BYTES, SITE
from kernbench.ptx.executor.rows import Rows

_WIDTH = 120
_BRANCH = Warpwide(flow.branch).name.split()[0]
_OPERATIONS = f"{flow.__name__.rpartition('.')[0]}."


def listing(program: Program, rows: Rows) -> list[str]:
    """The rows of a program, block by block: operation, operands, immediate, and the line of the instruction.

    Offsets of registers are their names, constants their bits and type, and branches name blocks. An immediate of 0 is
    left out.
    """
    return list(_Listing(program, rows).lines())


class _Listing:
    def __init__(self, program: Program, rows: Rows):
        self._rows, self._sites = rows, program.sites
        self._called = {at: _called(slot) for at, slot in rows.values} | dict(rows.names.registers)
        self._blocks = dict(rows.names.blocks)

    def lines(self) -> Iterator[str]:
        for number, operation in enumerate(self._rows.operations.tolist()):
            if number in self._blocks:
                # its row has nothing but the number, or -1
                left_out = "" if self._word(number, IMMEDIATE) >= 0 else ": lanes only end here, which is not counted"
                yield f"block {self._blocks[number]}{left_out}"
            else:
                text = self._text(number, self._rows.known[operation].name)
                yield from wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="      ", break_on_hyphens=False)

    def _text(self, number: int, operation: str) -> str:
        immediate, site = self._word(number, IMMEDIATE), self._word(number, SITE)
        if operation.startswith(_BRANCH):
            to = f"to block {self._blocks[number + immediate // RECORD_BYTES]}"
        else:
            to = f"immediate {immediate}" if immediate else ""
        parts = [operation.removeprefix(_OPERATIONS), ", ".join(self._operands(number)), to]
        return " | ".join([*filter(None, parts), *([_shown(self._sites[site])] if site >= 0 else [])])

    def _operands(self, number: int) -> Iterator[str]:
        registers, count = self._rows.names.counts[number].tolist()
        found = self._rows.code[number, OPERANDS : OPERANDS + 4 * count].view(np.uint32).tolist()
        yield from (self._called.get(offset, f"offset {offset}") for offset in found[:registers])
        yield from (f"number {one}" for one in found[registers:])

    def _word(self, number: int, at: int) -> int:
        return int(self._rows.code[number, at : at + 8].view(np.int64)[0])


def _called(slot: Slot) -> str:
    match slot:
        case ConstantSlot():
            return f"{slot.bits:#x}:{_type(slot.dtype)}"
        case ArgumentSlot():
            return f"[{slot.name}+{slot.offset}]:{_type(slot.dtype)}"
        case SymbolSlot():
            return f"&{slot.name}+{slot.offset}"
        case SpecialSlot():
            return f"{slot.name}:{_type(slot.dtype)}"
    raise TypeError(f"{slot} is a register")


def _type(bank: str) -> str:
    return bank.replace("uint", "u")


def _shown(site: Site) -> str:
    return f"line {site.line}: {' '.join(site.text.split())}"
