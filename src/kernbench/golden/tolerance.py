"""The largest error of a correct kernel for each element, derived from types and lengths of sums.

The kernel that the bounds allow: scores s = scale q.k and all sums in f32; P = exp(s - running maximum) rounded to the
*compute* type before P V; one division; one rounding to the *output* type. Blocks, order and merging are free. Write u
for half the epsilon of a type (the largest relative error of one rounding), t for half its smallest subnormal (the
largest absolute one), o, p, v and the names of arrays as in `Reference`. There are four sources of error:

1. *P is rounded.* p becomes p (1 + e) with |e| <= u_c, so o moves by sum p e v, at most u_c magnitude. If the
   denominator sums the rounded P too, it is sum p e (v - o) / sum p (1 + e), at most u_c / (1 - u_c) times
   min(magnitude + |o|, deviation). Both are at most u_c / (1 - u_c) min(magnitude + |o|, energy). Weights near 0 have
   an absolute error instead: t_c for each key, hence t_c flat_magnitude, and t_c |o| terms / denominator for the
   denominator. A running maximum below the last one only shrinks them.
2. *Sums round.* Adding n terms one by one makes n errors of at most u_f32 on partial sums that are on average half as
   large: n/2 for the numerator and n/2 for the denominator, relative to magnitude. 32 more are for the rescaling of
   blocks, the products and the division.
3. *Scores round.* A score of d products is off by at most (sqrt(d) + 16) u_f32 A, A being score_magnitude: roundings of
   either sign add up as sqrt(d), and 16 is for hardware that truncates, the scaling, and the difference to the maximum.
   exp adds 8 u_f32. If every score is off by at most x, no weight changes by more than a factor exp(2 x), hence o by no
   more than (exp(2 x) - 1) deviation.
4. *Inputs wider than the compute type are rounded.* Then q and k move scores by 2 u_c A, and v adds u_c magnitude.

The output adds u_o (|o| + all that) + t_o.

Except for sqrt(d) these are worst cases, so structured inputs, whose errors do not average out, stay within them. In
return the bound is loose for long rows of random inputs, whose errors do average out, by about sqrt(terms) / 4. So the
L2 error of whole parts is also compared with the signal and the averaged noise (`measure`): a factor of 0.85 or a few
percent of the keys are detected by that alone, however long the row. P or an output rounded to one type too narrow is
detected up to some 300 keys.
"""

import numpy as np

from kernbench.common.dtypes import DTYPES, DType
from kernbench.golden.basis.reference import Float64, Reference

_EXTRA_SUM_ERRORS = 32
_EXTRA_SCORE_ERRORS = 16
_EXP_ERRORS = 8
# larger errors of scores mean nothing; the cap keeps exp finite
_LARGEST_SCORE_ERROR = 2.0


def unit(dtype: DType) -> float:
    """Largest relative error of one rounding; 0 for integers."""
    return dtype.epsilon / 2


def tiny(dtype: DType) -> float:
    """Largest absolute error of rounding a number near 0; 0 for integers."""
    return dtype.smallest_normal * dtype.epsilon / 2


def elementwise(reference: Reference, output: DType, compute: DType) -> Float64:
    """The largest error a correct kernel can make in each element."""
    inner = _weight_error(reference, compute) + _sum_error(reference, compute) + score_error(reference, compute)
    return inner + _output_error(reference.expected, inner, output)


def noise(reference: Reference, compute: DType) -> Float64:
    """The typical effect of rounding inside the kernel on each element: errors of either sign, which partly cancel."""
    relative = unit(compute) * np.sqrt(reference.concentration) + 4 * _sum_unit(compute)
    absolute = tiny(compute) / np.sqrt(np.maximum(reference.terms, 1))
    size: Float64 = relative * reference.energy + absolute * reference.flat_magnitude
    return size


def spacing(expected: Float64, output: DType) -> Float64:
    """Distance between neighbours of the output type at `expected`: one ulp; 1 for integers."""
    if output.kind != "float":
        return np.ones_like(expected)
    # rounding can reach the next power of two, where the spacing doubles
    rounded = np.abs(expected.astype(output.numpy).astype(np.float64))
    _, exponent = np.frexp(np.maximum(rounded, output.smallest_normal))
    gap: Float64 = np.ldexp(1.0, exponent - output.digits)
    return gap


def _sum_unit(compute: DType) -> float:
    """Sums are in f32, or exact if they are of integers."""
    return unit(DTYPES["f32"]) if compute.kind == "float" else 0.0


def _rounds_inputs(reference: Reference, compute: DType) -> bool:
    return compute.kind == "float" and reference.operand_digits > compute.digits


def _weight_error(reference: Reference, compute: DType) -> Float64:
    u, size = unit(compute), np.abs(reference.expected)
    relative = u / (1 - u) * np.minimum(reference.magnitude + size, reference.energy)
    if _rounds_inputs(reference, compute):
        relative = relative + u * reference.magnitude
    per_weight = reference.terms / np.maximum(reference.denominator, 1.0)
    return relative + tiny(compute) * (reference.flat_magnitude + size * per_weight)


def _sum_error(reference: Reference, compute: DType) -> Float64:
    errors: Float64 = _sum_unit(compute) * (reference.terms + _EXTRA_SUM_ERRORS) * reference.magnitude
    return errors


def score_error(reference: Reference, compute: DType) -> Float64:
    """The largest effect of wrong scores on each element."""
    factor = _sum_unit(compute) * (np.sqrt(reference.head_size) + _EXTRA_SCORE_ERRORS)
    if _rounds_inputs(reference, compute):
        factor += 2 * unit(compute)
    error = factor * reference.score_magnitude + _sum_unit(compute) * _EXP_ERRORS
    growth: Float64 = np.expm1(2 * np.minimum(error, _LARGEST_SCORE_ERROR))
    return growth * reference.deviation


def _output_error(expected: Float64, inner: Float64, output: DType) -> Float64:
    if output.kind == "float":
        return unit(output) * (np.abs(expected) + inner) + tiny(output)
    # conversion to an integer truncates the fraction, and is exact otherwise
    fraction: Float64 = np.ceil(np.abs(expected - np.rint(expected)))
    return fraction
