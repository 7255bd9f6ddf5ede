"""Where the operands of a kernel's instructions come from: from loads, or from conversions of narrower numbers."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from kernbench.ptx.isa import FORMS
from kernbench.ptx.isa.forms.form import Form
from kernbench.ptx.recording.recording import Instructions

Flags = NDArray[np.bool_]
_OPERANDS = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+")
_REGISTERS = re.compile(r"%[A-Za-z_][\w$]*")
_HALVES = (".f16", ".bf16")
# spaces whose contents no launch changes
_FIXED = {"param", "const"}
# kinds of accesses that give what memory holds
_GIVING = ("load", "atomic")


def forms_of(words: str) -> Sequence[Form]:
    """The forms of an instruction, of which the opcode and modifiers are given."""
    return FORMS.get(words.partition(".")[0], ())


def accesses(words: str) -> set[str]:
    """How an instruction accesses memory, in some form."""
    return {str(form.effects.access) for form in forms_of(words)} - {""}


def _loads(words: str) -> bool:
    """Whether an instruction gives what memory holds."""
    return bool(accesses(words) & set(_GIVING)) and not _FIXED & set(words.split("."))


def _has_result(words: str) -> bool:
    return any(rule.role == "d" for form in forms_of(words) for rule in form.operands)


def _adds_products(words: str) -> bool:
    """Whether an instruction adds a product of floats to a number."""
    roles = [[rule.role for rule in form.operands] for form in forms_of(words) if form.cost == "float"]
    return ["d", "a", "a", "a"] in roles


def converts(words: str) -> bool:
    """Whether an instruction converts a number."""
    return any(form.cost == "convert" for form in forms_of(words))


@dataclass(frozen=True)
class Flow:
    """Registers of instructions: an approximation by names, whatever the order of instructions is."""

    rows: Instructions

    @cached_property
    def operands(self) -> list[list[str]]:
        """The operands of each instruction, as written."""
        texts = (text.lstrip("{ \t").partition(";")[0] for text in self.rows.text)
        return [_OPERANDS.findall(text)[1:] for text in texts]

    @cached_property
    def results(self) -> list[set[str]]:
        """The registers that each instruction writes."""
        return [
            set(_REGISTERS.findall(given[0])) if given and _has_result(opcode) else set()
            for opcode, given in zip(self.rows.opcode, self.operands, strict=True)
        ]

    @cached_property
    def made_by(self) -> dict[str, list[int]]:
        """The instructions that write each register."""
        found: dict[str, list[int]] = {}
        for row, registers in enumerate(self.results):
            for register in registers:
                found.setdefault(register, []).append(row)
        return found

    def sources(self, row: int, which: slice) -> list[int]:
        """The instructions that make some operands of an instruction."""
        names = (name for word in self.operands[row][which] for name in _REGISTERS.findall(word))
        return [one for name in names for one in self.made_by.get(name, [])]

    @cached_property
    def loaded(self) -> Flags:
        """Instructions whose address depends on what was loaded before."""
        tainted: set[str] = set()
        for opcode, results in zip(self.rows.opcode, self.results, strict=True):
            tainted |= results if _loads(opcode) else set()
        before = -1
        while before != len(tainted):
            before = len(tainted)
            for given, results in zip(self.operands, self.results, strict=True):
                if any(name in tainted for word in given[1:] for name in _REGISTERS.findall(word)):
                    tainted |= results
        return np.array([
            any(name in tainted for word in given if word.startswith("[") for name in _REGISTERS.findall(word))
            for given in self.operands
        ] or [False])  # fmt: skip

    @cached_property
    def addresses(self) -> Flags:
        """Instructions whose results only go into addresses."""
        used_by: dict[str, list[tuple[int, bool]]] = {}
        for row, given in enumerate(self.operands):
            for number, word in enumerate(given):
                if number or not self.results[row]:
                    for name in _REGISTERS.findall(word):
                        used_by.setdefault(name, []).append((row, word.startswith("[")))
        found = np.array([bool(results) for results in self.results] or [False])
        found &= np.array([not _loads(opcode) for opcode in self.rows.opcode] or [False])
        before = -1
        while before != found.sum():
            before = int(found.sum())
            for row in np.flatnonzero(found).tolist():
                uses = [use for name in self.results[row] for use in used_by.get(name, [])]
                found[row] = all(inside or found[user] for user, inside in uses)
        return found

    def of_halves(self) -> tuple[Flags, Flags]:
        """Instructions that add products of numbers of 16 bits to a sum; and those that bring these numbers.

        The latter are conversions, and loads from shared memory.
        """
        sums, bring = np.zeros(len(self.rows), bool), np.zeros(len(self.rows), bool)
        for row, opcode in enumerate(self.rows.opcode):
            if not _adds_products(opcode):
                continue
            factors = [self.sources(row, slice(at, at + 1)) for at in (1, 2)]
            halves = opcode.endswith((*_HALVES, ".f16x2", ".bf16x2"))
            converted = all(made and all(map(self._converts, made)) for made in factors)
            if not halves and not converted:
                continue
            sums[row] = True
            loads = [*factors[0], *factors[1]]
            if not halves:
                bring[loads] = True
                loads = [one for made in loads for one in self.sources(made, slice(1, 2))]
            bring[[one for one in loads if _loads(self.rows.opcode[one]) and "shared" in self.rows.opcode[one]]] = True
        return sums, bring

    def _converts(self, row: int) -> bool:
        return converts(self.rows.opcode[row]) and self.rows.opcode[row].endswith(_HALVES)
