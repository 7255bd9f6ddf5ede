"""Explains in a sentence why an output is wrong, and the pattern of its errors if it is recognised."""

from collections.abc import Callable
from dataclasses import replace
from math import prod

import numpy as np

from kernbench.common.dtypes import DTYPES
from kernbench.golden.basis.reference import Float64
from kernbench.golden.limits import EVERYTHING
from kernbench.golden.measure import Measurement
from kernbench.golden.shards import Shards
from kernbench.golden.tolerance import tiny
from kernbench.result.finding import rank_ranges

# shorter rows are multiples of one another by chance
_SHORTEST_ROW = 4
# a factor closer to 1 may be rounding
_SMALLEST_DEPARTURE = 1e-3
# narrow types that kernels round intermediates to, the most precise first
_NARROW = ("f16", "bf16")


def explain(name: str, measured: Measurement, shards: Shards | None) -> str:
    """Why the output `name` failed: how many elements, the worst of them, and the pattern if it is a known one."""
    sentences = (_what(name, measured, shards), _pattern(measured), _which_ranks(measured, shards))
    return "; ".join(filter(None, sentences))


def misshapen(name: str, found: tuple[int, ...], expected: tuple[int, ...]) -> str:
    """Why the output `name`, whose shape is wrong, failed."""
    hint = "; the number of elements agrees: reshape it first" if prod(found) == prod(expected) else ""
    return f"{name} has shape {found}, expected {expected}{hint}"


def _what(name: str, measured: Measurement, shards: Shards | None) -> str:
    if not np.isfinite(measured.actual).all():
        return _not_finite(name, measured, shards)
    wrong = int(measured.out_of_tolerance.sum())
    if not wrong:
        return _only_noise(name, measured, shards)
    worst = measured.worst()
    whole = f"; relative L2 error {measured.relative_l2():.3g}" if measured.is_noise() else ""
    return (
        f"{wrong} of {measured.error.size} elements of {name} are out of tolerance; worst at {_index(worst, shards)}: "
        f"got {measured.actual[worst]:.6g}, expected {measured.expected[worst]:.6g}, "
        f"error {measured.error[worst]:.3g}, tolerance {measured.tolerance[worst]:.3g}{whole}"
    )


def _not_finite(name: str, measured: Measurement, shards: Shards | None) -> str:
    nan, infinite = np.isnan(measured.actual), np.isinf(measured.actual)
    counts = {"NaN": int(nan.sum()), "inf": int(infinite.sum())}
    kinds = " and ".join(f"{count} {kind}" for kind, count in counts.items() if count)
    first = tuple(int(i) for i in np.argwhere(nan | infinite)[0])
    others = int(measured.out_of_tolerance.sum()) - sum(counts.values())
    return (
        f"{kinds} among {measured.error.size} elements of {name}; first at {_index(first, shards)}: "
        f"got {measured.actual[first]}, expected {measured.expected[first]:.6g}"
        + (f"; {others} others are out of tolerance" if others else "")
    )


def _only_noise(name: str, measured: Measurement, shards: Shards | None) -> str:
    ranks = range(len(shards.bounds)) if shards else ()
    parts = [EVERYTHING, *(shards.part(rank) for rank in ranks if shards)]
    worst = max((part for part in parts if measured.is_noise(part)), key=measured.relative_l2)
    found = measured.relative_l2(worst)
    allowed = found * measured.limits.largest_error(worst) / float(np.linalg.norm(measured.error[worst].ravel()))
    return (
        f"{name} is within the tolerance of each element, but its relative L2 error is {found:.3g} (at most "
        f"{allowed:.3g} is allowed, zeros give 1): rounding does not explain it"
    )


def _index(index: tuple[int, ...], shards: Shards | None) -> str:
    owner = shards.locate(index) if shards else None
    if shards is None or owner is None:
        return str(index)
    return f"{index}, rank {owner[0]}, row {owner[1]} (global row {index[shards.axis]})"


def _which_ranks(measured: Measurement, shards: Shards | None) -> str:
    if shards is None:
        return ""
    parts = {rank: shards.part(rank) for rank in range(len(shards.bounds))}
    owners = {rank: part for rank, part in parts.items() if measured.error[part].size}
    bad = [rank for rank, part in owners.items() if measured.wrong(part)]
    good = [rank for rank in owners if rank not in bad]
    if not bad or not good:
        return ""
    return f"{rank_ranges(bad)} wrong, {rank_ranges(good).split(' ', 1)[1]} right"


def _pattern(measured: Measurement) -> str:
    """The first pattern that the errors follow; empty if there is none."""
    # values that are not finite, or whose squares are not, fit no pattern
    with np.errstate(over="ignore", invalid="ignore"):
        return next(filter(None, (find(measured) for find in _PATTERNS)), "")


def _all_the_same(measured: Measurement) -> str:
    values = measured.actual
    if values.size < 2 or not (values == values.flat[0]).all():
        return ""
    return f"every element is {values.flat[0]:.6g}"


def _nan_in_empty_rows(measured: Measurement) -> str:
    empty = np.broadcast_to(measured.reference.terms == 0, measured.actual.shape)
    nan = np.isnan(measured.actual)
    if not nan.any() or (nan & ~empty).any():
        return ""
    return "every NaN is in a row that sees no key: such rows must give zeros, not 0/0"


def _all_nan(measured: Measurement) -> str:
    return (
        "every element is NaN, which is what fresh memory holds and what a bad read gives"
        if np.isnan(measured.actual).all()
        else ""
    )


def _one_factor(measured: Measurement) -> str:
    factor = _fit(measured.actual.reshape(-1), measured.expected.reshape(-1))
    if not _fits(measured, factor):
        return ""
    return f"every element is {factor.item():.4g} x the expected one: divided twice, or a factor missing?"


def _rows_of_zeros(measured: Measurement) -> str:
    if not measured.actual.ndim:
        return ""
    wrong = measured.out_of_tolerance.any(axis=-1)
    zeros = int(wrong.sum())
    if not zeros or zeros == wrong.size or measured.actual[wrong].any():
        return ""
    return f"{zeros} of {wrong.size} rows are zeros, the others are right: not computed, or not stored?"


def _factor_for_each_row(measured: Measurement) -> str:
    if not measured.actual.ndim or measured.actual.shape[-1] < _SHORTEST_ROW:
        return ""
    factors = _fit(measured.actual, measured.expected)
    if not _fits(measured, factors):
        return ""
    return (
        f"every row is the expected one times a factor of its own, {factors.min():.4g} to {factors.max():.4g}: "
        "not divided by what its row is divided by (the sum of a softmax, a norm), or divided twice?"
    )


def _rounded_on_the_way(measured: Measurement) -> str:
    """Errors as large as those of operands in a narrower type, which a kernel may use on purpose."""
    if measured.compute.kind != "float":
        return ""
    for name in _NARROW:
        narrow = DTYPES[name]
        if (
            narrow.epsilon > measured.compute.epsilon
            and not replace(measured, limits=replace(measured.limits, compute=narrow)).wrong()
        ):
            return (
                f"every error is within what rounding to {name} inside the kernel gives: where that is meant, say "
                f'Expected(..., compute_dtype="{name}")'
            )
    return ""


def _fit(actual: Float64, expected: Float64) -> Float64:
    """The factor by which `actual` is closest to `expected`, along the last axis; 1 where nothing is expected."""
    above = (actual * expected).sum(axis=-1, keepdims=True)
    below = np.square(expected).sum(axis=-1, keepdims=True)
    factor: Float64 = np.divide(above, below, out=np.ones_like(above), where=below > 0.0)
    return factor


def _fits(measured: Measurement, factor: Float64) -> bool:
    """Whether `factor` explains every element, and explains an error at all."""
    if not np.isfinite(factor).all() or np.abs(factor - 1.0).max(initial=0.0) < _SMALLEST_DEPARTURE:
        return False
    left = np.abs(measured.actual - factor * measured.expected)
    close = left <= np.abs(factor) * measured.tolerance + tiny(measured.output)
    return bool(close.all()) and float(np.square(left).sum()) < 0.01 * float(np.square(measured.actual).sum())


_PATTERNS: tuple[Callable[[Measurement], str], ...] = (
    _all_the_same,
    _all_nan,
    _nan_in_empty_rows,
    _one_factor,
    _rows_of_zeros,
    _factor_for_each_row,
    _rounded_on_the_way,
)
