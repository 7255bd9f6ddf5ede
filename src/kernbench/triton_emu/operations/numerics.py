"""What each operation computes, on NumPy arrays: one row each. Narrow floats compute in f32 and round once."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from kernbench.common.dtypes import DTYPES, F32, FLOATS, Array, cast

# arrays and numbers alike, as NumPy takes them
Operand = Any


def _truncating_division(x: Operand, y: Operand) -> Operand:
    """Integer division toward zero, as Triton and C define it; by zero gives 0. Wide, because -min does not fit."""
    x, y = np.asarray(x, np.int64), np.asarray(y, np.int64)
    divisor = np.where(np.equal(y, 0), 1, y)
    quotient = np.abs(x) // np.abs(divisor)
    return np.where(np.equal(y, 0), 0, np.where(np.less(x, 0) != np.less(divisor, 0), -quotient, quotient))


def _upper_product(x: Operand, y: Operand) -> Operand:
    """The upper 32 bits of the product of two 32-bit words."""
    wide = (np.asarray(v, np.int64).astype(np.uint32).astype(np.uint64) for v in (x, y))
    return (np.multiply(*wide) >> np.uint64(32)).astype(np.uint32).view(np.int32)


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
    "maximum_number": np.fmax,
    "minimum_number": np.fmin,
    "shl": np.left_shift,
    "shr": np.right_shift,
    "umulhi": _upper_product,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}
COMPARISONS = frozenset(("lt", "le", "gt", "ge", "eq", "ne"))
INTEGER_ONLY = frozenset(("floordiv", "and", "or", "xor", "not", "shl", "shr", "umulhi"))


_each_erf = np.frompyfunc(math.erf, 1, 1)


def _erf(x: Array) -> Array:
    return np.asarray(_each_erf(x.astype(np.float64))).astype(F32)


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
    "sin": np.sin,
    "cos": np.cos,
    "erf": _erf,
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
    "xor_sum": np.bitwise_xor.reduce,
    "reduce_or": np.bitwise_or.reduce,
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


def scan(op: str, x: Array, axis: int, reverse: bool, dtype: str) -> Array:
    """Running sums or products along `axis`, from the end with `reverse`; floats accumulate in f32."""
    towards = np.flip(x, axis) if reverse else x
    wide = F32 if dtype in FLOATS else DTYPES[dtype].numpy
    function = np.add if op == "cumsum" else np.multiply
    running: Array = function.accumulate(towards.astype(wide), axis=axis, dtype=wide)
    return rounded(np.flip(running, axis) if reverse else running, dtype)


def sort(x: Array, axis: int, descending: bool) -> Array:
    """Along `axis`, smallest first; NaN counts as the largest."""
    order = np.argsort(widened(x) if x.dtype.kind not in "iub" else x, axis=axis, kind="stable")
    ordered = np.take_along_axis(x, order, axis)
    return np.flip(ordered, axis) if descending else ordered


PHILOX_ROUNDS = (0xD2511F53, 0xCD9E8D57)
PHILOX_KEYS = (0x9E3779B9, 0xBB67AE85)


def philox(seed: int, counters: list[Array], rounds: int) -> Array:
    """Philox 4x32: four words for each counter of four words, as i32 on a new first axis."""
    low, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    c0, c1, c2, c3 = (c.astype(np.int64).astype(np.uint64) & low for c in counters)
    key = [np.uint64(seed & 0xFFFFFFFF), np.uint64(seed >> 32 & 0xFFFFFFFF)]
    first, second = (np.uint64(n) for n in PHILOX_ROUNDS)
    for _ in range(rounds):
        a, b = c0 * first, c2 * second
        c0, c1, c2, c3 = (b >> shift) ^ c1 ^ key[0], b & low, (a >> shift) ^ c3 ^ key[1], a & low
        key = [(k + np.uint64(step)) & low for k, step in zip(key, PHILOX_KEYS, strict=True)]
    return np.stack([c0, c1, c2, c3]).astype(np.uint32).view(np.int32)


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


def dot(a: Array, b: Array, acc: Array | None = None, *, dtype: str) -> Array:
    """a @ b (+ acc): products exact and summed in f32, or in i32 for integers."""
    if dtype == "i32":
        # exact in f64 while |sum| < 2**53, and far faster than NumPy's integer matmul
        exact: Array = np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64).astype(np.int32)
        return exact if acc is None else exact + acc
    result: Array = np.matmul(widened(a), widened(b))
    if acc is not None:
        result += widened(acc)
    return rounded(result, dtype)


def dot_f32(a: Array, b: Array, acc: Array) -> Array:
    """`dot` where everything is f32 already; without something to add it is `matmul`."""
    result: Array = np.matmul(a, b)
    result += acc
    return result
