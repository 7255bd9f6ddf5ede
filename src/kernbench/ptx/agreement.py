"""When a register or literal may stand where an instruction asks for a type: PTX's loose rules."""

from kernbench.ptx.module import Float, Integer
from kernbench.ptx.types import TYPES


def registers_agree(wanted: str, found: str, wider: bool) -> bool:
    """May a register of type `found` stand where `wanted` is asked for?

    Untyped bits agree with anything of their width, signed with unsigned; a packed type wants itself or bits. Where
    wider registers are allowed, integers and bits extend; floats only into bits.
    """
    if wanted not in TYPES or found not in TYPES:
        return True
    want, have = TYPES[wanted], TYPES[found]
    if (want.kind == "p") != (have.kind == "p"):
        return False
    if have.bits == want.bits:
        return _same_width(want.kind, have.kind)
    if not wider or have.bits < want.bits:
        return False
    return have.kind == "b" or (want.kind == "b") or (want.kind in "us" and have.kind in "us")


def _same_width(want: str, have: str) -> bool:
    return want == have or "b" in (want, have) or (want in "us" and have in "us")


def literal_agrees(wanted: str, literal: Integer | Float) -> bool:
    """May this literal stand where `wanted` is asked for? Floats only for floats and bits, integers not for floats."""
    if wanted not in TYPES:
        return True
    kind = TYPES[wanted].kind
    if isinstance(literal, Float):
        return kind in "fb"
    return kind != "f"
