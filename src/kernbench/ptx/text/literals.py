"""Number literals of PTX, and the arithmetic of constant expressions."""

import operator
import re
import struct
from collections.abc import Callable

from kernbench.ptx.text.module import Float, Integer

_MASK = (1 << 64) - 1
_INTEGER = re.compile(r"(0[xX][0-9a-fA-F]+|0[bB][01]+|0[0-7]*|[1-9][0-9]*)U?", re.ASCII)
_SINGLE = re.compile(r"0[fF]([0-9a-fA-F]{8})", re.ASCII)
_DOUBLE = re.compile(r"0[dD]([0-9a-fA-F]{16})", re.ASCII)
_DECIMAL = re.compile(r"(\d+\.\d*|\.\d+|\d+(?=[eE]))([eE][+-]?\d+)?", re.ASCII)


def literal(text: str) -> Integer | Float | None:
    """The number that a literal stands for; None if `text` is no literal, or does not fit 64 bits."""
    if match := _INTEGER.fullmatch(text):
        return _integer(match[1], text)
    if match := _SINGLE.fullmatch(text):
        return Float(int(match[1], 16), 32, text)
    if match := _DOUBLE.fullmatch(text):
        return Float(int(match[1], 16), 64, text)
    if _DECIMAL.fullmatch(text):
        return Float(int.from_bytes(struct.pack(">d", float(text)), "big"), 64, text)
    return None


def _integer(digits: str, spelling: str) -> Integer | None:
    if len(digits) > 66:
        return None
    value = int(digits, 8 if digits.isdigit() and digits[0] == "0" else 0)
    return Integer(value, spelling) if value <= _MASK else None


def negated(number: Integer | Float) -> Integer | Float:
    """`-number`, with the sign in its spelling."""
    spelling = number.spelling[1:] if number.spelling.startswith("-") else f"-{number.spelling}"
    if isinstance(number, Integer):
        return Integer(wrap(-number.value), spelling)
    bits = number.bits ^ (1 << (number.width - 1))
    if number.spelling[1:2] in "fFdD":
        # ptxas takes no sign before a hexadecimal float; the sign is in its bits
        spelling = f"0f{bits:08X}" if number.width == 32 else f"0d{bits:016X}"
    return Float(bits, number.width, spelling)


def float_operation(operation: Callable[[int, int], int], a: Float, b: Float) -> Float | None:
    """Sum, difference, product or quotient of two floats in double precision, None for any other operation."""
    function = _FLOAT_OPERATIONS.get(operation)
    if function is None:
        return None
    try:
        value = function(to_float(a), to_float(b))
    except OverflowError:
        value = float("inf")
    bits = int.from_bytes(struct.pack(">d", value), "big")
    return Float(bits, 64, f"0d{bits:016X}")


def to_float(number: Float) -> float:
    """The value of a float literal."""
    code, size = (">f", 4) if number.width == 32 else (">d", 8)
    value: float = struct.unpack(code, number.bits.to_bytes(size, "big"))[0]
    return value


def wrap(value: int) -> int:
    """A value in 64-bit arithmetic: negative values are signed, values from 2^63 to 2^64 unsigned."""
    if -(1 << 63) <= value <= _MASK:
        return value
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


def _divide(a: int, b: int) -> int:
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _remainder(a: int, b: int) -> int:
    return a - b * _divide(a, b)


# operator -> (precedence, function); a division by zero raises ZeroDivisionError
BINARY: dict[str, tuple[int, Callable[[int, int], int]]] = {
    "||": (1, lambda a, b: int(bool(a or b))),
    "&&": (2, lambda a, b: int(bool(a and b))),
    "|": (3, operator.or_),
    "^": (4, operator.xor),
    "&": (5, operator.and_),
    "==": (6, lambda a, b: int(a == b)),
    "!=": (6, lambda a, b: int(a != b)),
    "<": (7, lambda a, b: int(a < b)),
    "<=": (7, lambda a, b: int(a <= b)),
    ">": (7, lambda a, b: int(a > b)),
    ">=": (7, lambda a, b: int(a >= b)),
    "<<": (8, lambda a, b: a << (b & 63)),
    ">>": (8, lambda a, b: a >> (b & 63)),
    "+": (9, operator.add),
    "-": (9, operator.sub),
    "*": (10, operator.mul),
    "/": (10, _divide),
    "%": (10, _remainder),
}
_FLOAT_OPERATIONS: dict[Callable[[int, int], int], Callable[[float, float], float]] = {
    operator.add: operator.add,
    operator.sub: operator.sub,
    operator.mul: operator.mul,
    _divide: operator.truediv,
}
UNARY: dict[str, Callable[[int], int]] = {
    "+": lambda a: a,
    "-": lambda a: -a,
    "~": lambda a: ~a,
    "!": lambda a: int(not a),
}
