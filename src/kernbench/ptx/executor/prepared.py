"""What launches of a program share: its code with the addresses of operations, and the registers that never change."""

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.slots import ConstantSlot, Slot, SpecialSlot
from kernbench.ptx.emulator.program.program import Program
from kernbench.ptx.executor.compiling import addresses
from kernbench.ptx.executor.ops import layout
from kernbench.ptx.executor.ops.layout import LANES
from kernbench.ptx.executor.ops.running_blocks import PROCESSOR, X, Y, Z
from kernbench.ptx.executor.rows import Rows, UnsupportedError

_COORDINATES = {"%ctaid.x": X, "%ctaid.y": Y, "%ctaid.z": Z, "%smid": PROCESSOR}


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A program's rows, ready to run.

    - `code`: the records, with the addresses of their operations.
    - `registers`: the registers of a warp, with the constants.
    - `given`: values of a launch that differ from launch to launch, each with the offset of its row.
    - `coordinates`: special registers that differ between blocks: the offset, which it is, and its bytes.
    """

    code: Array
    entry: int
    registers: Array
    given: tuple[tuple[int, Slot], ...]
    coordinates: Array


_PREPARED: "WeakKeyDictionary[Program, Prepared]" = WeakKeyDictionary()


def prepared(program: Program, rows: Rows) -> Prepared:
    """The rows of a program, ready to run; raises `UnsupportedError`, and errors of the compiler."""
    found = _PREPARED.get(program)
    if found is None:
        found = _PREPARED[program] = _prepared(rows)
    return found


def _prepared(rows: Rows) -> Prepared:
    code = rows.code.copy()
    found = np.array(addresses(rows.known), np.uint64)
    code[: len(rows.operations), :8] = found[rows.operations].reshape(-1, 1).view(np.uint8)
    registers: Array = np.zeros(-(-rows.nbytes // 64) * 64 + 128, np.uint8)
    given, coordinates = [], []
    for offset, slot in rows.values:
        if isinstance(slot, ConstantSlot):
            row_of(registers, offset, slot.dtype)[:] = slot.bits
        elif isinstance(slot, SpecialSlot) and slot.name in _COORDINATES:
            coordinates.append([offset, _COORDINATES[slot.name], _bytes_of(slot)])
        else:
            given.append((offset, slot))
    where: Array = np.array(coordinates, np.int64).reshape(-1, 3)
    return Prepared(code, code.ctypes.data + rows.entry * layout.RECORD_BYTES, registers, tuple(given), where)


def row_of(registers: Array, offset: int, dtype: str) -> Array:
    """The row at an offset of the registers of a warp, or of several ones."""
    found: Array = registers[..., offset : offset + LANES * np.dtype(dtype).itemsize].view(dtype)
    return found


def _bytes_of(slot: SpecialSlot) -> int:
    nbytes = np.dtype(slot.dtype).itemsize
    if nbytes not in (4, 8):
        raise UnsupportedError(f"{slot.name} as {slot.dtype}")
    return nbytes
