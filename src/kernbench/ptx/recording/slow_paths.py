"""Which divisions, reciprocals and roots leave the short way of their machine code.

ptxas makes of `div.rn`, `rcp.rn` and `sqrt.rn` a few instructions that are right for ordinary numbers, and calls a
routine where a lane has another one: 0, a number that is very small or very large, infinity. The conditions are those
of the machine code (ptxas 13.0, sm_90), where they can be read.
"""

from collections.abc import Callable, Mapping

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.arrays import Bools, UInt32s, UInt64s

# of the exponents of a numerator and a denominator, as they are stored, and of the first less the second: FCHK, as
# read off the edges of one measurement of all pairs of exponents on an H200; not compared again pair by pair
_LEAST_NUMERATOR, _LEAST_DENOMINATOR, _MOST_DENOMINATOR, _LEAST_APART, _MOST_APART = 25, 2, 251, -124, 126


def _words(values: Array, size: int) -> UInt32s:
    """Numbers of f32 as their bits; of f64 the upper half."""
    if size == 4:
        return np.ascontiguousarray(values).view(np.uint32)
    wide: UInt64s = np.ascontiguousarray(values).view(np.uint64)
    return (wide >> np.uint64(32)).astype(np.uint32)


def _divided(above: Array, below: Array) -> Bools:
    top, bottom = ((_words(one, 4) >> np.uint32(23) & np.uint32(255)).astype(np.int32) for one in (above, below))
    found: Bools = (
        (top < _LEAST_NUMERATOR) | (top == 255) | (bottom < _LEAST_DENOMINATOR) | (bottom > _MOST_DENOMINATOR)
        | (top - bottom < _LEAST_APART) | (top - bottom > _MOST_APART)
    )  # fmt: skip
    return found


def _divided_wide(above: Array, below: Array) -> Bools:
    with np.errstate(all="ignore"):
        quotient = np.abs(_words(above.view(np.float64) / below.view(np.float64), 8) & np.uint32(0x7FFFFFFF))
    small = (_words(above, 8) & np.uint32(0x7FFFFFFF)) < np.uint32(0x03600000)
    found: Bools = small | (quotient <= np.uint32(0x00100000)) | (quotient > np.uint32(0x7F800000))
    return found


def _inverted(of: Array) -> Bools:
    exponent = (_words(of, 4) >> np.uint32(23)) & np.uint32(255)
    found: Bools = (exponent == 0) | (exponent > 252)
    return found


def _inverted_wide(of: Array) -> Bools:
    found: Bools = ((_words(of, 8) + np.uint32(0x300402)) & np.uint32(0x7FFFFFFF)) < np.uint32(0x00400000)
    return found


def _root(of: Array) -> Bools:
    found: Bools = (_words(of, 4) - np.uint32(0x0D000000)) > np.uint32(0x727FFFFF)
    return found


def _root_wide(of: Array) -> Bools:
    found: Bools = (_words(of, 8) - np.uint32(0x03500000)) >= np.uint32(0x7CA00000)
    return found


# by the opcode and the bytes of a number
CONDITIONS: Mapping[tuple[str, int], Callable[..., Bools]] = {
    ("div", 4): _divided,
    ("div", 8): _divided_wide,
    ("rcp", 4): _inverted,
    ("rcp", 8): _inverted_wide,
    ("sqrt", 4): _root,
    ("sqrt", 8): _root_wide,
}


def leaves(opcode: str, size: int, operands: list[Array], count: int) -> Bools:
    """Of `count` lanes those whose operands, numbers of so many bytes, make the machine code call its routine."""
    rows = [np.broadcast_to(np.asarray(one), count) for one in operands]
    return CONDITIONS[opcode, size](*rows)
