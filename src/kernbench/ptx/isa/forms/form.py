"""What the ISA table holds for one instruction form, and what resolving an instruction against it gives."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernbench.ptx.isa.forms.effects import Effects

# the shape of an operand that is a value of the rule's type, or a predicate in its place
EITHER = "reg|imm|pred"


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
    type's name, or "{slot}" for the type chosen in a slot, with a suffix for derived widths: "{type}*2" twice as wide,
    "{type}/4" a quarter of the bits; "addr" for addresses. `shape` says what may stand there: "reg", "reg1" (also in
    braces), "imm", "reg|imm", "sym" (also a variable, function or special register), "pred" (a predicate, perhaps
    negated), "reg|imm|pred" (a value of the type or a predicate: which, only a register's declaration says), "vec1" to
    "vec128", "vec{slot}", "vec{any}", "addr", "tensor" (an address with coordinates), "pair", "label", "callee",
    "args". `second` is the rule of a pair's second half. `wider` allows registers wider than the type; `when` names the
    slot that brings the operand; `parts` says that a register may be followed by a part of it (`%r1.b0`).
    """

    name: str
    role: str
    type: str
    shape: str = "reg|imm"
    optional: bool = False
    wider: bool = False
    when: str = ""
    second: "OperandRule | None" = None
    parts: bool = False


@dataclass(frozen=True, slots=True)
class Form:
    """One row: an instruction's modifiers and operands, where it exists, what it does and where its meaning is found.

    `meaning` is the key under which the emulator keeps the semantics ("add.int", "ld", "mma"); `effects` says what all
    forms of that meaning do; `cost` is the class the timing model charges. `version` is the least `.version` as (major,
    minor), `sm` the least target number. `family` distinguishes architecture-specific instructions: "90a" only that
    target, "100f" that target's family (see `ptx.targets`), several with "|" between them; "a" any target with an "a"
    or "f", "" all from `sm` on.
    """

    opcode: str
    slots: tuple[Slot, ...]
    operands: tuple[OperandRule, ...]
    meaning: str
    effects: Effects
    cost: str
    version: tuple[int, int] = (1, 0)
    sm: int = 10
    family: str = ""
    summary: str = ""
    # the row as it is written in the table
    modifiers_text: str = ""
    operands_text: str = ""


@dataclass(frozen=True, slots=True)
class Resolved:
    """An instruction seen through its form: which modifier stands in which slot, and each operand's rule and type.

    `rules` and `types` have one entry per operand of the instruction, in order, with slots filled in: a shape is
    "vec4", never "vec{vec}".
    """

    form: Form
    # slot name -> modifier, only those present
    mods: Mapping[str, str] = field(default_factory=dict)
    rules: tuple[OperandRule, ...] = ()
    types: tuple[str, ...] = ()

    @property
    def meaning(self) -> str:
        """The form's meaning."""
        return self.form.meaning

    @property
    def effects(self) -> Effects:
        """What it does."""
        return self.form.effects

    def operand(self, name: str) -> int | None:
        """The position of the operand with this name, None where it is absent."""
        return next((i for i, rule in enumerate(self.rules) if rule.name == name), None)
