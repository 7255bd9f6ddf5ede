"""min, max, abs and neg of floats of every width, on their bits."""

from collections.abc import Callable
from functools import cache

from kernbench.ptx.numerics.integers.arithmetic import SIGNED, UNSIGNED
from kernbench.ptx.numerics.rows.loops import Operation, row_kernel
from kernbench.ptx.numerics.rows.scalar import FORMATS, Bits, Integer, compiled


@cache
def _input(kind: str, ftz: bool, magnitude: bool) -> Callable[..., Bits]:
    """Compiled: bits -> bits; `ftz` flushes, `magnitude` clears the sign."""
    form = FORMATS[kind]
    unsigned = UNSIGNED[form.bits]
    body, sign = unsigned((1 << (form.bits - 1)) - 1), unsigned(1 << (form.bits - 1))
    normal = unsigned(1 << form.mantissa)

    @compiled
    def prepare(bits: Bits) -> Bits:
        value = unsigned(bits)
        if ftz and (value & body) < normal:
            value = unsigned(value & sign)
        return unsigned(value & body) if magnitude else value

    return prepare


@cache
def _pick(name: str, kind: str, nan: bool) -> Callable[..., Bits]:
    """Compiled: the lesser or greater of two bit patterns, -0 below +0; `nan` propagates NaN, else the number wins."""
    form = FORMATS[kind]
    unsigned, signed = UNSIGNED[form.bits], SIGNED[form.bits]
    body = unsigned((1 << (form.bits - 1)) - 1)
    infinity, canonical = unsigned(form.infinity or 0), unsigned(form.nan or 0)
    sign_shift = signed(form.bits - 1)
    less, passes_on, quiet = name == "min", kind == "f64", unsigned(1 << (form.mantissa - 1))

    @compiled
    def order(bits: Bits) -> Integer:
        value = signed(bits)
        return signed(value ^ signed(signed(value >> sign_shift) & signed(body)))

    @compiled
    def pick(a: Bits, b: Bits) -> Bits:
        a_nan, b_nan = unsigned(a & body) > infinity, unsigned(b & body) > infinity
        result = a if (order(a) < order(b)) == less else b
        if nan:
            return canonical if a_nan | b_nan else result
        result = b if a_nan else result
        result = a if b_nan else result
        if a_nan & b_nan:
            return unsigned(b | quiet) if passes_on else canonical
        return result

    return pick


@cache
def extreme(
    name: str,
    kind: str,
    ftz: bool = False,
    nan: bool = False,
    xorsign: bool = False,
    abs_: bool = False,
    inputs: int = 2,
) -> Operation:
    """min or max of two or three floats: `operation(a, b[, c], out)`.

    `abs_` compares magnitudes; `xorsign` gives the result the product's sign.
    """
    form = FORMATS[kind]
    unsigned = UNSIGNED[form.bits]
    sign = unsigned(1 << (form.bits - 1))
    infinity, body = unsigned(form.infinity or 0), unsigned((1 << (form.bits - 1)) - 1)
    prepare, pick = _input(kind, ftz, abs_ or xorsign), _pick(name, kind, nan)

    @compiled
    def signed_pick(a: Bits, b: Bits) -> Bits:
        result = unsigned(pick(prepare(a), prepare(b)))
        if xorsign and unsigned(result & body) <= infinity:
            result = unsigned(result | unsigned(unsigned(a ^ b) & sign))
        return result

    flags = "_ftz" * ftz + "_nan" * nan + "_xorsign" * xorsign + "_abs" * abs_
    if inputs == 2:
        return row_kernel(f"{name}_{kind}{flags}", signed_pick, 2)
    three = compiled(lambda a, b, c: pick(pick(prepare(a), prepare(b)), prepare(c)))
    return row_kernel(f"{name}3_{kind}{flags}", three, 3)


@cache
def sign_operation(name: str, kind: str, ftz: bool = False) -> Operation:
    """abs or neg: `operation(a, out)`; a NaN becomes the canonical one; in f64 it is quieted and keeps its sign."""
    form = FORMATS[kind]
    unsigned = UNSIGNED[form.bits]
    body, sign = unsigned((1 << (form.bits - 1)) - 1), unsigned(1 << (form.bits - 1))
    infinity, nan, quiet = unsigned(form.infinity or 0), unsigned(form.nan or 0), unsigned(1 << (form.mantissa - 1))
    prepare, absolute, passes_on = _input(kind, ftz, False), name == "abs", kind == "f64"

    @compiled
    def scalar(a: Bits) -> Bits:
        if unsigned(a & body) > infinity:
            return unsigned(a | quiet) if passes_on else nan
        return unsigned(prepare(a) & body) if absolute else unsigned(prepare(a) ^ sign)

    return row_kernel(f"{name}_{kind}{'_ftz' * ftz}", scalar, 1)
