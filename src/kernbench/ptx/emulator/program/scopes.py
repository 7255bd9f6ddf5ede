"""Scopes: the register, variable or label that a name means inside nested braces."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from kernbench.ptx.emulator.lanes.slots import SlotTable
from kernbench.ptx.emulator.program.locations import Locations, Origin
from kernbench.ptx.text.checkpoints import PtxCheckpoint, checkpoint_of
from kernbench.ptx.text.errors import PtxError
from kernbench.ptx.text.module import (
    Block,
    Function,
    Instruction,
    Integer,
    Label,
    Loc,
    Module,
    Registers,
    Statement,
    Variable,
)
from kernbench.ptx.text.types import TYPES

_COMPONENTS = ("x", "y", "z", "w")
_COLOURS = {"r": "x", "g": "y", "b": "z", "a": "w"}


@dataclass(frozen=True, slots=True)
class Register:
    """A register of a function: its number there, its type, and its row in the register file.

    A 128-bit register has two rows, the low half first.
    """

    number: int
    name: str
    type: str
    bank: str
    row: int

    @property
    def rows(self) -> int:
        """The number of rows it has."""
        return 2 if TYPES[self.type].bits == 128 else 1


@dataclass(eq=False)
class Scope:
    """The names declared in one pair of braces; other names are looked up in the parent."""

    parent: "Scope | None"
    table: SlotTable
    numbers: Iterator[int]
    ranges: dict[str, tuple[int, str]] = field(default_factory=dict)
    registers: dict[str, Register] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    labels: dict[str, int] = field(default_factory=dict)
    tables: dict[str, Label] = field(default_factory=dict)

    def inner(self) -> "Scope":
        """A nested scope."""
        return Scope(self, self.table, self.numbers)

    def declare(self, registers: Registers) -> None:
        """Enter a `.reg` line."""
        for name, size in registers.names:
            if size:
                self.ranges[name] = (size, registers.type)
            elif registers.vector > 1:
                for component in _COMPONENTS[: registers.vector]:
                    self._new(f"{name}.{component}", registers.type)
            else:
                self._new(name, registers.type)

    def _new(self, name: str, type_name: str) -> Register:
        kind = TYPES[type_name]
        register = Register(next(self.numbers), name, type_name, kind.storage, 0)
        row = self.table.new_row(kind.storage, register.rows)
        register = replace(register, row=row)
        self.registers[name] = register
        return register

    def register(self, name: str) -> Register | None:
        """The register of this name, or None."""
        scope: Scope | None = self
        while scope is not None:
            found = scope.registers.get(name) or scope._from_range(name)
            if found is not None:
                return found
            if name in scope.variables:
                return None
            scope = scope.parent
        base, _, component = name.rpartition(".")
        return self.register(f"{base}.{_COLOURS[component]}") if component in _COLOURS else None

    def _from_range(self, name: str) -> Register | None:
        """A register of a range such as `%r<8>`, made on first use."""
        cut = len(name)
        while cut > 1 and name[cut - 1].isdecimal():
            cut -= 1
            size, type_name = self.ranges.get(name[:cut], (0, ""))
            digits = name[cut:]
            if size and int(digits) < size and digits == str(int(digits)):
                return self._new(name, type_name)
        return None

    def variable(self, name: str) -> "tuple[Variable, Scope] | None":
        """The variable of this name declared in the function, and its scope; or None."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.variables:
                return scope.variables[name], scope
            scope = scope.parent
        return None

    def label(self, name: str) -> int | None:
        """The line after a label, or None."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.labels:
                return scope.labels[name]
            scope = scope.parent
        return None

    def target_table(self, name: str) -> Label | None:
        """A `.branchtargets`, `.calltargets` or `.callprototype` line."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.tables:
                return scope.tables[name]
            scope = scope.parent
        return None


@dataclass(frozen=True, slots=True, eq=False)
class Line:
    """One instruction, the scope its names belong to, and the source line it was compiled from.

    A requested checkpoint is an instruction without effect.
    """

    instruction: Instruction
    scope: Scope
    loc: Origin | None
    checkpoint: PtxCheckpoint | None = None


def flatten(function: Function, table: SlotTable, module: Module, named: bool = False) -> tuple[list[Line], Scope]:
    """The instructions of a function in order, with its checkpoints if `named`, and its outermost scope."""
    assert function.body is not None
    outer = Scope(None, table, count())
    for formal in (*function.params, *function.returns):
        _declare_variable(formal, outer)
    lines: list[Line] = []
    _walk(function.body, outer, lines, None, Locations(module), named)
    return lines, outer


def _declare_variable(variable: Variable, scope: Scope) -> None:
    if variable.space == "reg":
        scope.declare(Registers(variable.type, ((variable.name, 0),)))
    else:
        scope.variables[variable.name] = variable


def _walk(
    block: Block, scope: Scope, lines: list[Line], loc: Origin | None, locations: Locations, named: bool
) -> Origin | None:
    pending = _statements(block, scope)
    for statement in pending:
        if isinstance(statement, Instruction):
            lines.append(Line(statement, scope, loc))
        elif isinstance(statement, Block):
            loc = _walk(statement, scope.inner(), lines, loc, locations, named)
        elif isinstance(statement, Loc):
            loc = locations.after(loc, statement)
        elif isinstance(statement, Label):
            if statement.directive:
                scope.tables[statement.name] = statement
            else:
                scope.labels[statement.name] = len(lines)
        elif named and (point := checkpoint_of(statement)) is not None:
            lines.append(Line(_empty(statement), scope, loc, point))
    return loc


def _empty(statement: Statement) -> Instruction:
    """An instruction without effect that stands for a statement."""
    return Instruction("pmevent", (), (Integer(0, "0"),), None, getattr(statement, "line", 0))


def _statements(block: Block, scope: Scope) -> list[Statement]:
    """The block's statements, after entering its declarations."""
    for statement in block.statements:
        if isinstance(statement, Registers):
            scope.declare(statement)
        elif isinstance(statement, Variable):
            if statement.name in scope.variables:
                raise PtxError(f"'{statement.name}' is declared twice in one block", statement.line)
            _declare_variable(statement, scope)
    return list(block.statements)
