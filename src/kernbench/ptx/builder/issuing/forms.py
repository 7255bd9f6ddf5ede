"""Selects the form of the ISA table for a program's request: by modifiers, then by operand kinds."""

from collections.abc import Sequence
from functools import cache, lru_cache

from kernbench.common.errors import unknown
from kernbench.ptx.builder.values.numbers import is_number
from kernbench.ptx.builder.values.pointer import Location, location_of
from kernbench.ptx.builder.values.values import Inverted, Label, Register
from kernbench.ptx.isa.forms.form import EITHER, Form, OperandRule
from kernbench.ptx.isa.resolve import filled, fits, form_text, slot_modifiers
from kernbench.ptx.isa.table import FORMS, forms_of

__kernbench_internal__ = True

# a form, its modifiers by slot, and in the order in which they are written
Candidate = tuple[Form, dict[str, str], tuple[str, ...]]


@cache
def types_of(opcode: str) -> frozenset[str]:
    """All types in slot `type` of an opcode's forms."""
    return frozenset(
        choice for form in forms_of(opcode) for slot in form.slots if slot.name == "type" for choice in slot.choices
    )


@lru_cache(maxsize=1 << 12)
def with_slots(opcode: str, given: tuple[tuple[str, str], ...]) -> list[Candidate] | str:
    """Forms with exactly these modifiers, or a message why there are none."""
    found: list[Candidate] = []
    for form in forms_of(opcode):
        mods = {name: (name if value == "True" else value) for name, value in given}
        slots = {slot.name: slot for slot in form.slots}
        known = all(name in slots and modifier in slots[name].choices for name, modifier in mods.items())
        if known and all(slot.name in mods or not slot.required for slot in form.slots):
            found.append((form, mods, tuple(mods[slot.name] for slot in form.slots if slot.name in mods)))
    return found or _no_slots(opcode, dict(given))


def _no_slots(opcode: str, given: dict[str, str]) -> str:
    forms = forms_of(opcode)
    type = given.get("type", "")
    choices = {choice for form in forms for slot in form.slots if slot.name == "type" for choice in slot.choices}
    if type and type not in choices:
        return f"{opcode} has no form for .{type}; it has " + ", ".join(f".{choice}" for choice in sorted(choices))
    near = [form for form in forms if not type or any(type in slot.choices for slot in form.slots)]
    asked = "".join(f".{name if value == 'True' else value}" for name, value in given.items())
    shown = "; ".join(dict.fromkeys(form_text(form) for form in near[:4]))
    return f"{opcode} has no form with {asked}; forms near it: {shown}"


@lru_cache(maxsize=1 << 12)
def with_names(opcode: str, modifiers: tuple[str, ...]) -> list[Candidate] | str:
    """Forms that accept these modifiers as written, or a message why there are none."""
    forms = forms_of(opcode)
    if not forms:
        return unknown("instruction", opcode, FORMS)
    found = [(form, mods, modifiers) for form in forms if (mods := slot_modifiers(form, modifiers)) is not None]
    if found:
        return found
    shown = "; ".join(dict.fromkeys(form_text(form) for form in forms[:4]))
    return f"{'.'.join((opcode, *modifiers))} is no instruction; forms near it: {shown}"


def match_rules(rules: Sequence[OperandRule], inputs: tuple[object, ...]) -> tuple[OperandRule, ...] | None:
    """The rule of each result and input, skipping optional rules as needed; None if they do not match."""
    if not rules:
        return None if inputs else ()
    first, rest = rules[0], rules[1:]
    if first.role == "d":
        tail = match_rules(rest, inputs)
        return None if tail is None else (first, *tail)
    if inputs and _fits(first, inputs[0]):
        tail = match_rules(rest, inputs[1:])
        if tail is not None:
            return first, *tail
    return match_rules(rest, inputs) if first.optional else None


def _fits(rule: OperandRule, value: object) -> bool:
    """Whether the rule accepts a value; numbers are accepted for registers, since they can be moved to one."""
    if rule.shape in ("addr", "tensor"):
        location = location_of(value)
        return location is not None and bool(location.more) == (rule.shape == "tensor")
    if isinstance(value, (tuple, list)):
        return fits(rule, f"vec{len(value)}")
    if rule.shape.startswith("vec"):
        return rule.shape == "vec1"
    if isinstance(value, Label):
        return rule.shape == "label"
    if isinstance(value, Inverted):
        return rule.shape in ("pred", EITHER)
    if is_number(value):
        return rule.shape != "label"
    if isinstance(value, Register):
        is_predicate = value.type == "pred"
        known = rule.shape not in ("imm", "label", "callee", "args")
        return known and ((rule.type == "pred") == is_predicate or (rule.shape == EITHER and is_predicate))
    return False


def inputs_text(form: Form, mods: dict[str, str]) -> str:
    """The inputs of a form, for messages."""
    rules = [rule for rule in filled(form, mods) if rule.role != "d"]
    return (
        ", ".join(f"{rule.name}: {_shape_text(rule)}" + ("?" if rule.optional else "") for rule in rules) or "nothing"
    )


def _shape_text(rule: OperandRule) -> str:
    if rule.shape.startswith("vec"):
        return f"{rule.shape[3:]} x .{rule.type}"
    return {"addr": "address", "tensor": "address with coordinates", "label": "label"}.get(rule.shape, f".{rule.type}")


def described(value: object) -> str:
    """A description of a value, for messages."""
    if isinstance(value, Register):
        return value.type
    if isinstance(value, (tuple, list)):
        return f"{len(value)} x {described(value[0])}" if value else "an empty tuple"
    if isinstance(value, Location):
        return "address"
    return repr(value)
