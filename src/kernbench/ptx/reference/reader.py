"""Operands of an instruction, converted to functions that return their bits for a thread."""

from collections.abc import Callable

from kernbench.ptx.reference.machine import WARP, Machine, Thread
from kernbench.ptx.reference.order import SCOPES
from kernbench.ptx.reference.program import UnknownInstructionError
from kernbench.ptx.text.module import Address, Float, Instruction, Integer, Name, Not, Offset, Operand

Value = Callable[[Thread], int]
_SPACES = ("shared", "global", "local", "param")


class Reader:
    """Access to the operands of one instruction."""

    def __init__(self, machine: Machine, instruction: Instruction):
        self.machine, self.instruction = machine, instruction
        self.modifiers = instruction.modifiers
        self.line = instruction.line

    def unknown(self) -> UnknownInstructionError:
        """The error for an instruction that is not supported."""
        return UnknownInstructionError("the reference executor does not know this", self.line, 0, self.instruction.name)

    def has(self, *names: str) -> str:
        """The first modifier that is one of these names, or ""."""
        return next((name for name in self.modifiers if name in names), "")

    @property
    def space(self) -> str:
        """The state space; by default global memory."""
        spaces = [name.partition("::")[0] for name in self.modifiers]
        return next((name for name in spaces if name in _SPACES), "global")

    @property
    def scope(self) -> int:
        """The scope of a strong operation; by default the GPU."""
        return SCOPES[self.has(*SCOPES) or "gpu"]

    def value(self, operand: Operand) -> Value:
        """The function that returns an operand's bits."""
        if isinstance(operand, (Integer, Float)):
            constant = operand.value if isinstance(operand, Integer) else operand.bits
            return lambda thread: constant
        if isinstance(operand, Not):
            text = operand.operand.text
            return lambda thread: 1 - thread.registers.get(text, 0)
        if isinstance(operand, Offset):
            start = self.machine.program.variables[operand.base.text][1] + operand.offset
            return lambda thread: start
        if not isinstance(operand, Name):
            raise self.unknown()
        return self._name(operand.text)

    def is_predicate(self, operand: Operand) -> bool:
        """Whether an operand is a predicate, perhaps negated."""
        named = isinstance(operand, Name) and operand.text in self.machine.program.predicates
        return named or isinstance(operand, Not)

    def _name(self, text: str) -> Value:
        if text in self.machine.program.variables:
            start = self.machine.program.variables[text][1]
            return lambda thread: start
        if text in _SPECIAL:
            special, machine = _SPECIAL[text], self.machine
            return lambda thread: special(thread, machine)
        return lambda thread: thread.registers.get(text, 0)

    def values(self, *positions: int) -> list[Value]:
        """The same for several operands, by position."""
        return [self.value(self.instruction.operands[i]) for i in positions]

    def address(self, position: int) -> Value:
        """The function that returns the address in an operand's brackets."""
        operand = self.instruction.operands[position]
        if not isinstance(operand, Address) or operand.more:
            raise self.unknown()
        base, offset = self.value(operand.base), operand.offset
        return lambda thread: base(thread) + offset

    def target(self, position: int = 0) -> str:
        """The name of the register that an operand is."""
        operand = self.instruction.operands[position]
        if not isinstance(operand, Name):
            raise self.unknown()
        return operand.text


_SPECIAL: dict[str, Callable[[Thread, Machine], int]] = {
    "%tid.x": lambda thread, machine: thread.tid,
    "%ctaid.x": lambda thread, machine: thread.cta,
    "%ntid.x": lambda thread, machine: machine.block,
    "%nctaid.x": lambda thread, machine: machine.grid,
    "%cluster_ctarank": lambda thread, machine: thread.cta % machine.cluster,
    "%cluster_nctarank": lambda thread, machine: machine.cluster,
    "%laneid": lambda thread, machine: thread.lane,
    "%warpid": lambda thread, machine: thread.warp,
    "%lanemask_lt": lambda thread, machine: (1 << thread.lane) - 1,
    "%lanemask_eq": lambda thread, machine: 1 << thread.lane,
    "WARP_SZ": lambda thread, machine: WARP,
}
