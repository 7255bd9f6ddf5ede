"""Untrusted text for a terminal: control characters are escaped."""

import re

# control characters (C0 except tab and line feed, DEL, C1), and those that change the direction of text
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    r"""The text with control characters escaped as in Python: ESC becomes \x1b."""
    return _OBEYED.sub(lambda found: repr(found[0])[1:-1], text)
