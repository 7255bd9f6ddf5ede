"""Arrays as callers pass them, and the precision of their element types."""

import numpy as np
from numpy.typing import ArrayLike

from kernbench.common.dtypes import DTYPES, Array, as_array, dtype_name
from kernbench.common.errors import MisuseError
from kernbench.golden.basis.reference import Float64

_FLOAT64_DIGITS = 53
# NumPy's kinds: complex, objects, bytes, text, time spans, dates
_NO_REAL_NUMBERS = "cOSUmM"


def read(name: str, value: ArrayLike) -> Array:
    """`value` as a NumPy array of real numbers; `name` is its name in errors."""
    try:
        array = as_array(value)
    except (MisuseError, ValueError, TypeError, BufferError) as error:
        raise MisuseError(f"{name}: {error}") from error
    if array.dtype.kind in _NO_REAL_NUMBERS:
        raise MisuseError(f"{name}: elements of type {array.dtype} are no real numbers")
    return array


def to_float64(array: Array) -> Float64:
    """`array` in float64, without rounding."""
    # a signalling NaN becomes a quiet one, which need not be flagged
    with np.errstate(invalid="ignore"):
        return array.astype(np.float64)


def element_name(name: str, array: Array) -> str:
    """The element type of `array`: f64, which only references have, or one of `common.dtypes`."""
    if array.dtype.name == "float64":
        return "f64"
    try:
        return dtype_name(array.dtype)
    except MisuseError as error:
        raise MisuseError(f"{name}: {error}") from error


def digits(element: str) -> int:
    """Bits of the significand of an element type; 0 for integers."""
    return _FLOAT64_DIGITS if element == "f64" else DTYPES[element].digits
