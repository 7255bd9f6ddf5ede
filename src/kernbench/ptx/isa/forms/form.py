"""One form of an instruction in the ISA table, and an instruction resolved against its form."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from kernbench.ptx.isa.forms.effects import Effects

# shape of an operand that is a value of the rule's type, or a predicate instead
EITHER = "reg|imm|pred"


@dataclass(frozen=True, slots=True)
class Slot:
    """A modifier position of a form: its name, its possible modifiers, and whether one is required."""

    name: str
    choices: tuple[str, ...]
    required: bool = True


@dataclass(frozen=True, slots=True)
class OperandRule:
    """One operand position.

    `role` is "d" (written), "a" (read), "da" (read and written), "addr", "label", "callee", "args". `type` is a scalar
    type's name, or "{slot}" for the type in a slot, with a suffix for derived widths: "{type}*2" twice as wide,
    "{type}/4" a quarter of the bits; "addr" for addresses. `shape` is the kind of operand that is accepted: "reg",
    "reg1" (also in braces), "imm", "reg|imm", "sym" (also a variable, function or special register), "pred" (a
    predicate, perhaps negated), "reg|imm|pred" (a value of the type or a predicate, as the register's declaration
    says), "vec1" to "vec128", "vec{slot}", "vec{any}", "addr", "tensor" (an address with coordinates), "pair", "label",
    "callee", "args". `second` is the rule of a pair's second half. `wider` allows registers wider than the type; `when`
    names a slot without which the operand is absent; `parts` allows part of a register (`%r1.b0`).
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
    """One row: an instruction's modifiers and operands, where it exists, what it does.

    `meaning` is the key under which the emulator has the semantics ("add.int", "ld", "mma"); `effects` are the
    properties of all forms with that meaning; `cost` is its class in the timing model. `version` is the least
    `.version` as (major, minor), `sm` the least target number. `family` distinguishes architecture-specific
    instructions: "90a" only that target, "100f" that target's family (see `ptx.targets`), several with "|" between
    them; "a" any target with an "a" or "f", "" all from `sm` on.
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
    # the row as written in the table
    modifiers_text: str = ""
    operands_text: str = ""


@dataclass(frozen=True, slots=True)
class Resolved:
    """An instruction resolved to its form: the modifier of each slot, and the rule and type of each operand.

    `rules` and `types` have one entry per operand of the instruction, in order, with slots filled in: a shape is
    "vec4", never "vec{vec}".
    """

    form: Form
    # slot name -> modifier; absent ones are missing
    mods: Mapping[str, str] = field(default_factory=dict)
    rules: tuple[OperandRule, ...] = ()
    types: tuple[str, ...] = ()

    @property
    def meaning(self) -> str:
        """The form's meaning."""
        return self.form.meaning

    @property
    def effects(self) -> Effects:
        """The form's effects."""
        return self.form.effects

    def operand(self, name: str) -> int | None:
        """The position of the operand with this name, None if it is absent."""
        return next((i for i, rule in enumerate(self.rules) if rule.name == name), None)
