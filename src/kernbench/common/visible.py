"""Text that comes from somebody's file, for a terminal: what a terminal obeys is written out instead of sent."""

import re

# what terminals obey (C0 but for tab and line feed, DEL, C1), and what turns the order of other characters round
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """The text with such characters as Python writes them: ESC is \\x1b."""
    return _OBEYED.sub(lambda found: repr(found[0])[1:-1], text)
