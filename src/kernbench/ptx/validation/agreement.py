"""Whether a register or literal is compatible with an operand's type: PTX's relaxed type rules."""

from kernbench.ptx.text.module import Float, Integer
from kernbench.ptx.text.types import TYPES


def registers_agree(wanted: str, found: str, wider: bool) -> bool:
    """Whether a register of type `found` is valid where `wanted` is expected.

    Untyped bits are compatible with any type of the same width, and signed with unsigned; floats and packed types only
    with themselves or bits. If wider registers are allowed, integers and bits may be wider; floats only as bits.
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
    """Whether a literal is valid where `wanted` is expected.

    Integers are valid for integers, bits and predicates; floats for .f32 and .f64, and for bits of their own width.
    Half-precision and packed types take no literals.
    """
    if wanted not in TYPES:
        return True
    want = TYPES[wanted]
    if isinstance(literal, Float):
        return want.bits >= 32 if want.kind == "f" else want.kind == "b" and want.bits == literal.width
    return want.kind in "busp"
