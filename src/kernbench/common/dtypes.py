"""Element types: each with the NumPy type that rounds as the hardware does, and how two types promote.

Arithmetic on narrow floats is done in f32 and rounded once to the narrow type. For + - * / this gives the correctly
rounded result, because f32 has more than twice their precision plus two bits.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike, NDArray

from kernbench.common.errors import MisuseError, unknown

Array = NDArray[Any]
_finfo: Any = ml_dtypes.finfo


def dtype_of(kind: DTypeLike) -> np.dtype[np.generic]:
    """NumPy's element type for anything that `np.dtype` accepts.

    It exists for type checkers, which need half a second for each direct call of `np.dtype` with such an argument.
    """
    return np.dtype(kind)


@dataclass(frozen=True)
class DType:
    """An element type; `digits` are the bits of the significand with the hidden bit, 0 for integers."""

    name: str
    numpy: np.dtype[Any]
    kind: str
    digits: int
    aliases: tuple[str, ...]

    @property
    def itemsize(self) -> int:
        """Bytes of one element in memory."""
        return int(self.numpy.itemsize)

    @property
    def epsilon(self) -> float:
        """Distance from 1 to the next number; 0 for integers, which do not round."""
        return 2.0 ** (1 - self.digits) if self.kind == "float" else 0.0

    @property
    def smallest_normal(self) -> float:
        """Smallest normal magnitude; below it the spacing of numbers stays constant. 0 for integers."""
        return float(_finfo(self.numpy).smallest_normal) if self.kind == "float" else 0.0

    @property
    def poison(self) -> float | int:
        """The value of uninitialised memory: NaN, or the most negative integer; False for booleans."""
        if self.kind == "float":
            return float("nan")
        return 0 if self.kind == "bool" else int(np.iinfo(self.numpy).min)


def _row(name: str, numpy: type, kind: str, digits: int, *aliases: str) -> DType:
    return DType(name, np.dtype(numpy), kind, digits, aliases)


DTYPES: dict[str, DType] = {
    row.name: row
    for row in (
        _row("f32", np.float32, "float", 24, "fp32", "float32", "float"),
        _row("f16", np.float16, "float", 11, "fp16", "float16", "half"),
        _row("bf16", ml_dtypes.bfloat16, "float", 8, "bfloat16"),
        _row("f8e4m3", ml_dtypes.float8_e4m3fn, "float", 4, "fp8e4nv", "float8e4nv", "float8_e4m3fn", "fp8e4m3"),
        _row("f8e5m2", ml_dtypes.float8_e5m2, "float", 3, "fp8e5", "float8e5", "float8_e5m2", "fp8e5m2"),
        _row("i32", np.int32, "int", 0, "int32"),
        _row("i8", np.int8, "int", 0, "int8"),
        _row("i1", np.bool_, "bool", 0, "int1", "bool"),
    )
}

_BY_ALIAS = {alias: row.name for row in DTYPES.values() for alias in (row.name, *row.aliases)}

ITEMSIZE: dict[str, int] = {name: row.itemsize for name, row in DTYPES.items()}
FLOATS = frozenset(name for name, row in DTYPES.items() if row.kind == "float")
F32 = np.dtype(np.float32)


def dtype_name(dtype: object) -> str:
    """The canonical name of `dtype`: a kernbench name, an alias, a NumPy or torch type, or a `DType`."""
    if type(dtype) is str and dtype in DTYPES:
        return dtype
    if isinstance(dtype, DType):
        return dtype.name
    return _resolve(str(dtype), dtype if isinstance(dtype, (np.dtype, type)) else None)


@lru_cache(maxsize=256)
def _resolve(text: str, numpy_type: np.dtype[np.generic] | type | None) -> str:
    if numpy_type is not None:
        try:
            text = np.dtype(numpy_type).name
        except TypeError:
            text = str(numpy_type)
    short = text.removeprefix("torch.").removeprefix("tl.")
    if short in _BY_ALIAS:
        return _BY_ALIAS[short]
    raise MisuseError(unknown("element type", short, DTYPES) + " Convert the array first.")


_FLOAT_JOIN = {
    frozenset(("f8e4m3", "f8e5m2")): "f16",
    frozenset(("f16", "bf16")): "f32",
}
_RANK = {"i1": 0, "i8": 1, "i32": 2, "f8e4m3": 3, "f8e5m2": 3, "f16": 4, "bf16": 4, "f32": 5}


@lru_cache(maxsize=256)
def promote(left: str, right: str) -> str:
    """The narrowest type that holds every value of both (floats win over integers)."""
    if left == right:
        return left
    joined = _FLOAT_JOIN.get(frozenset((left, right)))
    return joined or max(left, right, key=_RANK.__getitem__)


def cast(array: Array, dtype: str) -> Array:
    """`array` rounded to `dtype` (to nearest, ties to even; float to integer truncates toward zero and saturates)."""
    row = DTYPES[dtype]
    if array.dtype == row.numpy:
        return array
    if row.kind == "int" and array.dtype.kind not in "iub":
        return _float_to_int(array, row)
    if row.digits and row.digits < 11 and (array.dtype.kind in "iu" or array.dtype == np.float64):
        array = _rounded_to_odd(array)
    return array.astype(row.numpy)


def _rounded_to_odd(array: Array) -> Array:
    """The array as f32, rounded to odd: an inexact result gets an odd last bit.

    Then it is never a tie in the narrower type, and rounding a second time gives the correctly rounded result.
    """
    exact = array.astype(np.float64)
    with np.errstate(over="ignore"):
        near = exact.astype(F32)
    inexact = (near.astype(np.float64) != exact) & ~np.isnan(exact)
    bits = near.view(np.uint32) - (inexact & (np.abs(near.astype(np.float64)) > np.abs(exact)))
    odd: Array = (bits | inexact).astype(np.uint32).view(F32)
    return odd


def _float_to_int(array: Array, row: DType) -> Array:
    limits = np.iinfo(row.numpy)
    wide = np.nan_to_num(array.astype(np.float64), nan=0.0, posinf=limits.max, neginf=limits.min)
    return np.clip(np.trunc(wide), limits.min, limits.max).astype(row.numpy)


def poisoned(shape: tuple[int, ...], dtype: str) -> Array:
    """Fresh memory: every element is the type's poison."""
    row = DTYPES[dtype]
    return np.full(shape, row.poison, dtype=row.numpy)


def as_array(value: object) -> Array:
    """A NumPy array from a NumPy array, a torch tensor (bf16 and 8-bit floats too) or anything with `__dlpack__`."""
    if isinstance(value, np.ndarray):
        return value
    if type(value).__module__.split(".")[0] == "torch":
        return _from_torch(value)
    if hasattr(value, "__dlpack__"):
        try:
            return np.from_dlpack(value)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise MisuseError(f"{type(value).__name__} does not hand its data over: {error}") from None
    if hasattr(value, "__array__") or isinstance(value, (list, tuple, int, float)):
        try:
            return np.asarray(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise MisuseError(f"{type(value).__name__} is no array: {error}") from None
    raise MisuseError(f"{type(value).__name__} is no array: pass a NumPy array, a torch tensor or a DLPack object")


def _from_torch(tensor: Any) -> Array:
    """A tensor as an array; types that NumPy lacks are passed as integers of the same width."""
    import torch

    row = DTYPES[dtype_name(tensor.dtype)]
    plain = tensor.detach().cpu().contiguous()
    if row.name in ("bf16", "f8e4m3", "f8e5m2"):
        carrier = torch.int16 if row.itemsize == 2 else torch.uint8
        return np.asarray(plain.view(carrier).numpy()).view(row.numpy)
    return np.asarray(plain.numpy())
