"""When a register or literal may stand where an instruction asks for a type: PTX's loose rules."""

from kernbench.ptx.text.module import Float, Integer
from kernbench.ptx.text.types import TYPES


def registers_agree(wanted: str, found: str, wider: bool) -> bool:
    """May a register of type `found` stand where `wanted` is asked for?

    Untyped bits agree with anything of their width, signed with unsigned; floats and packed types want themselves or
    bits. Where wider registers are allowed, integers and bits extend; floats only into bits.
    """
    if wanted not in TYPES or found not in TYPES:
        return True
    want, have = TYPES[wanted], TYPES[found]
    if (want.kind == "p") != (have.kind == "p"):
        return False
    kinds = {want.kind, have.kind}
    if have.bits == want.bits:
        return wanted == found or "b" in kinds or kinds <= {"u", "s"}
    return wider and have.bits > want.bits and ("b" in kinds or kinds <= {"u", "s"})


def literal_agrees(wanted: str, literal: Integer | Float) -> bool:
    """May this literal stand where `wanted` is asked for?

    Integers for integers, bits and predicates; floats for .f32 and .f64, and for bits of their own width. Half and
    packed types take no literals.
    """
    if wanted not in TYPES:
        return True
    want = TYPES[wanted]
    if isinstance(literal, Float):
        return want.bits >= 32 if want.kind == "f" else want.kind == "b" and want.bits == literal.width
    return want.kind in "busp"
