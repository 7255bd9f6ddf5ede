"""Layouts: which lane and register holds which element of a matrix instruction's operands.

A layout is a pair of integer arrays [32 lanes, elements per lane]: the row and the column of each element, in register
order, the lowest bits of a register first.
"""

from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from kernbench.common.errors import MisuseError

Index = NDArray[np.intp]
LANES = 32
# bits of an element in registers
ELEMENT_BITS = {
    "f16": 16,
    "bf16": 16,
    "tf32": 32,
    "f32": 32,
    "f64": 64,
    "s32": 32,
    "s8": 8,
    "u8": 8,
    "e4m3": 8,
    "e5m2": 8,
    "e3m2": 8,
    "e2m3": 8,
    "e2m1": 8,
    "s4": 4,
    "u4": 4,
    "b1": 1,
}


@dataclass(frozen=True)
class Layout:
    """Rows and columns of each lane's elements; `shape` is the matrix's."""

    rows: Index
    columns: Index
    shape: tuple[int, int]

    @property
    def elements(self) -> int:
        """Number of elements per lane."""
        return int(self.rows.shape[1])

    @property
    def gather(self) -> Index:
        """For each element of the matrix in row order, lane * elements + index of a register element that holds it."""
        linear = (self.rows * self.shape[1] + self.columns).ravel()
        where = np.empty(self.shape[0] * self.shape[1], np.intp)
        # of several copies the first is used
        where[linear[::-1]] = np.arange(linear.size)[::-1]
        return where

    @property
    def scatter(self) -> Index:
        """For each lane and element, its index in the matrix in row order."""
        return (self.rows * self.shape[1] + self.columns).ravel()


def dimensions(shape: str) -> tuple[int, int, int]:
    """(16, 8, 16) of "m16n8k16"."""
    try:
        m, rest = shape.removeprefix("m").split("n")
        n, k = rest.split("k")
        return int(m), int(n), int(k)
    except ValueError:
        raise MisuseError(f"{shape!r} is no matrix shape; write it like m16n8k16") from None


def _lanes() -> tuple[Index, Index]:
    """Group (lane / 4) and number in the group (lane % 4), as columns."""
    lane = np.arange(LANES)[:, None]
    return lane // 4, lane % 4


@cache
def operand_a(shape: str, kind: str) -> Layout:
    """A of mma.sync, row major: registers advance by 8 rows first, then to the next block of columns."""
    m, _, k = dimensions(shape)
    per = max(1, 32 // ELEMENT_BITS[kind])
    group, member = _lanes()
    i = np.arange(m * k // LANES)[None, :]
    halves = m // 8
    register, inner = i // per, i % per
    rows = group + 8 * (register % halves)
    columns = member * per + inner + 4 * per * (register // halves)
    return Layout(rows, columns, (m, k))


@cache
def operand_b(shape: str, kind: str) -> Layout:
    """B of mma.sync, column major: [k, n]."""
    _, n, k = dimensions(shape)
    per = max(1, 32 // ELEMENT_BITS[kind])
    group, member = _lanes()
    i = np.arange(n * k // LANES)[None, :]
    register, inner = i // per, i % per
    rows = member * per + inner + 4 * per * register
    return Layout(rows, group + 0 * i, (k, n))


@cache
def accumulator(shape: str) -> Layout:
    """C and D of mma.sync: pairs of columns; each further pair is 8 rows below."""
    m, n, _ = dimensions(shape)
    group, member = _lanes()
    i = np.arange(m * n // LANES)[None, :]
    halves = m // 8
    rows = group + 8 * ((i // 2) % halves)
    columns = 2 * member + i % 2 + 8 * (i // (2 * halves))
    return Layout(rows, columns, (m, n))


@cache
def wgmma_accumulator(n: int) -> Layout:
    """D of one warp of wgmma.m64nNkK: row within the warp's 16."""
    group, member = _lanes()
    i = np.arange(n // 2)[None, :]
    return Layout(group + 8 * ((i // 2) & 1), 8 * (i // 4) + 2 * member + (i & 1), (16, n))


# m8n8k4 of f16: four matrices per warp, each of a quad and the quad sixteen lanes above
@cache
def quad_operand(which: str, major: str) -> Layout:
    """A or B of mma.m8n8k4 of f16, one of four: rows and columns for all 32 lanes, equal in each quad pair."""
    lane = np.arange(LANES)[:, None]
    i = np.arange(4)[None, :]
    along, across = lane % 4 + 4 * (lane // 16) + 0 * i, i + 0 * lane
    down = i + 4 * (lane // 16)
    if which == "a":
        return Layout(along, across, (8, 4)) if major == "row" else Layout(down, lane % 4 + 0 * i, (8, 4))
    return Layout(across, along, (4, 8)) if major == "col" else Layout(lane % 4 + 0 * i, down, (4, 8))


@cache
def quad_accumulator(kind: str) -> Layout:
    """C or D of mma.m8n8k4 of f16, one of four."""
    lane = np.arange(LANES)[:, None]
    i = np.arange(8)[None, :]
    if kind == "f16":
        return Layout(lane % 4 + 4 * (lane // 16) + 0 * i, i + 0 * lane, (8, 8))
    return Layout((lane & 1) + (i & 2) + 4 * (lane // 16), (i & 4) + (lane & 2) + (i & 1), (8, 8))


# elements per lane of A or B of wmma, if independent of the shape
_WMMA_ELEMENTS = {"f16": 16}


@cache
def wmma(shape: str, which: str, kind: str) -> Layout:
    """A fragment of wmma ("a", "b", "c"): elements of the matrix in row order, lane by lane.

    The ISA leaves this order unspecified. Operands of f16 fill eight registers of each lane whatever the shape, and are
    held up to four times. B of elements smaller than a byte is in column order, so that a word of memory is a word of a
    register.
    """
    m, n, k = dimensions(shape)
    rows, columns = {"a": (m, k), "b": (k, n), "c": (m, n)}[which]
    elements = rows * columns // LANES if which == "c" else _WMMA_ELEMENTS.get(kind, rows * columns // LANES)
    linear = (np.arange(LANES)[:, None] * elements + np.arange(elements)[None, :]) % (rows * columns)
    if which == "b" and ELEMENT_BITS[kind] < 8:
        return Layout(linear % rows, linear // rows, (rows, columns))
    return Layout(linear // columns, linear % columns, (rows, columns))
