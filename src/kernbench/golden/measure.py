"""The errors of an output: of each element against its tolerance, and of whole parts against the size of the signal."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kernbench.common.dtypes import Array, DType
from kernbench.golden.basis.arrays import to_float64
from kernbench.golden.basis.blocks import in_blocks, largest
from kernbench.golden.basis.reference import Float64, Reference
from kernbench.golden.limits import EVERYTHING, Limits, Norms, norm
from kernbench.golden.shards import Selection
from kernbench.golden.tolerance import spacing


@dataclass(frozen=True)
class Measurement:
    """An output with its reference: `actual` and `error` in float64; an element that is not finite has error inf."""

    actual: Float64
    error: Float64
    limits: Limits

    @property
    def reference(self) -> Reference:
        """The reference it is compared with."""
        return self.limits.reference

    @property
    def output(self) -> DType:
        """The type of the elements."""
        return self.limits.output

    @property
    def compute(self) -> DType:
        """The type that operands of products are rounded to."""
        return self.limits.compute

    @property
    def expected(self) -> Float64:
        """The expected values."""
        return self.reference.expected

    @property
    def tolerance(self) -> Float64:
        """The largest error allowed in each element."""
        return self.limits.tolerance

    @cached_property
    def out_of_tolerance(self) -> NDArray[np.bool_]:
        """Which elements are off by more than their tolerance."""
        return in_blocks(lambda error, most: ~(error <= most), (self.error, self.tolerance), np.bool_)

    @cached_property
    def excess(self) -> Float64:
        """Error in units of the tolerance."""
        return in_blocks(_ratio, (self.error, self.tolerance))

    @cached_property
    def _norms(self) -> Norms:
        return Norms(self.error)

    def worst(self, part: Selection = EVERYTHING) -> tuple[int, ...]:
        """Index of the element of `part` furthest out of its tolerance; empty if the part is."""
        excess = self.excess[part]
        if not excess.size:
            return ()
        index = np.unravel_index(int(excess.argmax()), excess.shape)
        starts = [selected.start or 0 for selected in part] + [0] * (excess.ndim - len(part))
        return tuple(int(i) + start for i, start in zip(index, starts, strict=True))

    def wrong(self, part: Selection = EVERYTHING) -> int:
        """How many elements of `part` are wrong: those out of tolerance; if there are none, all if the whole is
        noise.
        """
        beyond = int(self.out_of_tolerance[part].sum())
        return self.error[part].size if not beyond and self.is_noise(part) else beyond

    def is_noise(self, part: Selection = EVERYTHING) -> bool:
        """Whether the error of `part` as a whole is more than rounding explains; always False with a tolerance chosen
        by the user, which is all that is required then.

        In long rows the tolerance of each element is wide; but then errors of either sign cancel, and the norm of
        a whole part stays small against it. Zeros, a constant, a few missing percent of the keys or a wrong
        factor do not. Elements out of tolerance are counted by themselves; unless they are most of the part,
        the rest is judged without them.
        """
        if self.limits.allowed is not None or not self.limits.signal(part) > 0.0:
            return False
        error, beyond = self.error[part], self.out_of_tolerance[part]
        # if all elements are within tolerance, all are finite
        is_quiet = not beyond.any()
        quiet = self._norms.of(part) if is_quiet else norm(error[~beyond])
        finite = quiet if is_quiet else norm(error[np.isfinite(error)])
        return quiet > self.limits.largest_error(part) or finite > self.limits.coarse_limit(part)

    def relative_l2(self, part: Selection = EVERYTHING) -> float:
        """Norm of the error over norm of the expected values."""
        return float(_ratio(np.array(self._norms.of(part)), np.array(self.limits.signal(part))))

    def max_abs(self, part: Selection = EVERYTHING) -> float:
        """Largest error."""
        return float(self.error[part].max(initial=0.0))

    def max_rel(self) -> float:
        """Largest error relative to the expected value, where that is not 0."""
        return largest(_relative, (self.error, self.expected))

    def max_ulps(self) -> float:
        """Largest error in units of the output type's spacing at the expected value."""
        return largest(lambda error, known: _ratio(error, spacing(known, self.output)), (self.error, self.expected))


def measure(actual: Array, limits: Limits) -> Measurement:
    """The errors of `actual`, which has the reference's shape, against the limits."""
    values = in_blocks(to_float64, (actual,))
    error = in_blocks(_error, (values, limits.reference.expected))
    return Measurement(values, error, limits)


def _error(values: Float64, expected: Float64) -> Float64:
    """Distance of values from the expected ones; infinite if they are not finite."""
    with np.errstate(invalid="ignore", over="ignore"):
        error = np.abs(values - expected)
    return np.where(np.isfinite(values), error, np.inf)


def _relative(error: Float64, expected: Float64) -> Float64:
    """Errors in units of the expected value; 0 where that is 0."""
    return np.where(expected != 0.0, _ratio(error, np.abs(expected)), 0.0)


def _ratio(above: Float64, below: Float64) -> Float64:
    """above / below, where 0 / 0 is 0 and anything else over 0 is inf."""
    result = np.where(above > 0.0, np.inf, 0.0)
    with np.errstate(over="ignore"):
        np.divide(above, below, out=result, where=below > 0.0)
    return result
