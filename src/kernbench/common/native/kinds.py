"""Kinds (types) of values in loops, and how they combine: numba's rules for numbers, arrays and tuples."""

from dataclasses import dataclass
from functools import cache

import numpy as np


class NotPlain(Exception):  # noqa: N818
    """The code is outside the subset of Python that we compile; numba compiles it instead."""


@dataclass(frozen=True)
class Scalar:
    """A number: signed (i), unsigned (u), floating-point (f) or boolean (b), with its width in bits."""

    form: str
    bits: int

    @property
    def code(self) -> str:
        """Its LLVM type."""
        return {32: "float", 64: "double"}[self.bits] if self.form == "f" else f"i{self.bits}"

    @property
    def stored(self) -> str:
        """Its LLVM type in memory, where a boolean is a byte."""
        return "i8" if self.form == "b" else self.code

    @property
    def nbytes(self) -> int:
        """Bytes of a number in memory."""
        return max(self.bits // 8, 1)


@dataclass(frozen=True)
class Array:
    """An array: its element kind, its number of dimensions, and whether it is contiguous (`packed`)."""

    item: Scalar
    ndim: int
    packed: bool


@dataclass(frozen=True)
class Record:
    """A tuple; a named tuple has `fields` and its class, `made_by`."""

    items: tuple["Kind", ...]
    fields: tuple[str, ...] = ()
    made_by: str = ""


Kind = Scalar | Array | Record

INT, UINT, FLOAT, TRUTH = Scalar("i", 64), Scalar("u", 64), Scalar("f", 64), Scalar("b", 1)
EMPTY = Record(())


@dataclass(frozen=True)
class Value:
    """A computed value: its kind, and its leaves (LLVM names or constants)."""

    kind: Kind
    leaves: tuple[str, ...]


@dataclass(frozen=True)
class Static:
    """A compile-time constant: a number, a function, a module, a type."""

    value: object


@dataclass(frozen=True)
class Instruction:
    """An LLVM instruction that loops call as a function; {0}, {1}, ... in its text are its arguments."""

    takes: tuple[Scalar, ...]
    gives: Scalar
    text: str


# Pseudo-instructions, expanded where they are called:
# - `at(row, lane)`: an element of a row, or a number that is the same for every lane;
# - `room()`: a buffer of 32 bits for each lane of a block;
# - `address(table)`: the address of constants;
# - `read(room, index)`, `write(room, index, number)`: access either, by an index that must not be negative;
# - `prefetch(array, index, ...)`: prefetch the cache line of an element that will be written.
LANE, ROOM, ADDRESS, READ, WRITE, PREFETCH = (
    Instruction((), TRUTH, name) for name in ("lane", "room", "address", "read", "write", "prefetch")
)
# arrays by address, for code that has nothing else:
# - `view(address)`: the elements of one kind from there on; indices must not be negative, and its length is unknown
# - `row(address)`: the same with one element for each lane of a warp
# - `empty()`: no elements
# - `space()`: a buffer on the stack, as `room` but of any kind
_ELEMENTS = ("b1", "u1", "u2", "u4", "u8", "i4", "i8", "f4", "f8")
VIEWS = {name: Instruction((INT,), TRUTH, f"view {name}") for name in _ELEMENTS}
ROWS = {name: Instruction((INT,), TRUTH, f"row {name}") for name in _ELEMENTS}
EMPTIES = {name: Instruction((), TRUTH, f"empty {name}") for name in _ELEMENTS}
SPACES = {name: Instruction((), TRUTH, f"space {name}") for name in _ELEMENTS}
UNKNOWN_LENGTH, WARP_LENGTH = "-1", "32"
# lanes of a block
BLOCK = 256


def codes(kind: Kind) -> tuple[str, ...]:
    """The LLVM types of a value's leaves; for an array its address, lengths, and strides if not contiguous."""
    if isinstance(kind, Scalar):
        return (kind.code,)
    if isinstance(kind, Array):
        return ("ptr",) + ("i64",) * (kind.ndim if kind.packed else 2 * kind.ndim)
    return tuple(code for item in kind.items for code in codes(item))


def parts(value: Value) -> list[Value]:
    """The items of a tuple."""
    assert isinstance(value.kind, Record)
    found, at = [], 0
    for item in value.kind.items:
        width = len(codes(item))
        found.append(Value(item, value.leaves[at : at + width]))
        at += width
    return found


def joined(values: list[Value], fields: tuple[str, ...] = (), made_by: str = "") -> Value:
    """A tuple of values."""
    kind = Record(tuple(value.kind for value in values), fields, made_by)
    return Value(kind, tuple(leaf for value in values for leaf in value.leaves))


@cache
def scalar_of(dtype: np.dtype[np.generic]) -> Scalar:
    """The kind of a NumPy dtype's elements."""
    known = {"i": "i", "u": "u", "f": "f", "b": "b"}
    if dtype.kind not in known or not dtype.isnative or dtype.itemsize > 8 or dtype == np.float16:
        raise NotPlain(f"elements of {dtype}")
    return TRUTH if dtype.kind == "b" else Scalar(known[dtype.kind], 8 * dtype.itemsize)


@cache
def numpy_type(kind: Scalar) -> np.dtype[np.generic]:
    """The NumPy dtype of a kind of number."""
    return np.dtype("?" if kind.form == "b" else f"{kind.form}{kind.nbytes}")


def combined(one: Scalar, two: Scalar) -> Scalar:
    """The kind of arithmetic on two numbers, and of its result."""
    if "f" not in (one.form, two.form):
        return UINT if one.form == two.form == "u" else INT
    if one == two:
        return one
    narrow = [kind for kind in (one, two) if kind.form == "f" or kind.bits > 16]
    return FLOAT if any(kind != Scalar("f", 32) for kind in narrow) else Scalar("f", 32)


def wide(kind: Scalar) -> Scalar:
    """The kind in which a unary operation is computed: at least 64 bits for integers."""
    if kind.form == "f":
        return kind
    return UINT if kind.form == "u" else INT


def unified(one: Kind | None, two: Kind) -> Kind:
    """The kind of a variable that is assigned values of both kinds.

    numba has a type for each assignment. If those would compute differently, the function is left to numba.
    """
    if one is None or one == two:
        return two
    if isinstance(one, Scalar) and isinstance(two, Scalar) and one.form == two.form:
        return one if one.bits >= two.bits else two
    if isinstance(one, Record) and isinstance(two, Record) and len(one.items) == len(two.items):
        items = tuple(unified(a, b) for a, b in zip(one.items, two.items, strict=True))
        return Record(items, one.fields, one.made_by)
    raise NotPlain(f"a variable of two kinds, {one} and {two}")


def either(one: Kind, two: Kind) -> Kind:
    """The kind of a conditional expression; a boolean and an integer give an integer, as in numba."""
    kinds = {one, two}
    if TRUTH in kinds and INT in kinds:
        return INT
    return unified(one, two)
