"""What launches of a program share: its code with the addresses of operations, and the registers that never change."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.slots import ConstantSlot, Slot, SpecialSlot
from kernbench.ptx.emulator.program.program import Program
from kernbench.ptx.executor.compiling import addresses
from kernbench.ptx.executor.ops import layout
from kernbench.ptx.executor.ops.layout import LANES
from kernbench.ptx.executor.ops.running_blocks import PROCESSOR, X, Y, Z
from kernbench.ptx.executor.rows import Rows, UnsupportedError

Extent = tuple[int, int, int]
_COORDINATES = {"%ctaid.x": X, "%ctaid.y": Y, "%ctaid.z": Z, "%smid": PROCESSOR}
# special registers of threads, by the number of each thread in its block and the block's extents
_NUMBERS: dict[str, Callable[[Array, Extent], Array]] = {
    "%tid.x": lambda thread, block: thread % block[0],
    "%tid.y": lambda thread, block: thread // block[0] % block[1],
    "%tid.z": lambda thread, block: thread // (block[0] * block[1]),
    "%laneid": lambda thread, block: thread % LANES,
    "%warpid": lambda thread, block: thread // LANES,
}


@dataclass(frozen=True, slots=True, eq=False)
class Warps:
    """The warps of a block of some extents: special registers that number its threads, and the lanes of each warp."""

    block: Extent
    numbers: tuple[tuple[int, Array], ...]
    alive: Array


@dataclass(slots=True, eq=False)
class Prepared:
    """A program's rows, ready to run.

    - `code`: the records, with the addresses of their operations; `entry` is the address of the first.
    - `registers`: the registers of a warp, with the constants.
    - `numbers`: special registers that number a block's threads, each with the offset of its row.
    - `given`: values that differ from launch to launch, each with the offset of its row.
    - `coordinates`: special registers that differ between blocks: the offset, which it is, and its bytes.
    - `warps`: those of the last launch.
    """

    code: Array
    entry: int
    registers: Array
    numbers: tuple[tuple[int, SpecialSlot], ...]
    given: tuple[tuple[int, Slot], ...]
    coordinates: Array
    warps: Warps | None = None

    def warps_of(self, block: Extent) -> Warps:
        """The warps of a block of these extents."""
        found = self.warps
        if found is None or found.block != block:
            found = self.warps = self._warps(block)
        return found

    def _warps(self, block: Extent) -> Warps:
        thread: Array = np.arange(-(-prod(block) // LANES) * LANES).reshape(-1, LANES)
        numbers = tuple((at, _NUMBERS[slot.name](thread, block).astype(slot.dtype)) for at, slot in self.numbers)
        alive: Array = ((thread < prod(block)) << np.arange(LANES)).sum(axis=1)
        return Warps(block, numbers, alive)

    def registers_of(self, warps: Warps) -> Array:
        """The registers of warps as their block begins, a row for each, from an address that is a multiple of 64."""
        shape = len(warps.alive), self.registers.size
        registers: Array = aligned(prod(shape)).reshape(shape)
        registers[:] = self.registers
        for offset, numbers in warps.numbers:
            row_of(registers, offset, numbers.dtype)[:] = numbers
        return registers


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
    numbers, given, coordinates = [], [], []
    for offset, slot in rows.values:
        if isinstance(slot, ConstantSlot):
            row_of(registers, offset, slot.dtype)[:] = slot.bits
        elif isinstance(slot, SpecialSlot) and slot.name in _COORDINATES:
            coordinates.append([offset, _COORDINATES[slot.name], _bytes_of(slot)])
        elif isinstance(slot, SpecialSlot) and slot.name in _NUMBERS:
            numbers.append((offset, slot))
        else:
            given.append((offset, slot))
    where: Array = np.array(coordinates, np.int64).reshape(-1, 3)
    entry = code.ctypes.data + rows.entry * layout.RECORD_BYTES
    return Prepared(code, entry, registers, tuple(numbers), tuple(given), where)


def aligned(nbytes: int) -> Array:
    """Bytes that begin at a multiple of 64."""
    raw = np.empty(nbytes + 64, np.uint8)
    begin = -raw.ctypes.data % 64
    found: Array = raw[begin : begin + nbytes]
    return found


def row_of(registers: Array, offset: int, dtype: npt.DTypeLike) -> Array:
    """The row at an offset of the registers of a warp, or of several ones."""
    found: Array = registers[..., offset : offset + LANES * np.dtype(dtype).itemsize].view(dtype)
    return found


def _bytes_of(slot: SpecialSlot) -> int:
    nbytes = np.dtype(slot.dtype).itemsize
    if nbytes not in (4, 8):
        raise UnsupportedError(f"{slot.name} as {slot.dtype}")
    return nbytes
