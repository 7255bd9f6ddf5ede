"""What tcgen05.mma does to a slow tensor memory: matrices as NumPy arrays, in float64."""

from dataclasses import dataclass, field

import numpy as np
from tests.ptx.emulator.tensor.formats import CODES, RESULTS

DEPTH = {"f16": 16, "tf32": 8, "f8f6f4": 32, "i8": 32, "mxf8f6f4": 32, "mxf4": 64, "mxf4nvf4": 64}


@dataclass
class Product:
    """One product: its shape, types, and what is said of it; A and B as values [rows, K]."""

    kind: str
    d: str
    types: tuple
    m: int
    n: int
    a: np.ndarray
    b: np.ndarray
    group: int = 1
    ws: bool = False
    accumulates: bool = False
    scale: int | None = None
    negate: tuple = (False, False)
    transpose: tuple = (False, False)
    saturate: bool = False
    # lanes that are left alone, of all CTAs
    disabled: frozenset = frozenset()
    # 0 or 16, where only half of the lanes are used
    lane: int = 0
    # how many scales a row has, their codes and values for rows of A and of B, and where in a word they begin
    scales: dict = field(default_factory=dict)

    @property
    def width(self):
        """Columns of D."""
        rows = self.m // self.group
        halves = {32: 4, 64: 2, 128: 1}[rows]
        return self.n if rows == 64 and self.group == 1 and not self.ws else self.n // halves

    def place(self, row, column):
        """The CTA, lane and column of elements of D, by layouts A, B and D to G of the ISA's text."""
        rows = self.m // self.group
        cta, row = divmod(row, rows)
        if rows == 128:
            return cta, row, column
        if rows == 64 and self.group == 1 and not self.ws:
            return cta, row % 16 + 32 * (row // 16) + self.lane, column
        part, column = divmod(column, self.width)
        return cta, row + rows * part, column

    def places(self, rows):
        """CTAs, lanes and columns of the first rows of D, [rows, N] each."""
        return np.broadcast_arrays(*self.place(*np.indices((rows, self.n))))

    def lanes_of_a(self, row):
        """All places of a row of A in tensor memory: in every part of the lanes that holds columns of D."""
        columns = range(0, self.n, self.width)
        return {self.place(row, column)[:2] for column in columns}

    def instruction(self):
        """The instruction descriptor."""
        a, b = (CODES[one] for one in self.types)
        shared = self.negate[0] << 13 | self.negate[1] << 14 | (self.n >> 3) << 17
        shared |= self.transpose[0] << 15 | self.transpose[1] << 16
        if not self.scales:
            formats = RESULTS[self.d] << 4 | a << 7 | b << 10 | self.saturate << 3
            return shared | formats | (self.m >> 4) << 24
        if self.kind != "mxf8f6f4":
            a = b = 1
        form = (self.scales["type"] == "ue8m0") << 23
        ids = self.scales["ids"]
        return shared | a << 7 | b << 10 | ids[1] << 4 | form | (self.m >> 7) << 27 | ids[0] << 29


def _scaled(rows, scales):
    return rows * np.repeat(scales, rows.shape[1] // scales.shape[1], axis=1)


def _read(words, kind):
    if kind == "f16":
        return (words & 0xFFFF).astype(np.uint16).view(np.float16).astype(np.float64)
    return words.view({"f32": np.float32, "s32": np.int32}[kind]).astype(np.float64)


def _written(values, product):
    """Bits of results, and which of them are known: nothing is said of the sign of a zero."""
    if product.d == "f16":
        return values.astype(np.float16).view(np.uint16).astype(np.uint32), np.where(values == 0, 0x7FFF, 0xFFFF)
    if product.d == "f32":
        return values.astype(np.float32).view(np.uint32), np.where(values == 0, 0x7FFFFFFF, 0xFFFFFFFF)
    whole = values.astype(np.int64)
    if product.saturate:
        whole = np.clip(whole, -(1 << 31), (1 << 31) - 1)
    return (whole & 0xFFFFFFFF).astype(np.uint32), np.full(whole.shape, 0xFFFFFFFF)


def multiply(cells, at, product):
    """D = A B, or D = A B + D / 2^scale, into the columns from `at` on."""
    a, b = (-x if negated else x for x, negated in zip((product.a, product.b), product.negate, strict=True))
    if product.scales:
        a, b = _scaled(a, product.scales["a"]), _scaled(b, product.scales["b"])
    result = a @ b.T
    ctas, lanes, columns = product.places(product.m)
    columns = columns + at
    if product.accumulates:
        result = result + _read(cells.words[ctas, lanes, columns], product.d) * 2.0 ** -(product.scale or 0)
    words, known = _written(result, product)
    kept = np.isin(ctas * 128 + lanes, list(product.disabled))
    cells.write(ctas[~kept], lanes[~kept], columns[~kept], words[~kept], known[~kept], product.d)
