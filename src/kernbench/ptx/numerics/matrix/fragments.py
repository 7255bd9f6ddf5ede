"""Conversion between registers and matrices, for all warps at once; matrices are [warps, rows, columns] of bits."""

from collections.abc import Sequence

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.numerics.matrix.layout import ELEMENT_BITS, LANES, Layout


def _split(words: Array, bits: int) -> Array:
    """[warps, lanes, registers] of 32- or 64-bit words -> [warps, lanes * elements], the lowest bits first."""
    warps = words.shape[0]
    if bits >= 8:
        return words.view(f"uint{bits}").reshape(warps, -1)
    per_byte = 8 // bits
    octets = words.view(np.uint8).reshape(warps, -1, 1)
    shifts = (np.arange(per_byte) * bits).astype(np.uint8)
    return ((octets >> shifts) & np.uint8((1 << bits) - 1)).reshape(warps, -1)


def from_fragments(registers: Sequence[Array], layout: Layout, kind: str) -> Array:
    """The matrices held by registers (one row of whole warps for each)."""
    words = np.stack([np.asarray(register).reshape(-1, LANES) for register in registers], axis=-1)
    return _split(words, ELEMENT_BITS[kind])[:, layout.gather].reshape(-1, *layout.shape)


def to_fragments(matrices: Array, layout: Layout, out: Sequence[Array]) -> None:
    """Write matrices of 16-, 32- or 64-bit elements to registers."""
    warps = matrices.shape[0]
    elements = np.ascontiguousarray(matrices.reshape(warps, -1)[:, layout.scatter])
    words = elements.view(out[0].dtype).reshape(warps, LANES, len(out))
    for number, register in enumerate(out):
        register.reshape(-1, LANES)[...] = words[:, :, number]
