"""Linking PTX: several texts that a program loads together become one module."""

import re
from itertools import pairwise

from kernbench.ptx.doors.driver.images.errors import ImageError

_DIRECTIVE = re.compile(r"^\s*\.(version|target|address_size)\b[^\n]*$", re.MULTILINE)
_VERSION = re.compile(r"^\s*\.version\s+(\d+)\.(\d+)", re.MULTILINE)


def link_texts(texts: list[str]) -> str:
    """One text; the newest version and its target count. Names that the texts share must be those of one thing."""
    if not texts:
        raise ImageError("an image holds no code")
    split = [part for text in texts for part in _split(text)]
    if len(split) == 1:
        return split[0]
    newest = max(split, key=_version)
    rest = [_DIRECTIVE.sub("", text) for text in split if text is not newest]
    return "\n".join([newest, *rest])


def _split(text: str) -> list[str]:
    """Texts that lie one behind the other in one image, as the driver's linker gets them."""
    starts = [match.start() for match in _VERSION.finditer(text)]
    if len(starts) < 2:
        return [text]
    edges = [0, *starts[1:], len(text)]
    return [text[first:last] for first, last in pairwise(edges)]


def _version(text: str) -> tuple[int, int]:
    found = _VERSION.search(text)
    return (int(found[1]), int(found[2])) if found else (0, 0)
