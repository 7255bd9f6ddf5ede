"""Approximate quotients as ptxas expands them: dividend times reciprocal, both scaled for extreme divisors.

`div.full` scales divisors above 2^126 by 2^-2, and all but `.ftz` scale those below 2^-126 by 2^24.
"""

from dataclasses import replace

from kernbench.ptx.assembled.lines import Line
from kernbench.ptx.assembled.temporary import Temporary, copy
from kernbench.ptx.numerics.special.rounded import float_of
from kernbench.ptx.text.module import Float, Instruction, Name, Operand

_HUGE, _TINY = 0x7E800000, 0x00800000
_DOWN, _UP, _ONE = 0x3E800000, 0x4B800000, 0x3F800000


def reciprocal_and_dividend(
    line: Line, a: Operand, b: Operand, temporary: Temporary
) -> tuple[tuple[Name, Name], list[Instruction]]:
    """Registers for both factors of a quotient, and the instructions that fill them."""
    mods = line.resolved.mods
    ftz = ("ftz",) if "ftz" in mods else ()
    scale, size, divisor, dividend = (temporary.of_type("f32") for _ in range(4))
    made = [copy(line.instruction, "f32", scale, literal(_ONE))]

    def then(opcode: str, modifiers: tuple[str, ...], *operands: Operand) -> None:
        changed = replace(line.instruction, opcode=opcode, modifiers=modifiers, operands=operands, guard=None)
        made.append(changed)

    then("abs", (*ftz, "f32"), size, b)
    cases = [("gt", _HUGE, _DOWN)] if mods["mode"] == "full" else []
    cases += [] if ftz else [("lt", _TINY, _UP)]
    for compare, bound, factor in cases:
        extreme = temporary.of_type("pred")
        then("setp", (compare, *ftz, "f32"), extreme, size, literal(bound))
        then("selp", ("f32",), scale, literal(factor), scale, extreme)
    then("mul", ("rn", *ftz, "f32"), divisor, b, scale)
    then("mul", ("rn", *ftz, "f32"), dividend, a, scale)
    then("rcp", ("approx", "ftz", "f32"), divisor, divisor)
    return (divisor, dividend), made


def scale_of(divisor: float, mode: str, ftz: bool) -> float:
    """The factor by which a constant divisor and its dividend are scaled."""
    size = abs(divisor)
    if mode == "full" and size > float_of(_HUGE):
        return float_of(_DOWN)
    return float_of(_UP) if not ftz and size < float_of(_TINY) else 1.0


def literal(bits: int) -> Float:
    """An f32 literal."""
    return Float(bits, 32, f"0f{bits:08X}")
