"""Products of large tiles, for wgmma and tcgen05: float32 sums in the order of the matrix library.

Products of all these element types are exact in float32, so that results differ from the tensor core's only by the
order and truncation of sums. An H200 truncates terms at 2**(e - 25) as `products` does, and those of 8-bit floats at
2**(e - 13) and their sum to 13 bits, e being the largest exponent. Integers are exact: the products of an instruction
sum to less than 2**24.
"""

from collections.abc import Callable
from functools import cache

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.numerics.matrix.products import values


@cache
def float32_table(kind: str) -> Array:
    """The float32 value of every code of an 8- or 16-bit type."""
    if kind == "bf16":
        return (np.arange(1 << 16, dtype=np.uint32) << np.uint32(16)).view(np.float32)
    width = 16 if kind == "f16" else 8
    # some processors raise the invalid flag for a signalling NaN
    with np.errstate(invalid="ignore"):
        return values(np.arange(1 << width, dtype=f"uint{width}"), kind).astype(np.float32)


def float32_of(bits: Array, kind: str) -> Array:
    """Elements, given by their bits, as float32."""
    if kind == "bf16":
        return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)
    if kind == "tf32":
        return (bits & np.uint32(0xFFFF_E000)).view(np.float32)
    if kind in ("u8", "b1"):
        return bits.astype(np.float32)
    if kind == "s8":
        return bits.view(np.int8).astype(np.float32)
    found: Array = np.take(float32_table(kind), bits)
    return found


def product(a: Array, b: Array, out: Array | None = None) -> Array:
    """[tiles, m, n] of [tiles, m, k] and [tiles, n, k], all float32; written to `out` if it is given."""
    made: Array = np.matmul(a, b.swapaxes(1, 2), out=out)
    return made


def _to_f32(sums: Array, addend: Array | None) -> Array:
    if addend is not None:
        np.add(sums, addend.view(np.float32), out=sums)
    return sums.view(np.uint32)


def _to_f16(sums: Array, addend: Array | None) -> Array:
    total = sums if addend is None else sums + addend.astype(np.uint16).view(np.float16).astype(np.float32)
    return total.astype(np.float16).view(np.uint16)


def _to_s32(sums: Array, addend: Array | None, saturate: bool = False) -> Array:
    total = sums.astype(np.int64)
    if addend is not None:
        total += addend.view(np.int32)
    if saturate:
        np.clip(total, -(1 << 31), (1 << 31) - 1, out=total)
    return total.astype(np.int32).view(np.uint32)


_RESULTS: dict[str, Callable[..., Array]] = {"f32": _to_f32, "f16": _to_f16, "s32": _to_s32}


def accumulate(sums: Array, addend: Array | None, kind: str, saturate: bool = False) -> Array:
    """The bits of `sums` plus an accumulator's bits; those of f16 are uint16. `sums` may be overwritten."""
    if kind == "s32":
        return _to_s32(sums, addend, saturate)
    return _RESULTS[kind](sums, addend)
