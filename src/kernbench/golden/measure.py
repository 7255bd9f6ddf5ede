"""The errors of an output: of each element against its tolerance, and of whole parts against the size of the signal."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike, NDArray

from kernbench.common.dtypes import Array, DType
from kernbench.golden.basis.arrays import to_float64
from kernbench.golden.basis.blocks import in_blocks, largest
from kernbench.golden.basis.reference import Float64, Reference, arrays_of, with_arrays
from kernbench.golden.shards import Selection
from kernbench.golden.tolerance import elementwise, noise, score_error, spacing, tiny, unit

# zeros have 1, unrelated numbers more; correct kernels have about 0.003 in bf16 and 0.04 in f8e4m3
LARGEST_RELATIVE_L2 = 0.5
# of attention, whose rounding is understood: at most this part of the signal or so many roundings of one sign, and so
# many times the averaged noise; structured inputs round alike, so all are generous
RELATIVE_L2 = 0.1
SYSTEMATIC = 8.0
AVERAGED = 32.0
EVERYTHING: Selection = ()


@dataclass(frozen=True)
class Measurement:
    """An output beside its reference: `actual` and `error` in float64; an element that is not finite is off by inf."""

    actual: Float64
    error: Float64
    reference: Reference
    output: DType
    compute: DType

    @property
    def expected(self) -> Float64:
        """What the elements should be."""
        return self.reference.expected

    @cached_property
    def tolerance(self) -> Float64:
        """The largest error allowed in each element."""
        return _of_reference(lambda known: elementwise(known, self.output, self.compute), self.reference)

    @cached_property
    def out_of_tolerance(self) -> NDArray[np.bool_]:
        """Which elements are off by more than their tolerance."""
        return in_blocks(lambda error, most: ~(error <= most), (self.error, self.tolerance), np.bool_)

    @cached_property
    def _noise(self) -> Float64:
        return _of_reference(lambda known: noise(known, self.compute), self.reference)

    @cached_property
    def _score_error(self) -> Float64:
        return _of_reference(lambda known: score_error(known, self.compute), self.reference)

    @cached_property
    def excess(self) -> Float64:
        """Error in units of the tolerance."""
        return in_blocks(_ratio, (self.error, self.tolerance))

    @cached_property
    def _norms(self) -> dict[tuple[object, ...], float]:
        """Norms that were asked for, by the name of the array and the part."""
        return {}

    def _norm_of(self, name: str, part: Selection) -> float:
        key = (name, *((one.start, one.stop, one.step) for one in part))
        if key not in self._norms:
            self._norms[key] = _norm(getattr(self, name)[part])
        return self._norms[key]

    def worst(self, part: Selection = EVERYTHING) -> tuple[int, ...]:
        """Index of the element of `part` furthest out of its tolerance; empty if the part is."""
        excess = self.excess[part]
        if not excess.size:
            return ()
        index = np.unravel_index(int(excess.argmax()), excess.shape)
        starts = [selected.start or 0 for selected in part] + [0] * (excess.ndim - len(part))
        return tuple(int(i) + start for i, start in zip(index, starts, strict=True))

    def wrong(self, part: Selection = EVERYTHING) -> int:
        """How many elements of `part` are wrong: those out of tolerance; if none is, all where the whole is noise."""
        beyond = int(self.out_of_tolerance[part].sum())
        return self.error[part].size if not beyond and self.is_noise(part) else beyond

    def is_noise(self, part: Selection = EVERYTHING) -> bool:
        """Whether the error of `part` as a whole is more than rounding explains.

        Each element may be off by a wide tolerance where rows are long; but then errors of either sign cancel, and
        those of a whole part stay small against it. Zeros, a constant, a few missing percent of the keys or a wrong
        factor do not. Elements that are out of tolerance are wrong by themselves; unless they are the most of the part,
        they say nothing about the rest.
        """
        if not self._norm_of("expected", part) > 0.0:
            return False
        error, beyond = self.error[part], self.out_of_tolerance[part]
        # where all elements are within their tolerance, all are quiet, and finite
        is_quiet = not beyond.any()
        quiet = self._norm_of("error", part) if is_quiet else _norm(error[~beyond])
        finite = quiet if is_quiet else _norm(error[np.isfinite(error)])
        return quiet > self.largest_error(part) or finite > self._coarse_limit(part)

    def largest_error(self, part: Selection = EVERYTHING) -> float:
        """The largest norm of the errors of `part` that rounding explains."""
        most = self._coarse_limit(part)
        if not self.reference.head_size or self.output.kind != "float":
            # nothing is known of how the elements came about
            return most
        relative = max(RELATIVE_L2, SYSTEMATIC * (unit(self.output) + unit(self.compute)))
        explained = relative * self._norm_of("expected", part) + AVERAGED * self._rounding(part)
        return min(most, explained + _norm(self._score_error[part])) if relative < LARGEST_RELATIVE_L2 else most

    def _coarse_limit(self, part: Selection) -> float:
        return LARGEST_RELATIVE_L2 * self._norm_of("expected", part) + self._rounding(part)

    def _rounding(self, part: Selection) -> float:
        """What rounding typically adds up to over a part."""
        root = math.sqrt(max(1, self.error[part].size))
        # the fewer elements, the less their errors average out: five times the typical error of one is no surprise
        return (1.0 + 4.0 / root) * self._norm_of("_noise", part) + root * tiny(self.output)

    def relative_l2(self, part: Selection = EVERYTHING) -> float:
        """Norm of the error over norm of the expected values."""
        return float(_ratio(np.array(self._norm_of("error", part)), np.array(self._norm_of("expected", part))))

    def max_abs(self, part: Selection = EVERYTHING) -> float:
        """Largest error."""
        return float(self.error[part].max(initial=0.0))

    def max_rel(self) -> float:
        """Largest error relative to the expected value, where that is not 0."""
        return largest(_relative, (self.error, self.expected))

    def max_ulps(self) -> float:
        """Largest error in units of the output type's spacing at the expected value."""
        return largest(lambda error, known: _ratio(error, spacing(known, self.output)), (self.error, self.expected))


@dataclass(frozen=True)
class AllowedMeasurement(Measurement):
    """One whose tolerance somebody chose: `absolute` + `relative` times the expected value, element by element."""

    relative: float
    absolute: float

    @cached_property
    def tolerance(self) -> Float64:
        """The largest error allowed in each element."""
        chosen: Float64 = self.absolute + self.relative * np.abs(self.expected)
        return chosen

    def is_noise(self, part: Selection = EVERYTHING) -> bool:
        """Never: whoever chose the tolerance of the elements did not ask for more."""
        return False


def measure(
    actual: Array, reference: Reference, output: DType, compute: DType, allowed: tuple[float, float] | None = None
) -> Measurement:
    """`actual` of the reference's shape, measured; against a tolerance (relative, absolute) where one is given."""
    values = in_blocks(to_float64, (actual,))
    error = in_blocks(_error, (values, reference.expected))
    if allowed is None:
        return Measurement(values, error, reference, output, compute)
    return AllowedMeasurement(values, error, reference, output, compute, *allowed)


def _error(values: Float64, expected: Float64) -> Float64:
    """How far values are off; infinitely where they are not finite."""
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(values - expected)
    return np.where(np.isfinite(values), error, np.inf)


def _relative(error: Float64, expected: Float64) -> Float64:
    """Errors in units of the expected value; 0 where that is 0."""
    return np.where(expected != 0.0, _ratio(error, np.abs(expected)), 0.0)


def _of_reference(compute: Callable[[Reference], Float64], reference: Reference) -> Float64:
    """What is worked out of each element of a reference and its row."""
    return in_blocks(lambda *arrays: compute(with_arrays(reference, arrays)), arrays_of(reference))


def _ratio(above: Float64, below: Float64) -> Float64:
    """above / below, where 0 / 0 is 0 and anything else over 0 is inf."""
    result = np.where(above > 0.0, np.inf, 0.0)
    with np.errstate(over="ignore"):
        np.divide(above, below, out=result, where=below > 0.0)
    return result


def _norm(values: ArrayLike) -> float:
    with np.errstate(over="ignore"):
        return float(np.sqrt(np.square(values).sum()))
