"""Values that differ by rounding only: lanes may store such values to one address in one instruction.

Compilers let every lane of a warp hold the result of a reduction and store it. With fused multiply-adds the lanes' sums
are rounded differently, so the values may differ in their last bits. PTX leaves open which lane wins; each is a right
result, and nobody who writes in a language above PTX could change it. If a tile has fewer elements than a block has
threads, Triton lets several warps hold and store the same result. If large terms of a sum cancel, little but rounding
may be left: such sums are compared relative to the largest value of the same store.

A reduction may be computed in a 16-bit type, or its result rounded to an 8-bit one: then lanes differ in the last bit
of that type, even if they continue in a wider one. If the stored value comes from a butterfly of the lanes
(`analysis.reduced_stores`), the types are known; otherwise they are guessed from the width.
"""

from dataclasses import dataclass

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.program.program import Reduced
from kernbench.ptx.numerics.matrix.products import values
from kernbench.ptx.text.types import TYPES


@dataclass(frozen=True)
class _Near:
    """How far two floats may differ: relative to the larger, and relative to the largest value of the store.

    Values below `smallest` are taken for integers, and never count as close.
    """

    smallest: float
    apart: float
    left: float


# by width in bytes, if the type is guessed: the type, and the tolerance
_GUESSED = {
    4: ("f32", _Near(1e-30, 2.0**-18, 2.0**-26)),
    8: ("f64", _Near(1e-200, 2.0**-46, 2.0**-55)),
}
# 16-bit floats: differences in the last bit only, and no bit patterns of small integers
_SMALLEST_HALF = 0x0400
# By the coarsest type of results in and after a butterfly, in units of u, half of its last bit. Five steps with a fused
# product leave lanes at most 3 u + 4 * 2 u apart, if all roundings go against each other, and less than 4 u in
# thousands of random ones. If terms cancel it is more, but wide types have bits to spare. A conversion after the
# reduction moves a result to the next number.
_REDUCED = {
    "f64": _Near(0.0, 2.0**-40, 2.0**-55),
    "f32": _Near(0.0, 2.0**-12, 2.0**-26),
    "tf32": _Near(0.0, 8 * 2.0**-11, 2.0**-13),
    "f16": _Near(0.0, 8 * 2.0**-11, 2.0**-13),
    "bf16": _Near(0.0, 8 * 2.0**-8, 2.0**-10),
    "e2m3": _Near(0.0, 2 * 2.0**-4, 2.0**-6),
    "e4m3": _Near(0.0, 2 * 2.0**-4, 2.0**-6),
    "e3m2": _Near(0.0, 2 * 2.0**-3, 2.0**-5),
    "e5m2": _Near(0.0, 2 * 2.0**-3, 2.0**-5),
}


def differ_by_rounding(one: Array, others: Array, kin: Array, reduced: Reduced | None = None) -> bool:
    """Whether the bits `one[values]` and each column of `others[values, lanes]` are floats that are nearly equal.

    `kin` is everything that the instruction stores: a sum that nearly cancels is compared relative to these. `reduced`
    says what is stored if it comes from a butterfly.
    """
    if not others.size:
        return False
    first = one[:, None]
    equal = first == others
    if reduced is not None and TYPES[reduced.element].bits <= 8 * one.itemsize:
        near = _near_elements(first, others, kin, reduced)
    elif one.itemsize == 2:
        near = _near_halves(first, others)
    elif one.itemsize in _GUESSED:
        kind, rule = _GUESSED[one.itemsize]
        near = _near_floats(values(first, kind), values(others, kind), values(np.ascontiguousarray(kin), kind), rule)
    else:
        return bool(equal.all())
    return bool((equal | near).all())


def _near_elements(first: Array, others: Array, kin: Array, reduced: Reduced) -> Array:
    """Packed values are close if each of their elements is."""
    width = TYPES[reduced.element].bits // 8
    a, b, others_of = (_elements(bits, width, reduced.element) for bits in (first, others, kin))
    near: Array = ((a == b) | _near_floats(a, b, others_of, _REDUCED[reduced.rounded])).all(axis=-1)
    return near


def _elements(bits: Array, width: int, kind: str) -> Array:
    """The elements of values, in a last dimension."""
    split = np.ascontiguousarray(bits)[..., None].view(f"uint{8 * width}")
    found: Array = values(split, kind)
    return found


def _near_floats(a: Array, b: Array, kin: Array, rule: _Near) -> Array:
    with np.errstate(invalid="ignore", over="ignore"):
        less, size, distance = np.minimum(np.abs(a), np.abs(b)), np.maximum(np.abs(a), np.abs(b)), np.abs(a - b)
        near: Array = (less > rule.smallest) & np.isfinite(size) & (distance <= rule.apart * size)
        if near.all():
            return near
        sizes = np.abs(kin)
        scale = np.max(sizes, where=np.isfinite(sizes), initial=0.0)
        floats = ((less > rule.smallest) | (less == 0)) & (size > rule.smallest)
        near |= floats & (size >= rule.left * scale) & (distance <= rule.apart * scale)
    return near


def _near_halves(first: Array, others: Array) -> Array:
    a, b = first.view(np.uint16).astype(np.int64), others.view(np.uint16).astype(np.int64)
    near: Array = (np.minimum(a & 0x7FFF, b & 0x7FFF) >= _SMALLEST_HALF) & (np.abs(a - b) <= 1)
    return near
