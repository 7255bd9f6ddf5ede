"""Limits of the errors that rounding may cause in an output, for each element and for whole parts. They depend on the
output's type only, so that they can be computed before there is an output.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernbench.common.dtypes import DType
from kernbench.golden.basis.blocks import in_blocks
from kernbench.golden.basis.reference import Float64, Reference, arrays_of, with_arrays
from kernbench.golden.shards import Selection
from kernbench.golden.tolerance import elementwise, noise, score_error, tiny, unit

# an output of zeros has 1, unrelated numbers more; correct kernels have about 0.003 in bf16 and 0.04 in f8e4m3
LARGEST_RELATIVE_L2 = 0.5
# for attention, whose rounding is modelled: at most this fraction of the signal or so many roundings of one sign, and
# so many times the averaged noise; structured inputs round alike, so all are generous
RELATIVE_L2 = 0.1
SYSTEMATIC = 8.0
AVERAGED = 32.0
EVERYTHING: Selection = ()


class Norms:
    """Norms of parts of an array, each computed once."""

    def __init__(self, array: Float64):
        self._array = array
        self._known: dict[tuple[object, ...], float] = {}

    def of(self, part: Selection) -> float:
        """The norm of a part."""
        key = tuple((one.start, one.stop, one.step) for one in part)
        if key not in self._known:
            self._known[key] = norm(self._array[part])
        return self._known[key]


@dataclass(frozen=True)
class Limits:
    """The allowed errors of an output of type `output` computed in type `compute`; `allowed`, (relative, absolute), is
    a tolerance chosen by the user.
    """

    reference: Reference
    output: DType
    compute: DType
    allowed: tuple[float, float] | None = None

    @cached_property
    def beyond(self) -> Float64:
        """Values of the reference beyond the range of the output's type."""
        expected = self.reference.expected
        found: Float64 = expected[in_blocks(lambda known: ~_in_range(known, self.output), (expected,), np.bool_)]
        return found

    @cached_property
    def tolerance(self) -> Float64:
        """The largest error allowed in each element."""
        if self.allowed is None:
            return self._of_elements(lambda known: elementwise(known, self.output, self.compute))
        relative, absolute = self.allowed
        chosen: Float64 = absolute + relative * np.abs(self.reference.expected)
        return chosen

    @cached_property
    def _signals(self) -> Norms:
        return Norms(self.reference.expected)

    @cached_property
    def _noise(self) -> Norms:
        return Norms(self._of_elements(lambda known: noise(known, self.compute)))

    @cached_property
    def _score_errors(self) -> Norms:
        return Norms(self._of_elements(lambda known: score_error(known, self.compute)))

    def _of_elements(self, compute: Callable[[Reference], Float64]) -> Float64:
        """Applies a function to the reference in blocks of rows."""
        return in_blocks(lambda *arrays: compute(with_arrays(self.reference, arrays)), arrays_of(self.reference))

    def signal(self, part: Selection = EVERYTHING) -> float:
        """The norm of the expected values."""
        return self._signals.of(part)

    def work_out(self, part: Selection) -> None:
        """Compute everything that will be needed for the elements, and for a part of them."""
        _ = self.beyond, self.tolerance, self.signal(part)
        if self.allowed is None:
            self.largest_error(part)

    def largest_error(self, part: Selection = EVERYTHING) -> float:
        """The largest norm of the errors of `part` that rounding explains."""
        most = self.coarse_limit(part)
        if not self.reference.head_size or self.output.kind != "float":
            # nothing is known about how the elements were computed
            return most
        relative = max(RELATIVE_L2, SYSTEMATIC * (unit(self.output) + unit(self.compute)))
        explained = relative * self.signal(part) + AVERAGED * self._rounding(part)
        return min(most, explained + self._score_errors.of(part)) if relative < LARGEST_RELATIVE_L2 else most

    def coarse_limit(self, part: Selection) -> float:
        """The largest norm of errors of `part`, whatever is known about them."""
        return LARGEST_RELATIVE_L2 * self.signal(part) + self._rounding(part)

    def _rounding(self, part: Selection) -> float:
        """The norm that rounding errors of a part typically add up to."""
        root = math.sqrt(max(1, self.reference.expected[part].size))
        # the fewer elements, the less their errors average out: for one element five times the typical error is allowed
        return (1.0 + 4.0 / root) * self._noise.of(part) + root * tiny(self.output)


def _in_range(expected: Float64, output: DType) -> NDArray[np.bool_]:
    if output.kind == "float":
        with np.errstate(over="ignore"):
            return np.isfinite(expected.astype(output.numpy).astype(np.float64))
    if output.kind == "bool":
        return (expected >= 0.0) & (expected <= 1.0)
    limits = np.iinfo(output.numpy)
    return (expected >= limits.min) & (expected <= limits.max)


def norm(values: ArrayLike) -> float:
    """The root of the sum of squares, which are added in memory order."""
    array = np.asarray(values)
    with np.errstate(over="ignore"):
        return float(np.sqrt(in_blocks(_squares, (array,), array.dtype.type).sum()))


def _squares(values: Float64) -> Float64:
    with np.errstate(over="ignore"):
        return np.square(values)
