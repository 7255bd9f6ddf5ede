"""Kinds of machine keys: each has its unit and allowed values, and reads and writes values.

`read` takes a value from a TOML file, a command line or a caller (a number in the key's unit, or text such as
"20 ns") and returns it in its stored form, or raises a `MachineError` that describes the problem. Reading a stored
value again gives the same value. The allowed values are in `Key.allowed`, which callers add to the error.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from numbers import Rational, Real
from typing import Any, Literal

from kernbench.common.errors import MachineError
from kernbench.machine.units import amount, is_physical, parse, plain, span

Role = Literal["shape", "rate", "label"]

SHAPE: Role = "shape"
RATE: Role = "rate"
LABEL: Role = "label"

GIGA = 10**9
PS_PER_NS = 10**3
PS_PER_SECOND = 10**12


# a value of a key, of the type that its kind defines
Value = Any


@dataclass(frozen=True)
class Key:
    """The description of a key. A change of a `shape` key requires a new run, of a `rate` key only new timing."""

    unit: str
    role: Role
    help: str

    @property
    def allowed(self) -> str:
        """The allowed values, in words."""
        raise NotImplementedError

    def read(self, raw: object) -> object:
        """`raw` checked and converted to the stored form."""
        raise NotImplementedError

    def show(self, value: object) -> str:
        """The stored `value` as a person reads it, with its unit."""
        return str(value)

    def toml(self, value: object) -> str:
        """The stored `value` as TOML."""
        return self.show(value)

    def data(self, value: object) -> object:
        """The stored `value` as plain data for JSON."""
        return value


@dataclass(frozen=True)
class _Number(Key):
    low: float
    high: float

    @property
    def allowed(self) -> str:
        """The allowed values, in words."""
        return span(self.low, self.high, self.unit)

    def show(self, value: Value) -> str:
        """The stored `value` as a person reads it, with its unit."""
        return amount(value, self.unit)

    def toml(self, value: Value) -> str:
        """Quantities as text with their unit, counts as bare numbers."""
        return f'"{self.show(value)}"' if is_physical(self.unit) else plain(value)

    def _in_range(self, value: Fraction) -> Fraction:
        if not Fraction(str(self.low)) <= value <= Fraction(str(self.high)):
            raise MachineError("out of range")
        return value


@dataclass(frozen=True)
class Count(_Number):
    """A whole number of `unit`, from `low` to `high`."""

    def read(self, raw: object) -> int:
        """`raw` as an int; floats are refused even if they are whole."""
        value = _number(raw, self.unit)
        if value.denominator != 1 or not isinstance(raw, (str, Rational)):
            raise MachineError("must be a whole number")
        return int(self._in_range(value))


@dataclass(frozen=True)
class Quantity(_Number):
    """A number of `unit`, from `low` to `high`, rounded to the nearest 1/`parts` of the unit unless `parts` is 0.

    `parts` is chosen so that the value times `parts` is an integer in the unit of time computations (bytes per
    second, picoseconds, hertz), below 2**53: the stored float is lossless, and `whole` gives that integer exactly.
    """

    parts: int = 0

    def read(self, raw: object) -> float:
        """`raw` as a float."""
        value = self._in_range(_number(raw, self.unit))
        return float(Fraction(round(value * self.parts), self.parts) if self.parts else value)


def whole(value: float, parts: int) -> int:
    """A stored quantity as an integer number of 1/`parts` units.

    >>> whole(68.719476736, 10**9)
    68719476736
    """
    product = value * parts
    # below this the rounding of the product, twice 2**-53 of it, is less than a quarter
    return round(product) if abs(product) < 2**50 else round(Fraction(value) * parts)


def bandwidth(help: str) -> Quantity:
    """A bandwidth, in whole bytes per second."""
    return Quantity("GB/s", RATE, help, 0.001, 1_000_000, parts=GIGA)


def latency(help: str) -> Quantity:
    """A latency or another short time, in whole picoseconds."""
    return Quantity("ns", RATE, help, 0, 1_000_000_000, parts=PS_PER_NS)


@dataclass(frozen=True)
class Sides(Key):
    """The [rows, columns] of a grid, each from 1 to `high`; as text "2x4" or "[2, 4]"."""

    high: int

    @property
    def allowed(self) -> str:
        """The allowed values, in words."""
        return f"[rows, columns], each 1 to {self.high}"

    def read(self, raw: object) -> tuple[int, int]:
        """`raw` as a tuple (rows, columns)."""
        sides: object = [_digits(part) for part in _sides(raw)] if isinstance(raw, str) else raw
        if not isinstance(sides, Sequence) or len(sides) != 2 or not all(self._is_side(side) for side in sides):
            raise MachineError("not a grid")
        return int(sides[0]), int(sides[1])

    def _is_side(self, side: object) -> bool:
        return not isinstance(side, bool) and isinstance(side, Rational) and side in range(1, self.high + 1)

    def show(self, value: Value) -> str:
        """The grid as text: "2x4"."""
        return "x".join(map(str, value))

    def toml(self, value: Value) -> str:
        """The grid as an array of two numbers."""
        return str(list(value))

    def data(self, value: Value) -> list[int]:
        """The grid as a list of two numbers."""
        return list(value)


@dataclass(frozen=True)
class Text(Key):
    """One line of printable text, at most `longest` characters."""

    longest: int

    @property
    def allowed(self) -> str:
        """The allowed values, in words."""
        return f"one line of 1 to {self.longest} printable characters"

    def read(self, raw: object) -> str:
        """`raw`, if it is such a text."""
        if not isinstance(raw, str) or not raw.strip() or not raw.isprintable() or len(raw) > self.longest:
            raise MachineError("must be text")
        return raw

    def toml(self, value: object) -> str:
        """The text in quotes; for printable text JSON and TOML are the same."""
        return json.dumps(value, ensure_ascii=False)


@dataclass(frozen=True)
class Choice(Key):
    """One of `names`."""

    names: tuple[str, ...]

    @property
    def allowed(self) -> str:
        """The allowed values, in words."""
        return " or ".join(self.names)

    def read(self, raw: object) -> str:
        """`raw`, if it is one of the names."""
        if not isinstance(raw, str) or raw not in self.names:
            raise MachineError("not known")
        return raw

    def toml(self, value: object) -> str:
        """The name in quotes."""
        return json.dumps(value)


def _number(raw: object, unit: str) -> Fraction:
    if isinstance(raw, str):
        return parse(raw, unit)
    if isinstance(raw, bool) or not isinstance(raw, Real):
        raise MachineError(f"must be a number, not {described(raw)}")
    if isinstance(raw, Rational):
        return Fraction(int(raw.numerator), int(raw.denominator))
    value = float(raw)
    if not math.isfinite(value):
        raise MachineError("must be finite")
    return Fraction(repr(value))


def _sides(text: str) -> list[str]:
    """The parts of "2x4", or of "[2, 4]" as a file has it."""
    text = text.strip()
    return text[1:-1].split(",") if text.startswith("[") and text.endswith("]") else text.split("x")


def _digits(text: str) -> int | None:
    text = text.strip()
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else None


_TYPE_WORDS = {
    bool: "true or false",
    int: "an integer",
    float: "a number",
    str: "text",
    list: "an array",
    dict: "a table",
}


def described(raw: object) -> str:
    """The type of a value in the terms of a TOML file."""
    return _TYPE_WORDS.get(type(raw), f"a value of type {type(raw).__name__}")


def clipped(raw: object, longest: int = 60) -> str:
    """A value as quoted in messages, truncated."""
    if isinstance(raw, dict):
        return "{...}"
    try:
        text = str(raw).lower() if isinstance(raw, bool) else repr(raw)
    except (ValueError, RecursionError):
        # Python refuses to print integers of thousands of digits.
        text = f"<{described(raw)} too large to print>"
    return text if len(text) <= longest else f"{text[:longest]}..."


def printable(text: str) -> str:
    """A name or path as printed in messages: on one line."""
    return text if text.isprintable() else repr(text)
