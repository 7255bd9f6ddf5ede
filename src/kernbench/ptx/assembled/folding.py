"""Folding of approximate functions of constants: ptxas 13.0 computes them itself, rounded to nearest.

The GPU's own approximation may differ. In a quotient by a constant the reciprocal is folded.
"""

from dataclasses import replace

from kernbench.ptx.assembled.constants import constant, constants_of
from kernbench.ptx.assembled.lines import Line, changed, flow_of
from kernbench.ptx.assembled.quotients import literal, scale_of
from kernbench.ptx.assembled.temporary import Temporary
from kernbench.ptx.numerics.special.rounded import bits_of, float_of, rounded
from kernbench.ptx.text.module import Function, Instruction


def folded(function: Function) -> Function:
    """The function with approximate functions of constants folded; the same object if there are none."""
    flow = flow_of(function)
    known = constants_of(flow)
    temporary = Temporary(function)
    changes: dict[int, tuple[Instruction, ...]] = {}
    for line in flow.lines:
        mods = line.resolved.mods
        if "mode" not in mods or mods.get("type") != "f32" or len(line.written) != 1:
            continue
        quotient = line.resolved.effects.fuses == "quotient"
        bits = constant(line, 2 if quotient else 1, known)
        if bits is not None:
            made = _divided(line, bits, temporary) if quotient else _value(line, bits)
            changes.update({line.number: made} if made else {})
    return changed(function, changes, temporary.registers()) if changes else function


def _value(line: Line, argument: int) -> tuple[Instruction, ...]:
    """A move of the function's value; nothing if ptxas does not fold it."""
    bits = rounded(line.resolved.meaning, argument, "ftz" in line.resolved.mods)
    if bits is None:
        return ()
    return (replace(line.instruction, opcode="mov", modifiers=("f32",), operands=(line.operand("d"), literal(bits))),)


def _divided(line: Line, divisor: int, temporary: Temporary) -> tuple[Instruction, ...]:
    """A product by the folded reciprocal, with dividend and divisor scaled as for any divisor."""
    mods, at = line.resolved.mods, line.instruction
    ftz = ("ftz",) if "ftz" in mods else ()
    scale = scale_of(float_of(divisor), mods["mode"], bool(ftz))
    try:
        reciprocal = rounded("rcp", bits_of(float_of(divisor) * scale), bool(ftz))
    except OverflowError:
        return ()
    if reciprocal is None:
        return ()
    dividend = line.operand("a")
    made: list[Instruction] = []
    if scale != 1.0:
        scaled = temporary.of_type("f32")
        factors = (scaled, dividend, literal(bits_of(scale)))
        made.append(replace(at, opcode="mul", modifiers=("rn", *ftz, "f32"), operands=factors, guard=None))
        dividend = scaled
    operands = (line.operand("d"), dividend, literal(reciprocal))
    return (*made, replace(at, opcode="mul", modifiers=(*ftz, "f32"), operands=operands))
