"""Constants of a function: literals, and registers whose only definition is a move of a constant."""

from collections import Counter

from kernbench.ptx.assembled.lines import Flow, Line
from kernbench.ptx.text.module import Float, Integer


def constants_of(flow: Flow) -> dict[str, int]:
    """The bits of registers that only ever hold one constant."""
    written = Counter(register for line in flow.lines for register in line.written)
    known: dict[str, int] = {}
    for line in flow.lines:
        once = len(line.written) == 1 and written[line.written[0]] == 1 and line.instruction.guard is None
        if once and line.resolved.effects.law == "copy" and len(line.instruction.operands) == 2:
            bits = constant(line, 1, known)
            if bits is not None:
                known[line.written[0]] = bits
    return known


def constant(line: Line, position: int, known: dict[str, int]) -> int | None:
    """The bits of an operand if it is a 32-bit constant, else None."""
    operand = line.instruction.operands[position]
    if isinstance(operand, Float):
        return operand.bits if operand.width == 32 else None
    if isinstance(operand, Integer):
        return operand.value & 0xFFFF_FFFF
    register = line.register(position)
    return known.get(register) if register is not None else None
