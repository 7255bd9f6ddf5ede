"""The verdict on one output: right or wrong against its reference, by how much, where, on which rank and why."""

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from kernbench.common.dtypes import DTYPES, Array, DType, dtype_name
from kernbench.common.errors import MisuseError
from kernbench.golden.basis.arrays import element_name, read, to_float64
from kernbench.golden.basis.reference import Reference, plain_reference
from kernbench.golden.basis.threads import in_threads
from kernbench.golden.diagnosis import explain, misshapen
from kernbench.golden.limits import EVERYTHING, Limits
from kernbench.golden.measure import Measurement, measure
from kernbench.golden.shards import Bounds, Shards, make_shards
from kernbench.result.comparison import Comparison, ErrorMap, RankError

_INTEGERS = frozenset(row.numpy for row in DTYPES.values() if row.kind == "int")
# from here on float64 does not represent every integer
_EXACT = 2.0**53


def compare(
    actual: ArrayLike,
    reference: object,
    *,
    name: str = "output",
    dtype: object = None,
    compute_dtype: object = None,
    reduction: int | None = None,
    rank_axis: int | None = None,
    ranks: int | None = None,
    rank_bounds: Bounds | None = None,
    allowed: tuple[float, float] | None = None,
) -> Comparison:
    """Compare a kernel's output with a `Reference`, or with an array of which only the values are known; or with
    the result of `limits_ahead` for either.

    - `dtype`: the output's element type; that of `actual` by default, f32 if `actual` is float64
    - `compute_dtype`: the type the kernel rounds the operands of its products to; `dtype` by default. A kernel with an
      f32 output that rounds P to f16 needs `compute_dtype="f16"`
    - `reduction`: for an array, the number of terms behind each element; 1 by default
    - `rank_axis` with `ranks` (equal shares, the last ragged) or `rank_bounds` (ranges): the part of each rank
    - `allowed`: (relative, absolute), a tolerance of the caller's own instead of the derived one; then each element is
      judged by it alone

    An element is right if it is within the tolerance that `golden.tolerance` derives. The output, and each rank's part,
    must also have a relative L2 error below 0.5, apart from what rounding alone causes, so that outputs of zeros, of
    a constant or of unrelated numbers fail; if a part exceeds it, and no element of it is out of tolerance, all count
    as wrong. NaN and inf are wrong. A wrong shape is a failed comparison. A reference that is not finite, or beyond the
    range of `dtype`, is a `MisuseError`.
    """
    array = read(name, actual)
    output = _output_type(name, array) if dtype is None else DTYPES[dtype_name(dtype)]
    compute = output if compute_dtype is None else DTYPES[dtype_name(compute_dtype)]
    limits = reference if isinstance(reference, Limits) else None
    known = _as_reference(name, reference, reduction) if limits is None else limits.reference
    if limits is None or (limits.output, limits.compute, limits.allowed) != (output, compute, allowed):
        limits = Limits(known, output, compute, allowed)
    _check_range(name, limits)
    shards = make_shards(known.shape, rank_axis, ranks, rank_bounds)
    if array.shape != known.shape:
        return _misshapen(name, output, array.shape, known)
    return _verdict(name, measure(array, limits), shards)


def limits_ahead(
    reference: object,
    *,
    name: str,
    dtype: object,
    compute_dtype: object,
    reduction: int | None,
    rank_axis: int | None,
    ranks: int | None,
    allowed: tuple[float, float] | None,
) -> Limits:
    """Compute the limits that `compare` with these arguments will need for an output of this type, before there is
    an output; for one of another type `compare` computes them again.
    """
    output = DTYPES[dtype_name(dtype)]
    compute = output if compute_dtype is None else DTYPES[dtype_name(compute_dtype)]
    known = _as_reference(name, reference, reduction)
    limits = Limits(known, output, compute, allowed)
    shards = make_shards(known.shape, rank_axis, ranks, None)
    parts = [shards.part(rank) for rank in range(len(shards.bounds))] if shards else []
    # the whole array first: its elementwise limits are reused for the parts
    limits.work_out(EVERYTHING)
    in_threads(limits.work_out, parts)
    return limits


def _output_type(name: str, array: Array) -> DType:
    kind = array.dtype.kind
    if kind in "iu" and array.dtype not in _INTEGERS:
        # only PTX kernels write these types
        return DType(f"{kind}{8 * array.dtype.itemsize}", array.dtype, "int", 0, ())
    element = element_name(name, array)
    return DTYPES["f32" if element == "f64" else element]


def _as_reference(name: str, reference: Any, reduction: int | None) -> Reference:
    known = isinstance(reference, Reference)
    if known and reduction is not None:
        raise MisuseError("reduction is for plain arrays; a Reference knows its own")
    expected = reference.expected if known else to_float64(read("reference", reference))
    wrong = expected[~np.isfinite(expected)]
    if wrong.size:
        raise MisuseError(
            f"the reference of {name} holds {wrong.size} values that are not finite ({wrong[0]}): nothing can be "
            "compared with them; look for NaN or inf in the visible inputs"
        )
    return reference if known else plain_reference(expected, 1 if reduction is None else reduction)


def _check_range(name: str, limits: Limits) -> None:
    output, expected = limits.output, limits.reference.expected
    if output.kind == "int" and output.itemsize == 8 and np.abs(expected).max(initial=0.0) >= _EXACT:
        raise MisuseError(
            f"the reference of {name} holds integers of 2**53 and more, which float64 does not distinguish"
        )
    if limits.beyond.size:
        raise MisuseError(
            f"the reference of {name} holds {limits.beyond[0]:.6g}, beyond the range of {output.name}: "
            "use smaller inputs or a wider output type"
        )


def _verdict(name: str, measured: Measurement, shards: Shards | None) -> Comparison:
    # the whole array first: its elementwise results are reused for the parts
    worst, wrong = measured.worst(), measured.wrong()
    owner = shards.locate(worst) if shards and worst else None
    parts = _rank_errors(measured, shards)
    wrong = max(wrong, sum(part.wrong for part in parts))
    return Comparison(
        name=name,
        dtype=measured.output.name,
        passed=wrong == 0,
        max_abs=measured.max_abs(),
        max_rel=measured.max_rel(),
        max_ulps=measured.max_ulps(),
        relative_l2=measured.relative_l2(),
        worst_index=worst,
        worst_rank=owner[0] if owner else None,
        worst_row=owner[1] if owner else None,
        actual=float(measured.actual[worst]) if measured.error.size else math.nan,
        expected=float(measured.expected[worst]) if measured.error.size else math.nan,
        tolerance=float(measured.tolerance[worst]) if measured.error.size else 0.0,
        wrong=wrong,
        elements=measured.error.size,
        ranks=parts,
        reason=explain(name, measured, shards) if wrong else "",
        error_map=ErrorMap.of(measured.excess),
    )


def _rank_errors(measured: Measurement, shards: Shards | None) -> tuple[RankError, ...]:
    if shards is None:
        return ()
    found: dict[int, RankError] = {}

    def look(rank: int) -> None:
        part = shards.part(rank)
        found[rank] = RankError(
            rank=rank,
            max_abs=measured.max_abs(part),
            relative_l2=measured.relative_l2(part),
            worst_index=measured.worst(part),
            wrong=measured.wrong(part),
            elements=measured.error[part].size,
        )

    in_threads(look, range(len(shards.bounds)))
    return tuple(found[rank] for rank in range(len(shards.bounds)))


def _misshapen(name: str, output: DType, found: tuple[int, ...], reference: Reference) -> Comparison:
    """Nothing can be measured: every error is infinite and every element wrong."""
    return Comparison(
        name=name,
        dtype=output.name,
        passed=False,
        max_abs=math.inf,
        max_rel=math.inf,
        max_ulps=math.inf,
        relative_l2=math.inf,
        worst_index=(),
        worst_rank=None,
        worst_row=None,
        actual=math.nan,
        expected=math.nan,
        tolerance=0.0,
        wrong=reference.expected.size,
        elements=reference.expected.size,
        reason=misshapen(name, found, reference.shape),
    )
