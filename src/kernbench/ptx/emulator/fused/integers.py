"""Integers, bits, predicates and selections, as `numerics.integers` and `numerics.compare` compute them."""

from collections.abc import Callable, Mapping
from functools import partial

from kernbench.ptx.emulator.fused.values import NotFused, Value

Mods = Mapping[str, str]
Values = list[Value]
# from an instruction's modifiers and sources to its results
Emit = Callable[[Mods, Values], Values]

_SIGNED = {"lt": "slt", "le": "sle", "gt": "sgt", "ge": "sge", "eq": "eq", "ne": "ne"}
_UNSIGNED = {"lt": "ult", "le": "ule", "gt": "ugt", "ge": "uge", "lo": "ult", "ls": "ule", "hi": "ugt", "hs": "uge"}
_UNSIGNED |= {"eq": "eq", "ne": "ne"}
JOINS: dict[str, Callable[[Value, Value], Value]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
}


def shifted(a: Value, amount: Value, left: bool, signed: bool = False) -> Value:
    """Shift by 32-bit amounts; amounts beyond the width leave zero, or the sign."""
    inside = amount.compare("ult", a.bits)
    by = inside.select(amount, a.bits - 1 if signed else 0).wide(a.bits)
    if signed:
        return a.signed_shift(by)
    return inside.select(a << by if left else a >> by, 0)


def copied(a: Value, bits: int) -> Value:
    """Assign a row to a row of another type, as NumPy does."""
    if (a.bits == 1) != (bits == 1):
        raise NotFused("a predicate as a number")
    return a.wide(bits)


def by_numpy(name: str, given: Values) -> Value:
    """The effect of a NumPy function on rows of unsigned numbers or booleans."""
    compare = {"equal": "eq", "not_equal": "ne", "less": "ult", "less_equal": "ule", "greater": "ugt"}
    compare["greater_equal"] = "uge"
    if name in compare:
        return given[0].compare(compare[name], given[1])
    if name in ("left_shift", "right_shift"):
        return shifted(given[0], given[1], name == "left_shift")
    if name not in _NUMPY or (given[0].bits == 1 and name in ("add", "subtract", "multiply", "negative")):
        raise NotFused(name)
    return _NUMPY[name](given)


_NUMPY: dict[str, Callable[[Values], Value]] = {
    "add": lambda given: given[0] + given[1],
    "subtract": lambda given: given[0] - given[1],
    "multiply": lambda given: given[0] * given[1],
    "negative": lambda given: given[0].lines.constant(given[0].bits, 0) - given[0],
    "bitwise_and": lambda given: given[0] & given[1],
    "bitwise_or": lambda given: given[0] | given[1],
    "bitwise_xor": lambda given: given[0] ^ given[1],
    "invert": lambda given: ~given[0],
    "logical_not": lambda given: ~_truth(given[0]),
}


def _truth(a: Value) -> Value:
    if a.bits != 1:
        raise NotFused("a number as a predicate")
    return a


def compared(name: str, kind: str, a: Value, b: Value) -> Value:
    """A comparison of integers."""
    known = _SIGNED if kind[0] == "s" and name in _SIGNED else _UNSIGNED
    return a.compare(known[name], b)


def _product(mods: Mods, a: Value, b: Value) -> Value:
    part, signed, bits = mods["part"], mods["type"][0] == "s", a.bits
    if part == "lo":
        return a * b
    if bits == 64:
        raise NotFused("a product of 128 bits")
    double = a.wide(2 * bits, signed) * b.wide(2 * bits, signed)
    return double if part == "wide" else (double >> bits).wide(bits)


def product(mods: Mods, given: Values) -> Values:
    """mul.lo, mul.hi, mul.wide."""
    return [_product(mods, *given)]


def product_sum(mods: Mods, given: Values) -> Values:
    """mad.lo, mad.hi, mad.wide."""
    if "sat" in mods:
        raise NotFused("mad.sat")
    return [_product(mods, *given[:2]) + given[2]]


def extreme(name: str, mods: Mods, given: Values) -> Values:
    """min or max."""
    a, b = given
    if "relu" in mods or mods["type"] not in _PLAIN:
        raise NotFused("of packed numbers, or without negative results")
    how = ("s" if mods["type"][0] == "s" else "u") + ("lt" if name == "min" else "gt")
    return [a.compare(how, b).select(a, b)]


_PLAIN = frozenset(f"{letter}{bits}" for letter in "us" for bits in (16, 32, 64))
_NUMBERS = _PLAIN | {"u8", "s8"}


def shift(name: str, mods: Mods, given: Values) -> Values:
    """shl and shr."""
    return [shifted(given[0], given[1], name == "shl", name == "shr" and mods["type"][0] == "s")]


def converted(mods: Mods, given: Values) -> Values:
    """cvt between integers."""
    to, of = mods["dtype"], mods["atype"]
    if "sat" in mods or to not in _NUMBERS or of not in _NUMBERS or int(of[1:]) != given[0].bits:
        raise NotFused(f"cvt {mods}")
    return [given[0].wide(int(to[1:]), of[0] == "s")]


def selected(mods: Mods, given: Values) -> Values:
    """selp."""
    a, b, truth = given
    return [_truth(truth).select(a, b)]


def by_table(lut: int, given: Values) -> Values:
    """lop3: the union of those of the eight combinations of three bits that are in the table."""
    a, b, c = given
    total: Value | None = None
    for number in range(8):
        if lut >> number & 1:
            term = (a if number & 4 else ~a) & (b if number & 2 else ~b) & (c if number & 1 else ~c)
            total = term if total is None else total | term
    return [a.lines.constant(32, 0) if total is None else total]


def packed(width: int, given: Values, wanted: int) -> Values:
    """Values of `width` bits each as one, the first one lowest."""
    if any(one.bits != width for one in given) or len(given) * width != wanted:
        raise NotFused("parts of other widths than their registers")
    total = given[0].wide(wanted)
    for number, one in enumerate(given[1:], 1):
        total = total | (one.wide(wanted) << number * width)
    return [total]


def unpacked(width: int, given: Values, count: int) -> Values:
    """The `count` lowest parts of a value."""
    return [(given[0] >> number * width).wide(width) if number else given[0].wide(width) for number in range(count)]


INTEGERS: dict[str, Emit] = {
    "mul.int": product,
    "mad.int": product_sum,
    "min.int": partial(extreme, "min"),
    "max.int": partial(extreme, "max"),
    "shl": partial(shift, "shl"),
    "shr": partial(shift, "shr"),
    "cvt": converted,
    "selp": selected,
}
