"""Compiled loops between registers and accumulators of wgmma of 32 bits; `numerics.matrix.warpgroup` has the layout.

Both do in one pass what a choice of rows and a transposition do in three; of other types there are few enough.
"""

import numpy as np

from kernbench.ptx.emulator.lanes.arrays import Int, Int64s, UInt32s
from kernbench.ptx.emulator.lanes.compiled import kernel, part
from kernbench.ptx.emulator.lanes.lanes import WARP

# all bits but the sign's, which are those of the NaN as well, and the bits of infinity
_SIZE, _INFINITY = np.uint32(0x7FFF_FFFF), np.uint32(0x7F80_0000)


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
def put_accumulators(bank: UInt32s, rows: Int64s, warps: Int64s, matrix: UInt32s, floats: bool) -> None:
    """Write matrices [warps, 16, columns] to the registers `rows` of warps.

    If they are `floats`, NaN is 0x7fffffff, as the tensor core gives it: a matrix library has the processor's own.
    """
    for w in range(warps.size):
        first = warps[w] * WARP
        for register in range(rows.size):
            row_of_bank = rows[register]
            for lane in range(WARP):
                row, column = _cell(register, lane)
                word = matrix[w, row, column]
                if floats and (word & _SIZE) > _INFINITY:
                    word = _SIZE
                bank[row_of_bank, first + lane] = word
