"""What the commands print of somebody's file: a terminal obeys nothing of it."""

import io

import pytest
from rich.table import Table
from rich.text import Text

from kernbench.cli.output.pipes import Console
from kernbench.report.text.plain import plain_text

HOSTILE = "a\x1b[31mred\x1b]0;title\x07 \x9b2J"


def printed(renderable):
    console = Console(file=io.StringIO(), markup=False, highlight=False, width=120, force_terminal=True)
    console.print(renderable, style="bold")
    return console.file.getvalue()


def in_a_table(content):
    table = Table(title=content)
    table.add_column(content)
    table.add_row(content)
    return table


@pytest.mark.parametrize("made", [str, Text, in_a_table])
def test_escapes_of_a_text_are_shown_and_styles_are_obeyed(made):
    text = printed(made(HOSTILE))
    assert "\x1b[1m" in text or "\x1b[1;" in text
    assert "\x1b[31m" not in text
    assert "\x1b]" not in text
    assert "\x9b" not in text
    assert "a\\x1b[31mred" in text


def test_text_for_files_and_messages_has_no_escapes():
    assert plain_text(Text(HOSTILE)) == "a\\x1b[31mred\\x1b]0;title \\x9b2J\n"
