"""PTX text to tokens, by one regular expression in linear time, with the position of every token.

A token is a plain string; its first character gives its kind. An opcode with its modifiers (`ld.global.v2.f32`) and a
register with its component (`%tid.x`) are one token each.
"""

import re
from bisect import bisect_right
from string import ascii_letters, digits

from kernbench.ptx.text.errors import PtxSyntaxError

_TOKEN = re.compile(
    r"""(?>\s+|//[^\n]*|/\*(?>[^*]+|\*(?!/))*+\*/)*+   # white space and comments
    (?:(
      [A-Za-z_$%][\w$]*(?:\.\w+(?:::\w+)*)*         # name, or opcode with its modifiers
    | \d+[eE][+-]?\d+                               # 1e-3
    | \d\w*(?:\.\d*(?:[eE][+-]?\d+)?)?              # any other number
    | \.\d+(?:[eE][+-]?\d+)?(?!\w)                  # .5
    | \.[A-Za-z0-9_$][\w$]*(?:::\w+)*               # directive, type or modifier
    | "(?>[^"\\\n]+|\\.)*+"
    | <<|>>|<=|>=|==|!=|&&|\|\|
    | /\*[\s\S]*                                    # a comment without end swallows the rest
    | [\s\S]
    )|\Z)""",
    re.VERBOSE | re.ASCII,
)
# characters that are valid one-character tokens
_ALONE = frozenset("{}[]()<>,;:=+-*/%&|^~!?@_$.#" + ascii_letters + digits)


class Tokens:
    """The tokens of a text with their positions; the last token is an empty string."""

    __slots__ = ("_lines", "source", "starts", "texts")

    def __init__(self, source: str):
        self.source = source
        matches = list(_TOKEN.finditer(source))
        # the last one or two matches are white space and the end of the text, without a token
        while matches and matches[-1][1] is None:
            matches.pop()
        self.texts: list[str] = [match[1] for match in matches]
        self.starts: list[int] = [match.start(1) for match in matches]
        self.texts.append("")
        self.starts.append(len(source))
        self._lines = [0, *(match.end() for match in re.finditer("\n", source))]
        self._refuse_strange_characters()

    def line(self, index: int) -> int:
        """Line number of a token, from 1."""
        return bisect_right(self._lines, self.starts[index])

    def line_and_column(self, index: int) -> tuple[int, int]:
        """Line and column of a token, both from 1."""
        start = self.starts[index]
        line = bisect_right(self._lines, start)
        return line, start - self._lines[line - 1] + 1

    def error(self, index: int, message: str) -> PtxSyntaxError:
        """The error at a token, with its line's text."""
        line, column = self.line_and_column(index)
        end = self.source.find("\n", self._lines[line - 1])
        text = self.source[self._lines[line - 1] : end if end >= 0 else None]
        return PtxSyntaxError(message, line, column, text.rstrip("\r\n"))

    def _refuse_strange_characters(self) -> None:
        strange = {text for text in set(self.texts) if (len(text) == 1 and text not in _ALONE) or text[:2] == "/*"}
        if not strange:
            return
        index = next(i for i, text in enumerate(self.texts) if text in strange)
        found = self.texts[index]
        if found == '"':
            raise self.error(index, "this string has no end; close it with '\"' on the same line")
        if found.startswith("/*"):
            raise self.error(index, "this comment has no end; close it with '*/'")
        raise self.error(index, f"unexpected character {found!r}")
