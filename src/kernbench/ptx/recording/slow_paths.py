"""Which divisions, reciprocals and roots leave the fast path of their machine code.

For `div.rn`, `rcp.rn` and `sqrt.rn` ptxas generates a few instructions that are correct for ordinary numbers, and calls
a subroutine for others: 0, very small or very large numbers, infinity. The conditions are those of the machine code
(ptxas 13.0, sm_90), where they can be read from it.
"""

from collections.abc import Callable, Mapping

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.arrays import Bools, UInt32s, UInt64s

# limits on the biased exponents of numerator and denominator, and on their difference: the FCHK instruction, as read
# off one measurement of all pairs of exponents on an H200; not compared again pair by pair
_LEAST_NUMERATOR, _LEAST_DENOMINATOR, _MOST_DENOMINATOR, _LEAST_APART, _MOST_APART = 25, 2, 251, -124, 126


def _words(values: Array, size: int) -> UInt32s:
    """The bits of f32 numbers; the upper half of f64."""
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


# by opcode and size of a number in bytes
CONDITIONS: Mapping[tuple[str, int], Callable[..., Bools]] = {
    ("div", 4): _divided,
    ("div", 8): _divided_wide,
    ("rcp", 4): _inverted,
    ("rcp", 8): _inverted_wide,
    ("sqrt", 4): _root,
    ("sqrt", 8): _root_wide,
}


def leaves(opcode: str, size: int, operands: list[Array], count: int) -> Bools:
    """Which of `count` lanes have operands (of `size` bytes) for which the machine code calls its subroutine."""
    rows = [np.broadcast_to(np.asarray(one), count) for one in operands]
    return CONDITIONS[opcode, size](*rows)
