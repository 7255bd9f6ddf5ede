"""A slow, obvious tensor memory: cells of 32 bits, and what loads, stores, copies and shifts do, by the ISA's text.

It knows nothing of the emulator. Every allocation is an array of its own, [CTAs, lanes, columns].
"""

from functools import cache

import numpy as np

LANES = 128
HALF = 0xFFFF
# registers of one repeat, and columns of one repeat
SHAPES = {"32x32b": (1, 1), "16x64b": (1, 2), "16x128b": (2, 4), "16x256b": (4, 8), "16x32bx2": (1, 1)}


class Cells:
    """The columns of one allocation: their bits, which of these are known, and what they hold a result as."""

    def __init__(self, ctas, columns):
        self.columns = columns
        self.words = np.zeros((ctas, LANES, columns), np.uint32)
        self.known = np.zeros((ctas, LANES, columns), np.uint32)
        self.holds = np.full((ctas, LANES, columns), "", "U4")

    def write(self, cta, lane, column, word, known=0xFFFFFFFF, holds=""):
        self.words[cta, lane, column] = word
        self.known[cta, lane, column] = known
        self.holds[cta, lane, column] = holds


def element(shape, thread, register, split):
    """Where the 32 bits of a register of a thread lie: the lane below the address, and the column behind it.

    Of packed elements the column counts pairs, but for the split, which is a distance of addresses.
    """
    if shape == "32x32b":
        return thread, register, 0
    if shape == "16x64b":
        return thread // 4 + 8 * (thread % 2), thread // 2 % 2 + 2 * register, 0
    if shape == "16x128b":
        return thread // 4 + 8 * (register % 2), thread % 4 + 4 * (register // 2), 0
    if shape == "16x256b":
        part, repeat = register % 4, register // 4
        return thread // 4 + 8 * (part // 2), 2 * (thread % 4) + part % 2 + 8 * repeat, 0
    return thread % 16, register, split * (thread // 16)


def registers(shape, repeat):
    return SHAPES[shape][0] * repeat


@cache
def places(shape, repeat, narrow, split):
    """For all threads and registers of a warp: thread, register, lane and column, and the lowest bit that lies there.

    Of narrow elements a register has two, in two columns beside each other.
    """
    found = []
    for thread in range(32):
        for register in range(registers(shape, repeat)):
            lane, column, more = element(shape, thread, register, split)
            if narrow:
                found += [(thread, register, lane, 2 * column + half + more, 16 * half) for half in range(2)]
            else:
                found.append((thread, register, lane, column + more, 0))
    return np.array(found).T


def reach(shape, repeat, narrow, split):
    """How many columns a load or store reaches from its address on."""
    span = SHAPES[shape][1] * repeat * (2 if narrow else 1)
    return span + split if shape == "16x32bx2" else span


def store(cells, at, lane, move, table):
    """tcgen05.st by the four warps of every CTA: table [CTAs, threads, registers]; `lane` is 0 or 16 of a quarter."""
    thread, register, row, column, low = places(*move)
    bits = HALF if move[2] else 0xFFFFFFFF
    for warp in range(4):
        words = table[:, 32 * warp + thread, register] >> low.astype(np.uint32) & np.uint32(bits)
        cells.write(slice(None), 32 * warp + lane + row, at + column, words, bits)


def load(cells, at, lane, move):
    """tcgen05.ld by the four warps of every CTA: words, and which of their bits are known."""
    found = np.zeros((2, len(cells.words), LANES, registers(*move[:2])), np.uint32)
    bits = np.uint32(HALF if move[2] else 0xFFFFFFFF)
    for warp in range(4):
        for half in (0, 16):
            thread, register, row, column, _ = (x[places(*move)[4] == half] for x in places(*move))
            for into, cell in zip(found, (cells.words, cells.known), strict=True):
                words = cell[:, 32 * warp + lane + row, at + column] & bits
                into[:, 32 * warp + thread, register] |= words << np.uint32(half)
    return tuple(found)


# which lanes get which row of what is copied
COPIES = {
    "128x256b": (128, 32, lambda row: [row]),
    "4x256b": (4, 32, lambda row: [32 * row]),
    "128x128b": (128, 16, lambda row: [row]),
    "64x128b.warpx2::02_13": (64, 16, lambda row: [row, row + 64]),
    "64x128b.warpx2::01_23": (64, 16, lambda row: [64 * (row // 32) + row % 32 + 32 * copy for copy in range(2)]),
    "32x128b.warpx4": (32, 16, lambda row: [row + 32 * copy for copy in range(4)]),
}


def unpacked(data, narrow):
    """Sixteen bytes of elements of 4 or 6 bits and padding, as sixteen bytes."""
    bits = int.from_bytes(data.tobytes(), "little")
    return np.array([bits >> narrow * i & (1 << narrow) - 1 for i in range(16)], np.uint8)


def copy(cells, at, shape, rows, narrow=None):
    """tcgen05.cp: rows [CTAs, rows, bytes] to the lanes of the shape."""
    for cta in range(len(rows)):
        for row in range(COPIES[shape][0]):
            data = rows[cta, row]
            if narrow:
                data = np.concatenate([unpacked(part, narrow) for part in data.reshape(-1, 16)])
            for lane in COPIES[shape][2](row):
                for column, word in enumerate(data.view(np.uint32)):
                    cells.write(cta, lane, at + column, word)


def shift(cells, at, quarter):
    """tcgen05.shift.down, 31x256b: eight columns of a warp's rows go to the row below; the first row stays."""
    rows, columns = slice(32 * quarter, 32 * quarter + 32), slice(at, at + 8)
    for values in (cells.words, cells.known, cells.holds):
        values[:, rows, columns][:, 1:] = values[:, rows, columns][:, :-1].copy()
