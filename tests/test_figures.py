"""How documents are compared: errors by magnitude, computed values to a per cent, everything else digit by digit."""

import pytest
from tests.figures import find_shown


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("yes 2.70e-07 304 3.937 us", "yes 1.63e-07 304 3.937 us"),
        ("max error 0.00249", "o: right; max error 0.00251"),
        (
            "error 0.926, tolerance 3.93e-05; relative L2 error 1.04",
            "error 0.925, tolerance 3.9e-05; relative L2 error 1",
        ),
        ("22.563 0 1.2416, -6.1714, 0.0052524, ...", "22.563 0 1.2416, -6.1715, 0.0052519, ..."),
        ("error 0", "error 0"),
        ("0.00e+00", "0.00e+00"),
        ("x 1.0e-03", "x 1.0e+09 x 2.0e-03"),
    ],
)
def test_the_same_but_for_rounding(shown, printed):
    assert find_shown(shown, printed)


@pytest.mark.parametrize(
    ("shown", "printed"),
    [
        ("2.70e-07", "2.70e-05"),
        ("2.70e-07", "0.00e+00"),
        ("0.00e+00", "2.70e-07"),
        ("2.70e-07", "nan"),
        ("2.70e-07", "-2.70e-07"),
        ("error 0", "error 0.1"),
        ("1.2416,", "1.2616,"),
        ("-6.1714", "6.1714"),
        ("3.937 us", "3.938 us"),
        ("7,072 226.3 us 12.28 36/19/7 %", "7,072 226.3 us 12.29 36/19/7 %"),
        ("8.583 MiB", "8.584 MiB"),
        ("99 of 1", "98 of 1"),
    ],
)
def test_another_figure(shown, printed):
    assert find_shown(shown, printed) is None


def test_the_search_goes_on_from_where_it_was():
    printed = "a 1.0e-07 b a 2.0e-07 b"
    first = find_shown("a 1.5e-07 b", printed)
    assert first == (0, 11)
    assert find_shown("a 1.5e-07 b", printed, first[1]) == (12, 23)
    assert find_shown("a 1.5e-07 b", printed, 13) is None
