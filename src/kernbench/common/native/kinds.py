"""Kinds of values in loops, and how they combine: numba's rules for numbers, arrays and tuples."""

from dataclasses import dataclass
from functools import cache

import numpy as np


class NotPlain(Exception):  # noqa: N818
    """Something that loops of the plain part of Python do not have; numba compiles them then."""


@dataclass(frozen=True)
class Scalar:
    """A number: signed (i), unsigned (u), floating-point (f) or truth (b), of some bits."""

    form: str
    bits: int

    @property
    def code(self) -> str:
        """Its type in LLVM's language."""
        return {32: "float", 64: "double"}[self.bits] if self.form == "f" else f"i{self.bits}"

    @property
    def stored(self) -> str:
        """Its type in memory, where a truth value takes a byte."""
        return "i8" if self.form == "b" else self.code

    @property
    def nbytes(self) -> int:
        """Bytes of one in memory."""
        return max(self.bits // 8, 1)


@dataclass(frozen=True)
class Array:
    """An array: its elements, its dimensions, and whether rows follow each other without gaps."""

    item: Scalar
    ndim: int
    packed: bool


@dataclass(frozen=True)
class Record:
    """A tuple; with the names of its fields where it has any, and the class that Python knows it by."""

    items: tuple["Kind", ...]
    fields: tuple[str, ...] = ()
    made_by: str = ""


Kind = Scalar | Array | Record

INT, UINT, FLOAT, TRUTH = Scalar("i", 64), Scalar("u", 64), Scalar("f", 64), Scalar("b", 1)
EMPTY = Record(())


@dataclass(frozen=True)
class Value:
    """Something that is computed: its kind, and what holds its parts: names or numbers of LLVM's language."""

    kind: Kind
    leaves: tuple[str, ...]


@dataclass(frozen=True)
class Static:
    """Something that is known before the loop runs: a number, a function, a module, a type."""

    value: object


@dataclass(frozen=True)
class Instruction:
    """An instruction of LLVM's language that loops call as a function: {0}, {1}, ... in its text are its arguments."""

    takes: tuple[Scalar, ...]
    gives: Scalar
    text: str


# Instructions of loops over rows, which are written where they stand. `at(row, lane)`: an element of a row, or a number
# that every lane reads; `room()`: 32 bits for each lane of a block; `address(table)`: where numbers lie that are known;
# `read(room, index)`, `write(room, index, number)`: of either, by an index that is never below zero;
# `prefetch(array, index, ...)`: an element will be written soon, so that the processor fetches its line.
LANE, ROOM, ADDRESS, READ, WRITE, PREFETCH = (
    Instruction((), TRUTH, name) for name in ("lane", "room", "address", "read", "write", "prefetch")
)
# lanes of a block
BLOCK = 256


def codes(kind: Kind) -> tuple[str, ...]:
    """The types of a value's parts: of an array its address, its lengths, and its strides where it has gaps."""
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
    """The kind of a NumPy type's elements."""
    known = {"i": "i", "u": "u", "f": "f", "b": "b"}
    if dtype.kind not in known or not dtype.isnative or dtype.itemsize > 8 or dtype == np.float16:
        raise NotPlain(f"elements of {dtype}")
    return TRUTH if dtype.kind == "b" else Scalar(known[dtype.kind], 8 * dtype.itemsize)


@cache
def numpy_type(kind: Scalar) -> np.dtype[np.generic]:
    """The NumPy type of a kind of number."""
    return np.dtype("?" if kind.form == "b" else f"{kind.form}{kind.nbytes}")


def combined(one: Scalar, two: Scalar) -> Scalar:
    """The kind that arithmetic on two numbers is done in, and gives."""
    if "f" not in (one.form, two.form):
        return UINT if one.form == two.form == "u" else INT
    if one == two:
        return one
    narrow = [kind for kind in (one, two) if kind.form == "f" or kind.bits > 16]
    return FLOAT if any(kind != Scalar("f", 32) for kind in narrow) else Scalar("f", 32)


def wide(kind: Scalar) -> Scalar:
    """The kind that one number is computed with alone: at least 64 bits for whole ones."""
    if kind.form == "f":
        return kind
    return UINT if kind.form == "u" else INT


def unified(one: Kind | None, two: Kind) -> Kind:
    """The kind of a variable that is given values of both.

    numba would have a kind for each assignment; where these would compute differently it is left to numba.
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
    """The kind of an expression that is one of two: a truth value beside a number is a number, as in numba."""
    kinds = {one, two}
    if TRUTH in kinds and INT in kinds:
        return INT
    return unified(one, two)
