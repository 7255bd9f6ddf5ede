"""New registers for a rewritten function, and instructions that fill them."""

from collections import Counter
from dataclasses import replace

from kernbench.ptx.text.module import Function, Instruction, Integer, Name, Operand, Registers
from kernbench.ptx.text.types import TYPES
from kernbench.ptx.text.walking import mentions

_SIGNS = {
    "f16": 0x8000,
    "bf16": 0x8000,
    "f16x2": 0x80008000,
    "bf16x2": 0x80008000,
    "f32": 0x80000000,
    "f64": 1 << 63,
    "f32x2": 0x8000000080000000,
}


class Temporary:
    """New registers of a function, with names that it does not use."""

    def __init__(self, function: Function):
        assert function.body is not None
        names = mentions(function.body).names
        self._prefix = "%assembled"
        while any(name.startswith(self._prefix) for name in names):
            self._prefix += "_"
        self._made: Counter[str] = Counter()

    def of_type(self, kind: str) -> Name:
        """A new register for a floating-point type, or a predicate ("pred")."""
        held = kind if kind == "pred" else bits_of(kind)
        self._made[held] += 1
        return Name(f"{self._prefix}_{held}_{self._made[held] - 1}")

    def registers(self) -> tuple[Registers, ...]:
        """The declarations of the new registers."""
        return tuple(Registers(held, ((f"{self._prefix}_{held}_", count),)) for held, count in self._made.items())


def bits_of(kind: str) -> str:
    """The untyped-bits type of the same width as a type."""
    return f"b{TYPES[kind].nbytes * 8}"


def copy(at: Instruction, kind: str, to: Name, value: Operand) -> Instruction:
    """A mov, unguarded, at the source location of an instruction."""
    return replace(at, opcode="mov", modifiers=(bits_of(kind),), operands=(to, value), guard=None)


def flipped(at: Instruction, kind: str, to: Name, value: Operand) -> Instruction:
    """A copy with the sign inverted."""
    sign = _SIGNS[kind]
    return replace(
        at, opcode="xor", modifiers=(bits_of(kind),), operands=(to, value, Integer(sign, hex(sign))), guard=None
    )
