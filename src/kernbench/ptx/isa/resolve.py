"""Finds an instruction's form in the table.

Modifiers may be in any order, as for ptxas: each is assigned to the first free slot that accepts it. Only types,
layouts and the two ends of a copy must be in the order of the form.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from kernbench.common.errors import unknown
from kernbench.ptx.isa.forms.form import EITHER, Form, OperandRule, Resolved
from kernbench.ptx.isa.table import FORMS, forms_of
from kernbench.ptx.text.errors import PtxError
from kernbench.ptx.text.module import (
    Address,
    Float,
    Group,
    Instruction,
    Integer,
    Name,
    Not,
    Offset,
    Operand,
    Pair,
    Vector,
)
from kernbench.ptx.text.types import TYPES

_ORDERED = frozenset(
    ("type", "dtype", "atype", "btype", "ctype", "stype", "alayout", "blayout", "dst", "src", "primary", "secondary")
)
_CODES: dict[type, str] = {
    Name: "name",
    Integer: "number",
    Float: "number",
    Offset: "offset",
    Not: "not",
    Pair: "pair",
    Address: "addr",
    Group: "args",
}
# operand kinds that each shape accepts; "vec" and "tensor" are handled separately
_ALLOWED: dict[str, frozenset[str]] = {
    "reg": frozenset(("name",)),
    "reg1": frozenset(("name", "vec1")),
    "imm": frozenset(("number",)),
    "reg|imm": frozenset(("name", "number")),
    "sym": frozenset(("name", "number", "offset")),
    "pred": frozenset(("name", "not", "number")),
    EITHER: frozenset(("name", "not", "number")),
    "addr": frozenset(("addr",)),
    "tensor": frozenset(("tensor",)),
    "label": frozenset(("name",)),
    "callee": frozenset(("name",)),
    "args": frozenset(("args",)),
}


# instructions of textures and surfaces: parsed and printed, but not supported
TEXTURES = frozenset(("tex", "tld4", "txq", "suq", "suld", "sust", "sured", "istypep"))


def resolve(instruction: Instruction) -> Resolved:
    """The instruction's form, modifiers by slot, and rule and type of each operand; raises `PtxError`."""
    shapes = tuple([shape_of(operand) for operand in instruction.operands])
    found = _resolve(instruction.opcode, instruction.modifiers, shapes)
    if isinstance(found, str):
        from kernbench.ptx.text.printer import instruction_text

        raise PtxError(found, instruction.line, instruction.column, instruction_text(instruction))
    return found


def shape_of(operand: Operand) -> str:
    """The kind of an operand: "name", "number", "vec4", "addr", "tensor", "pair", ..."""
    if type(operand) is Vector:
        return f"vec{len(operand.items)}"
    if type(operand) is Address and operand.more:
        return "tensor"
    return _CODES[type(operand)]


@lru_cache(maxsize=1 << 16)
def _resolve(opcode: str, modifiers: tuple[str, ...], shapes: tuple[str, ...]) -> Resolved | str:
    """The resolved form, or an error message."""
    candidates = forms_of(opcode)
    if opcode in TEXTURES:
        return f"{opcode}: textures and surfaces are not supported; read through a pointer with ld.global"
    if not candidates:
        return unknown("instruction", opcode, FORMS)
    fitting = [(form, mods) for form in candidates if (mods := slot_modifiers(form, modifiers)) is not None]
    if not fitting:
        return _modifier_message(opcode, modifiers, candidates)
    for form, mods in fitting:
        rules = _match(filled(form, mods, "vec1" in shapes), shapes)
        if rules is not None:
            return Resolved(form, mods, rules, tuple(rule.type for rule in rules))
    return _operand_message(".".join((opcode, *modifiers)), shapes, fitting)


def slot_modifiers(form: Form, modifiers: Sequence[str]) -> dict[str, str] | None:
    """Slot name -> modifier; None if a modifier has no slot or a required slot stays empty."""
    mods, left = _fill(form, modifiers)
    return mods if not left and all(slot.name in mods or not slot.required for slot in form.slots) else None


def _fill(form: Form, modifiers: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """Slot name -> modifier, and the modifiers for which there was no slot."""
    mods: dict[str, str] = {}
    left = []
    last = -1
    for modifier in modifiers:
        for index, slot in enumerate(form.slots):
            ordered = slot.name in _ORDERED
            if modifier in slot.choices and slot.name not in mods and not (ordered and index < last):
                mods[slot.name] = modifier
                last = index if ordered else last
                break
        else:
            left.append(modifier)
    return mods, left


def filled(form: Form, mods: dict[str, str], braced: bool = False) -> tuple[OperandRule, ...]:
    """The form's operand rules with slots filled in, without those that need an absent slot.

    If a vector's slot is empty there is one register, which may be in braces: `ld.b32 {%r1}, [%rd1]`.
    """
    key = (id(form), *mods.items(), braced)
    known = _FILLED.get(key)
    if known is None:
        known = _FILLED[key] = form, _filled(form, mods, braced)
    return known[1]


# cache of filled rules; the form is held because its id is part of the key
_FILLED: dict[tuple[object, ...], tuple[Form, tuple[OperandRule, ...]]] = {}


def _filled(form: Form, mods: dict[str, str], braced: bool) -> tuple[OperandRule, ...]:
    rules = []
    for rule in form.operands:
        if rule.when and rule.when not in mods:
            continue
        second = rule.second and replace(rule.second, type=_type(rule.second.type, mods))
        rules.append(replace(rule, type=_type(rule.type, mods), shape=_shape(rule, mods, braced), second=second))
    return tuple(rules)


def _type(text: str, mods: dict[str, str]) -> str:
    if not text.startswith("{"):
        return text
    slot, _, change = text[1:].partition("}")
    name = mods.get(slot, "")
    if not change or name not in TYPES:
        return name
    kind = TYPES[name].kind if change[0] == "*" else "b"
    bits = TYPES[name].bits * int(change[1:]) if change[0] == "*" else TYPES[name].bits // int(change[1:])
    return f"{kind}{bits}"


_COUNT = re.compile(r"vec\{(\w+?)(?:([*/])(\d+))?\}")


def _shape(rule: OperandRule, mods: dict[str, str], braced: bool) -> str:
    match = _COUNT.fullmatch(rule.shape)
    if match is None or match[1] == "any":
        return rule.shape
    length = _length(match[1], mods)
    if length is None:
        return "vec1" if braced else "reg" if rule.role == "d" else "reg|imm"
    if match[2]:
        length = length * int(match[3]) if match[2] == "*" else length // int(match[3])
    return f"vec{length}"


def _length(name: str, mods: dict[str, str]) -> int | None:
    """The number in slot `name` (`v4`, `x16`), or the n of slot `shape`; None if the slot is empty."""
    if name == "n":
        return int(mods["shape"].split("n")[1].split("k")[0])
    modifier = mods.get(name)
    return None if modifier is None else int(modifier[1:])


def _match(rules: tuple[OperandRule, ...], shapes: tuple[str, ...]) -> tuple[OperandRule, ...] | None:
    """The rule of each operand, skipping optional rules as needed; None if they do not match."""
    if not rules:
        return None if shapes else ()
    first, rest = rules[0], rules[1:]
    if shapes and fits(first, shapes[0]):
        tail = _match(rest, shapes[1:])
        if tail is not None:
            return first, *tail
    return _match(rest, shapes) if first.optional else None


def fits(rule: OperandRule, shape: str) -> bool:
    """Whether the rule accepts an operand of this shape."""
    if rule.shape == "pair":
        return shape == "pair" or (shape == "name" and rule.second is not None and rule.second.optional)
    if rule.shape == "vec{any}" and rule.optional:
        # a single register there is the next operand
        return shape.startswith("vec")
    if rule.shape.startswith("vec"):
        return shape == rule.shape or shape == "name" or (rule.shape == "vec{any}" and shape.startswith("vec"))
    return shape in _ALLOWED[rule.shape]


def _modifier_message(opcode: str, modifiers: tuple[str, ...], forms: Sequence[Form]) -> str:
    """The message for the first modifier that no form accepts, or for what the nearest form requires."""
    best, left = max(((form, _fill(form, modifiers)[1]) for form in forms), key=lambda pair: -len(pair[1]))
    name = ".".join((opcode, *modifiers))
    known = {choice for form in forms for slot in form.slots for choice in slot.choices}
    strange = next((m for m in modifiers if m not in known), None)
    if strange is not None:
        return f"{name}: " + unknown(f"modifier of {opcode}", strange, sorted(known))
    if left:
        return f"{name}: .{left[0]} does not go with the other modifiers; a form near it is {form_text(best)}"
    missing = [slot for slot in best.slots if slot.required and not set(slot.choices) & set(modifiers)]
    what = " and ".join("|".join(f".{choice}" for choice in slot.choices) for slot in missing)
    return f"{name}: {what or 'a modifier'} is missing; a form near it is {form_text(best)}"


def _operand_message(name: str, shapes: tuple[str, ...], fitting: list[tuple[Form, dict[str, str]]]) -> str:
    wanted = " or ".join(dict.fromkeys(form.operands_text or "no operands" for form, _ in fitting))
    return f"{name} takes the operands ({wanted}), not ({', '.join(shapes)})"


def form_text(form: Form) -> str:
    """A form as one line: `add{.rn|.rz}.f32 =d, a, b`."""
    parts = []
    for slot in form.slots:
        choices = "|".join(f".{choice}" for choice in slot.choices)
        parts.append(f"{{{choices}}}" if not slot.required else (choices if len(slot.choices) == 1 else f"({choices})"))
    return f"{form.opcode}{''.join(parts)} {form.operands_text}".rstrip()
