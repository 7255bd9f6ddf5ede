"""Errors: one root, places and hints in the text, unknown names that list the known ones."""

import pytest

from kernbench.common.errors import BenchError, KernbenchError, KernelError, MachineError, MisuseError, said, unknown


@pytest.mark.parametrize("kind", [MisuseError, MachineError, BenchError, KernelError])
def test_everything_has_one_root(kind):
    assert issubclass(kind, KernbenchError)


@pytest.mark.parametrize(
    ("where", "hint", "text"),
    [
        (None, "", "it broke"),
        ("k.py:3", "", "k.py:3: it broke"),
        (None, "mend it", "it broke (mend it)"),
        ("k.py:3", "mend it", "k.py:3: it broke (mend it)"),
    ],
)
def test_a_kernel_error_says_place_message_and_hint(where, hint, text):
    error = KernelError("shape", "it broke", hint, where)
    assert str(error) == text
    assert (error.kind, error.message, error.hint, error.where) == ("shape", "it broke", hint, where)


def test_an_unknown_name_lists_the_known_ones_and_guesses():
    text = unknown("direction", "Nort", ["North", "South"])
    assert text == "unknown direction 'Nort'; known: North, South. Did you mean 'North'?"


def test_an_unknown_name_far_from_all_gets_no_guess():
    assert unknown("axis", "zzz", ["row", "column"]) == "unknown axis 'zzz'; known: row, column."


class MuteError(Exception):
    """Raises when it is asked what it says."""

    def __str__(self):
        return {}["text"]


class OddError(Exception):
    """Says something that is no text."""

    def __str__(self):
        return 5


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (ValueError("three"), "ValueError: three"),
        (MemoryError(), "MemoryError"),
        (MuteError(), "MuteError, which cannot say why: its __str__ raises KeyError"),
        (OddError(), "OddError, which cannot say why: its __str__ raises TypeError"),
    ],
)
def test_what_any_error_says(error, text):
    assert said(error) == text


def test_a_long_text_is_cut_where_that_is_asked_for():
    assert said(ValueError("x" * 3000), 2000) == f"ValueError: {'x' * 2000}... (3,000 characters in all)"
    assert said(ValueError("x" * 3000)) == f"ValueError: {'x' * 3000}"
