"""A kernel as a list of instructions, with labels, scopes and the addresses of variables resolved."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from kernbench.ptx.text.errors import PtxError
from kernbench.ptx.text.module import (
    Address,
    Block,
    Guard,
    Instruction,
    Kernel,
    Label,
    Name,
    Not,
    Offset,
    Operand,
    Pair,
    Registers,
    Variable,
    Vector,
)


class UnknownInstructionError(PtxError):
    """An instruction, operand or variable that the reference executor does not support."""


@dataclass
class Program:
    """Instructions in order, positions of labels, and offsets of variables in their spaces."""

    instructions: list[Instruction] = field(default_factory=list)
    labels: dict[str, int] = field(default_factory=dict)
    # variable -> space and offset
    variables: dict[str, tuple[str, int]] = field(default_factory=dict)
    # names of predicate registers
    predicates: set[str] = field(default_factory=set)
    sizes: dict[str, int] = field(default_factory=lambda: {"shared": 0, "local": 0, "param": 0})

    def add(self, variable: Variable) -> None:
        """Allocate a variable in its space."""
        if variable.size is None or variable.space not in self.sizes or variable.initial is not None:
            raise UnknownInstructionError(f"the reference executor knows no such variable: {variable.name}")
        alignment = variable.natural_alignment
        start = -(-self.sizes[variable.space] // alignment) * alignment
        self.variables[variable.name] = variable.space, start
        self.sizes[variable.space] = start + variable.size


def program_of(kernel: Kernel) -> Program:
    """The program of a kernel's body."""
    program = Program()
    for parameter in kernel.params:
        program.variables[parameter.name] = "param", parameter.offset
        program.sizes["param"] = parameter.offset + parameter.size
    for variable in kernel.module.variables.values():
        program.add(variable)
    assert kernel.function.body is not None
    _flatten(kernel.function.body, {}, program)
    return program


def _flatten(block: Block, outside: Mapping[str, str], program: Program) -> None:
    """Add a scope's instructions; the names it declares get its line, so that inner ones hide outer ones."""
    names = {**outside, **{name: f"{name}@{block.line}" for name in _declared(block)}}
    for statement in block.statements:
        if isinstance(statement, Registers) and statement.type == "pred":
            program.predicates.update(names[name] for name in _registers(statement))
        elif isinstance(statement, Variable):
            program.add(replace(statement, name=names[statement.name]))
        elif isinstance(statement, Label):
            program.labels[names[statement.name]] = len(program.instructions)
        elif isinstance(statement, Instruction):
            program.instructions.append(_renamed(statement, names))
        elif isinstance(statement, Block):
            _flatten(statement, names, program)


def _declared(block: Block) -> list[str]:
    found = []
    for statement in block.statements:
        if isinstance(statement, Registers):
            found += _registers(statement)
        elif isinstance(statement, (Label, Variable)):
            found.append(statement.name)
    return found


def _registers(declared: Registers) -> list[str]:
    found = []
    for name, count in declared.names:
        found += [f"{name}{i}" for i in range(count)] if count else [name]
    return found


def _renamed(instruction: Instruction, names: Mapping[str, str]) -> Instruction:
    guard = instruction.guard
    if guard is not None:
        guard = Guard(names[guard.register], guard.negated)
    return replace(instruction, guard=guard, operands=tuple(_operand(one, names) for one in instruction.operands))


def _operand(operand: Operand, names: Mapping[str, str]) -> Operand:
    if isinstance(operand, Name):
        return Name(names.get(operand.text, operand.text))
    if isinstance(operand, Offset):
        return Offset(Name(names.get(operand.base.text, operand.base.text)), operand.offset)
    if isinstance(operand, Not):
        return Not(Name(names[operand.operand.text]))
    if isinstance(operand, Vector):
        return Vector(tuple(_operand(one, names) for one in operand.items))
    if isinstance(operand, Pair):
        return Pair(_operand(operand.first, names), _operand(operand.second, names))
    if isinstance(operand, Address):
        return Address(
            _operand(operand.base, names),
            operand.offset,
            tuple(_operand(o, names) for o in operand.more),
            operand.unified,
        )
    return operand


def names_of(instruction: Instruction) -> set[str]:
    """The names in an instruction: those of its guard and its operands."""
    found = set() if instruction.guard is None else {instruction.guard.register}
    pending = list(instruction.operands)
    while pending:
        operand = pending.pop()
        if isinstance(operand, Name):
            found.add(operand.text)
        elif isinstance(operand, (Offset, Address)):
            pending += [operand.base, *(operand.more if isinstance(operand, Address) else ())]
        elif isinstance(operand, Not):
            pending.append(operand.operand)
        elif isinstance(operand, Vector):
            pending += operand.items
        elif isinstance(operand, Pair):
            pending += [operand.first, operand.second]
    return found
