"""f32 arithmetic, comparisons, conversions and ex2, bit-equal to `numerics.floats` and `numerics.special`."""

from functools import partial

import numpy as np

from kernbench.ptx.emulator.fused.integers import JOINS, Emit, Mods, Values, compared
from kernbench.ptx.emulator.fused.values import WIDTH, Lines, NotFused, Value, kind
from kernbench.ptx.numerics.special.unit import UNITS

_SIGN, _BODY, _INFINITY, _NAN = 0x8000_0000, 0x7FFF_FFFF, 0x7F80_0000, 0x7FFF_FFFF
_ONE = 0x3F80_0000
_COMPARE = {"eq": "oeq", "ne": "one", "lt": "olt", "le": "ole", "gt": "ogt", "ge": "oge"}
_COMPARE |= {"equ": "ueq", "neu": "une", "ltu": "ult", "leu": "ule", "gtu": "ugt", "geu": "uge"}
_COMPARE |= {"num": "ord", "nan": "uno"}


def bits_of(number: float) -> int:
    """The bits of a number as f32."""
    return int(np.float32(number).view(np.uint32))


def _flushed(a: Value, ftz: bool) -> Value:
    """Flush subnormal numbers to zeros of their sign."""
    return (a & _INFINITY).compare("eq", 0).select(a & _SIGN, a) if ftz else a


def _finished(a: Value, ftz: bool, sat: bool) -> Value:
    """A result with the canonical NaN; clamped to [0, 1] with `sat`."""
    bits = _flushed(a, ftz)
    if not sat:
        return a.fcompare("ord", a).select(bits, _NAN)
    zero, one = a.lines.constant(32, 0), a.lines.constant(32, _ONE)
    clamped = a.fcompare("ogt", one).select(one, bits)
    return a.fcompare("ogt", zero).select(clamped, zero)


def arithmetic(name: str, mods: Mods, given: Values) -> Values:
    """add, sub, mul, fma, div, rcp and sqrt of f32, rounded to nearest."""
    ftz, exact = "ftz" in mods, mods.get("rnd", "rn") == "rn" and "mode" not in mods
    if mods["type"] != "f32" or not exact or {"relu", "atype"} & set(mods) or (name == "div" and ftz):
        raise NotFused(f"{name} {mods}")
    return [_finished(_computed(name, [_flushed(a, ftz) for a in given]), ftz, "sat" in mods)]


def _computed(name: str, given: Values) -> Value:
    if name == "fma":
        return given[0].ffused(given[1], given[2])
    if name == "sqrt":
        return given[0].froot()
    if name == "rcp":
        return given[0].lines.constant(32, _ONE).fbinary("fdiv", given[0])
    return given[0].fbinary(f"f{name}", given[1])


def extreme(name: str, mods: Mods, given: Values) -> Values:
    """min and max of two or three f32: -0 below +0; a NaN loses, or wins if the instruction says so."""
    if mods["type"] != "f32" or {"xorsign", "abs"} & set(mods):
        raise NotFused(f"{name} {mods}")
    found, *others = (_flushed(a, "ftz" in mods) for a in given)
    for other in others:
        found = _picked(name, "NaN" in mods, found, other)
    return [found]


def _picked(name: str, wins: bool, a: Value, b: Value) -> Value:
    a_nan, b_nan = ((one & _BODY).compare("ugt", _INFINITY) for one in (a, b))
    # as integers in the order of the floating-point numbers
    x, y = (one ^ (one.signed_shift(31) & _BODY) for one in (a, b))
    result = x.compare("slt" if name == "min" else "sge", y).select(a, b)
    if wins:
        return (a_nan | b_nan).select(a.lines.constant(32, _NAN), result)
    result = b_nan.select(a, a_nan.select(b, result))
    return (a_nan & b_nan).select(a.lines.constant(32, _NAN), result)


def sign(name: str, mods: Mods, given: Values) -> Values:
    """abs and neg of f32."""
    if mods["type"] != "f32":
        raise NotFused(f"{name} {mods}")
    a = given[0]
    value = _flushed(a, "ftz" in mods)
    changed = value & _BODY if name == "abs" else value ^ _SIGN
    return [(a & _BODY).compare("ugt", _INFINITY).select(a.lines.constant(32, _NAN), changed)]


def set_predicate(mods: Mods, given: Values) -> Values:
    """setp: p, and its opposite q; both combined with a predicate if the instruction has one."""
    of = mods["type"]
    if of == "f32":
        a, b = (_flushed(one, "ftz" in mods) for one in given[:2])
        test = a.fcompare(_COMPARE[mods["cmp"]], b)
    elif of[0] in "usb" and of[1:].isdigit():
        test = compared(mods["cmp"], of, *given[:2])
    else:
        raise NotFused(f"setp {mods}")
    both = [test, ~test]
    return [JOINS[mods["bool"]](one, given[2]) for one in both] if "bool" in mods else both


def _half(to: str, a: Value) -> Value:
    """The bits of f16 or bf16, rounded to nearest even, in 32 bits."""
    number = a.fcompare("ord", a)
    if to == "bf16":
        rounded = (a + 0x7FFF + ((a >> 16) & 1)) >> 16
        return number.select(rounded, 0x7FFF)
    size = a & _BODY
    normal = (size - 0x3800_0000 + 0xFFF + ((size >> 13) & 1)) >> 13
    small = size.fbinary("fadd", a.lines.constant(32, bits_of(0.5))) - 0x3F00_0000
    code = size.compare("ult", 0x3880_0000).select(small, normal)
    code = size.compare("uge", 0x477F_F000).select(a.lines.constant(32, 0x7C00), code)
    return number.select(code | ((a >> 16) & 0x8000), 0x7FFF)


def packed(mods: Mods, given: Values) -> Values:
    """cvt of two f32 to a pair of f16 or bf16, the first in the upper half."""
    to = {"f16x2": "f16", "bf16x2": "bf16"}.get(mods["dtype"])
    if to is None or mods["atype"] != "f32" or mods["rnd"] != "rn" or {"satfinite", "relu"} & set(mods):
        raise NotFused(f"cvt {mods}")
    high, low = (_half(to, a) for a in given)
    return [(high << 16) | low]


def power(mods: Mods, given: Values) -> Values:
    """ex2.approx of f32."""
    if mods["type"] != "f32":
        raise NotFused("ex2 of halves")
    name, compute = ("ex2.ftz", _unit_power) if "ftz" in mods else ("ex2", _power)
    return [given[0].lines.apart(name, compute, given[0])]


def _power(a: Value) -> Value:
    low = a.fcompare("olt", a.lines.constant(32, bits_of(-126.0)))
    half, one = (a.lines.constant(32, bits_of(factor)) for factor in (0.5, 1.0))
    result = _unit_power(a.fbinary("fmul", low.select(half, one)))
    return low.select(result.fbinary("fmul", result), result)


def _unit_power(a: Value) -> Value:
    """As in `numerics.special.unit`: a position, its row of the table, and interpolation."""
    position = _position(a)
    fraction = position & 0x7F_FFFF
    exponent = position.signed_shift(23).wide(64, True) + 126
    total = _table_sum("ex2", fraction >> 17, fraction & 0x1_FFFF)
    value = ((exponent << 23) + total.signed_shift(15)).wide(32)
    result = value.compare("uge", 0x0080_0000).select(value, 0)
    return (a & _BODY).compare("ule", _INFINITY).select(result, _NAN)


def _position(a: Value) -> Value:
    lines, negative = a.lines, a.compare("uge", _SIGN)
    limit = negative.select(lines.constant(32, bits_of(127.0)), bits_of(128.0))
    size = a & _BODY
    scaled = size.fcompare("olt", limit).select(size, limit).fbinary("fmul", lines.constant(32, bits_of(2.0**23)))
    fixed = lines.value(32, f"fptosi <{WIDTH} x float> {scaled.real()} to {kind(32)}")
    short = (fixed & 0x7F_FFFF).compare("ne", 0).wide(32)
    return negative.select(lines.constant(32, 0) - fixed - short, fixed)


def _table_sum(name: str, row: Value, x: Value) -> Value:
    """c0 + c1 x + c2 S(x), of 64 bits."""
    first = row << 1
    factors = _read(row.lines, name, first + 1)
    square = _square(x).wide(64)
    linear = factors.signed_shift(32) * x.wide(64)
    return _read(row.lines, name, first) + linear + factors.wide(32).wide(64, True) * square


def _square(x: Value) -> Value:
    """S(x), computed: its table has 64 KiB, and would be read one lane at a time."""
    high, low = x >> 9, x & 0x1FC
    total = (high * high) >> 1
    for bit in range(1, 8):
        chosen = x.lines.constant(32, 0) - ((high >> bit) & 1)
        total = total + (chosen & (low >> (9 - bit)))
    return total


def _read(lines: Lines, name: str, index: Value) -> Value:
    """Read 64-bit words of a table."""
    words = UNITS[name].rows.reshape(-1).tolist()
    typed = f"[{len(words)} x i64]"
    lines.tables[name] = f"@{name}.table = internal constant {typed} [{', '.join(f'i64 {word}' for word in words)}]"
    found = "poison"
    # one lane at a time: gather instructions are slower on most machines
    for lane in range(WIDTH):
        at = lines.put(f"extractelement {kind(32)} {index.name}, i32 {lane}")
        at = lines.put(f"getelementptr i64, ptr @{name}.table, i32 {at}")
        word = lines.put(f"load i64, ptr {at}")
        found = lines.put(f"insertelement {kind(64)} {found}, i64 {word}, i32 {lane}")
    return Value(lines, 64, found)


FLOATS: dict[str, Emit] = {
    **{f"{name}.float": partial(arithmetic, name) for name in ("add", "sub", "mul", "div")},
    **{name: partial(arithmetic, name) for name in ("fma", "rcp", "sqrt")},
    **{f"{name}.float": partial(extreme, name) for name in ("min", "max")},
    **{f"{name}.float": partial(sign, name) for name in ("abs", "neg")},
    "setp": set_predicate,
    "cvt.packed": packed,
    "ex2": power,
}
