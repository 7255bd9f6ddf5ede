"""The version and target from which on an instruction exists, from its row and its modifiers."""

import re
from collections.abc import Iterable
from typing import NamedTuple

from kernbench.ptx.isa.forms.form import Form, Resolved
from kernbench.ptx.isa.targets import FAMILIES


class Since(NamedTuple):
    """The least `.version` and target number."""

    version: tuple[int, int]
    sm: int


# modifiers that are newer than rows that accept them
_MODIFIERS = {
    "shared::cta": Since((7, 8), 10),
    "shared::cluster": Since((7, 8), 90),
    "cluster": Since((7, 8), 90),
    "param::entry": Since((8, 3), 10),
    "param::func": Since((8, 3), 10),
    "L2::cache_hint": Since((7, 4), 80),
    "L2::64B": Since((7, 4), 75),
    "L2::128B": Since((7, 4), 75),
    "L2::256B": Since((7, 4), 80),
    "L1::evict_normal": Since((7, 4), 70),
    "L1::evict_unchanged": Since((7, 4), 70),
    "L1::evict_first": Since((7, 4), 70),
    "L1::evict_last": Since((7, 4), 70),
    "L1::no_allocate": Since((7, 4), 70),
    "NaN": Since((7, 0), 80),
    "acc::f32": Since((8, 2), 90),
    "im2col::w": Since((8, 6), 90),
    "im2col::w::128": Since((8, 6), 90),
    "block16": Since((8, 8), 100),
    "block32": Since((8, 8), 100),
}
# the same for a single opcode
_OF_INSTRUCTION = {
    ("bar", "cta"): Since((7, 8), 10),
    ("barrier", "cta"): Since((7, 8), 10),
    ("barrier", "release"): Since((8, 0), 90),
    ("barrier", "relaxed"): Since((8, 0), 90),
    ("barrier", "acquire"): Since((8, 0), 90),
    ("cvt", "satfinite"): Since((8, 1), 80),
    ("cvta", "param"): Since((7, 7), 70),
    ("isspacep", "param"): Since((7, 7), 70),
}
# (meaning, operand): a predicate there is newer than the row
_PREDICATES = {("cp.async", "src_size"): Since((7, 5), 80)}
_TARGET = re.compile(r"(?:sm|compute)_(\d+)([af]?)")


def since(resolved: Resolved, predicates: Iterable[str] = ()) -> Since:
    """The least version and target number for an instruction with these modifiers.

    `predicates` are names of operands that are predicates, where a value is also allowed.
    """
    form = resolved.form
    found = Since(form.version, form.sm)
    younger = [_OF_INSTRUCTION.get((form.opcode, mod)) or _MODIFIERS.get(mod) for mod in resolved.mods.values()]
    for later in (*younger, *(_PREDICATES.get((resolved.meaning, name)) for name in predicates)):
        if later is not None:
            found = Since(max(found.version, later.version), max(found.sm, later.sm))
    return found


def has_target(form: Form, least: int, target: str) -> bool:
    """Whether a target such as "sm_90a" has the form; True for names that are no targets."""
    match = _TARGET.fullmatch(target)
    if match is None:
        return True
    number, letter = int(match[1]), match[2]
    if form.family in ("", "a"):
        return number >= least and (bool(letter) or not form.family)
    return any(_in_family(name, number, letter) for name in form.family.split("|"))


def targets(form: Form) -> str:
    """The targets that have the form, as text."""
    if form.family in ("", "a"):
        return f"sm_{form.sm}{form.family}+"
    return " or ".join(f"sm_{name}" for name in form.family.split("|"))


def _in_family(name: str, number: int, letter: str) -> bool:
    if name in FAMILIES:
        return bool(letter) and number in FAMILIES[name]
    return f"{number}{letter}" == name
