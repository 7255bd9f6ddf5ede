"""PTX text with one statement per line, so that a line number identifies an instruction.

A compiler may put several instructions in a line, or one over many lines; the assembler records lines. Only white
space changes, so the machine code is the same.
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
        """The opcode, with modifiers, of the instruction in a line, counted from 1; empty if there is none."""
        match = _OPCODE.match(self.text.split("\n")[line - 1])
        return match[1] if match else ""

    def opcodes(self) -> list[str]:
        """The opcodes of all lines."""
        matches = map(_OPCODE.match, self.text.split("\n"))
        return [match[1] if match else "" for match in matches]


def one_a_line(text: str) -> Statements:
    """`text` with each statement on its own line."""
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
    """Finished lines, and the parts of the current statement."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.origin: list[int] = []
        self._parts: list[str] = []
        self._began = 0
        # whether "=" occurred, so that braces enclose an initialiser
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
        """An instruction continues on the next line; a directive may end there, without a semicolon."""
        if self._is_instruction():
            self.space()
        else:
            self.end()

    def end(self) -> None:
        """Finish the current statement."""
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
