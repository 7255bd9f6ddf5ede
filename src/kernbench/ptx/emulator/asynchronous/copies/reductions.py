"""Reductions of bulk copies: elements in memory combined with arriving elements, as bytes.

As measured on an H200: bulk reductions of f32 and those through tensor maps of f32 or tf32 keep subnormal numbers,
those through maps of "f32.ftz" or "tf32.ftz" flush them before and after.
"""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.errors import MisuseError

_TYPES: dict[str, Any] = {
    "u8": np.uint8,
    "u16": np.uint16,
    "u32": np.uint32,
    "s32": np.int32,
    "u64": np.uint64,
    "s64": np.int64,
    "b32": np.uint32,
    "b64": np.uint64,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
}


def _increment(old: Array, limit: Array) -> Array:
    return np.where(old >= limit, 0, old + 1)


def _decrement(old: Array, limit: Array) -> Array:
    return np.where((old == 0) | (old > limit), limit, old - 1)


def _add(old: Array, new: Array) -> Array:
    if old.dtype.itemsize > 2 or old.dtype.kind in "iu":
        result: Array = old + new
    else:
        result = (old.astype(np.float32) + new.astype(np.float32)).astype(old.dtype)
    if old.dtype.kind not in "iu" and old.dtype.itemsize in _NAN:
        wide, nan = _NAN[old.dtype.itemsize]
        result.view(wide)[np.isnan(result)] = nan
    return result


# elements of tensor maps that are added as another type
_AS = {"tf32": "f32"}
_EXPONENT, _SIGN = np.uint32(0xFF << 23), np.uint32(1 << 31)
# the NaN of a sum, by the width of its elements
_NAN: dict[int, tuple[Any, int]] = {2: (np.uint16, 0x7FFF), 4: (np.uint32, 0x7FFFFFFF)}
_OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "add": _add,
    "min": np.fmin,
    "max": np.fmax,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "inc": _increment,
    "dec": _decrement,
}


def _flushed(values: Array) -> Array:
    """Elements of f32 with subnormal numbers as zeros of their sign."""
    bits = values.view(np.uint32)
    return np.where(bits & _EXPONENT, bits, bits & _SIGN).astype(np.uint32).view(np.float32)


def _flushing_add(old: Array, new: Array) -> Array:
    return _flushed(_add(_flushed(old), _flushed(new)))


def reduction_of(operation: str, element: str) -> Callable[[Array, Array], Array]:
    """The function of an operation on elements of a type of PTX or of a tensor map, from and to bytes."""
    name, _, flush = element.partition(".")
    kind, combine = np.dtype(_TYPES[_AS.get(name, name)]), _OPERATIONS[operation]
    if flush and operation == "add":
        combine = _flushing_add

    def reduce(old: Array, new: Array) -> Array:
        if operation in ("and", "or", "xor") and kind.kind not in "iu":
            raise MisuseError(f"a reduction by {operation} needs whole numbers, not {element}")
        result = np.asarray(combine(old.view(kind), new.view(kind)))
        return result.astype(kind).view(np.uint8)

    return reduce
