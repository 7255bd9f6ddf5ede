"""Registers of a kernel: their declarations, and which of them may legitimately differ between devices.

Each device chooses addresses of shared and local memory, of variables and perhaps of arrays; the time, multiprocessor
numbers, barrier tokens, and whether a poll succeeded differ as well. Values computed from these are `private`: they say
nothing about arithmetic.
"""

from collections.abc import Iterable, Iterator

from kernbench.ptx.isa.forms.form import Resolved
from kernbench.ptx.isa.operands import Operands, operands_of, resolved_of
from kernbench.ptx.isa.special import special_register
from kernbench.ptx.text.module import Address, Block, Function, Instruction, Name, Offset, Registers
from kernbench.ptx.text.types import TYPES
from kernbench.ptx.text.walking import instructions_of, names_in

# special registers whose value depends on the device or the time
_OF_THE_DEVICE = ("%clock", "%globaltimer", "%smid", "%nsmid", "%warpid", "%nwarpid", "%gridid", "%pm", "%total_smem")
_STRONG = frozenset(("relaxed", "acquire", "release", "volatile", "mmio"))


def declared(statement: Registers) -> Iterator[tuple[str, str]]:
    """Name and type of each scalar register of a declaration."""
    if statement.vector == 1 and statement.type in TYPES:
        for name, count in statement.names:
            yield from ((f"{name}{n}", statement.type) for n in range(count)) if count else ((name, statement.type),)


def private_registers(function: Function, parameters: Iterable[str] = (), loads_addresses: bool = False) -> set[str]:
    """Registers whose values may differ between two devices.

    `parameters` are those with addresses that differ; with `loads_addresses` memory contains such addresses as well.
    """
    known = {name for block in _blocks(function.body) for s in block.statements for name in _registers_in(s)}
    finding = _Private(known, frozenset(parameters), loads_addresses)
    flows = [flow for one in instructions_of(function.body) if (flow := finding.look(one)) is not None]
    changed = True
    while changed:
        before = len(finding.found)
        for flow in flows:
            if not finding.found.isdisjoint(flow.read):
                finding.found.update(flow.written)
        changed = len(finding.found) > before
    return finding.found


class _Private:
    """The sources of private values, and the instructions that propagate them."""

    def __init__(self, known: set[str], parameters: frozenset[str], loads_addresses: bool):
        self._known, self._parameters, self._loads_addresses = known, parameters, loads_addresses
        self.found: set[str] = set()

    def look(self, instruction: Instruction) -> Operands | None:
        """Add the registers that an instruction makes private itself.

        Returns its operands if it propagates private values.
        """
        resolved = resolved_of(instruction)
        if resolved is None:
            return None
        operands = operands_of(instruction, resolved)
        if self._begins(instruction, resolved):
            self.found.update(operands.written)
        for operand, rule in zip(instruction.operands, resolved.rules, strict=True):
            if rule.name == "policy":
                self.found.update(names_in(operand))
        effects = resolved.effects
        return operands if effects.forwards or effects.exchanges else None

    def _begins(self, instruction: Instruction, resolved: Resolved) -> bool:
        effects = resolved.effects
        strong = effects.access == "load" and not _STRONG.isdisjoint(instruction.modifiers)
        if effects.observes_order or effects.polls or strong or effects.acts_on == "mbarrier":
            return True
        if effects.access == "load":
            return self._loads_address(instruction, resolved)
        return any(self._is_private(name) for name in self._values(instruction, resolved))

    def _loads_address(self, instruction: Instruction, resolved: Resolved) -> bool:
        bases = [operand.base for operand in instruction.operands if isinstance(operand, Address)]
        if any(isinstance(base, Name) and base.text in self._parameters for base in bases):
            return True
        wide = any(TYPES[kind].bits == 64 for kind in resolved.types if kind in TYPES)
        return self._loads_addresses and wide and resolved.mods.get("space") != "param"

    @staticmethod
    def _values(instruction: Instruction, resolved: Resolved) -> Iterator[str]:
        for operand, rule in zip(instruction.operands, resolved.rules, strict=True):
            if rule.role == "a" and isinstance(operand, Name | Offset):
                yield from names_in(operand)

    def _is_private(self, name: str) -> bool:
        if name.startswith(_OF_THE_DEVICE):
            return True
        # any other name is a variable, and stands for its address
        return name not in self._known and special_register(name) is None


def _blocks(block: Block | None) -> Iterator[Block]:
    if block is not None:
        yield block
        for statement in block.statements:
            if isinstance(statement, Block):
                yield from _blocks(statement)


def _registers_in(statement: object) -> Iterator[str]:
    if isinstance(statement, Registers):
        for name, count in statement.names:
            yield from (f"{name}{n}" for n in range(count)) if count else (name,)
