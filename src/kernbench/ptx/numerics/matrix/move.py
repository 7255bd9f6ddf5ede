"""ldmatrix, stmatrix and movmatrix: 8x8 tiles of 16-bit elements between rows in memory and registers.

Lane t holds elements 2 * (t % 4) and the next of row t / 4 of a tile, the lower column in the lower half; transposed,
of column t / 4. Rows of tile i are addressed by lanes 8 * i to 8 * i + 7.
"""

from collections.abc import Sequence

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.numerics.matrix.layout import LANES


def load_matrices(rows: Array, trans: bool, out: Sequence[Array]) -> None:
    """`rows`, uint16 [warps, 8 * tiles, 8]: the 16 bytes at each addressing lane; one register per tile."""
    tiles = rows.reshape(rows.shape[0], -1, 8, 8)
    if trans:
        tiles = tiles.swapaxes(2, 3)
    words = np.ascontiguousarray(tiles).view(np.uint32).reshape(rows.shape[0], -1, LANES)
    for tile, register in enumerate(out):
        register.reshape(-1, LANES)[...] = words[:, tile]


def store_matrices(registers: Sequence[Array], trans: bool) -> Array:
    """The rows, uint16 [warps, 8 * tiles, 8], that stmatrix writes at the addressing lanes."""
    words = np.stack([np.asarray(register).reshape(-1, LANES) for register in registers], axis=1)
    tiles = words.view(np.uint16).reshape(words.shape[0], -1, 8, 8)
    if trans:
        tiles = np.ascontiguousarray(tiles.swapaxes(2, 3))
    return tiles.reshape(words.shape[0], -1, 8)


def transpose_matrix(register: Array, out: Array) -> None:
    """movmatrix.m8n8.trans.b16."""
    load_matrices(store_matrices([register], False), True, [out])
