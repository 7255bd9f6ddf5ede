"""Arrays as callers hand them over, and how precise their element types are."""

from typing import Any

from kernbench.common.dtypes import DTYPES, Array, as_array, dtype_name
from kernbench.common.errors import MisuseError

_FLOAT64_DIGITS = 53


def read(name: str, value: Any) -> Array:
    """`value` as a NumPy array; `name` says in errors whose value it was."""
    try:
        return as_array(value)
    except (MisuseError, ValueError, TypeError, BufferError) as error:
        raise MisuseError(f"{name}: {error}") from error


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
