"""Compiled loops between registers and accumulators of wgmma of 32 bits; `numerics.matrix.warpgroup` has the layout.

Both do in one pass what a choice of rows and a transposition do in three; of other types there are few enough.
"""

from kernbench.ptx.emulator.lanes.arrays import Int, Int64s, UInt32s
from kernbench.ptx.emulator.lanes.compiled import kernel, part
from kernbench.ptx.emulator.lanes.lanes import WARP


@part
def _cell(register: Int, lane: Int) -> tuple[Int, Int]:
    """Row and column of the matrix that a lane holds in a register."""
    return 8 * (register // 2 % 2) + lane // 4, 8 * (register // 4) + 2 * (lane % 4) + register % 2


@kernel
def take_accumulators(bank: UInt32s, rows: Int64s, warps: Int64s, matrix: UInt32s) -> None:
    """The matrices [warps, 16, columns] that warps hold in the registers `rows` of a bank."""
    for w in range(warps.size):
        first = warps[w] * WARP
        for register in range(rows.size):
            row_of_bank = rows[register]
            for lane in range(WARP):
                row, column = _cell(register, lane)
                matrix[w, row, column] = bank[row_of_bank, first + lane]


@kernel
def put_accumulators(bank: UInt32s, rows: Int64s, warps: Int64s, matrix: UInt32s) -> None:
    """Write matrices [warps, 16, columns] to the registers `rows` of warps."""
    for w in range(warps.size):
        first = warps[w] * WARP
        for register in range(rows.size):
            row_of_bank = rows[register]
            for lane in range(WARP):
                row, column = _cell(register, lane)
                bank[row_of_bank, first + lane] = matrix[w, row, column]
