"""The names that an instruction writes and reads, by the roles of its operands in the table."""

from dataclasses import dataclass

from kernbench.ptx.isa.forms.form import Resolved
from kernbench.ptx.isa.resolve import resolve
from kernbench.ptx.text.errors import PtxError
from kernbench.ptx.text.module import Instruction
from kernbench.ptx.text.walking import names_in


@dataclass(frozen=True)
class Operands:
    """The names that an instruction writes and reads; registers in addresses are read."""

    written: tuple[str, ...]
    read: tuple[str, ...]


def operands_of(instruction: Instruction, resolved: Resolved) -> Operands:
    """The names that an instruction writes and reads."""
    written: list[str] = []
    read: list[str] = [instruction.guard.register] if instruction.guard is not None else []
    for operand, rule in zip(instruction.operands, resolved.rules, strict=True):
        names = [name for name in names_in(operand) if name != "_"]
        if rule.role in ("d", "da"):
            written += names
        if rule.role != "d":
            read += names
    return Operands(tuple(written), tuple(read))


def resolved_of(instruction: Instruction) -> Resolved | None:
    """The resolved instruction; None if it is not in the table."""
    try:
        return resolve(instruction)
    except PtxError:
        return None
