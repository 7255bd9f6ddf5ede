"""Reads JSON from an untrusted file: every value is checked before use, and errors name its path."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from kernbench.common.errors import MisuseError

Anything = TypeVar("Anything")
# plain data as in JSON and TOML: strings, numbers, lists and tables; the reader of a table knows its keys
Data = dict[str, Any]
Fields = Mapping[str, Any]
# larger than any count: a number in JSON may have any length
LARGEST = 1e30
_WORDS = {dict: "an object", list: "a list", str: "a text", int: "a whole number", bool: "true or false"}


class Reader:
    """A value of a JSON document and its path."""

    def __init__(self, value: object, path: str):
        self.value, self.path = value, path

    def refuse(self, what: str) -> MisuseError:
        """The error for this value."""
        shown = repr(self.value)
        return MisuseError(f"{self.path}: {what}; got {shown if len(shown) <= 60 else shown[:57] + '...'}")

    def of(self, kind: type[Anything]) -> Anything:
        """The value, which must be of this type; a boolean is no integer."""
        if not isinstance(self.value, kind) or (kind is int and isinstance(self.value, bool)):
            raise self.refuse(f"{_WORDS[kind]} is wanted")
        return self.value

    def __getitem__(self, key: str) -> "Reader":
        held = self.of(dict)
        if key not in held:
            raise MisuseError(f"{self.path}: {key!r} is missing")
        return Reader(held[key], f"{self.path}.{key}")

    def __iter__(self) -> Iterator["Reader"]:
        return (Reader(v, f"{self.path}[{n}]") for n, v in enumerate(self.of(list)))

    def items(self) -> Iterator[tuple[str, "Reader"]]:
        """Keys and values of an object."""
        return ((key, Reader(value, f"{self.path}.{key}")) for key, value in self.of(dict).items())

    def maybe(self, read: Callable[["Reader"], Anything]) -> Anything | None:
        """None for null, else the result of `read`."""
        return None if self.value is None else read(self)

    def natural(self) -> int:
        """An integer from 0 on."""
        number: int = self.of(int)
        if number < 0:
            raise self.refuse("a number from 0 on is wanted")
        return number

    def number(self) -> float:
        """A number; infinities and NaN are written as strings."""
        if self.value in ("inf", "-inf", "nan"):
            return float(self.value)
        if isinstance(self.value, bool) or not isinstance(self.value, (int, float)) or not math.isfinite(self.value):
            raise self.refuse("a number is wanted")
        return self.value

    def finite(self) -> float:
        """A finite number of plausible size."""
        number = self.number()
        if not math.isfinite(number) or abs(number) > LARGEST:
            raise self.refuse(f"a number up to {LARGEST:.0e} is wanted")
        return number

    def naturals(self) -> tuple[int, ...]:
        """A list of integers from 0 on."""
        return tuple(one.natural() for one in self)

    def texts(self) -> tuple[str, ...]:
        """A list of strings."""
        return tuple(one.of(str) for one in self)
