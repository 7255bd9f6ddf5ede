"""Values that differ by rounding only: what lanes may store to one place in one instruction.

Compilers let every lane of a warp hold the result of a reduction and store it. With fused multiply-adds the lanes' sums
were rounded differently, so the values may differ in their last bits. PTX leaves open which lane wins; any of them is
the right result, and nobody who writes in a language above PTX could change it. Where a tile has fewer elements than a
block has threads, Triton lets several warps hold and store the same result.
"""

import numpy as np

from kernbench.common.dtypes import Array

# by bytes of a value: its type, the smallest size taken for a float (smaller bit patterns are integers), and how far
# two may lie apart, relative to the larger
_FLOATS = {4: (np.float32, 1e-30, 2.0**-18), 8: (np.float64, 1e-200, 2.0**-46)}
# 16-bit floats: the last place only, and no patterns of small integers
_SMALLEST_HALF = 0x0400


def differ_by_rounding(one: Array, others: Array) -> bool:
    """Whether the bits `one[values]` and each column of `others[values, lanes]` are floats that are nearly the same."""
    if not others.size:
        return False
    first = one[:, None]
    equal = first == others
    if one.itemsize == 2:
        near = _near_halves(first, others)
    elif one.itemsize in _FLOATS:
        near = _near_floats(first, others)
    else:
        return bool(equal.all())
    return bool((equal | near).all())


def _near_floats(first: Array, others: Array) -> Array:
    kind, smallest, apart = _FLOATS[first.itemsize]
    a, b = first.view(kind).astype(np.float64), others.view(kind).astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        size = np.maximum(np.abs(a), np.abs(b))
        near: Array = (
            (np.minimum(np.abs(a), np.abs(b)) > smallest) & np.isfinite(size) & (np.abs(a - b) <= apart * size)
        )
    return near


def _near_halves(first: Array, others: Array) -> Array:
    a, b = first.view(np.uint16).astype(np.int64), others.view(np.uint16).astype(np.int64)
    near: Array = (np.minimum(a & 0x7FFF, b & 0x7FFF) >= _SMALLEST_HALF) & (np.abs(a - b) <= 1)
    return near
