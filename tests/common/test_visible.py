"""Text for a terminal: what it would obey is written out, all else stays as it is."""

import pytest

from kernbench.common.visible import visible


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain, tab\t and\nlines; \u0644\u0627 \u00e9 \u4e2d", None),
        ("a\x1b[31mred", "a\\x1b[31mred"),
        ("a\x1b]0;title\x07", "a\\x1b]0;title\\x07"),
        ("over\rwritten", "over\\rwritten"),
        ("\x9b31m", "\\x9b31m"),
        ("\u202eturned round", "\\u202eturned round"),
    ],
)
def test_what_a_terminal_obeys_is_written_out(text, shown):
    assert visible(text) == (text if shown is None else shown)
