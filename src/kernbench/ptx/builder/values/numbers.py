"""Python numbers as immediates of a type; numbers that the type cannot represent are refused."""

import math
import operator
import struct
from typing import SupportsIndex, TypeGuard

import ml_dtypes
import numpy as np

from kernbench.ptx.builder.values.banks import scalar
from kernbench.ptx.builder.values.errors import PtxBuildError
from kernbench.ptx.text.module import Float, Integer

__kernbench_internal__ = True

_HALVES: dict[str, type[np.generic]] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16}


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether this is a Python or NumPy number."""
    return isinstance(value, (int, float, np.integer, np.floating, np.bool_, ml_dtypes.bfloat16))


def immediate(value: object, type: str) -> Integer | Float:
    """The number as an operand of `type`; halves and packed types as their bits."""
    kind = scalar(type).kind
    if not is_number(value):
        raise PtxBuildError(f"{value!r} is no number, and one of .{type} is wanted")
    if kind == "f" and type in ("f32", "f64", "tf32"):
        return _float(_as_float(value, type), 64 if type == "f64" else 32, type)
    if kind in "fx":
        return _packed(value, type)
    return _integer(value, type)


def needs_register(type: str) -> bool:
    """Whether PTX accepts numbers of this type only in a register."""
    return scalar(type).kind in "fx" and type not in ("f32", "f64", "tf32")


def _integer(value: object, type: str) -> Integer:
    if not isinstance(value, SupportsIndex):
        raise PtxBuildError(f"{value!r} is a float, and .{type} is wanted: write a whole number")
    number = operator.index(value)
    low, high = _range(type)
    if not low <= number <= high:
        raise PtxBuildError(f"{number} does not fit .{type}, which holds {low} to {high}")
    return Integer(number, str(number))


def _range(type: str) -> tuple[int, int]:
    bits, kind = scalar(type).bits, scalar(type).kind
    low = 0 if kind in "up" else -(1 << (bits - 1))
    high = (1 << (bits - 1)) - 1 if kind == "s" else (1 << bits) - 1
    return low, high


def _as_float(value: int | float, type: str) -> float:
    number = float(value)
    if isinstance(value, (int, np.integer)) and int(number) != int(value):
        raise PtxBuildError(f"{value} is no .{type} exactly: write it as a float")
    return number


def _float(number: float, width: int, type: str) -> Float:
    if width == 64:
        bits = int.from_bytes(struct.pack(">d", number), "big")
        return Float(bits, 64, f"0d{bits:016X}")
    try:
        bits = int.from_bytes(struct.pack(">f", number), "big")
    except OverflowError:
        raise PtxBuildError(f"{number!r} does not fit .{type}") from None
    return Float(bits, 32, f"0f{bits:08X}")


def _packed(value: int | float, type: str) -> Integer:
    """Bits of a half, or of the same half in both positions."""
    row = scalar(type)
    lane = row.lane or type
    if lane not in _HALVES:
        raise PtxBuildError(f"a number cannot be written as .{type}: convert one from f32, or give its bits")
    number = _as_float(value, type)
    with np.errstate(over="ignore"):
        half = np.asarray(number).astype(_HALVES[lane])
    if math.isfinite(number) and not np.isfinite(half):
        raise PtxBuildError(f"{number!r} does not fit .{type}")
    one = int(half.view(np.uint16))
    bits = one | one << 16 if row.lanes == 2 else one
    return Integer(bits, f"0x{bits:0{row.bits // 4}X}")
