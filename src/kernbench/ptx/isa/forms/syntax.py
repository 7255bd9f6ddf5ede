"""The language in which the table's rows are written, one line per form.

Modifiers, separated by spaces: `type:u32|s32` is a slot named `type` that requires one of these, `rnd?:rn|rz` is an
optional one, `ftz?` an optional slot whose only modifier is its name.

Operands, separated by commas: `=d` is written, `+d` read and written, `a` read; `[a]` is an address, `<a>` an address
with coordinates. After the name, in this order: `!` registers only, `#` immediates only, `&` also symbols and special
registers, `~` registers may be wider than the type, `^` part of a register is allowed, `%` also a predicate, perhaps
negated; `*4` a vector of four, `*vec` of the length in slot `vec` (`v4`, `x4`), `*num*2` twice that length, `*n/2` half
of the n in slot `shape` (`m64n128k16`), `*any` of any length, `!*1` one register, in braces or not; `:u32` the type: a
scalar type or a slot, by default slot `type`, and `:type*2` and `:type/4` widen and narrow it; `@slot` present only if
that slot is filled; `?` optional. `=d|p:pred` is a pair, `=d|p:pred?` one whose second half may be missing. `->l` is a
label, `->f()` a callee, `(args)` a list.
"""

import re

from kernbench.ptx.isa.forms.effects import Effects
from kernbench.ptx.isa.forms.form import EITHER, Form, OperandRule, Slot
from kernbench.ptx.text.types import TYPES

_OPERAND = re.compile(
    r"(?P<role>=|\+|->)?(?P<open>[\[<(]?)(?P<name>\w+)(?P<close>[\])>]?)(?P<flags>[!#&~^%]*)(?P<call>\(\))?"
    r"(?:\*(?P<count>\w+(?:[*/]\d+)?))?(?::(?P<type>[\w]+(?:[*/]\d+)?))?(?:@(?P<when>\w+))?(?P<optional>\?)?"
)
_ROLES = {"=": "d", "+": "da", None: "a"}
_SHAPES = {"!": "reg", "#": "imm", "&": "sym", "%": EITHER}


class Group:
    """The rows of one group of instructions.

    `effects` are those of meanings for which none are declared; without it every meaning needs a declaration.
    """

    def __init__(self, title: str, cost: str, effects: Effects | None = None):
        self.title = title
        self.cost = cost
        self.forms: list[Form] = []
        self._usual = effects
        self._effects: dict[str, Effects] = {}

    def does(self, meanings: str, effects: Effects) -> None:
        """Declare the effects of some meanings; must precede their rows."""
        for meaning in meanings.split():
            if meaning in self._effects:
                raise ValueError(f"what {meaning!r} does is said twice")
            self._effects[meaning] = effects

    def effects_of(self, meaning: str) -> Effects:
        """The effects of a meaning."""
        found = self._effects.get(meaning, self._usual)
        if found is None:
            raise ValueError(f"what {meaning!r} does is not said: give it a row with does({meaning!r}, Effects(...))")
        return found

    def row(
        self,
        opcodes: str,
        modifiers: str,
        operands: str,
        meaning: str = "",
        *,
        since: str = "1.0",
        sm: int = 10,
        family: str = "",
        cost: str = "",
    ) -> None:
        """Add one form for each opcode; the meaning is by default the opcode."""
        slots = tuple(map(_slot, modifiers.split()))
        rules = _operands(operands, {slot.name for slot in slots})
        major, minor = since.split(".")
        for opcode in opcodes.split():
            self.forms.append(
                Form(
                    opcode,
                    slots,
                    rules,
                    meaning or opcode,
                    self.effects_of(meaning or opcode),
                    cost or self.cost,
                    (int(major), int(minor)),
                    sm,
                    family,
                    self.title,
                    modifiers,
                    operands,
                )
            )


def _slot(text: str) -> Slot:
    name, _, choices = text.partition(":")
    required = not name.endswith("?")
    name = name.removesuffix("?")
    return Slot(name, tuple(choices.split("|")) if choices else (name,), required)


def _operands(text: str, slots: set[str]) -> tuple[OperandRule, ...]:
    return tuple(_operand(part.strip(), slots) for part in text.split(",")) if text.strip() else ()


def _operand(text: str, slots: set[str]) -> OperandRule:
    first, bar, second = text.partition("|")
    if not bar:
        return _single(first, slots)
    other = _single(("=" if first.startswith("=") else "") + second, slots)
    rule = _single(first, slots)
    return OperandRule(rule.name, rule.role, rule.type, "pair", rule.optional, rule.wider, rule.when, other)


def _single(text: str, slots: set[str]) -> OperandRule:
    match = _OPERAND.fullmatch(text)
    if match is None:
        raise ValueError(f"operand {text!r} of the table cannot be read")
    name, optional, when = match["name"], bool(match["optional"]), match["when"] or ""
    if match["role"] == "->":
        kind = "callee" if match["call"] else "label"
        return OperandRule(name, kind, "", kind, optional, False, when)
    if match["open"] == "(":
        return OperandRule(name, "args", "", "args", optional, False, when)
    if match["open"]:
        shape = "addr" if match["open"] == "[" else "tensor"
        return OperandRule(name, "addr", "addr", shape, optional, False, when)
    type_text = _type(match["type"], slots)
    wider = "~" in match["flags"]
    parts = "^" in match["flags"]
    role, shape = _ROLES[match["role"]], _shape(match, type_text)
    return OperandRule(name, role, type_text, shape, optional, wider, when, None, parts)


def _type(text: str | None, slots: set[str]) -> str:
    base, mark, factor = re.fullmatch(r"(\w+)([*/]?)(\d*)", text or "type").groups()  # type: ignore[union-attr]
    if base in slots:
        return f"{{{base}}}{mark}{factor}"
    if base not in TYPES:
        raise ValueError(f"{base!r} is neither a slot nor a type")
    return base


def _shape(match: re.Match[str], type_text: str) -> str:
    if count := match["count"]:
        if count == "1" and "!" in match["flags"]:
            return "reg1"
        return f"vec{count}" if count.isdigit() else f"vec{{{count}}}"
    for flag in match["flags"]:
        if flag in _SHAPES:
            return _SHAPES[flag]
    if type_text == "pred":
        return "reg" if match["role"] else "pred"
    return "reg" if match["role"] else "reg|imm"
