"""Links PTX: several texts that a program loads together become one module.

Local names of a text (without `.visible`, `.weak`, `.extern` or `.common`) are private: if another text has the same,
one is renamed. Numbers of source files and labels of debug sections are made unique, too.
"""

import re
from collections.abc import Iterator
from itertools import pairwise

from kernbench.ptx.doors.driver.images.errors import ImageError

_DIRECTIVE = re.compile(r"^\s*\.(version|target|address_size)\b[^\n]*$", re.MULTILINE)
_VERSION = re.compile(r"^\s*\.version\s+(\d+)\.(\d+)", re.MULTILINE)
# tokens: strings, comments, punctuation, names
_TOKEN = re.compile(r'"[^"\n]*"|//[^\n]*|/\*.*?\*/|[(){};=]|[.%]?[A-Za-z_$][\w$]*', re.DOTALL)
_FILE = re.compile(r"^(\s*\.file\s+)(\d+)", re.MULTILINE)
_LOC = re.compile(r"(\.loc\s+|\binlined_at\s+)(\d+)")
_LINKAGES = frozenset((".visible", ".weak", ".extern", ".common"))
_SPACES = frozenset((".global", ".const", ".shared", ".func", ".entry"))
_LABEL = "$L__"


def link_texts(texts: list[str]) -> str:
    """Link texts into one, with the newest version and its target. Texts share all names that are not private."""
    if not texts:
        raise ImageError("an image holds no code")
    split = [part for text in texts for part in _split(text)]
    if len(split) == 1:
        return split[0]
    newest = max(split, key=_version)
    head = "\n".join(match[0].strip() for match in _DIRECTIVE.finditer(newest))
    return "\n".join([head, *(_DIRECTIVE.sub("", text) for text in _apart(split))])


def _apart(texts: list[str]) -> Iterator[str]:
    """The texts with private names and file numbers made unique."""
    taken = {name for text in texts for name, own in _defined(text) if not own}
    files = 0
    for number, text in enumerate(texts):
        own = {name for name, own in _defined(text) if own}
        clashing = own & taken
        taken |= own
        yield _renumbered(_renamed(text, clashing, f"__{number}") if number else text, files)
        files += max((int(found[2]) for found in _FILE.finditer(text)), default=0)


def _defined(text: str) -> Iterator[tuple[str, bool]]:
    """Names of the module's variables and functions, and whether each is private."""
    for words in _declarations(text):
        name = next((word for word in words if word[0] not in '.%"/'), None)
        if name is not None and any(word in _SPACES for word in words):
            yield name, not any(word in _LINKAGES for word in words)


def _declarations(text: str) -> Iterator[list[str]]:
    """The tokens of each module-level declaration, without bodies and parameter lists, up to its initial value."""
    words: list[str] = []
    depth, valued = 0, False
    for token in (match[0] for match in _TOKEN.finditer(text)):
        if token in "({":
            depth += 1
        elif token in ")}":
            depth -= 1
        elif token == "=":
            valued = True
        elif not depth and not valued and token != ";":
            words.append(token)
        if not depth and token in ";}":
            yield _from_space(words)
            words, valued = [], False


def _from_space(words: list[str]) -> list[str]:
    """A declaration from its linkage or space on: directives without a terminator, such as `.file`, may precede it."""
    start = next((n for n, word in enumerate(words) if word in _LINKAGES or word in _SPACES), len(words))
    return words[start:]


def _renamed(text: str, names: set[str], ending: str) -> str:
    """A text with a suffix added to some names, and to all labels of debug sections."""

    def one(match: re.Match[str]) -> str:
        word = match[0]
        return word + ending if word in names or word.startswith(_LABEL) else word

    return _TOKEN.sub(one, text)


def _renumbered(text: str, by: int) -> str:
    """A text with its file numbers shifted past those of the texts before."""
    if not by:
        return text
    moved = _FILE.sub(lambda match: f"{match[1]}{int(match[2]) + by}", text)
    return _LOC.sub(lambda match: f"{match[1]}{int(match[2]) + by}", moved)


def _split(text: str) -> list[str]:
    """Split concatenated texts of one image, as the driver's linker gets them."""
    starts = [match.start() for match in _VERSION.finditer(text)]
    if len(starts) < 2:
        return [text]
    edges = [0, *starts[1:], len(text)]
    return [text[first:last] for first, last in pairwise(edges)]


def _version(text: str) -> tuple[int, int]:
    found = _VERSION.search(text)
    return (int(found[1]), int(found[2])) if found else (0, 0)
