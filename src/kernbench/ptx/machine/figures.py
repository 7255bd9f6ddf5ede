"""Figures: numbers of a GPU with their range of uncertainty and their source, and the key that reads them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from kernbench.common.errors import MachineError, unknown
from kernbench.machine.keys import RATE, SHAPE, Count, Quantity, Role, clipped, described
from kernbench.machine.units import amount, is_physical, plain

MEASURED, PUBLISHED, ASSUMED = "measured", "published", "assumed"
SOURCES = {
    MEASURED: "by us, on a GPU of this kind",
    PUBLISHED: "by its maker or by others who measured it",
    ASSUMED: "neither: taken from a related GPU, or reasoned",
}
BY_HAND = "set by hand"
_PARTS = ("value", "range", "source", "note")
_LONGEST_NOTE = 200


class Figure(float):
    """A number known to be between `low` and `high`; `source` is one of `SOURCES`, `note` a free text."""

    low: float
    high: float
    source: str
    note: str

    def __new__(cls, value: float, low: float, high: float, source: str, note: str = "") -> "Figure":
        """The figure; equal to and usable as the plain number."""
        made = super().__new__(cls, value)
        made.low, made.high, made.source, made.note = float(low), float(high), source, note
        return made

    def __reduce__(self) -> tuple[type["Figure"], tuple[float, float, float, str, str]]:
        """For copies and pickling."""
        return Figure, (float(self), self.low, self.high, self.source, self.note)


@dataclass(frozen=True)
class Constant(Quantity):
    """A key whose value is a `Figure`; in a file `{ value = 4, range = [4, 4.5], source = "published", note = "..." }`.

    A bare number is a figure set by hand: assumed, and without uncertainty. With `counted` the value is an integer.
    """

    counted: bool = False

    def read(self, raw: object) -> Figure:
        """Parse `raw` as a figure; errors say which part is wrong."""
        if isinstance(raw, Figure):
            return self._figure(float(raw), raw.low, raw.high, raw.source, raw.note)
        if not isinstance(raw, Mapping):
            value = self._number(raw)
            return self._figure(value, value, value, ASSUMED, BY_HAND)
        for name in raw:
            if name not in _PARTS:
                raise MachineError(unknown("part of a figure", str(name), _PARTS))
        if "value" not in raw or "source" not in raw:
            raise MachineError("a figure needs value and source, and may have range and note; or give a bare number")
        value = self._number(raw["value"])
        low, high = self._range(raw.get("range", [value, value]))
        return self._figure(value, low, high, raw["source"], raw.get("note", ""))

    def show(self, value: object) -> str:
        """The figure with its unit, its range if it has one, and its source."""
        assert isinstance(value, Figure)
        known = f", {plain(value.low)} to {plain(value.high)}" if value.low != value.high else ""
        note = f": {value.note}" if value.note else ""
        return f"{amount(value, self.unit)}{known} ({value.source}{note})"

    def toml(self, value: object) -> str:
        """The figure as an inline table."""
        assert isinstance(value, Figure)
        parts = [f"value = {self._plain(value)}"]
        if value.low != value.high:
            parts.append(f"range = [{self._plain(value.low)}, {self._plain(value.high)}]")
        parts.append(f"source = {json.dumps(value.source)}")
        if value.note:
            parts.append(f"note = {json.dumps(value.note, ensure_ascii=False)}")
        return f"{{ {', '.join(parts)} }}"

    def data(self, value: object) -> dict[str, object]:
        """The figure's parts."""
        assert isinstance(value, Figure)
        return {"value": float(value), "range": [value.low, value.high], "source": value.source, "note": value.note}

    def _plain(self, value: float) -> str:
        return json.dumps(amount(value, self.unit)) if is_physical(self.unit) else plain(value)

    def _number(self, raw: object) -> float:
        if self.counted:
            return float(Count(self.unit, self.role, self.help, self.low, self.high).read(_whole(raw)))
        return super().read(raw)

    def _range(self, raw: object) -> tuple[float, float]:
        if isinstance(raw, str) or not isinstance(raw, Sequence) or len(raw) != 2:
            raise MachineError(f"range = {clipped(raw)} must be [least, most], not {described(raw)}")
        return self._number(raw[0]), self._number(raw[1])

    def _figure(self, value: float, low: float, high: float, source: object, note: object) -> Figure:
        self._in_range(Fraction(repr(value)))
        if source not in SOURCES:
            raise MachineError(unknown("source", str(source), SOURCES))
        if not isinstance(note, str) or len(note) > _LONGEST_NOTE or not (note.isprintable() or not note):
            raise MachineError(f"note must be one line of at most {_LONGEST_NOTE} printable characters")
        if not low <= value <= high:
            raise MachineError(
                f"value {plain(value)} is outside its own range, {plain(low)} to {plain(high)}; "
                f"widen the range, or give the number alone"
            )
        return Figure(value, low, high, str(source), note)


def _whole(raw: object) -> object:
    """A float without fractional part, as an int; other values unchanged."""
    return int(raw) if isinstance(raw, float) and raw.is_integer() else raw


def cycles(help: str, high: float = 100_000) -> Constant:
    """A time in cycles of the SM clock."""
    return Constant("cycles", RATE, help, 0, high)


def rate(unit: str, help: str, high: float = 1_000_000) -> Constant:
    """A number of things per cycle."""
    return Constant(unit, RATE, help, 0, high)


def count(unit: str, help: str, high: int = 2**20, role: Role = SHAPE) -> Constant:
    """An integer number of things."""
    return Constant(unit, role, help, 0, high, counted=True)


def size(help: str, high: int = 2**40, role: Role = SHAPE) -> Constant:
    """A size in bytes."""
    return Constant("bytes", role, help, 0, high, counted=True)


def time_ns(help: str) -> Constant:
    """A time that does not scale with the SM clock."""
    return Constant("ns", RATE, help, 0, 1_000_000_000, parts=1000)


def gigabytes(help: str) -> Constant:
    """A bandwidth in GB/s that does not scale with the SM clock."""
    return Constant("GB/s", RATE, help, 0, 1_000_000, parts=10**9)


def megahertz(help: str) -> Constant:
    """A clock frequency."""
    return Constant("MHz", RATE, help, 1, 100_000, parts=10**6)


def share(help: str) -> Constant:
    """A fraction from 0 to 1."""
    return Constant("of 1", RATE, help, 0, 1)
