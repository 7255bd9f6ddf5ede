"""The expected output of a kernel, with the sizes that its rounding errors are relative to."""

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernbench.common.errors import MisuseError

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]
# fields that are numbers: all others are arrays
_NUMBERS = ("head_size", "operand_digits")
# values that masks write over hidden scores: -1e9, -1e30, the lowest of f32
_MASKED = -1e9
# a relative size below which a term is lost in a sum of f32
_LOST = 2.0**-24


@dataclass(frozen=True)
class Reference:
    """The expected output `o` of softmax weights p and values v, with the sizes that bound a correct kernel's error.

    Arrays of the output's shape; every sum is over the keys visible to the row:

    - `expected`: o = sum p v
    - `magnitude`: sum p |v|, what rounding errors of that sum are relative to
    - `deviation`: sqrt(sum p (v - o)^2), how far o moves for one unit of error in every score
    - `flat_magnitude`: sum |v| / `denominator`, how far o moves for one unit of error in every exp(s - max s)

    Arrays with one number for each row, with a last axis of 1:

    - `terms`: how many keys are visible
    - `denominator`: sum exp(s - max s), 0 if no key is visible
    - `concentration`: sum p^2, from 1 / terms if all keys have equal weights to 1 if one has all the weight
    - `score_magnitude`: |scale| times the norm of q times the largest norm of k; no sum of |q_i k_i| is larger

    `head_size` is the number of products in a score; `operand_digits` the precision of the widest input, 0 if unknown.
    """

    expected: Float64
    magnitude: Float64
    deviation: Float64
    flat_magnitude: Float64
    terms: Float64
    denominator: Float64
    concentration: Float64
    score_magnitude: Float64
    head_size: int = 0
    operand_digits: int = 0

    def __post_init__(self) -> None:
        row_shape = (*self.shape[:-1], 1) if self.shape else ()
        for name in ("magnitude", "deviation", "flat_magnitude"):
            self._check(name, self.shape)
        for name in ("terms", "denominator", "concentration", "score_magnitude"):
            self._check(name, row_shape)

    def _check(self, name: str, shape: tuple[int, ...]) -> None:
        found = getattr(self, name).shape
        if found != shape:
            raise MisuseError(f"reference: {name} has shape {found}, but expected of shape {self.shape} needs {shape}")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the output."""
        return self.expected.shape

    def rows(self, start: int, stop: int) -> "Reference":
        """The reference of the indices `start` to `stop` of the first axis alone."""
        return with_arrays(self, [array[start:stop] for array in arrays_of(self)])

    def picked(self, indices: tuple[Int64, ...]) -> "Reference":
        """The reference of single elements, each as a row: `indices` has an array for each axis."""

        def of(array: Float64) -> Float64:
            return np.broadcast_to(array, self.shape)[indices].reshape(-1, 1)

        return with_arrays(self, [of(array) for array in arrays_of(self)])

    @property
    def reduction(self) -> int:
        """The largest number of terms in a sum behind an element."""
        return int(self.terms.max(initial=0))

    @property
    def energy(self) -> Float64:
        """sqrt(sum p v^2): never smaller than `magnitude`."""
        return np.hypot(self.deviation, self.expected)


def arrays_of(reference: Reference) -> list[Float64]:
    """All arrays of a reference."""
    return [getattr(reference, name) for name in _names()]


def with_arrays(reference: Reference, arrays: Sequence[Float64]) -> Reference:
    """A copy of a reference with other arrays, in the order of `arrays_of`."""
    given: dict[str, Any] = dict(zip(_names(), arrays, strict=True))
    return replace(reference, **given)


@cache
def _names() -> tuple[str, ...]:
    """The names of the arrays of a reference."""
    return tuple(field.name for field in fields(Reference) if field.name not in _NUMBERS)


def plain_reference(expected: Float64, reduction: int = 1) -> Reference:
    """A reference for an array known only by its values, which are finite and each a sum of `reduction` terms.

    The size of those terms is taken to be the largest magnitude of the row (the last axis); in rows with values written
    by a mask (-1e9 or less, beside which all others would be lost in a sum of f32), the largest of the others.
    """
    if reduction < 1:
        raise MisuseError(f"reduction is the number of terms behind each element, at least 1; got {reduction}")
    size = np.abs(expected)
    row = size.max(axis=-1, keepdims=True, initial=0.0) if size.ndim else size
    magnitude = np.where(_beside_a_mask(expected), _largest_unmasked(expected), row)
    return Reference(
        expected=expected,
        magnitude=magnitude,
        deviation=np.sqrt(magnitude - size) * np.sqrt(magnitude + size),
        flat_magnitude=magnitude * reduction,
        terms=np.full(row.shape, float(reduction)),
        denominator=np.ones(row.shape),
        concentration=np.full(row.shape, 1.0 / reduction),
        score_magnitude=np.zeros(row.shape),
    )


def _largest_unmasked(expected: Float64) -> float:
    """Over all rows, as a row may have a single unmasked element that happens to be near 0."""
    return float(np.abs(expected[expected > _MASKED]).max(initial=0.0))


def _beside_a_mask(expected: Float64) -> NDArray[np.bool_]:
    """Which elements are unmasked elements of an array with masked ones."""
    masked = expected <= _MASKED
    least = float(np.abs(expected[masked]).min(initial=np.inf))
    apart = bool(masked.any()) and _largest_unmasked(expected) < least * _LOST
    return np.logical_and(~masked, apart)
