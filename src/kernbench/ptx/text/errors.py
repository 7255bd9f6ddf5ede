"""Errors in PTX text: message, line, column, and the line itself with a caret under the column."""

from kernbench.common.errors import KernbenchError

_SHOWN = 160


class PtxError(KernbenchError):
    """Invalid PTX: an unknown instruction, a wrong operand, an undeclared name.

    The line is 0 for modules built in Python; `text` is the source line, or then the instruction.
    """

    def __init__(self, message: str, line: int = 0, column: int = 0, text: str = ""):
        super().__init__(message)
        self.message = message
        self.line = line
        self.column = column
        self.text = text

    def __reduce__(self) -> tuple[type, tuple[str, int, int, str]]:
        return type(self), (self.message, self.line, self.column, self.text)

    def __str__(self) -> str:
        if not self.line:
            return f"{self.message}\n    {self.text}" if self.text else self.message
        where = f"line {self.line}, column {self.column}: " if self.column else f"line {self.line}: "
        return f"{where}{self.message}{_excerpt(self.text, self.column)}"


class PtxSyntaxError(PtxError):
    """PTX that cannot be parsed."""


def _excerpt(text: str, column: int) -> str:
    """The line with a caret under `column`; of a very long line only the part around it."""
    if not text.strip():
        return ""
    first = max(0, column - 1 - _SHOWN // 2) if len(text) > _SHOWN else 0
    shown = text[first : first + _SHOWN].replace("\t", " ")
    return f"\n    {shown}" + (f"\n    {' ' * (column - 1 - first)}^" if column else "")
