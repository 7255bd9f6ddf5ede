"""Comparison of two devices' memory: identical, different by rounding only, or different."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import ml_dtypes
import numpy as np

from kernbench.common.dtypes import Array

IDENTICAL, ROUNDING, DIFFERENT, NOT_COMPARED = "identical", "rounding", "different", "not compared"
# permitted differences: the order of threads, and contraction of multiplications and additions
ORDER, FUSED = "order", "fused"
OUTCOMES = (IDENTICAL, ROUNDING, DIFFERENT, ORDER, FUSED, NOT_COMPARED)
# the largest difference that counts as rounding, relative to the largest value of an array; for types with a larger
# epsilon, two epsilons
ROUNDING_SHARE = 1e-3


@dataclass(frozen=True)
class ArrayDifference:
    """An array that differs: number of elements, largest relative difference, and the first element that differs."""

    name: str
    dtype: str
    elements: int
    differ: int
    share: float | None
    first: int
    ours: str
    theirs: str

    @property
    def rounding(self) -> bool:
        """Whether rounding alone may be the reason."""
        return self.share is not None and self.share <= _allowed(self.dtype)

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {
            "name": self.name,
            "dtype": self.dtype,
            "elements": self.elements,
            "differ": self.differ,
            "share": self.share,
            "first": self.first,
            "ours": self.ours,
            "theirs": self.theirs,
        }

    def __str__(self) -> str:
        of = f", at most {self.share:.1e} of the largest value" if self.share is not None else ""
        return (
            f"{self.name}: {self.differ:,} of {self.elements:,} elements ({self.dtype}) differ{of}; "
            f"first [{self.first}]: {self.ours} here, {self.theirs} there"
        )


@dataclass(frozen=True)
class Verdict:
    """The result of comparing a launch: one of `OUTCOMES`, the arrays that differ, and the reason."""

    outcome: str
    differences: tuple[ArrayDifference, ...] = ()
    reason: str = ""
    # data of `search.Parting`, if the instruction was searched for
    first: Mapping[str, object] | None = field(default=None)

    def to_dict(self) -> dict[str, object]:
        """Plain data for JSON."""
        return {
            "outcome": self.outcome,
            "differences": [one.to_dict() for one in self.differences],
            "reason": self.reason,
            "first": None if self.first is None else dict(self.first),
        }


def compare_arrays(ours: Mapping[str, Array], theirs: Mapping[str, Array]) -> Verdict:
    """Compare arrays of two devices by name, with the kernel's element types; as bytes if unknown."""
    found = tuple(one for name, array in ours.items() if (one := _difference(name, array, theirs[name])) is not None)
    if not found:
        return Verdict(IDENTICAL)
    return Verdict(ROUNDING if all(one.rounding for one in found) else DIFFERENT, found)


def _difference(name: str, ours: Array, theirs: Array) -> ArrayDifference | None:
    ours, theirs = np.ascontiguousarray(ours).reshape(-1), np.ascontiguousarray(theirs).reshape(-1)
    bits = f"u{ours.dtype.itemsize}"
    at = np.flatnonzero(ours.view(bits) != theirs.view(bits))
    if not len(at):
        return None
    first = int(at[0])
    share = _share(ours, theirs, at)
    texts = (_shown(ours[first]), _shown(theirs[first]))
    return ArrayDifference(name, ours.dtype.name, len(ours), len(at), share, first, *texts)


def _share(ours: Array, theirs: Array, at: Array) -> float | None:
    """The largest difference of floats relative to the largest value; None for other types or non-finite values."""
    if not _is_float(ours.dtype):
        return None
    a, b = ours[at].astype(np.float64), theirs[at].astype(np.float64)
    both_nan = np.isnan(a) & np.isnan(b)
    a, b = np.where(both_nan, 0.0, a), np.where(both_nan, 0.0, b)
    if not (np.isfinite(a) & np.isfinite(b)).all():
        return None
    with np.errstate(invalid="ignore"):
        values = np.abs(theirs.astype(np.float64))
    largest = float(np.max(values, where=np.isfinite(values), initial=0.0))
    gap = float(np.abs(a - b).max())
    return gap / largest if largest else (0.0 if gap == 0.0 else None)


def _is_float(dtype: np.dtype[np.generic]) -> bool:
    return dtype.kind == "f" or dtype.name.startswith(("bfloat", "float"))


def _allowed(dtype: str) -> float:
    step = float(ml_dtypes.finfo(np.dtype(dtype)).eps)  # type: ignore[no-untyped-call]
    return max(ROUNDING_SHARE, 2 * step)


def _shown(value: np.generic) -> str:
    bits = int(np.asarray(value).reshape(1).view(f"u{value.dtype.itemsize}")[0])
    number = f"{float(np.float64(value)):.9g}" if _is_float(value.dtype) else str(value)
    return f"{number} ({bits:#0{2 + 2 * value.dtype.itemsize}x})"
