"""Structured sparsity: A holds half of its elements, metadata say where in each chunk of a row they belong.

Four bits of metadata are a chunk's: two indices of two bits. Chunks are four elements of which two are there, of tf32
two of which one is, and of four-bit types eight of which two pairs are. Of each four lanes, one, a pair or all hold the
metadata of row lane / 4 and the row eight below, as many as these need. A word of 16-bit types and tf32 holds four
chunks of the upper row in its lower half and four of the lower row in its upper half; of smaller types, eight chunks of
one row, the two rows in turn. All of this as an H200 was seen to read them.
"""

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.numerics.matrix.layout import LANES, dimensions

# elements of A in a chunk, and how many of them go together, where they are not four and one
_CHUNK = {"tf32": 2, "s4": 8, "u4": 8}
_TOGETHER = {"s4": 2, "u4": 2}
_WIDE = frozenset(("f16", "bf16", "tf32"))


def chunks(metadata: Array, count: int, selector: int, halves: bool) -> Array:
    """[warps, 16 rows, count] of four bits each, from all lanes; their words hold `halves` of two rows, or one."""
    words = np.asarray(metadata).reshape(-1, LANES // 4, 4)
    holders = count // 4
    held = words[:, :, selector * holders : selector * holders + holders].astype(np.uint32)
    each = (held[..., None] >> (4 * np.arange(8)).astype(np.uint32)) & np.uint32(15)
    # holders of the same row, then the two rows, then the chunks that lie together
    ordered = each.reshape(len(words), LANES // 4, -1, 2, 4 if halves else 8).swapaxes(2, 3)
    rows = ordered.reshape(len(words), LANES // 4, 2, count)
    return np.concatenate([rows[:, :, 0], rows[:, :, 1]], axis=1)


def columns_of(metadata: Array, shape: str, kind: str, selector: int) -> Array:
    """[warps, 16, k / 2]: the column of the whole A where each element that is there belongs."""
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
    """The whole A, [warps, 16, k], with zeros where nothing is."""
    full = np.zeros((*held.shape[:2], k), held.dtype)
    np.put_along_axis(full, where, held, axis=2)
    return full
