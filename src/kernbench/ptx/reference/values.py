"""Arithmetic of instructions, as plain functions of Python integers."""

from collections.abc import Callable

from kernbench.ptx.text.types import TYPES, ScalarType


def signed(value: int, bits: int) -> int:
    """`bits` bits as a signed integer."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if value >> (bits - 1) else value


def number(value: int, kind: ScalarType) -> int:
    """A register's bits as an integer of a type."""
    return signed(value, kind.bits) if kind.kind == "s" else value & ((1 << kind.bits) - 1)


def _shift_left(a: int, b: int, kind: ScalarType) -> int:
    return a << b if b < kind.bits else 0


def _shift_right(a: int, b: int, kind: ScalarType) -> int:
    return a >> min(b, kind.bits)


def _quotient(a: int, b: int, kind: ScalarType) -> int:
    """Rounded towards zero; a division by zero, undefined in PTX, gives all ones."""
    if b == 0:
        return -1
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def _remainder(a: int, b: int, kind: ScalarType) -> int:
    return a if b == 0 else a - _quotient(a, b, kind) * b


def _reverse(a: int, kind: ScalarType) -> int:
    return int(format(a, f"0{kind.bits}b")[::-1], 2)


# results are truncated to the destination's width afterwards
UNARY: dict[str, Callable[[int, ScalarType], int]] = {
    "mov": lambda a, kind: a,
    "not": lambda a, kind: ~a,
    "neg": lambda a, kind: -a,
    "abs": lambda a, kind: abs(a),
    "popc": lambda a, kind: a.bit_count(),
    "clz": lambda a, kind: kind.bits - a.bit_length(),
    "brev": _reverse,
}
BINARY: dict[str, Callable[[int, int, ScalarType], int]] = {
    "add": lambda a, b, kind: a + b,
    "sub": lambda a, b, kind: a - b,
    "min": lambda a, b, kind: min(a, b),
    "max": lambda a, b, kind: max(a, b),
    "and": lambda a, b, kind: a & b,
    "or": lambda a, b, kind: a | b,
    "xor": lambda a, b, kind: a ^ b,
    "shl": _shift_left,
    "shr": _shift_right,
    "div": _quotient,
    "rem": _remainder,
    "mul.lo": lambda a, b, kind: a * b,
    "mul.wide": lambda a, b, kind: a * b,
    "mul.hi": lambda a, b, kind: a * b >> kind.bits,
}
COMPARISONS: dict[str, Callable[[int, int], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "lo": lambda a, b: a < b,
    "ls": lambda a, b: a <= b,
    "hi": lambda a, b: a > b,
    "hs": lambda a, b: a >= b,
}
# the new value of memory in atomics and reductions, from the old value and the operand
UPDATES: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "min": min,
    "max": max,
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "exch": lambda a, b: b,
    "inc": lambda a, b: 0 if a >= b else a + 1,
    "dec": lambda a, b: b if a == 0 or a > b else a - 1,
}


def type_of(modifiers: tuple[str, ...]) -> ScalarType:
    """The last type among modifiers, which is that of the operands."""
    return TYPES[[name for name in modifiers if name in TYPES][-1]]
