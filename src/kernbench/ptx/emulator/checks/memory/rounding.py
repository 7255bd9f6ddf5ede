"""Values that differ by rounding only: what lanes may store to one place in one instruction.

Compilers let every lane of a warp hold the result of a reduction and store it. With fused multiply-adds the lanes' sums
were rounded differently, so the values may differ in their last bits. PTX leaves open which lane wins; any of them is
the right result, and nobody who writes in a language above PTX could change it. Where a tile has fewer elements than a
block has threads, Triton lets several warps hold and store the same result. Of a sum in which large terms cancel little
but rounding may be left: it is held against the largest value of the same store.
"""

import numpy as np

from kernbench.common.dtypes import Array

# by bytes of a value: its type, the smallest size taken for a float (smaller bit patterns are integers), how far two
# may lie apart relative to the larger, and what rounding leaves of a sum of large terms, relative to its kin
_FLOATS = {4: (np.float32, 1e-30, 2.0**-18, 2.0**-26), 8: (np.float64, 1e-200, 2.0**-46, 2.0**-55)}
# 16-bit floats: the last place only, and no patterns of small integers
_SMALLEST_HALF = 0x0400


def differ_by_rounding(one: Array, others: Array, kin: Array) -> bool:
    """Whether the bits `one[values]` and each column of `others[values, lanes]` are floats that are nearly the same.

    `kin` is all that the instruction stores: a sum of which little is left, among larger ones, is rounded as those are.
    """
    if not others.size:
        return False
    first = one[:, None]
    equal = first == others
    if one.itemsize == 2:
        near = _near_halves(first, others)
    elif one.itemsize in _FLOATS:
        near = _near_floats(first, others, kin)
    else:
        return bool(equal.all())
    return bool((equal | near).all())


def _near_floats(first: Array, others: Array, kin: Array) -> Array:
    kind, smallest, apart, left = _FLOATS[first.itemsize]
    a, b = first.view(kind).astype(np.float64), others.view(kind).astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        less, size, distance = np.minimum(np.abs(a), np.abs(b)), np.maximum(np.abs(a), np.abs(b)), np.abs(a - b)
        near: Array = (less > smallest) & np.isfinite(size) & (distance <= apart * size)
        if near.all():
            return near
        sizes = np.abs(np.ascontiguousarray(kin).view(kind).astype(np.float64))
        scale = np.max(sizes, where=np.isfinite(sizes), initial=0.0)
        floats = ((less > smallest) | (less == 0)) & (size > smallest)
        near |= floats & (size >= left * scale) & (distance <= apart * scale)
    return near


def _near_halves(first: Array, others: Array) -> Array:
    a, b = first.view(np.uint16).astype(np.int64), others.view(np.uint16).astype(np.int64)
    near: Array = (np.minimum(a & 0x7FFF, b & 0x7FFF) >= _SMALLEST_HALF) & (np.abs(a - b) <= 1)
    return near
