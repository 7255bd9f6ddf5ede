"""What the ISA table holds for one instruction form, and what resolving an instruction against it gives."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Slot:
    """One modifier position of a form: its name, the modifiers it takes, and whether one must be there."""

    name: str
    choices: tuple[str, ...]
    required: bool = True


@dataclass(frozen=True, slots=True)
class OperandRule:
    """One operand position.

    `role` is "d" (written), "a" (read), "da" (read and written), "addr", "label", "callee", "args". `type` is a scalar
    type's name, or "{slot}" for the type chosen in a slot, with a suffix for derived widths ("wide": twice as wide).
    `shape` says what may stand there: "reg", "imm", "reg|imm", "vec2", "vec4", "addr", "pair", ...
    """

    name: str
    role: str
    type: str
    shape: str = "reg|imm"
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Form:
    """One row: an instruction's modifiers and operands, where it exists, and where its meaning and cost are found.

    `meaning` is the key under which the emulator keeps the semantics ("add.int", "ld", "mma"); `cost` the class the
    timing model charges. `version` is the least `.version` as (major, minor), `sm` the least target number, and
    `family` tells "a"-only instructions (sm_90a) apart.
    """

    opcode: str
    slots: tuple[Slot, ...]
    operands: tuple[OperandRule, ...]
    meaning: str
    cost: str
    version: tuple[int, int] = (1, 0)
    sm: int = 10
    family: str = ""
    summary: str = ""


@dataclass(frozen=True, slots=True)
class Resolved:
    """An instruction seen through its form: which modifier stands in which slot, and each operand's rule and type."""

    form: Form
    # slot name -> modifier, only those present
    mods: Mapping[str, str] = field(default_factory=dict)
    # one per operand of the instruction, in order; types with slots filled in
    rules: tuple[OperandRule, ...] = ()
    types: tuple[str, ...] = ()
