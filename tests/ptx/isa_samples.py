"""Minimal instructions for the rows of the ISA table, and ptxas's verdict on many at once."""

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from tests.ptx.toolchain import run_ptxas

from kernbench.ptx.isa.forms.form import EITHER, Form, OperandRule, Resolved
from kernbench.ptx.isa.resolve import filled
from kernbench.ptx.isa.since import since
from kernbench.ptx.text.types import TYPES

_REGISTERS = {1: "%p", 8: "%c", 16: "%h", 32: "%r", 64: "%rd", 128: "%q"}
_DECLARED = """
.reg .pred %p<9>; .reg .b8 %c<9>; .reg .b16 %h<140>; .reg .b32 %r<300>; .reg .b64 %rd<140>; .reg .b128 %q<9>;
"""
# the first .version that knows a target
_TARGET_VERSIONS = {75: (6, 3), 80: (7, 0), 86: (7, 1), 89: (7, 8), 90: (7, 8), 100: (8, 6), 103: (8, 8), 120: (8, 7)}
# values that ptxas wants exact: (opcode, operand name) -> text
_VALUES = {
    ("setmaxnreg", "count"): "64",
    ("applypriority", "size"): "128",
    ("discard", "size"): "128",
    ("fence", "size"): "128",
    ("createpolicy", "fraction"): "0f3F800000",
    ("createpolicy", "value"): "0x10F0000000000000",
    ("alloca", "alignment"): "8",
    ("cp", "size"): "16",
    ("cp", "src_size"): "%r5",
    ("tensormap", "size"): "128",
    ("st", "value"): "0",
    ("wgmma", "trans_a"): "0",
    ("wgmma", "trans_b"): "0",
    ("mma", "selector"): "0",
    ("wgmma", "selector"): "0",
    ("brx", "targets"): "TARGETS",
    ("bar", "count"): "64",
    ("barrier", "count"): "64",
}

_NEED_A_CALL = {("st", "param"), ("st", "param::func")}


@dataclass(frozen=True)
class Sample:
    """One instruction text, with the form it was made from."""

    form: Form
    text: str
    mods: tuple[tuple[str, str], ...]
    # operands that are predicates and could be values
    predicates: tuple[str, ...] = ()


def samples(form: Form, extra: int = 0, seed: int = 0) -> Iterator[Sample]:
    """Every choice of every slot at least once, and `extra` random mixtures."""
    for choices in _choices(form, extra, random.Random(seed)):
        mods = {slot.name: choice for slot, choice in zip(form.slots, choices, strict=True) if choice}
        if (form.opcode, mods.get("space")) in _NEED_A_CALL:
            continue
        for rules in _operand_lists(filled(form, mods)):
            operands = [_operand(form, rule, index, mods) for index, rule in enumerate(rules)]
            name = ".".join([form.opcode, *(choice for choice in choices if choice)])
            yield Sample(form, f"{name} {', '.join(operands)};", tuple(mods.items()))
            either = [index for index, rule in enumerate(rules) if rule.shape == EITHER]
            for index in either:
                operands[index] = "%p5"
                text = f"{name} {', '.join(operands)};"
                yield Sample(form, text, tuple(mods.items()), (rules[index].name,))


def _choices(form: Form, extra: int, rng: random.Random) -> Iterator[list[str]]:
    base = [slot.choices[0] if slot.required else "" for slot in form.slots]
    yield base
    for index, slot in enumerate(form.slots):
        for choice in slot.choices[slot.required :] if slot.required else slot.choices:
            yield [*base[:index], choice, *base[index + 1 :]]
    for _ in range(extra):
        yield [rng.choice(slot.choices if slot.required else ("", *slot.choices)) for slot in form.slots]


def _operand_lists(rules: tuple[OperandRule, ...]) -> Iterator[tuple[OperandRule, ...]]:
    """With all optional operands, and without any."""
    yield tuple(replace(rule, second=rule.second and replace(rule.second, optional=False)) for rule in rules)
    without = tuple(rule for rule in rules if not rule.optional)
    if without != rules or any(rule.second and rule.second.optional for rule in rules):
        yield without


def _register(type_name: str, index: int) -> str:
    return f"{_REGISTERS[TYPES[type_name].bits if type_name in TYPES else 32]}{index % 8}"


def _operand(form: Form, rule: OperandRule, index: int, mods: dict[str, str]) -> str:
    if (value := _VALUES.get((form.opcode, rule.name))) is not None:
        return value
    if rule.name == "state" and rule.role == "d" and mods.get("space") == "shared::cluster":
        return "_"
    if form.opcode == "tcgen05" and rule.shape == "addr" and rule.name not in ("dst", "mbar"):
        return "[%r1]"
    if rule.shape == "pair":
        first = _register(rule.type, index)
        return (
            first
            if rule.second is None or rule.second.optional
            else f"{first}|{_register(rule.second.type, index + 2)}"
        )
    if rule.shape.startswith("vec"):
        prefix = _REGISTERS[TYPES[rule.type].bits]
        return "{" + ", ".join(f"{prefix}{item}" for item in range(_length(rule, mods))) + "}"
    if rule.shape == "tensor":
        return f"[%rd1, {{{', '.join(f'%r{n}' for n in range(_coordinates(mods)))}}}]"
    fixed = {"addr": "[%rd1]", "label": "DONE", "callee": "callee", "args": "(x)"}
    if rule.shape in fixed:
        return fixed[rule.shape]
    if rule.shape == "imm":
        return "1"
    return _register(rule.type, index)


def _coordinates(mods: dict[str, str]) -> int:
    """How many coordinates a tensor address has; gather and scatter name four rows."""
    return 5 if mods.get("mode", "").endswith("4") else int(mods["dim"][0])


def _length(rule: OperandRule, mods: dict[str, str]) -> int:
    if rule.shape != "vec{any}":
        return int(rule.shape[3:])
    if rule.name == "lanes":
        return 4 if mods["group"].endswith("1") else 8
    return int(mods["dim"][0]) - 2 if mods["mode"] == "im2col" else 2


def target_of(form: Form) -> str:
    """A target that has the form."""
    if form.family in ("", "a"):
        return "sm_100a"
    return f"sm_{form.family.split('|')[0].rstrip('af')}a"


def oldest_target(sample: Sample) -> tuple[str, tuple[int, int]]:
    """The oldest target and version the table claims for a sample, as far back as ptxas 13.0 goes."""
    form = sample.form
    first = since(Resolved(form, dict(sample.mods)), sample.predicates)
    number = next(sm for sm in sorted(_TARGET_VERSIONS) if sm >= first.sm)
    letter = "a" if form.family else ""
    if form.family not in ("", "a"):
        number = int(form.family.split("|")[0].rstrip("af"))
    least = (8, 0) if letter and number == 90 else _TARGET_VERSIONS[number]
    return f"sm_{number}{letter}", max(first.version, least)


def module(lines: Iterable[str], target: str, version: tuple[int, int] = (9, 0)) -> str:
    """A kernel with one instruction a line, beginning at line 10."""
    head = [f".version {version[0]}.{version[1]}", f".target {target}", ".address_size 64", "", "", ""]
    head += [".visible .entry k() {", *(_DECLARED.strip().split("\n"))]
    if version < (8, 3):
        head = [line.replace(" .reg .b128 %q<9>;", "") for line in head]
    return "\n".join([*head, "TARGETS: .branchtargets DONE;", *lines, "DONE: ret;", "}", ""])


def refusals(texts: list[str], target: str, version: tuple[int, int] = (9, 0)) -> dict[int, str]:
    """Index -> ptxas's message, for the instructions it refuses."""
    # a kernel works either for single CTAs or for pairs
    pairs = ["cta_group::2" in text for text in texts]
    found: dict[int, str] = {}
    for pair in (False, True):
        kept = [text if is_pair == pair else "" for text, is_pair in zip(texts, pairs, strict=True)]
        if any(kept):
            found |= _refusals(kept, target, version)
    return found


def _refusals(texts: list[str], target: str, version: tuple[int, int]) -> dict[int, str]:
    found: dict[int, str] = {}
    while True:
        kept = ["" if index in found else text for index, text in enumerate(texts)]
        # -O1 takes half the time of the default and the same instructions; -O0 is slow with thousands of registers
        errors, log = run_ptxas(module(kept, target, version), target, "-O1")
        fresh = {line - 10: message for line, message in errors.items() if 0 <= line - 10 < len(texts)}
        if not fresh:
            return found | (_halved(kept, target, version, log) if log is not None else {})
        found.update(fresh)


def _halved(texts: list[str], target: str, version: tuple[int, int], log: str) -> dict[int, str]:
    """ptxas gave no line: look in halves."""
    places = [index for index, text in enumerate(texts) if text]
    if len(places) <= 1:
        return dict.fromkeys(places, log or "ptxas gave no message")
    middle = places[len(places) // 2]
    first = _refusals(texts[:middle], target, version)
    second = _refusals(texts[middle:], target, version)
    return first | {index + middle: message for index, message in second.items()}
