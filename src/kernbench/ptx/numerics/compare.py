"""Comparisons and selection: setp, set, selp, slct, testp, copysign."""

from collections.abc import Callable
from functools import cache

import numpy as np
from numpy.typing import NDArray

from kernbench.common.errors import MisuseError, unknown
from kernbench.ptx.numerics.floats.arithmetic import loader
from kernbench.ptx.numerics.floats.half import half_to_float32, packed
from kernbench.ptx.numerics.integers.arithmetic import UNSIGNED, number, on_views, split
from kernbench.ptx.numerics.rows.loops import Factory, Operation, Row, row_kernel
from kernbench.ptx.numerics.rows.scalar import FORMATS, Bits, Flag, Real, compiled

_INTEGER: dict[str, np.ufunc] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
# lo, ls, hi, hs compare as unsigned, whatever the type
_UNSIGNED_NAMES = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}

# an ordered comparison is false if an operand is NaN, an unordered one (with u) is true
_FLOAT: dict[str, Callable[[Real, Real], Flag]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: (a < b) | (a > b),
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "equ": lambda a, b: not ((a < b) | (a > b)),
    "neu": lambda a, b: a != b,
    "ltu": lambda a, b: not (a >= b),
    "leu": lambda a, b: not (a > b),
    "gtu": lambda a, b: not (a <= b),
    "geu": lambda a, b: not (a < b),
    "num": lambda a, b: (a == a) & (b == b),
    "nan": lambda a, b: (a != a) | (b != b),
}

COMPARISONS = (*_INTEGER, *_UNSIGNED_NAMES, *(name for name in _FLOAT if name not in _INTEGER))


def is_float(kind: str) -> bool:
    """Whether a type is compared as a float."""
    return kind in ("f16", "bf16", "f32", "f64")


@cache
def _load(kind: str, ftz: bool) -> Callable[[Bits], Real]:
    return half_to_float32(kind, ftz) if kind in ("f16", "bf16") else loader(kind, ftz)


@cache
def compare(name: str, kind: str, ftz: bool = False) -> Operation:
    """setp's comparison: `operation(a, b, predicate)` into a bool row."""
    known = _FLOAT if is_float(kind) else {**_INTEGER, **_UNSIGNED_NAMES}
    if name not in known:
        raise MisuseError(unknown(f"comparison of {kind}", name, known))
    if is_float(kind):
        test, load = compiled(_FLOAT[name]), _load(kind, ftz)
        return row_kernel(f"setp_{name}_{kind}{'_ftz' * ftz}", compiled(lambda a, b: test(load(a), load(b))), 2)
    signed = kind[0] == "s" and name in _INTEGER and name not in ("eq", "ne")
    ufunc = _INTEGER[_UNSIGNED_NAMES.get(name, name)]
    return on_views(ufunc, number(kind), np.bool_) if signed else ufunc


_COMBINE: dict[str, np.ufunc] = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}


@cache
def set_predicate(name: str, kind: str, combine: str = "", ftz: bool = False) -> Operation:
    """setp with its boolean operation: `operation(a, b, c, p[, q])`: p = compare and/or/xor c, q = not compare ... c.

    The caller inverts a negated `!c`.
    """
    test = compare(name, kind, ftz)
    if combine not in _COMBINE:
        raise MisuseError(unknown("boolean operation", combine, _COMBINE))
    join = _COMBINE[combine]

    def operation(a: Row, b: Row, c: Row, p: Row, q: Row | None = None) -> None:
        result = np.empty(p.shape, bool)
        test(a, b, result)
        other = join(np.logical_not(result), c) if q is not None else result
        join(result, c, out=p)
        if q is not None:
            q[:] = other

    return operation


def set_predicate_pair(name: str, lane: str, combine: str = "", ftz: bool = False) -> Operation:
    """setp of packed halves: `operation(a, b[, c], p, q)`: p for the low halves, q for the high ones."""
    test = compare(name, lane, ftz)
    join = _COMBINE[combine] if combine else None

    def operation(*rows: Row) -> None:
        *inputs, p, q = rows
        results = _pair_test(test, inputs[0], inputs[1], p.shape)
        third = np.array(inputs[2]) if join is not None else None
        for half, target in enumerate((p, q)):
            if join is None:
                target[:] = results[half::2]
            else:
                join(results[half::2], third, out=target)

    return operation


def _pair_test(test: Operation, a: Row, b: Row, shape: tuple[int, ...]) -> Row:
    results = np.empty(2 * shape[0], bool)
    packed(test, 16)(a, b, _Lanes(results, shape))
    return results


class _Lanes:
    """A row of results per half, with the interface of a row of registers."""

    def __init__(self, results: Row, shape: tuple[int, ...]):
        self.results, self.shape, self.ndim = results, shape, 1

    def view(self, lane: np.dtype[np.generic]) -> Row:
        """The results."""
        return self.results


def set_value_pair(name: str, lane: str, to: str, ftz: bool = False, combine: str = "") -> Operation:
    """set of packed halves: `operation(a, b[, c], out)`: 1.0 for each true half, or all ones for an integer result."""
    true = np.uint16(FORMATS[lane].bias << FORMATS[lane].mantissa if to.endswith("x2") else 0xFFFF)
    test = compare(name, lane, ftz)

    def operation(*rows: Row) -> None:
        *inputs, out = rows
        results = _pair_test(test, inputs[0], inputs[1], out.shape)
        if combine:
            results = _COMBINE[combine](results, np.repeat(np.broadcast_to(inputs[2], out.shape), 2))
        np.multiply(results, true, out=out.view(np.uint16))

    return operation


def set_value(name: str, kind: str, to: str, ftz: bool = False, combine: str = "") -> Operation:
    """set: `operation(a, b[, c], out)`: all ones for integers, 1.0 for floats, else 0."""
    true = (FORMATS[to].bias << FORMATS[to].mantissa) if is_float(to) else (1 << split(to)[1]) - 1
    dtype = UNSIGNED[FORMATS[to].bits if is_float(to) else split(to)[1]]
    value = dtype(true)
    test = set_predicate(name, kind, combine, ftz) if combine else compare(name, kind, ftz)

    def operation(*rows: Row) -> None:
        *inputs, out = rows
        result = np.empty(out.shape, bool)
        test(*inputs, result)
        np.multiply(result, value, out=out)

    return operation


@cache
def select() -> Operation:
    """selp of any width: `operation(a, b, predicate, out)`: a where the predicate is true."""
    return row_kernel("selp", compiled(lambda a, b, p: a if p else b), 3)


@cache
def select_by_sign(kind: str, ftz: bool = False) -> Operation:
    """slct of any width by c of type s32 or f32: `operation(a, b, c, out)`: a where c >= 0 (a NaN takes b)."""
    if kind == "s32":
        return row_kernel("slct_s32", compiled(lambda a, b, c: a if np.int32(c) >= np.int32(0) else b), 3)
    load = loader("f32", ftz)
    return row_kernel(f"slct_f32{'_ftz' * ftz}", compiled(lambda a, b, c: a if load(c) >= 0.0 else b), 3)


# functions of magnitude bits, infinity's bits, and the least normal number's bits
_CLASSES: dict[str, Callable[[NDArray[Bits], Bits, Bits], NDArray[np.bool]]] = {
    "finite": lambda m, infinity, normal: m < infinity,
    "infinite": lambda m, infinity, normal: m == infinity,
    "number": lambda m, infinity, normal: m <= infinity,
    "notanumber": lambda m, infinity, normal: m > infinity,
    # zeros count as normal
    "normal": lambda m, infinity, normal: ((m >= normal) & (m < infinity)) | (m == 0),
    "subnormal": lambda m, infinity, normal: (m > 0) & (m < normal),
}


@cache
def classify(name: str, kind: str) -> Operation:
    """testp: `operation(a, predicate)`."""
    if name not in _CLASSES:
        raise MisuseError(unknown("testp property", name, _CLASSES))
    form, test = FORMATS[kind], _CLASSES[name]
    dtype = UNSIGNED[form.bits]
    body = dtype((1 << (form.bits - 1)) - 1)
    infinity, normal = dtype((1 << (form.bits - 1)) - (1 << form.mantissa)), dtype(1 << form.mantissa)

    def operation(a: NDArray[Bits], predicate: Row) -> None:
        predicate[...] = test(a & body, infinity, normal)

    return operation


@cache
def copy_sign(kind: str) -> Operation:
    """copysign: `operation(a, b, out)`: b with the sign of a."""
    bits = FORMATS[kind].bits
    dtype = UNSIGNED[bits]
    sign, body = dtype(1 << (bits - 1)), dtype((1 << (bits - 1)) - 1)

    def operation(a: NDArray[Bits], b: NDArray[Bits], out: Row) -> None:
        np.bitwise_or(a & sign, b & body, out=out)

    return operation


# by meaning in the ISA table
FACTORIES: dict[str, Factory] = {
    "testp": lambda mods: classify(mods["op"], mods["type"]),
    "copysign": lambda mods: copy_sign(mods["type"]),
    "selp": lambda mods: select(),
    "slct": lambda mods: select_by_sign(mods["ctype"], "ftz" in mods),
}
