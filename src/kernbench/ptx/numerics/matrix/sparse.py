"""Structured sparsity: A holds half of its elements; metadata give their positions in each chunk of a row.

A chunk has four bits of metadata: two indices of two bits. Chunks are four elements of which two are present; for tf32
two of which one is; for four-bit types eight of which two pairs are. Of each four lanes, one, a pair or all hold the
metadata of row lane / 4 and the row eight below, as many as needed. A word of 16-bit types and tf32 holds four chunks
of the upper row in its lower half and four of the lower row in its upper half; for smaller types, eight chunks of one
row, the two rows alternating. All this is as observed on an H200.
"""

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.numerics.matrix.layout import LANES, dimensions

# elements of A in a chunk if not four, and elements that share an index if not one
_CHUNK = {"tf32": 2, "s4": 8, "u4": 8}
_TOGETHER = {"s4": 2, "u4": 2}
_WIDE = frozenset(("f16", "bf16", "tf32"))


def chunks(metadata: Array, count: int, selector: int, halves: bool) -> Array:
    """The bits of each chunk, [warps, 16 rows, count], from all lanes; words hold `halves` of two rows, or one row."""
    words = np.asarray(metadata).reshape(-1, LANES // 4, 4)
    holders = count // 4
    held = words[:, :, selector * holders : selector * holders + holders].astype(np.uint32)
    each = (held[..., None] >> (4 * np.arange(8)).astype(np.uint32)) & np.uint32(15)
    # lanes of the same row, then the two rows, then the chunks in a word
    ordered = each.reshape(len(words), LANES // 4, -1, 2, 4 if halves else 8).swapaxes(2, 3)
    rows = ordered.reshape(len(words), LANES // 4, 2, count)
    return np.concatenate([rows[:, :, 0], rows[:, :, 1]], axis=1)


def columns_of(metadata: Array, shape: str, kind: str, selector: int) -> Array:
    """The column of each present element in the full A, [warps, 16, k / 2]."""
    _, _, k = dimensions(shape)
    size, together = _CHUNK.get(kind, 4), _TOGETHER.get(kind, 1)
    found = chunks(metadata, k // size, selector, kind in _WIDE)
    indices = np.stack([found & 3, found >> 2], axis=-1).astype(np.int64)
    if kind == "tf32":
        inside = indices[..., :1] // 2
    else:
        inside = (indices[..., None] * together + np.arange(together)).reshape(*found.shape, -1)
    whole = inside + (size * np.arange(k // size))[:, None]
    return whole.reshape(*found.shape[:2], -1)


def expanded(held: Array, where: Array, k: int) -> Array:
    """The full A, [warps, 16, k], with zeros for absent elements."""
    full = np.zeros((*held.shape[:2], k), held.dtype)
    np.put_along_axis(full, where, held, axis=2)
    return full
