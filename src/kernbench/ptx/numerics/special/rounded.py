"""Correctly rounded values of the special function unit's functions of one argument, as an assembler folds them.

`tanh` is not among them: ptxas 13.0 does not fold it.
"""

import math
import struct
from collections.abc import Callable

_FUNCTIONS: dict[str, Callable[[float], float]] = {
    "ex2": math.exp2,
    "lg2": math.log2,
    "rcp": lambda x: 1.0 / x,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1.0 / math.sqrt(x),
    "sin": math.sin,
    "cos": math.cos,
}
_LEAST_NORMAL = 2.0**-126


def rounded(name: str, bits: int, ftz: bool) -> int | None:
    """The bits of a function of an f32; None if the result is no ordinary number, or is not folded."""
    function, x = _FUNCTIONS.get(name), float_of(bits)
    if function is None or not math.isfinite(x) or (ftz and abs(x) < _LEAST_NORMAL):
        return None
    try:
        value = function(x)
        found = bits_of(value)
    except (ValueError, ZeroDivisionError, OverflowError):
        return None
    kept = float_of(found)
    return found if kept and math.isfinite(kept) and not (ftz and abs(kept) < _LEAST_NORMAL) else None


def float_of(bits: int) -> float:
    """32 bits as a float."""
    (value,) = struct.unpack("<f", struct.pack("<I", bits))
    return float(value)


def bits_of(value: float) -> int:
    """The bits of the nearest f32; raises OverflowError if there is none."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    return int(bits)
