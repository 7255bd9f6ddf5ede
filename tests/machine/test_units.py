"""Units: text is read exactly, and what is written reads back."""

import contextlib
import doctest
import re
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernbench.common.errors import MachineError
from kernbench.machine import keys, units
from kernbench.machine.units import amount, parse, span

PHYSICAL = ["bytes", "GB/s", "ns", "GHz"]


@pytest.mark.parametrize("module", [keys, units])
def test_examples(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [
        ("512 GB/s", "GB/s", 512),
        ("512GB/s", "GB/s", 512),
        ("  512   GB/s ", "GB/s", 512),
        ("512", "GB/s", 512),
        ("1 TB/s", "GB/s", 1000),
        ("1 GiB/s", "GB/s", Fraction(2**30, 10**9)),
        ("1_000 MB/s", "GB/s", 1),
        ("0.1 GB/s", "GB/s", Fraction(1, 10)),
        ("1e3 B/s", "GB/s", Fraction(1, 10**6)),
        ("20 ns", "ns", 20),
        ("1.5 us", "ns", 1500),
        ("1.5 \u00b5s", "ns", 1500),
        ("1 ps", "ns", Fraction(1, 1000)),
        (".5 ms", "ns", 500_000),
        ("1 GHz", "GHz", 1),
        ("750 MHz", "GHz", Fraction(3, 4)),
        ("4 MiB", "bytes", 4 * 2**20),
        ("64 KiB", "bytes", 65536),
        ("64 KB", "bytes", 64000),
        ("64 kB", "bytes", 64000),
        ("7 B", "bytes", 7),
        ("-3 ns", "ns", -3),
        ("4 slots", "slots", 4),
    ],
)
def test_parse(text: str, unit: str, value: Fraction) -> None:
    assert parse(text, unit) == value


@pytest.mark.parametrize(
    ("text", "unit", "words"),
    [
        ("", "ns", "must be a number, alone (in ns) or with a unit (ps, ns, us, \u00b5s, ms, s)"),
        ("fast", "slots", "must be a number"),
        ("nan", "ns", "must be a number"),
        ("inf GB/s", "GB/s", "must be a number"),
        ("1e999999999", "slots", "unknown unit '999999'"),
        ("9" * 65, "ns", "must be a number"),
        ("1\nns x", "ns", "unknown unit"),
        ("\u0663 ns", "ns", "must be a number"),
        ("20 GB/s", "ns", "unknown unit 'GB/s'; known: ps, ns"),
        ("20 Gb/s", "GB/s", "Did you mean 'GB/s'?"),
        ("1 ghz", "GHz", "unknown unit 'ghz'; known: Hz, kHz, MHz, GHz."),
        ("4 MiB", "slots", "unknown unit 'MiB'; known: slots."),
    ],
)
def test_parse_refuses(text: str, unit: str, words: str) -> None:
    with pytest.raises(MachineError, match=re.escape(words)):
        parse(text, unit)


@given(st.integers(0, 2**60))
def test_bytes_read_back(value: int) -> None:
    assert parse(amount(value, "bytes"), "bytes") == value


@given(st.floats(1e-9, 1e15), st.sampled_from(["GB/s", "ns", "GHz", "slots"]))
def test_amounts_read_back(value: float, unit: str) -> None:
    assert float(parse(amount(value, unit), unit)) == value


@given(st.decimals(0, 10**6, places=6), st.sampled_from(PHYSICAL), st.data())
def test_scales_are_exact(number: object, unit: str, data: st.DataObject) -> None:
    written = data.draw(st.sampled_from(sorted(units.units_like(unit))))
    scales = units.units_like(unit)
    assert parse(f"{number:f} {written}", unit) * scales[unit] == Fraction(str(number)) * scales[written]


@given(st.text(max_size=80), st.sampled_from([*PHYSICAL, "slots"]))
def test_any_text_is_read_or_refused(text: str, unit: str) -> None:
    with contextlib.suppress(MachineError):
        assert isinstance(parse(text, unit), Fraction)


def test_span_says_the_unit_once() -> None:
    assert span(0.001, 100, "GHz") == "0.001 to 100 GHz"
    assert span(1, 2**30, "bytes") == "1 B to 1 GiB"
