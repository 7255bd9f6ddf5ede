"""Where the registers of tcgen05.ld and tcgen05.st are in tensor memory."""

from functools import cache

import numpy as np

from kernbench.common.errors import MisuseError, unknown
from kernbench.ptx.numerics.matrix.layout import LANES, Index, Layout

# registers per lane in one repeat, and columns from one repeat to the next
_REPEATS = {"32x32b": (1, 1), "16x64b": (1, 2), "16x128b": (2, 4), "16x256b": (4, 8), "16x32bx2": (1, 1)}


@cache
def registers(shape: str, repeat: int, split: int = 0, packed: bool = False) -> Layout:
    """Tensor memory lane and column, relative to the access's address, of each lane's registers.

    `split` is the difference of the addresses for the upper and the lower sixteen lanes of `16x32bx2`: lanes in its
    upper half, columns in its lower half. A `packed` register takes two columns, of which this is the first.
    """
    if shape not in _REPEATS:
        raise MisuseError(unknown("shape of a tensor-memory access", shape, _REPEATS))
    per, step = _REPEATS[shape]
    lane = np.arange(LANES)[:, None]
    i = np.arange(per * repeat)[None, :]
    register, base = i % per, step * (i // per)
    rows, columns = _rows_and_columns(shape, lane, register)
    width = 2 if packed else 1
    upper = (lane >= 16) & (shape == "16x32bx2")
    rows = rows + 0 * base + upper * (split >> 16)
    columns = width * (columns + base + 0 * lane) + upper * (split & 0xFFFF)
    return Layout(rows, columns, (int(rows.max()) + 1, int(columns.max()) + width))


def _rows_and_columns(shape: str, lane: Index, register: Index) -> tuple[Index, Index]:
    if shape == "32x32b":
        return lane + 0 * register, 0 * register
    if shape == "16x64b":
        return lane // 4 + 8 * (lane % 2), lane // 2 % 2
    if shape == "16x128b":
        return lane // 4 + 8 * register, lane % 4
    if shape == "16x256b":
        return lane // 4 + 8 * (register // 2), 2 * (lane % 4) + register % 2
    return lane % 16, 0 * lane
