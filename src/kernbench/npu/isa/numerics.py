"""The arithmetic of tile operations, on the valid parts of tiles: narrow floats compute in f32 and round once."""

from collections.abc import Callable

import numpy as np

from kernbench.common.dtypes import F32, Array, cast, dtype_name
from kernbench.common.errors import KernelError, unknown

Function = Callable[..., None]
__kernbench_internal__ = True
_INTEGERS = "iub"


def _wide(x: Array) -> Array:
    """Floats as f32; integers as they are."""
    return x if x.dtype == F32 or x.dtype.kind in _INTEGERS else x.astype(F32)


def _put(target: Array, value: Array) -> None:
    """`value` rounded into `target`."""
    target[...] = value if value.dtype == target.dtype else cast(value, dtype_name(target.dtype))


def ufunc(function: Callable[..., Array]) -> Function:
    """An elementwise operation on tiles of one type."""

    def run(target: Array, *sources: Array) -> None:
        if target.dtype == F32:
            function(*sources, out=target)
        else:
            _put(target, function(*map(_wide, sources)))

    return run


def _fitting(value: float, dtype: np.dtype[np.generic]) -> np.generic:
    """A number converted as tiles of a type take it: f32 for floats, exact for integers."""
    try:
        return np.float32(value) if dtype.kind not in _INTEGERS else dtype.type(value)
    except (ValueError, TypeError, OverflowError):
        raise KernelError("misuse", f"{value!r} is no number for a tile of {dtype_name(dtype)}") from None


def scalar(function: Callable[..., Array], swapped: bool = False) -> Function:
    """An elementwise operation of a tile and a number, which is rounded to the tile's type (f32 for narrow floats)."""

    def run(target: Array, source: Array, value: float) -> None:
        number = _fitting(value, target.dtype)
        operands = (number, _wide(source)) if swapped else (_wide(source), number)
        if target.dtype == F32:
            function(*operands, out=target)
        else:
            _put(target, function(*operands))

    return run


def reduction(function: np.ufunc, axis: int) -> Function:
    """A reduction of rows (axis 1) or columns (axis 0); sums are in f32."""

    def run(target: Array, source: Array) -> None:
        if target.dtype == F32:
            function.reduce(source, axis=axis, keepdims=True, out=target)
        else:
            _put(target, function.reduce(_wide(source), axis=axis, keepdims=True))

    return run


def reciprocal(x: Array, out: Array | None = None) -> Array:
    """1 / x."""
    return np.divide(np.float32(1), x, out=out)


def rsqrt(x: Array, out: Array | None = None) -> Array:
    """1 / sqrt(x)."""
    return np.divide(np.float32(1), np.sqrt(x), out=out)


def relu(x: Array, out: Array | None = None) -> Array:
    """max(x, 0)."""
    found: Array = np.maximum(x, x.dtype.type(0), out=out)
    return found


def fill(target: Array, value: float) -> None:
    """Every element becomes `value`."""
    target[...] = _fitting(value, target.dtype)


def axpy(target: Array, source: Array, value: float) -> None:
    """target += source * value, in f32."""
    _put(target, _wide(target) + _wide(source) * np.float32(value))


def iota(target: Array, first: float) -> None:
    """first, first + 1, ... along each row."""
    target[...] = np.arange(first, first + target.shape[1])


def broadcast(target: Array, source: Array) -> None:
    """Broadcast a row or column vector to all rows or columns."""
    target[...] = source


def transpose(target: Array, source: Array) -> None:
    """target[i, j] = source[j, i]."""
    target[...] = source.T


def gather(target: Array, source: Array, indices: Array) -> None:
    """target[i, j] = source[i, indices[i, j]]."""
    outside = indices[(indices < 0) | (indices >= source.shape[1])]
    if outside.size:
        raise KernelError(
            "out-of-bounds",
            f"tgather: {outside.size} of {indices.size} indices lie outside rows of {source.shape[1]} elements, "
            f"{outside[0]} for one",
            f"valid indices are 0 to {source.shape[1] - 1}",
        )
    target[...] = np.take_along_axis(source, indices, axis=1)


def sort(target: Array, source: Array, indices: Array) -> None:
    """Sort rows in descending order; `indices` gives each element's original position. The sort is stable."""
    order = np.argsort(-_wide(source).astype(np.float64), axis=1, kind="stable")
    target[...] = np.take_along_axis(source, order, axis=1)
    indices[...] = order


def select(target: Array, mask: Array, a: Array, b: Array) -> None:
    """a where the mask is not 0, else b."""
    target[...] = np.where(mask != 0, a, b)


COMPARISONS: dict[str, np.ufunc] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


def compare(target: Array, a: Array, b: Array | float, mode: str) -> None:
    """1 where the comparison holds, else 0."""
    if mode not in COMPARISONS:
        raise KernelError("misuse", unknown("comparison", mode, COMPARISONS))
    target[...] = COMPARISONS[mode](_wide(a), _wide(b) if isinstance(b, np.ndarray) else np.float32(b))


def _half_away(x: Array) -> Array:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)


_TO_INTEGER: dict[str, Callable[[Array], Array]] = {
    "rint": np.rint,
    "round": _half_away,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
}
ROUNDINGS = (*_TO_INTEGER, "odd")


def convert(target: Array, source: Array, mode: str) -> None:
    """`source` in another type: to integers by `mode`, to narrower floats to nearest even, or as `mode` says."""
    if mode not in ROUNDINGS:
        raise KernelError("misuse", unknown("rounding mode", mode, ROUNDINGS))
    if target.dtype.kind in _INTEGERS and source.dtype.kind not in _INTEGERS:
        rounding = _TO_INTEGER.get(mode, np.rint)
        _put(target, rounding(_wide(source).astype(np.float64)))
    elif mode == "rint" or target.dtype.kind in _INTEGERS or target.dtype.itemsize >= source.dtype.itemsize:
        _put(target, _wide(source))
    else:
        target[...] = _narrow(_wide(source), target.dtype, mode)


def _narrow(wide: Array, narrow: np.dtype[np.generic], mode: str) -> Array:
    """f32 to a narrower float with a rounding other than to nearest even: one of the two neighbours, by `mode`."""
    near = cast(wide, dtype_name(narrow))
    back = near.astype(F32)
    unsigned = {1: np.uint8, 2: np.uint16}[narrow.itemsize]
    bits = near.view(unsigned).astype(np.int32)
    exact = (back == wide) | ~np.isfinite(wide)
    # one step of the bits is one step in magnitude
    toward = np.where(np.abs(back) > np.abs(wide), bits - 1, bits)
    away = np.where(np.abs(back) > np.abs(wide), bits, bits + 1)
    grows = {
        "trunc": np.zeros(wide.shape, bool),
        "floor": wide < 0,
        "ceil": wide > 0,
        "odd": (toward & 1) == 0,
        "round": _above_half(wide, toward, away, unsigned, narrow),
    }[mode]
    chosen = np.where(exact, bits, np.where(grows, away, toward)).astype(unsigned)
    return chosen.view(narrow)


def _above_half(wide: Array, toward: Array, away: Array, unsigned: type, narrow: np.dtype[np.generic]) -> Array:
    low, high = (b.astype(unsigned).view(narrow).astype(np.float64) for b in (toward, away))
    grows: Array = np.abs(wide - low) >= np.abs(high - wide)
    return grows


def product(a: Array, b: Array) -> Array:
    """a @ b with products and sums in f32, or exact in i32."""
    if a.dtype.kind in _INTEGERS:
        exact: Array = np.matmul(a.astype(np.float64), b.astype(np.float64)).astype(np.int64).astype(np.int32)
        return exact
    result: Array = np.matmul(_wide(a), _wide(b))
    return result


def matmul(target: Array, a: Array, b: Array) -> None:
    """target = a @ b."""
    target[...] = product(a, b)


def matmul_acc(target: Array, a: Array, b: Array) -> None:
    """target += a @ b."""
    target += product(a, b)


def matmul_bias(target: Array, a: Array, b: Array, bias: Array) -> None:
    """target = a @ b + bias."""
    target[...] = product(a, b) + bias


def move(target: Array, source: Array) -> None:
    """A copy, rounded to the target's type."""
    if source.dtype == target.dtype:
        target[...] = source
    else:
        _put(target, source)
