"""The values of a swept key: a list, or ranges that are not expanded.

`a..b` counts by one, `a..b/step` by a step, `a..b*factor` multiplies; both ends are inclusive. A unit follows the
range: `100..400/50 GB/s`. Ranges and single values mix: `1,2,8..64*2`.
"""

import re
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from math import log

from kernbench.common.errors import BenchError

MOST_VALUES = 10**9
# a multiplying range is expanded: its values have no simple rule
MOST_MULTIPLIED = 10_000
_DIGITS = 12
# largest numbers that are written out in a message
_SHOWN = 10**15
_LARGEST = 10**300
# a number; longer exponents are out of the range of any machine or bench
_NUMBER = r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3}(?![0-9]))?"
_RANGE = re.compile(
    rf"({_NUMBER})\s*\.\.\s*({_NUMBER})(?:\s*([/*])\s*({_NUMBER}))?\s*((?![eE][+-]?[0-9])[^\s0-9./*].*)?"
)
# text that was meant as a range, right or wrong; "../machine.toml" was not
_MEANT = re.compile(r"[+-]?[0-9][0-9.]*\s*\.\.")
_TEXT = re.compile(rf"({_NUMBER})(?: (.*))?")
_HELP = "a range is a..b, a..b/step or a..b*factor, then a unit if there is one: 8..64*2, 100..400/50 GB/s"


@dataclass(frozen=True)
class Listed:
    """Values as they were written."""

    values: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, index: int) -> str:
        return self.values[index]

    @cached_property
    def _indices(self) -> dict[str, int]:
        return {value: index for index, value in enumerate(self.values)}

    def index(self, text: str) -> int | None:
        """The index of a value; None if it is not among them."""
        return self._indices.get(text)

    def written(self) -> list[str]:
        """The values as `parse_values` reads them."""
        return list(self.values)


@dataclass(frozen=True)
class Counted:
    """`count` values from `first` on, `step` apart, each followed by `unit`."""

    first: Fraction
    step: Fraction
    count: int
    unit: str = ""

    def __len__(self) -> int:
        return self.count

    @cached_property
    def _scaled(self) -> tuple[int, int, int]:
        """First value and step as integers, scaled by a power of ten, so that values are computed exactly and fast."""
        decimals = max(_decimals(self.first), _decimals(self.step))
        return int(self.first * 10**decimals), int(self.step * 10**decimals), decimals

    def __getitem__(self, index: int) -> str:
        first, step, decimals = self._scaled
        return _decimal(first + index * step, decimals, self.unit)

    def index(self, text: str) -> int | None:
        """The index of a value; None if it is not among them."""
        match = _TEXT.fullmatch(text)
        if match is None or (match[2] or "") != self.unit:
            return None
        index = (Fraction(match[1]) - self.first) / self.step
        whole = index.denominator == 1 and 0 <= index < self.count
        return int(index) if whole and self[int(index)] == text else None

    def written(self) -> list[str]:
        """The range as `parse_values` reads it."""
        last = self.first + (self.count - 1) * self.step
        return [f"{_text(self.first, '')}..{_text(last, '')}/{_text(self.step, '')} {self.unit}".rstrip()]


@dataclass(frozen=True)
class Axis:
    """All values of a key, in order. A value of several parts has its first index."""

    parts: tuple[Listed | Counted, ...]

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(map(len, self.parts)))

    def __len__(self) -> int:
        return self._ends[-1]

    def __getitem__(self, index: int) -> str:
        part = bisect_right(self._ends, index)
        if index < 0 or part == len(self.parts):
            raise IndexError(index)
        return self.parts[part][index - (self._ends[part] - len(self.parts[part]))]

    def __iter__(self) -> Iterator[str]:
        return (part[index] for part in self.parts for index in range(len(part)))

    def index(self, text: str) -> int | None:
        """The index of a value; None if it is not among them."""
        for part, end in zip(self.parts, self._ends, strict=True):
            index = part.index(text)
            if index is not None:
                return end - len(part) + index
        return None

    def written(self) -> tuple[str, ...]:
        """The values as `parse_values` reads them; ranges stay ranges."""
        return tuple(text for part in self.parts for text in part.written())

    def joined(self, other: "Axis") -> "Axis":
        """These values, then those of `other` that are not among them; the indices of these stay."""
        parts = list(self.parts)
        for part in other.parts:
            if isinstance(part, Counted):
                parts += [] if part in parts else [part]
            else:
                new = tuple(value for value in part.values if self.index(value) is None)
                parts += [Listed(new)] if new else []
        return Axis(tuple(parts))

    def repeated(self) -> str | None:
        """A value that occurs twice."""
        for number, part in enumerate(self.parts):
            if isinstance(part, Listed) and len(set(part.values)) < len(part.values):
                return next(value for value in part.values if part.values.count(value) > 1)
            for other in self.parts[:number]:
                few, many = sorted((part, other), key=len)
                for index in range(len(few)):
                    if many.index(few[index]) is not None:
                        return few[index]
        return None

    def sample(self, most: int) -> Iterator[str]:
        """At most about `most` of the values: all if there are no more, else the ends of every part first."""
        if len(self) <= most:
            yield from self
            return
        for part in self.parts[:most]:
            yield part[0]
            yield part[len(part) - 1]


def axis_of(texts: "list[str] | tuple[str, ...] | Axis") -> Axis:
    """The values that `texts` name: single ones and ranges."""
    if isinstance(texts, Axis):
        return texts
    return Axis(tuple(_merged([_part(str(text)) for text in texts])))


def _merged(parts: list[Listed | Counted]) -> Iterator[Listed | Counted]:
    """Adjacent lists merged."""
    values: list[str] = []
    for part in parts:
        if isinstance(part, Listed):
            values += part.values
            continue
        if values:
            yield Listed(tuple(values))
            values = []
        yield part
    if values:
        yield Listed(tuple(values))


def parse_values(text: str) -> list[str]:
    """The items of `a,b,c`; a comma inside brackets belongs to its item."""
    items, depth, begin = [], 0, 0
    for end, character in enumerate(f"{text},"):
        depth += (character in "[(") - (character in "])")
        if character == "," and depth <= 0:
            items.append(text[begin:end].strip())
            begin = end + 1
    if begin <= len(text) and text[begin:].strip():
        items.append(text[begin:].strip())
    return [item for item in items if item]


def _part(text: str) -> Listed | Counted:
    match = _RANGE.fullmatch(text)
    if match is None:
        if _MEANT.match(text):
            raise BenchError(f"{text!r} is no range: {_HELP}")
        return Listed((text,))
    first, last = Fraction(match[1]), Fraction(match[2])
    unit = (match[5] or "").strip()
    if last < first:
        raise BenchError(f"{text!r} is empty, as {match[2]} is less than {match[1]}: write the smaller end first")
    if match[3] == "*":
        return _multiplied(text, first, last, Fraction(match[4]), unit)
    if match[3] is None and (first.denominator, last.denominator) != (1, 1):
        raise BenchError(f"{text!r}: only whole numbers are counted by one; say the step: {match[1]}..{match[2]}/0.5")
    return _counted(text, first, last, Fraction(match[4] or 1), unit)


def _counted(text: str, first: Fraction, last: Fraction, step: Fraction, unit: str) -> Counted:
    if step <= 0:
        raise BenchError(f"{text!r} has no end: a step is more than 0")
    count = (last - first) // step + 1
    if count > MOST_VALUES:
        how = f"{count:,} values, more than {MOST_VALUES:,}" if count < _SHOWN else f"more than {MOST_VALUES:,} values"
        raise BenchError(f"{text!r} are {how}: take a larger step")
    return Counted(first, step, count, unit)


def _multiplied(text: str, first: Fraction, last: Fraction, factor: Fraction, unit: str) -> Listed:
    if factor <= 1:
        raise BenchError(f"{text!r} has no end: a factor is more than 1")
    if first <= 0:
        raise BenchError(f"{text!r} has no end: what is multiplied begins above 0")
    if last >= _LARGEST:
        raise BenchError(f"{text!r} ends beyond 1e300, which nothing can have: write a smaller end")
    if log(last / first) > MOST_MULTIPLIED * log(factor):
        raise BenchError(f"{text!r} are more than {MOST_MULTIPLIED:,} values: take a larger factor")
    values, value = [], first
    while value <= last:
        values.append(_text(_rounded(value), unit))
        value *= factor
    return Listed(tuple(values))


def _rounded(value: Fraction) -> Fraction:
    """Powers of a factor such as 1.1 gain a digit each: twelve digits are kept."""
    return value if value.denominator == 1 else Fraction(f"{float(value):.{_DIGITS}g}")


def _text(value: Fraction, unit: str) -> str:
    """A value as decimal text without trailing zeros."""
    decimals = _decimals(value)
    return _decimal(int(value * 10**decimals), decimals, unit)


def _decimals(value: Fraction) -> int:
    """Decimal places of a value; all that are read have few."""
    decimals = 0
    while (value * 10**decimals).denominator != 1:
        decimals += 1
    return decimals


def _decimal(scaled: int, decimals: int, unit: str) -> str:
    """A scaled integer as decimal text."""
    number = str(scaled)
    if decimals:
        digits = str(abs(scaled)).rjust(decimals + 1, "0")
        number = f"{'-' if scaled < 0 else ''}{digits[:-decimals]}.{digits[-decimals:]}".rstrip("0").rstrip(".")
    return f"{number} {unit}" if unit else number
