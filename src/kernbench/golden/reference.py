"""What a kernel should have computed, and what its rounding errors are relative to."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kernbench.common.dtypes import Array
from kernbench.common.errors import MisuseError

Float64 = NDArray[np.float64]
Int64 = NDArray[np.int64]


@dataclass(frozen=True)
class Reference:
    """The right output `o` of softmax weights p and values v, with the sizes that bound a correct kernel's error.

    The arrays of the output's shape, every sum over the keys visible to the row:

    - `expected`: o = sum p v
    - `magnitude`: sum p |v|, what rounding errors of that sum are relative to
    - `deviation`: sqrt(sum p (v - o)^2), how far o moves for one unit of error in every score
    - `flat_magnitude`: sum |v| / `denominator`, how far o moves for one unit of error in every exp(s - max s)

    One number for each row, with a last axis of 1:

    - `terms`: how many keys are visible
    - `denominator`: sum exp(s - max s), 0 if no key is visible
    - `score_magnitude`: |scale| times the norm of q times the largest norm of k; no sum of |q_i k_i| is larger

    `head_size` is the number of products in a score; `operand_digits` the precision of the widest input, 0 if unknown.
    """

    expected: Float64
    magnitude: Float64
    deviation: Float64
    flat_magnitude: Float64
    terms: Int64
    denominator: Float64
    score_magnitude: Float64
    head_size: int = 0
    operand_digits: int = 0

    def __post_init__(self) -> None:
        row_shape = (*self.shape[:-1], 1) if self.shape else ()
        for name in ("magnitude", "deviation", "flat_magnitude"):
            self._check(name, self.shape)
        for name in ("terms", "denominator", "score_magnitude"):
            self._check(name, row_shape)

    def _check(self, name: str, shape: tuple[int, ...]) -> None:
        found = getattr(self, name).shape
        if found != shape:
            raise MisuseError(f"reference: {name} has shape {found}, but expected of shape {self.shape} needs {shape}")

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the output."""
        return self.expected.shape

    @property
    def reduction(self) -> int:
        """The longest sum behind an element."""
        return int(self.terms.max(initial=0))

    @property
    def energy(self) -> Float64:
        """sqrt(sum p v^2): never smaller than `magnitude`."""
        return np.hypot(self.deviation, self.expected)


def plain_reference(expected: Array, reduction: int = 1) -> Reference:
    """A reference for an array known only by its values, each a sum of `reduction` terms.

    The size of those terms is taken to be the largest magnitude of the row (the last axis).
    """
    if reduction < 1:
        raise MisuseError(f"reduction is the number of terms behind each element, at least 1; got {reduction}")
    values = expected.astype(np.float64)
    # largest of a row; an empty row has no elements to speak of
    row = np.abs(values).max(axis=-1, keepdims=True, initial=0.0) if values.ndim else np.abs(values)
    magnitude = np.broadcast_to(row, values.shape)
    return Reference(
        expected=values,
        magnitude=magnitude,
        # squares as (a - b)(a + b): no overflow of the difference, no negative root
        deviation=np.sqrt(magnitude - np.abs(values)) * np.sqrt(magnitude + np.abs(values)),
        flat_magnitude=magnitude * reduction,
        terms=np.full(row.shape, reduction),
        denominator=np.ones(row.shape),
        score_magnitude=np.zeros(row.shape),
    )
