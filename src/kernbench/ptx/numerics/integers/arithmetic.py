"""Integer arithmetic over rows of unsigned bits: sums, products, quotients, extremes, carries, dot products."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

import numpy as np
from llvmlite import ir

from kernbench.common.errors import MisuseError, unknown
from kernbench.common.kept import Numba
from kernbench.ptx.numerics.rows.loops import Factory, Operation, Row, row_kernel
from kernbench.ptx.numerics.rows.scalar import (
    Bits,
    Flag,
    Integer,
    Intrinsic,
    Typing,
    Values,
    compiled,
    instruction,
    type_named,
)

UNSIGNED: dict[int, type[np.unsignedinteger]] = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}
SIGNED: dict[int, type[np.signedinteger]] = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}


def split(kind: str) -> tuple[str, int]:
    """("s", 32) of "s32"."""
    return kind[0], int(kind[1:])


def number(kind: str) -> type[np.integer]:
    """The NumPy type of an integer type; untyped bits are unsigned."""
    letter, bits = split(kind)
    return (SIGNED if letter == "s" else UNSIGNED)[bits]


@dataclass(frozen=True, slots=True)
class OnViews:
    """A NumPy function applied to views of the rows as another type of the same width."""

    function: np.ufunc
    view: type[np.generic]
    written: type[np.generic]

    def __call__(self, *rows: Row) -> None:
        """The last row is the result."""
        *sources, out = rows
        self.function(*(row.view(self.view) for row in sources), out=out.view(self.written))


def on_views(ufunc: np.ufunc, view: type[np.generic], out_view: type[np.generic] | None = None) -> Operation:
    """A NumPy function applied to views of the rows as another type of the same width; a bool output is not viewed."""
    return OnViews(ufunc, view, view if out_view is None else out_view)


def _high_product(name: str, extend: str) -> Typing:
    """The upper 64 bits of a 128-bit product."""
    wide = ir.IntType(128)

    def generate(context: object, builder: ir.IRBuilder, signature: object, arguments: Values) -> ir.Value:
        a, b = (getattr(builder, extend)(argument, wide) for argument in arguments)
        return builder.trunc(builder.lshr(builder.mul(a, b), ir.Constant(wide, 64)), ir.IntType(64))

    def typed(context: object, a: Numba, b: Numba) -> Intrinsic:
        kind = type_named(name)
        return kind(kind, kind), generate

    return typed


_high_unsigned: Callable[[Integer, Integer], Integer] = instruction(_high_product("uint64", "zext"))
_high_signed: Callable[[Integer, Integer], Integer] = instruction(_high_product("int64", "sext"))


def _products(kind: str) -> dict[str, Callable[[Integer, Integer], Integer]]:
    """lo, hi and wide products of two values of a type, as compiled functions."""
    letter, bits = split(kind)
    typed = number(kind)
    low = compiled(lambda a, b: typed(typed(a) * typed(b)))
    if bits == 64:
        high = _high_signed if letter == "s" else _high_unsigned
        return {"lo": low, "hi": compiled(lambda a, b: high(typed(a), typed(b)))}
    double = (SIGNED if letter == "s" else UNSIGNED)[2 * bits]
    wide = compiled(lambda a, b: double(double(typed(a)) * double(typed(b))))
    shift = double(bits)
    return {"lo": low, "wide": wide, "hi": compiled(lambda a, b: typed(wide(a, b) >> shift))}


def _product24(kind: str, part: str) -> Callable[[Integer, Integer], np.uint32]:
    """Product of the low 24 bits: its low 32 bits, or bits 16 to 47."""
    signed = kind[0] == "s"
    shift = np.int64(16 if part == "hi" else 0)
    if signed:
        low24 = compiled(lambda a: np.int64(np.int32(np.uint32(a) << np.uint32(8))) >> np.int64(8))
    else:
        low24 = compiled(lambda a: np.int64(np.uint32(a) & np.uint32(0xFFFFFF)))
    return compiled(lambda a, b: np.uint32((low24(a) * low24(b)) >> shift))


@cache
def multiply(kind: str, part: str = "lo") -> Operation:
    """mul.lo, mul.hi, mul.wide: `operation(a, b, out)`."""
    if part == "lo":
        return np.multiply
    return row_kernel(f"mul_{part}_{kind}", _products(kind)[part], 2)


@cache
def multiply_add(kind: str, part: str = "lo", sat: bool = False) -> Operation:
    """mad.lo, mad.hi (`sat` for s32), mad.wide: `operation(a, b, c, out)`; c is as wide as the result."""
    product = _products(kind)[part]
    letter, bits = split(kind)
    result = (SIGNED if letter == "s" else UNSIGNED)[2 * bits if part == "wide" else bits]
    if sat:
        low, high = np.int64(-(1 << 31)), np.int64((1 << 31) - 1)
        scalar: Callable[..., Integer] = compiled(
            lambda a, b, c: np.int32(min(max(np.int64(product(a, b)) + np.int64(np.int32(c)), low), high))
        )
    else:
        scalar = compiled(lambda a, b, c: result(result(product(a, b)) + result(c)))
    return row_kernel(f"mad_{part}_{kind}{'_sat' * sat}", scalar, 3)


@cache
def multiply24(kind: str, part: str = "lo") -> Operation:
    """mul24.lo, mul24.hi: `operation(a, b, out)`."""
    return row_kernel(f"mul24_{part}_{kind}", _product24(kind, part), 2)


@cache
def multiply_add24(kind: str, part: str = "lo", sat: bool = False) -> Operation:
    """mad24.lo, mad24.hi (`sat` for s32): `operation(a, b, c, out)`."""
    product = _product24(kind, part)
    low, high = np.int64(-(1 << 31)), np.int64((1 << 31) - 1)

    @compiled
    def scalar(a: Bits, b: Bits, c: Bits) -> Bits:
        if sat:
            return np.uint32(min(max(np.int64(np.int32(product(a, b))) + np.int64(np.int32(c)), low), high))
        return np.uint32(product(a, b) + np.uint32(c))

    return row_kernel(f"mad24_{part}_{kind}{'_sat' * sat}", scalar, 3)


@cache
def saturating(name: str, kind: str = "s32") -> Operation:
    """add.sat or sub.sat of signed integers: `operation(a, b, out)`."""
    typed = number(kind)
    low, high = np.int64(np.iinfo(typed).min), np.int64(np.iinfo(typed).max)
    flip = np.int64(1 if name == "add" else -1)
    scalar = compiled(lambda a, b: typed(min(max(np.int64(typed(a)) + flip * np.int64(typed(b)), low), high)))
    return row_kernel(f"{name}_sat_{kind}", scalar, 2)


@cache
def divide(name: str, kind: str) -> Operation:
    """div or rem: `operation(a, b, out)`; truncates, and gives all ones if b is zero (see `zero_divisors`)."""
    typed = number(kind)
    ones, zero = typed(~typed(0)), typed(0)
    signed, minus_one = kind[0] == "s", typed(~typed(0))
    quotient = name == "div"

    @compiled
    def scalar(a: Bits, b: Bits) -> Integer:
        x, y = typed(a), typed(b)
        if y == zero:
            return ones
        if signed and y == minus_one:
            # the least value divided by -1 overflows to itself, as on hardware
            return typed(zero - x) if quotient else zero
        whole = typed(abs_floor(x, y))
        return whole if quotient else typed(x - typed(whole * y))

    @compiled
    def abs_floor(x: Integer, y: Integer) -> Integer:
        floor = x // y
        # Python's division rounds down; PTX truncates.
        if signed and floor < zero and floor * y != x:
            above: Integer = floor + typed(1)
            return above
        return floor

    return row_kernel(f"{name}_{kind}", scalar, 2)


def zero_divisors(b: Row) -> Row:
    """Lanes in which an integer division by `b` is undefined."""
    return np.equal(b, 0)


@cache
def extreme(name: str, kind: str, relu: bool = False) -> Operation:
    """min or max (`relu`: negative results become 0): `operation(a, b, out)`."""
    ufunc = np.minimum if name == "min" else np.maximum
    typed = number(kind)
    if not relu:
        return on_views(ufunc, typed)
    zero = typed(0)
    pick = min if name == "min" else max
    return row_kernel(f"{name}_relu_{kind}", compiled(lambda a, b: max(pick(typed(a), typed(b)), zero)), 2)


@cache
def absolute(kind: str) -> Operation:
    """abs: `operation(a, out)`; the least value stays the same."""
    return on_views(np.absolute, number(kind))


@cache
def absolute_difference(kind: str) -> Operation:
    """sad: c + |a - b|: `operation(a, b, c, out)`."""
    typed, unsigned = number(kind), UNSIGNED[split(kind)[1]]

    @compiled
    def scalar(a: Bits, b: Bits, c: Bits) -> Bits:
        x, y = typed(a), typed(b)
        return unsigned(c + (unsigned(x) - unsigned(y) if x >= y else unsigned(y) - unsigned(x)))

    return row_kernel(f"sad_{kind}", scalar, 3)


@cache
def carrying(name: str, bits: int, reads: bool, writes: bool) -> Operation:
    """add, sub, addc, subc with the carry flag as a bool row: `operation(a, b[, cc], out[, cc_out])`.

    A subtraction adds the complement of b: its flag is the carry of that sum, set if there was no borrow. The ISA's
    text speaks of a borrow, which is equivalent among subtractions; but nvcc's 128-bit division reads the flag of a
    subtraction by `addc`, and is right only with the carry.
    """
    unsigned = UNSIGNED[bits]
    subtracts = name.startswith("sub")

    @compiled
    def both(a: Bits, b: Bits, carry: Flag) -> tuple[Bits, Flag]:
        step = unsigned(1) if carry else unsigned(0)
        if subtracts:
            return unsigned(unsigned(a - b) - unsigned(1) + step), (a > b) | ((a == b) & carry)
        total = unsigned(unsigned(a + b) + step)
        return total, (total < a) | ((total == a) & carry)

    return _with_carry(f"{name}_{bits}", both, 2, reads, writes, subtracts)


@cache
def carrying_multiply_add(kind: str, part: str, reads: bool, writes: bool) -> Operation:
    """mad.cc and madc: `operation(a, b, c[, cc], out[, cc_out])`."""
    product = _products(kind)[part]
    unsigned = UNSIGNED[split(kind)[1]]

    @compiled
    def both(a: Bits, b: Bits, c: Bits, carry: Flag) -> tuple[Bits, Flag]:
        term = unsigned(product(a, b))
        total = unsigned(unsigned(term + c) + (unsigned(1) if carry else unsigned(0)))
        return total, (total < term) | ((total == term) & carry)

    return _with_carry(f"mad_{part}_{kind}", both, 3, reads, writes)


def _with_carry(
    name: str, both: Callable[..., tuple[Bits, Flag]], inputs: int, reads: bool, writes: bool, first: bool = False
) -> Operation:
    """`both` as a kernel; `first` is the flag if none is read."""
    key = f"{name}{'_cin' * reads}{'_cout' * writes}"
    forms: dict[tuple[int, bool, bool], Callable[..., Bits | tuple[Bits, Flag]]] = {
        (2, False, True): lambda a, b: both(a, b, first),
        (2, True, False): lambda a, b, carry: both(a, b, carry)[0],
        (2, True, True): lambda a, b, carry: both(a, b, carry),
        (3, False, True): lambda a, b, c: both(a, b, c, first),
        (3, True, False): lambda a, b, c, carry: both(a, b, c, carry)[0],
        (3, True, True): lambda a, b, c, carry: both(a, b, c, carry),
    }
    return row_kernel(key, compiled(forms[inputs, reads, writes]), inputs + reads, 1 + writes)


@cache
def dot_product(name: str, a_kind: str, b_kind: str, high: bool = False) -> Operation:
    """dp4a, dp2a.lo, dp2a.hi of `u32` or `s32` operands: `operation(a, b, c, out)`."""
    a_bits = 8 if name == "dp4a" else 16
    count = 32 // a_bits
    a_lane = (SIGNED if a_kind[0] == "s" else UNSIGNED)[a_bits]
    b_lane = (SIGNED if b_kind[0] == "s" else UNSIGNED)[8]
    start = np.uint32(16 if high else 0)

    @compiled
    def scalar(a: Bits, b: Bits, c: Bits) -> Bits:
        total = np.int64(c)
        for i in range(count):
            x = a_lane(a >> np.uint32(i * a_bits))
            y = b_lane(b >> (np.uint32(i * 8) + start))
            total += np.int64(x) * np.int64(y)
        return np.uint32(total)

    return row_kernel(f"{name}_{a_kind}_{b_kind}{'_hi' * high}", scalar, 3)


_WRAPPING = {"add": np.add, "sub": np.subtract, "neg": np.negative}


def wrapping(name: str) -> Operation:
    """add, sub or neg modulo the width, for any integer type: `operation(*inputs, out)`."""
    if name not in _WRAPPING:
        raise MisuseError(unknown("integer operation", name, _WRAPPING))
    return _WRAPPING[name]


# by meaning in the ISA table
FACTORIES: dict[str, Factory] = {
    "neg.int": lambda mods: wrapping("neg"),
    "abs.int": lambda mods: absolute(mods["type"]),
    "mul.int": lambda mods: multiply(mods["type"], mods["part"]),
    "mad.int": lambda mods: multiply_add(mods["type"], mods["part"], "sat" in mods),
    "mul24": lambda mods: multiply24(mods["type"], mods["part"]),
    "mad24": lambda mods: multiply_add24(mods["type"], mods["part"], "sat" in mods),
    "sad": lambda mods: absolute_difference(mods["type"]),
    "div.int": lambda mods: divide("div", mods["type"]),
    "rem.int": lambda mods: divide("rem", mods["type"]),
    "dp4a": lambda mods: dot_product("dp4a", mods["atype"], mods["btype"]),
    "dp2a": lambda mods: dot_product("dp2a", mods["atype"], mods["btype"], mods["part"] == "hi"),
}
