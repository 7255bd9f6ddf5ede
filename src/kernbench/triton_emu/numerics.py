"""What each operation computes, on NumPy arrays: one row each. Narrow floats compute in f32 and round once."""

from collections.abc import Callable
from typing import Any

import numpy as np

from kernbench.common.dtypes import DTYPES, F32, FLOATS, Array, cast

Operand = Any


def _truncating_division(x: Operand, y: Operand) -> Operand:
    """Integer division toward zero, as Triton and C define it; by zero gives 0. Wide, because -min does not fit."""
    x, y = np.asarray(x, np.int64), np.asarray(y, np.int64)
    divisor = np.where(np.equal(y, 0), 1, y)
    quotient = np.abs(x) // np.abs(divisor)
    return np.where(np.equal(y, 0), 0, np.where(np.less(x, 0) != np.less(divisor, 0), -quotient, quotient))


BINARY: dict[str, Callable[..., Operand]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "floordiv": _truncating_division,
    "mod": np.fmod,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
COMPARISONS = frozenset(("lt", "le", "gt", "ge", "eq", "ne"))
INTEGER_ONLY = frozenset(("floordiv", "and", "or", "xor", "not"))


def _sigmoid(x: Array) -> Array:
    return np.float32(1) / (np.float32(1) + np.exp(-x))


UNARY: dict[str, Callable[[Array], Array]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: np.float32(1) / np.sqrt(x),
    "sigmoid": _sigmoid,
    "tanh": np.tanh,
    "floor": np.floor,
    "ceil": np.ceil,
    "neg": np.negative,
    "abs": np.abs,
    "not": np.invert,
}
KEEPS_INTEGERS = frozenset(("neg", "abs", "not", "floor", "ceil"))

REDUCTIONS: dict[str, Callable[..., Array]] = {
    "max": np.maximum.reduce,
    "min": np.minimum.reduce,
    "sum": np.add.reduce,
    "argmax": np.argmax,
    "argmin": np.argmin,
}


def widened(x: Operand) -> Operand:
    """Arrays as f32 for computing; scalars as they are."""
    return x.astype(F32) if isinstance(x, np.ndarray) and x.dtype != F32 else x


def rounded(x: Array, dtype: str) -> Array:
    """An f32 result brought to the type it is kept in."""
    return x if dtype == "f32" else cast(x, dtype)


def binary(op: str, x: Operand, y: Operand, dtype: str, out_dtype: str) -> Array:
    """`op` on operands that meet in `dtype`."""
    if dtype in FLOATS:
        result = BINARY[op](widened(x), widened(y))
        return result if op in COMPARISONS else rounded(result, out_dtype)
    target = DTYPES[dtype].numpy
    x, y = (v.astype(target, copy=False) if isinstance(v, np.ndarray) else v for v in (x, y))
    if op == "div":
        x, y = (np.asarray(v, F32) for v in (x, y))
    result = BINARY[op](x, y)
    return result if op in COMPARISONS else np.asarray(result).astype(DTYPES[out_dtype].numpy, copy=False)


def unary(op: str, x: Array, dtype: str) -> Array:
    """`op` on one operand, giving `dtype`."""
    if dtype in FLOATS:
        return rounded(UNARY[op](widened(x)), dtype)
    return UNARY[op](x)


def reduce(op: str, x: Array, axis: int | None, dtype: str) -> Array:
    """`op` over `axis` (all axes for None), which stays with size 1. Sums accumulate in f32 or i32."""
    if op in ("argmax", "argmin"):
        wide = widened(x) if x.dtype.kind not in "iub" else x
        return REDUCTIONS[op](wide, axis=axis, keepdims=True).astype(np.int32)
    if dtype in FLOATS:
        return rounded(REDUCTIONS[op](widened(x), axis=axis, keepdims=True), dtype)
    if op == "sum":
        return np.add.reduce(x, axis=axis, keepdims=True, dtype=DTYPES[dtype].numpy)
    return REDUCTIONS[op](x, axis=axis, keepdims=True)


def softmax(x: Array, axis: int, dtype: str) -> Array:
    """exp(x - max) / sum over `axis`, in f32, rounded once."""
    wide = widened(x)
    powers = np.exp(wide - wide.max(axis=axis, keepdims=True))
    return rounded(powers / powers.sum(axis=axis, keepdims=True), dtype)


def fma(x: Operand, y: Operand, z: Operand, dtype: str) -> Array:
    """x * y + z: the product of two f32 is exact in f64, so only the sum rounds before the final rounding."""
    wide = np.float64 if dtype in FLOATS else np.int64
    a, b, c = (np.asarray(v).astype(wide) for v in (x, y, z))
    return cast(a * b + c, dtype)


def dot(a: Array, b: Array, acc: Array | None, dtype: str) -> Array:
    """a @ b (+ acc): products exact and summed in f32, or in i32 for integers."""
    if dtype == "i32":
        # exact in f64 while |sum| < 2**53, and far faster than NumPy's integer matmul
        exact: Array = np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64).astype(np.int32)
        return exact if acc is None else exact + acc
    result: Array = np.matmul(widened(a), widened(b))
    if acc is not None:
        result += widened(acc)
    return rounded(result, dtype)


def dot_f32(a: Array, b: Array, acc: Array | None) -> Array:
    """`dot` where everything is f32 already."""
    result: Array = np.matmul(a, b)
    if acc is not None:
        result += acc
    return result
