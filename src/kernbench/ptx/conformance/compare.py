"""The distance of two results: equal bits, or units in the last place (ulp) of their type."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernbench.common.dtypes import Array
from kernbench.ptx.conformance.inputs import FORMATS, Bits
from kernbench.ptx.text.types import TYPES


@dataclass(frozen=True)
class Agreement:
    """Of `total` numbers, `different` have different bits; `nan_bits` of these are NaN on both sides.

    `ulps` is the largest distance between two numbers, None if a NaN or an infinity is on one side only. `worst` is the
    lane with that distance, -1 if nothing differs.
    """

    total: int
    different: int
    nan_bits: int
    ulps: int | None
    worst: int

    @property
    def equal(self) -> bool:
        """Whether every bit agrees."""
        return self.different == 0

    def __str__(self) -> str:
        if self.equal:
            return f"equal ({self.total})"
        distance = "NaN or infinity against a number" if self.ulps is None else f"{self.ulps} ulp"
        nans = f"{self.nan_bits} only in a NaN's bits"
        return f"{self.different} of {self.total} differ ({nans}), {distance}, lane {self.worst}"


def compare(ours: Bits, theirs: Bits, type_name: str) -> Agreement:
    """Compare two arrays of bits of one type; packed types element by element."""
    scalar = TYPES[type_name]
    if scalar.lane:
        width = scalar.bits // scalar.lanes
        ours, theirs = (_unpacked(bits, scalar.lanes, width) for bits in (ours, theirs))
        scalar = TYPES[scalar.lane]
    a, b = (bits.astype(np.uint64).ravel() for bits in (ours, theirs))
    differ = a != b
    lanes = ours.shape[-1]
    if not differ.any():
        return Agreement(a.size, 0, 0, 0, -1)
    if scalar.name not in FORMATS:
        return Agreement(a.size, int(differ.sum()), 0, None, int(np.flatnonzero(differ)[0] % lanes))
    return _floats(a, b, differ, lanes, *FORMATS[scalar.name])


def _unpacked(bits: Bits, lanes: int, width: int) -> NDArray[np.uint64]:
    """The elements of packed values, along a new first axis."""
    shifts = (np.arange(lanes) * width).astype(np.uint64).reshape(-1, *(1,) * bits.ndim)
    return (bits.astype(np.uint64) >> shifts) & np.uint64((1 << width) - 1)


def _floats(a: Array, b: Array, differ: Array, lanes: int, exponent: int, fraction: int) -> Agreement:
    infinity = np.uint64(((1 << exponent) - 1) << fraction)
    sign = np.uint64(1 << (exponent + fraction))
    magnitude = [bits & (sign - np.uint64(1)) for bits in (a, b)]
    is_nan = [m > infinity for m in magnitude]
    nan_bits = differ & is_nan[0] & is_nan[1]
    special = [m >= infinity for m in magnitude]
    broken = differ & ~nan_bits & (special[0] ^ special[1] | is_nan[0] ^ is_nan[1])
    if broken.any():
        return Agreement(a.size, int(differ.sum()), int(nan_bits.sum()), None, int(np.flatnonzero(broken)[0] % lanes))
    ordered = [
        np.where(bits & sign, -m.astype(np.int64), m.astype(np.int64))
        for bits, m in zip((a, b), magnitude, strict=True)
    ]
    distance = np.where(differ & ~nan_bits, np.abs(ordered[0] - ordered[1]), 0)
    worst = int(distance.argmax()) if distance.any() else int(np.flatnonzero(differ)[0])
    return Agreement(a.size, int(differ.sum()), int(nan_bits.sum()), int(distance.max()), worst % lanes)
