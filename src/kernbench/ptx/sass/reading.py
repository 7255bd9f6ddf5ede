"""Parser of nvdisasm's output (`-gp -c -hex`): instructions with their PTX lines."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from kernbench.common.errors import KernbenchError
from kernbench.ptx.sass.control import Control, control

_SECTION = re.compile(r"\s*\.section\s+\.text\.([^,\s]+)")
_FUNCTION = re.compile(r"\s*\.type\s+([^,\s]+),@function")
_LABEL = re.compile(r"([^\s/:][^\s:]*):\s*$")
_LINE = re.compile(r'\s*//## File "([^"]*)", line (\d+)')
_INSTRUCTION = re.compile(
    r"\s*/\*(?P<address>[0-9a-f]{4,})\*/\s+(?:@(?P<guard>!?U?P[0-9T]+)\s+)?(?P<name>[A-Z][\w.]*)\s*(?P<rest>.*?)\s*;"
    r"\s*/\* 0x(?P<low>[0-9a-f]{16}) \*/\s*$"
)
_UPPER = re.compile(r"\s*/\* 0x([0-9a-f]{16}) \*/\s*$")
_TARGETS = re.compile(r'\(\*"(?:BRANCH_TARGETS|INDIRECT_CALL)\s+([^"]*)"\*\)')
_TO = re.compile(r"`\(([^)]+)\)")
# the file name by which nvdisasm refers to the PTX text
_PTX_FILE = ".nv_debug_ptx_txt"


class UnreadableError(KernbenchError):
    """nvdisasm's output cannot be parsed: an unknown release, or a damaged file."""


@dataclass(frozen=True, slots=True)
class Instruction:
    """A machine instruction `@guard NAME operands`; `targets` are the labels it may branch to."""

    section: str
    address: int
    guard: str
    name: str
    operands: str
    control: Control
    line: int
    targets: tuple[str, ...] = ()

    @property
    def opcode(self) -> str:
        """The name without modifiers."""
        return self.name.partition(".")[0]

    @property
    def modifiers(self) -> tuple[str, ...]:
        """The modifiers after the opcode."""
        return tuple(self.name.split(".")[1:])

    @property
    def predicated(self) -> bool:
        """Whether it has a guard that may be false."""
        return self.guard not in ("", "PT", "UPT")


@dataclass(frozen=True)
class Listing:
    """The code of a cubin: the instructions of all sections in order, and the position of each label."""

    instructions: Sequence[Instruction]
    labels: dict[str, int] = field(repr=False)
    # section (function) -> its first instruction and the one after its last
    sections: dict[str, tuple[int, int]]


def read(text: str) -> Listing:
    """Parse nvdisasm's output."""
    reader = _Reader()
    for number, line in enumerate(text.splitlines(), 1):
        reader.take(line, number)
    return reader.done()


class _Reader:
    def __init__(self) -> None:
        self._section = ""
        self._line = 0
        self._found: list[Instruction] = []
        self._labels: dict[str, int] = {}
        self._sections: dict[str, tuple[int, int]] = {}
        self._functions: set[str] = set()
        self._open: re.Match[str] | None = None

    def take(self, line: str, number: int) -> None:
        if self._open is not None:
            upper = _UPPER.match(line)
            if upper is None:
                raise UnreadableError(
                    f"nvdisasm, line {number}: the second half of a word is missing: {line.strip()!r}"
                )
            self._add(self._open, int(upper[1], 16))
            self._open = None
        elif instruction := _INSTRUCTION.match(line):
            self._open = instruction
        elif mark := _LINE.match(line):
            self._line = int(mark[2]) if mark[1] == _PTX_FILE else self._line
        elif section := _SECTION.match(line):
            self._enter(section[1])
        elif label := _LABEL.match(line):
            self._labels[label[1]] = len(self._found)
            # the assembler's own functions have no line information
            self._line = 0 if label[1] in self._functions else self._line
        elif function := _FUNCTION.match(line):
            self._functions.add(function[1])
        elif line.lstrip().startswith("/*0") and ";" in line:
            raise UnreadableError(f"nvdisasm, line {number}: no instruction that this reader knows: {line.strip()!r}")

    def done(self) -> Listing:
        self._enter("")
        if not self._found:
            raise UnreadableError("nvdisasm printed no code")
        return Listing(tuple(self._found), self._labels, self._sections)

    def _enter(self, section: str) -> None:
        if self._section:
            first = self._sections[self._section][0]
            self._sections[self._section] = (first, len(self._found))
        self._section, self._line = section, 0
        if section:
            self._sections[section] = (len(self._found), len(self._found))

    def _add(self, match: re.Match[str], upper: int) -> None:
        rest = match["rest"]
        listed = _TARGETS.search(rest)
        targets = tuple(listed[1].replace(" ", "").split(",")) if listed else tuple(_TO.findall(rest))
        operands = _TARGETS.sub("", rest).strip()
        self._found.append(
            Instruction(
                self._section,
                int(match["address"], 16),
                match["guard"] or "",
                match["name"],
                operands,
                control(upper),
                self._line,
                targets,
            )
        )
