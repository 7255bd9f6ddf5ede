"""Fragments of wgmma: registers of whole warps to rows of matrices and back, by transposition alone.

Registers are [registers, warps, 32 lanes] of 32 bits; matrices are [warps, 16 rows, columns]. Lane 4g + p holds rows
g and g + 8, and in each block of columns the elements from its index p on.
"""

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.numerics.matrix.layout import ELEMENT_BITS


def accumulators(registers: Array, kind: str) -> Array:
    """The matrix D; with `kind` f16 a register has two columns."""
    count, warps = registers.shape[:2]
    if kind == "f16":
        blocks = registers.view(np.uint16).reshape(count // 2, 2, warps, 8, 4, 2).transpose(2, 1, 3, 0, 4, 5)
        return np.ascontiguousarray(blocks).reshape(warps, 16, 4 * count)
    blocks = registers.reshape(count // 4, 2, 2, warps, 8, 4).transpose(3, 1, 4, 0, 5, 2)
    return np.ascontiguousarray(blocks).reshape(warps, 16, 2 * count)


def registers_of(matrix: Array, kind: str) -> Array:
    """The registers of D."""
    warps, _, n = matrix.shape
    if kind == "f16":
        blocks = matrix.reshape(warps, 2, 8, n // 8, 4, 2).transpose(3, 1, 0, 2, 4, 5)
        return np.ascontiguousarray(blocks).reshape(n // 4, warps, 64).view(np.uint32)
    blocks = matrix.reshape(warps, 2, 8, n // 8, 4, 2).transpose(3, 1, 5, 0, 2, 4)
    return np.ascontiguousarray(blocks).reshape(n // 2, warps, 32)


def operand_a(registers: Array, kind: str) -> Array:
    """The element bits of A, from four registers: rows g and g + 8, then the same of the upper half of K."""
    warps, bits = registers.shape[1], ELEMENT_BITS[kind]
    if bits == 1:
        octets = np.ascontiguousarray(registers).view(np.uint8)
        apart = (octets[..., None] >> np.arange(8, dtype=np.uint8)) & np.uint8(1)
        elements = apart.reshape(2, 2, warps, 8, 4, 32)
    else:
        elements = np.ascontiguousarray(registers).view(f"uint{bits}").reshape(2, 2, warps, 8, 4, 32 // bits)
    return np.ascontiguousarray(elements.transpose(2, 1, 3, 0, 4, 5)).reshape(warps, 16, -1)
