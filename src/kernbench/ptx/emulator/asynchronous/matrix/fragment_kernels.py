"""Compiled loops between registers and matrices: accumulators and A of wgmma, and words of tensor memory.

Each does in one pass what takes three with indexing and transposing. Other types are rare. `numerics.matrix.warpgroup`
has the layout of accumulators.
"""

import numpy as np

from kernbench.ptx.emulator.lanes.arrays import Float32s, Int, Int64s, UInt32s
from kernbench.ptx.emulator.lanes.compiled import kernel, part
from kernbench.ptx.emulator.lanes.lanes import WARP


@kernel
def take_accumulators(bank: UInt32s, rows: Int64s, warps: Int64s, matrix: UInt32s) -> None:
    """The matrices [warps, 16, columns] that warps hold in the registers `rows` of a bank.

    A pair of registers has two of eight columns, in eight rows: the upper or the lower ones.
    """
    for w in range(warps.size):
        for pair in range(rows.size // 2):
            first, second = rows[2 * pair], rows[2 * pair + 1]
            lane, column, row = warps[w] * WARP, 8 * (pair // 2), 8 * (pair % 2)
            for down in range(8):
                for k in range(4):
                    matrix[w, row + down, column + 2 * k] = bank[first, lane + k]
                    matrix[w, row + down, column + 2 * k + 1] = bank[second, lane + k]
                lane += 4


@kernel
def put_accumulators(bank: UInt32s, rows: Int64s, warps: Int64s, matrix: UInt32s) -> None:
    """Write matrices [warps, 16, columns] to the registers `rows` of warps."""
    for w in range(warps.size):
        for pair in range(rows.size // 2):
            first, second = rows[2 * pair], rows[2 * pair + 1]
            lane, column, row = warps[w] * WARP, 8 * (pair // 2), 8 * (pair % 2)
            for down in range(8):
                for k in range(4):
                    one, two = matrix[w, row + down, column + 2 * k], matrix[w, row + down, column + 2 * k + 1]
                    bank[first, lane + k] = one
                    bank[second, lane + k] = two
                lane += 4


@kernel
def take_left(bank: UInt32s, rows: Int64s, warps: Int64s, table: Float32s, found: Float32s) -> None:
    """16-bit elements of A of operations, which warps hold in four registers: rows [operations, 4] of a bank.

    The result has the values that `table` gives for the elements: [operations, warps, 16, 16].
    """
    low = np.uint32(0xFFFF)
    for operation in range(rows.shape[0]):
        for w in range(warps.size):
            for register in range(4):
                there, lane = rows[operation, register], warps[w] * WARP
                row, column = 8 * (register % 2), 8 * (register // 2)
                for down in range(8):
                    for k in range(4):
                        word = bank[there, lane + k]
                        found[operation, w, row + down, column + 2 * k] = table[word & low]
                        found[operation, w, row + down, column + 2 * k + 1] = table[word >> np.uint32(16)]
                    lane += 4


@part
def _word(words: UInt32s, cta: Int, quarter: Int, row: Int, column: Int) -> np.uint32:
    """A word of tensor memory; poison beyond its end."""
    if row >= words.shape[2] or column >= words.shape[3]:
        return np.uint32(0xFFFF_FFFF)
    found: np.uint32 = words[cta, quarter, row, column]
    return found


@part
def _corner(warp: Int, address: Int, words: UInt32s) -> tuple[Int, Int, Int, Int]:
    """Decode a warp's address: CTA, quarter, lane in it, and column."""
    ctas = words.shape[0]
    return warp % ctas, warp // ctas % 4, address >> 16 & 31, min(address & 0xFFFF, words.shape[3] - 1)


@kernel
def load_words(
    words: UInt32s,
    warps: Int64s,
    addresses: Int64s,
    rows: Int64s,
    columns: Int64s,
    packed: bool,
    bank: UInt32s,
    registers: Int64s,
) -> None:
    """Load `registers` of warps from the tensor memory of their CTAs; `words` are [ctas, 4, 32, columns].

    A warp's address has a lane and a column; relative to these, in the warp's quarter, a lane's register is at its row
    and column. If `packed`, a register has the lower halves of two words.
    """
    for w in range(warps.size):
        cta, quarter, first_row, first_column = _corner(warps[w], addresses[w], words)
        first = warps[w] * WARP
        for register in range(registers.size):
            row_of_bank = registers[register]
            for lane in range(WARP):
                row, column = first_row + rows[lane, register], first_column + columns[lane, register]
                word = _word(words, cta, quarter, row, column)
                if packed:
                    word = (word & np.uint32(0xFFFF)) | (_word(words, cta, quarter, row, column + 1) << np.uint32(16))
                bank[row_of_bank, first + lane] = word


@kernel
def take_halves(
    words: UInt32s, ctas: Int64s, part: tuple[int, int, int, int], column: int, table: Float32s, found: Float32s
) -> None:
    """16-bit elements in tensor memory of CTAs, from a column on, converted by `table`: [ctas, rows, elements].

    A part is [first, last + 1) quarter, and the same for lanes in each.
    """
    low = np.uint32(0xFFFF)
    lanes = part[3] - part[2]
    for i in range(ctas.size):
        for quarter in range(part[0], part[1]):
            for lane in range(lanes):
                row = (quarter - part[0]) * lanes + lane
                for k in range(found.shape[2] // 2):
                    word = _word(words, ctas[i], quarter, part[2] + lane, column + k)
                    found[i, row, 2 * k] = table[word & low]
                    found[i, row, 2 * k + 1] = table[word >> np.uint32(16)]


@part
def _put_word(words: UInt32s, cta: Int, quarter: Int, row: Int, column: Int, value: np.uint32) -> None:
    """Write a word of tensor memory; rows wrap around, and columns beyond the last are dropped."""
    if column < words.shape[3]:
        words[cta, quarter, row % words.shape[2], column] = value


@kernel
def store_words(
    words: UInt32s,
    warps: Int64s,
    addresses: Int64s,
    rows: Int64s,
    columns: Int64s,
    packed: bool,
    held: UInt32s,
    chosen: Int64s,
) -> None:
    """Store what warps held, [registers, positions, lanes], to the tensor memory of their CTAs: see `load_words`.

    Only for the warps and addresses at the positions `chosen`, one after the other.
    """
    for w in range(chosen.size):
        position = chosen[w]
        cta, quarter, first_row, first_column = _corner(warps[position], addresses[position], words)
        for register in range(held.shape[0]):
            for lane in range(WARP):
                row, column = first_row + rows[lane, register], first_column + columns[lane, register]
                value = held[register, position, lane]
                if packed:
                    _put_word(words, cta, quarter, row, column, value & np.uint32(0xFFFF))
                    _put_word(words, cta, quarter, row, column + 1, value >> np.uint32(16))
                else:
                    _put_word(words, cta, quarter, row, column, value)
