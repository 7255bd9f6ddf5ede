"""PTX text with one statement a line, so that a line of it names one instruction.

A compiler's text may hold several instructions in a line, or one over many; the assembler names lines. White space is
all that changes, so the code is the same.
"""

import re
from dataclasses import dataclass

_TOKEN = re.compile(
    r"""
    (?P<comment>//[^\n]*|/\*.*?\*/)
    |(?P<string>"(?:[^"\\\n]|\\.)*")
    |(?P<newline>\n)
    |(?P<space>[ \t\r\f\v]+)
    |(?P<word>[\w$%@!.]+(?:::[\w$%.]+)*)
    |(?P<mark>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_OPCODE = re.compile(r"(?:@!?[\w$%]+\s+)?([a-z][\w.:]*)")


@dataclass(frozen=True)
class Statements:
    """The text, and for each of its lines the line of the original where that statement begins (0: none)."""

    text: str
    origin: tuple[int, ...]

    def opcode(self, line: int) -> str:
        """The opcode, with its modifiers, of the instruction in a line from 1 on; empty where there is none."""
        match = _OPCODE.match(self.text.split("\n")[line - 1])
        return match[1] if match else ""

    def opcodes(self) -> list[str]:
        """The opcodes of all lines, from the first on."""
        matches = map(_OPCODE.match, self.text.split("\n"))
        return [match[1] if match else "" for match in matches]


def one_a_line(text: str) -> Statements:
    """`text` with each statement on a line of its own."""
    writer = _Writer()
    line = 1
    for match in _TOKEN.finditer(text):
        word = match[0]
        if match.lastgroup == "comment":
            writer.space()
        else:
            writer.take(match.lastgroup or "", word, line)
        line += word.count("\n")
        if match.lastgroup == "comment" and "\n" in word:
            writer.newline()
    writer.end()
    return Statements("\n".join(writer.lines), tuple(writer.origin))


class _Writer:
    """Lines as they are finished, and the statement that is being read."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.origin: list[int] = []
        self._parts: list[str] = []
        self._began = 0
        # whether an "=" was seen: braces are then those of an initialiser
        self._assigns = False

    def take(self, group: str, word: str, line: int) -> None:
        if group == "newline":
            self.newline()
        elif group == "space":
            self.space()
        elif group == "mark":
            self._mark(word, line)
        else:
            self._add(word, line)

    def space(self) -> None:
        if self._parts and self._parts[-1] != " ":
            self._parts.append(" ")

    def newline(self) -> None:
        """An instruction goes on in the next line; a directive need not end with a semicolon."""
        if self._is_instruction():
            self.space()
        else:
            self.end()

    def end(self) -> None:
        """The statement is finished."""
        if any(part != " " for part in self._parts):
            self.lines.append("".join(self._parts))
            self.origin.append(self._began)
        self._parts, self._began, self._assigns = [], 0, False

    def _add(self, word: str, line: int) -> None:
        self._began = self._began or line
        self._parts.append(word)

    def _mark(self, mark: str, line: int) -> None:
        if mark in "{}" and self._is_scope():
            self.end()
            self._add(mark, line)
            self.end()
            return
        self._assigns |= mark == "="
        self._add(mark, line)
        if mark == ";" or (mark == ":" and self._is_label()):
            self.end()

    def _is_scope(self) -> bool:
        return not self._is_instruction() and not self._assigns

    def _is_instruction(self) -> bool:
        return bool(self._parts) and (self._parts[0][0].isalpha() or self._parts[0][0] == "@")

    def _is_label(self) -> bool:
        words = [part for part in self._parts[:-1] if part != " "]
        return len(words) == 1 and not words[0].startswith((".", "@"))
