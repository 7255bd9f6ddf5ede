"""Quantities with units ("512 GB/s", "20 ns", "4 MiB"), parsed exactly: as a fraction of one named unit."""

import re
from fractions import Fraction

from kernbench.common.errors import MachineError, unknown

_BYTES = {
    "bytes": Fraction(1),
    "B": Fraction(1),
    "kB": Fraction(10**3),
    "KB": Fraction(10**3),
    "MB": Fraction(10**6),
    "GB": Fraction(10**9),
    "TB": Fraction(10**12),
    "KiB": Fraction(2**10),
    "MiB": Fraction(2**20),
    "GiB": Fraction(2**30),
    "TiB": Fraction(2**40),
}
_RATES = {f"{name}/s": scale for name, scale in _BYTES.items() if name != "bytes"}
_TIMES = {
    "ps": Fraction(1, 10**12),
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "\u00b5s": Fraction(1, 10**6),
    "ms": Fraction(1, 10**3),
    "s": Fraction(1),
}
_FREQUENCIES = {
    "Hz": Fraction(1),
    "kHz": Fraction(10**3),
    "MHz": Fraction(10**6),
    "GHz": Fraction(10**9),
}
_DIMENSIONS = (_BYTES, _RATES, _TIMES, _FREQUENCIES)
_BINARY = ("TiB", "GiB", "MiB", "KiB")

# Three digits of exponent keep a hostile "1e999999999" from being expanded.
_QUANTITY = re.compile(r"\s*([+-]?(?:[0-9][0-9_]*\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?)\s*(.*?)\s*")
_LONGEST = 64


def is_physical(unit: str) -> bool:
    """Whether `unit` measures bytes, bytes per second, time or frequency; other units only count things."""
    return any(unit in dimension for dimension in _DIMENSIONS)


def units_like(unit: str) -> dict[str, Fraction]:
    """The units in which a quantity measured in `unit` may be written, each with its size."""
    for dimension in _DIMENSIONS:
        if unit in dimension:
            return dimension
    return {unit: Fraction(1)}


def parse(text: str, unit: str) -> Fraction:
    """The exact value of `text`, in `unit`; a bare number is in `unit`. GB is decimal, GiB binary.

    >>> parse("1.5 us", "ns")
    Fraction(1500, 1)
    """
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise MachineError(f"must be a number{_with_a_unit(unit)}")
    number, written = match.groups()
    value = Fraction(number.replace("_", ""))
    if not written:
        return value
    scales = units_like(unit)
    if written not in scales:
        raise MachineError(unknown("unit", written, scales))
    return value * scales[written] / scales[unit]


def _with_a_unit(unit: str) -> str:
    return f", alone (in {unit}) or with a unit ({', '.join(units_like(unit))})" if is_physical(unit) else ""


def plain(value: float) -> str:
    """The shortest digits that read back as `value`; integers have no decimal point.

    >>> plain(512.0), plain(0.25)
    ('512', '0.25')
    """
    return str(int(value)) if value == int(value) else repr(float(value))


def amount(value: float, unit: str) -> str:
    """`value` in `unit` with a suitable unit; `parse` reads it back. Bytes use the largest binary unit that is exact.

    >>> amount(4194304, "bytes"), amount(512.0, "GB/s")
    ('4 MiB', '512 GB/s')
    """
    if unit == "bytes":
        for name in _BINARY:
            count, rest = divmod(int(value), int(_BYTES[name]))
            if count and not rest:
                return f"{count} {name}"
    return f"{plain(value)} {'B' if unit == 'bytes' else unit}"


def span(low: float, high: float, unit: str) -> str:
    """The range from `low` to `high`, with the unit once if both have the same.

    >>> span(1, 65536, "slots"), span(1, 1048576, "bytes")
    ('1 to 65536 slots', '1 B to 1 MiB')
    """
    first, last = amount(low, unit), amount(high, unit)
    return f"{plain(low) if last.endswith(' ' + unit) else first} to {last}"
