"""Decoding one instruction: operands become slots, with conversion steps where a register's width does not fit."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.slots import ConstantSlot, RegisterSlot, SlotTable, SpecialSlot, SymbolSlot
from kernbench.ptx.emulator.program.access_order import WEAK, Order
from kernbench.ptx.emulator.program.closing import Closing
from kernbench.ptx.emulator.program.facts import FromFacts
from kernbench.ptx.emulator.program.program import Code, Site
from kernbench.ptx.emulator.program.reports import Report
from kernbench.ptx.emulator.program.scopes import Line, Register
from kernbench.ptx.emulator.program.steps import (
    AnyWindow,
    Compute,
    ControlStep,
    Step,
    compute,
    copy,
    cut,
    in_shared_memory,
    sign_extend,
)
from kernbench.ptx.isa import Resolved, special_register
from kernbench.ptx.text.errors import PtxError
from kernbench.ptx.text.module import (
    Address,
    Float,
    Function,
    Integer,
    Name,
    Not,
    Offset,
    Operand,
    Pair,
    Variable,
    Vector,
)
from kernbench.ptx.text.types import TYPES

FUNCTION_BASE = 0x10
# index of the accumulator operand of a warp's matrix product: D, A, B, C
ADDED = 3


@dataclass(frozen=True, slots=True)
class AddressSlot:
    """`[slot + offset]`; `space` is that of the variable it names, "" for a register."""

    slot: int
    offset: int
    space: str
    name: str = ""


@dataclass(frozen=True, slots=True)
class Row:
    """An instruction as the executor runs it: an operation, the slots of its operands, constants, and an immediate."""

    operation: str
    slots: tuple[int, ...] = ()
    constants: tuple[int, ...] = ()
    immediate: int = 0


class StoredPart(NamedTuple):
    """Bytes that lanes of a warp store: of which register of the instruction, the first, how many, and to where."""

    register: int
    first: int
    nbytes: int
    addresses: Array


@dataclass(eq=False)
class Linker:
    """Resolves names outside a function: shared and module variables, functions."""

    table: SlotTable
    variables: Mapping[str, Variable]
    functions: Mapping[str, Function]
    # kernels of the module, whose addresses can be passed to device-side launches
    kernels: Collection[str] = ()
    codes: dict[str, Code] = field(default_factory=dict)
    shared: dict[tuple[int, str], int] = field(default_factory=dict)
    used: dict[str, Variable] = field(default_factory=dict)
    # whether shared addresses differ between the CTAs of a cluster
    clustered: bool = False
    # whether threads allocate from their stack
    takes_stack: bool = False
    # the target that the module was compiled for
    target: str = ""

    def function_address(self, name: str) -> int:
        """The address of a function or kernel, a made-up number."""
        return function_address(self.functions, self.kernels, name)


def function_address(functions: Collection[str], kernels: Collection[str], name: str) -> int:
    """The address of a function or kernel, made up from its index in the module."""
    return FUNCTION_BASE * (1 + [*functions, *kernels].index(name))


@dataclass(eq=False)
class Decoding(Closing):
    """One instruction being decoded to a step or a control; closed when everything in its text is known."""

    line: Line
    resolved: Resolved
    site: Site
    code: Code
    linker: Linker
    entry: bool
    # the block after this instruction's, and a function from a line to the block that begins there
    following: int
    block_at: Callable[[int], int]
    before: list[Step] = field(default_factory=list)
    after: list[Step] = field(default_factory=list)
    reads: list[Register] = field(default_factory=list)
    writes: list[Register] = field(default_factory=list)
    # the address of an access: registers, the parameter or variable it names, its slot and offset
    address_reads: list[Register] = field(default_factory=list)
    # registers that decide how many bytes are copied, or whether any are
    amount_reads: list[Register] = field(default_factory=list)
    address_symbol: str = ""
    names_variable: bool = False
    # offsets of the shared variables it names
    shared_variables: list[int] = field(default_factory=list)
    address_slot: int | None = None
    address_offset: int = 0
    address_space: str = ""
    # the state space a store writes, and the kernel parameter a load reads
    store_space: str = ""
    parameter: str = ""
    # where a warp's store of matrices puts each part of its registers
    stored_parts: "Callable[[AnyWindow], Iterable[StoredPart]] | None" = None
    # a store through a tensor map, which is at the address
    by_map: bool = False
    # the memory order of an access
    order: Order = WEAK
    # the step or control, and steps of probes before it
    made: "Step | ControlStep | FromFacts | None" = None
    looking: tuple[Step, ...] = ()
    # what the executor runs, if that is not what the step computes
    row: Row | None = None
    # what a recorder gets, beside the instruction
    report: Report | None = None
    # bytes moved by each lane, and floating-point operations, for the metrics
    traffic: tuple[str, str, int] | None = None
    flops: int = 0

    def __post_init__(self) -> None:
        self.table = self.linker.table
        self.instruction = self.line.instruction
        self.operands = self.instruction.operands
        self.mods = self.resolved.mods
        self.types = self.resolved.types
        self.effects = self.resolved.form.effects
        self.scope = self.line.scope

    def has(self, name: str) -> bool:
        """Whether the instruction has a modifier in slot `name`."""
        return name in self.mods

    def mod(self, name: str, default: str = "") -> str:
        """The modifier in slot `name`."""
        return self.mods.get(name, default)

    def error(self, message: str) -> PtxError:
        """An error at this instruction."""
        return PtxError(message, self.instruction.line, self.instruction.column, self.site.text)

    def label(self, name: str) -> int:
        """The block of a label."""
        line = self.scope.label(name)
        if line is None:
            raise self.error(f"there is no label '{name}' here")
        return self.block_at(line)

    def guard(self) -> tuple[int, bool] | None:
        """The slot of the guard's predicate and whether it is negated; None without a guard."""
        guard = self.instruction.guard
        if guard is None:
            return None
        register = self.scope.register(guard.register)
        if register is None:
            raise self.error(f"the guard '{guard.register}' is not declared")
        if register not in self.reads:
            self.reads.append(register)
        return self.table.number(RegisterSlot(register.bank, register.row)), guard.negated

    def writes_guard(self) -> bool:
        """Whether the instruction writes its own guard."""
        guard = self.instruction.guard
        return guard is not None and any(register.name == guard.register for register in self.writes)

    def position(self, name: str) -> int | None:
        """The index of the operand of this name, None if absent."""
        return self.resolved.operand(name)

    def source(self, index: int, type_name: str = "") -> int:
        """The slot of an operand that is read."""
        return self.value(self.operands[index], type_name or self.types[index])

    def target(self, index: int, type_name: str = "") -> int:
        """The slot of an operand that is written."""
        operand = self.operands[index]
        first = operand.first if isinstance(operand, Pair) else operand
        return self.destination(first, type_name or self.types[index])

    def second(self, index: int) -> int | None:
        """The slot of the second result of a pair, None if there is none."""
        operand = self.operands[index]
        if not isinstance(operand, Pair) or operand.second == Name("_"):
            return None
        rule = self.resolved.rules[index].second
        return self.destination(operand.second, rule.type if rule is not None else "pred")

    def sources(self, index: int, type_name: str = "") -> list[int]:
        """The slots of a vector that is read; a scalar is a vector of one."""
        return [self.value(item, type_name or self.types[index]) for item in self.items(index)]

    def targets(self, index: int, type_name: str = "") -> list[int]:
        """The slots of a vector that is written."""
        return [self.destination(item, type_name or self.types[index]) for item in self.items(index)]

    def items(self, index: int) -> tuple[Operand, ...]:
        """The parts of a vector operand; a scalar is a vector of one."""
        operand = self.operands[index]
        if isinstance(operand, Vector):
            return operand.items
        if isinstance(operand, Name) and self.resolved.rules[index].shape.startswith("vec"):
            names = [f"{operand.text}.{c}" for c in "xyzw"]
            found = tuple(Name(name) for name in names if self.known(name))
            if found:
                return found
        return (operand,)

    def registers_of(self, index: int) -> list[Register | None]:
        """The registers of a vector or scalar operand, None for other items."""
        items = self.items(index)
        return [self.scope.register(item.text) if isinstance(item, Name) else None for item in items]

    def first_result(self) -> Register | None:
        """The register of an instruction's (first) result; None if there is none."""
        operand = self.operands[0]
        first = operand.first if isinstance(operand, Pair) else operand
        return self.scope.register(first.text) if isinstance(first, Name) else None

    def known(self, name: str) -> bool:
        """Whether `name` is a register, special or not."""
        return self.scope.register(name) is not None or special_register(name) is not None

    def value(self, operand: Operand, type_name: str) -> int:
        """The slot an operand is read from."""
        if isinstance(operand, Integer):
            return self.table.constant(operand.value, TYPES[type_name].storage)
        if isinstance(operand, Float):
            return self.table.constant(float_bits(operand, type_name), TYPES[type_name].storage)
        if isinstance(operand, Not):
            return self._inverted(operand.operand)
        if isinstance(operand, Offset):
            return self._symbol(operand.base.text, operand.offset, type_name)
        if isinstance(operand, Name):
            return self._named(operand.text, type_name)
        raise self.error(f"{operand} cannot be read here")

    def _named(self, name: str, type_name: str) -> int:
        register = self.scope.register(name)
        if register is not None:
            self.reads.append(register)
            return self._read(register, type_name)
        special = special_register(name)
        if special is not None:
            slot = self.table.number(SpecialSlot(name, TYPES[special.type].storage))
            return self._fitted(slot, TYPES[special.type].storage, TYPES[type_name].storage)
        if name == "WARP_SZ":
            return self.table.constant(32, TYPES[type_name].storage)
        return self._symbol(name, 0, type_name)

    def _read(self, register: Register, type_name: str) -> int:
        slot = self.table.number(RegisterSlot(register.bank, register.row))
        return self._fitted(slot, register.bank, TYPES[type_name].storage) if type_name in TYPES else slot

    def _fitted(self, slot: int, held: str, wanted: str) -> int:
        """A slot as another type: truncated or zero-extended by a step before."""
        if held == wanted:
            return slot
        narrow = self.temporary(wanted)
        self.before.append(compute(cut, (slot,), (narrow,)))
        return narrow

    def _inverted(self, name: Name) -> int:
        inverse = self.temporary("bool")
        self.before.append(compute(np.logical_not, (self._named(name.text, "pred"),), (inverse,)))
        return inverse

    def _symbol(self, name: str, offset: int, type_name: str) -> int:
        slot = self.symbol(name, offset).slot
        dtype = self.table.slots[slot].dtype
        return self._fitted(slot, dtype, TYPES[type_name].storage)

    def symbol(self, name: str, offset: int = 0) -> AddressSlot:
        """The address of a variable, function or kernel in its own space."""
        found = self.scope.variable(name)
        if found is not None:
            variable, scope = found
            return self._variable(variable, offset, id(scope))
        if name in self.linker.variables:
            return self._variable(self.linker.variables[name], offset, 0)
        if name in self.linker.functions or name in self.linker.kernels:
            slot = self.table.constant(self.linker.function_address(name), "uint64")
            return AddressSlot(slot, 0, "function", name)
        raise self.error(f"'{name}' is not declared")

    def _variable(self, variable: Variable, offset: int, scope: int) -> AddressSlot:
        name = variable.name
        self.names_variable = variable.space != "param"
        if variable.space == "shared":
            start = self.linker.shared[scope, name] + offset
            self.shared_variables.append(start - offset)
            if self.linker.clustered:
                return AddressSlot(self.table.number(SymbolSlot("shared", name, start)), 0, "shared", name)
            return AddressSlot(self.table.constant(start, "uint64"), 0, "shared", name)
        if (scope, name) in self.code.frame:
            start = self.code.frame[scope, name] + offset
            slot = self.table.number(SymbolSlot("frame", self.code.name, start))
            return AddressSlot(slot, 0, "local", name)
        if variable.space == "param":
            self.parameter = name
            return AddressSlot(self.table.number(SymbolSlot("param", name, offset)), 0, "param", name)
        if scope:
            raise self.error(f"'{name}' is a .{variable.space} variable inside a function: declare it outside")
        self.linker.used[name] = variable
        return AddressSlot(self.table.number(SymbolSlot("global", name, offset)), 0, variable.space, name)

    def address(self, index: int) -> AddressSlot:
        """The slot, offset and space of `[...]`."""
        operand = self.operands[index]
        assert isinstance(operand, Address)
        base = operand.base
        if isinstance(base, Integer):
            return AddressSlot(self.table.constant(base.value + operand.offset, "uint64"), 0, "")
        if isinstance(base, Offset):
            return self.symbol(base.base.text, base.offset + operand.offset)
        assert isinstance(base, Name)
        register = self.scope.register(base.text)
        if register is None:
            self.address_symbol = base.text
            found = self.symbol(base.text, operand.offset)
            self.address_slot, self.address_space = found.slot, found.space
            return found
        self.reads.append(register)
        self.address_reads.append(register)
        slot = self.table.number(RegisterSlot(register.bank, register.row))
        self.address_slot, self.address_offset = slot, operand.offset
        space = self.mod("space") or (self.mod("dst") if index == 0 else "")
        if register.bank == "uint64" and space.startswith("shared"):
            held = self.temporary("uint64")
            self.before.append(compute(in_shared_memory, (slot,), (held,)))
            slot = held
        return AddressSlot(slot, operand.offset & ((1 << 64) - 1), "")

    def destination(self, operand: Operand, type_name: str) -> int:
        """The slot an operand is written to."""
        assert isinstance(operand, Name), operand
        dtype = TYPES[type_name].storage
        if operand.text == "_":
            return self.temporary(dtype)
        register = self.scope.register(operand.text)
        if register is None:
            raise self.error(f"'{operand.text}' is no register that can be written")
        self.writes.append(register)
        slot = self.table.number(RegisterSlot(register.bank, register.row))
        if register.bank == dtype:
            return slot
        narrow = self.temporary(dtype)
        extend = sign_extend if TYPES[type_name].kind == "s" else cut
        self.after.append(compute(extend, (narrow,), (slot,)))
        return narrow

    def halves(self, slot: int) -> list[int]:
        """The slots of both halves of a 128-bit register, the low one first."""
        found = self.table.slots[slot]
        assert isinstance(found, RegisterSlot)
        return [slot, self.table.number(RegisterSlot(found.bank, found.row + 1))]

    def temporary(self, dtype: str) -> int:
        """The slot of a new register."""
        return self.table.number(RegisterSlot(dtype, self.table.new_row(dtype)))

    def carry_flag(self) -> int:
        """The slot of the carry flag, one for each function."""
        if self.code.carry_row < 0:
            self.code.carry_row = self.table.new_row("bool")
        return self.table.number(RegisterSlot("bool", self.code.carry_row))

    def register_slot(self, slot: int) -> int:
        """A slot that is a register: a constant or address is first copied to one."""
        if isinstance(self.table.slots[slot], RegisterSlot):
            return slot
        held = self.temporary(self.table.slots[slot].dtype)
        self.before.append(compute(copy, (slot,), (held,)))
        return held

    def bank_rows(self, slots: Sequence[int]) -> tuple[str, list[int]]:
        """The bank and rows of register slots that share a bank."""
        found = [self.table.slots[slot] for slot in slots]
        assert all(isinstance(slot, RegisterSlot) for slot in found)
        return found[0].dtype, [slot.row for slot in found if isinstance(slot, RegisterSlot)]

    def register_at(self, index: int) -> Register | None:
        """The register at an operand, None for anything else."""
        operand = self.operands[index]
        return self.scope.register(operand.text) if isinstance(operand, Name) else None

    def passing(self) -> list[Register]:
        """Registers whose undefined values make results undefined; for a matrix product its accumulators."""
        if self.effects.law == "accumulate":
            added = self.registers_of(ADDED)
            return [r for r in added if r is not None] if len(added) == len(self.registers_of(0)) else []
        return self.reads if self.effects.forwards else []

    def factors(self) -> list[Register]:
        """Registers of A and B of a matrix product whose rows and columns are tracked."""
        if self.effects.in_flight == "multiply" and self.resolved.rules[1].name == "a":
            return [r for r in self.registers_of(1) if r is not None]
        if self.effects.law != "accumulate" or (self.mod("shape"), self.mod("atype")) == ("m8n8k4", "f16"):
            return []
        return [r for index in (1, 2) for r in self.registers_of(index) if r is not None]

    def handed(self) -> list[Register]:
        """Registers whose values go to other lanes, or into a product; what a matrix product adds stays in its lane."""
        if self.effects.law != "accumulate":
            added = self.added()
            return [register for register in self.reads if register not in added]
        own = self.passing()
        others = [r for index in range(1, len(self.operands)) if index != ADDED for r in self.registers_of(index)]
        return [register for register in self.reads if register in others or register not in own]

    def deciding(self) -> list[Register]:
        """Registers whose value has an effect outside the thread: addresses, stored values, branches.

        A guard has one unless it decides about registers that are computed, or about time alone.
        """
        effects = self.effects
        found = [*self.address_reads, *(r for r in self.amount_reads if r not in self.address_reads)]
        if effects.publishes or effects.flow == "indexed branch":
            found = list(self.reads)
        if self._stores_for_others or effects.access == "tensor store":
            found += [r for r in self.registers_of(1) if r is not None and r not in found]
        guard = self.instruction.guard
        if guard is not None and not effects.computes and not effects.idle:
            register = self.scope.register(guard.register)
            if register is not None and register not in found:
                found.append(register)
        return found

    def added(self) -> list[Register]:
        """Accumulators of an asynchronous product, which are read only if its `scale_d` says so."""
        if self.effects.in_flight != "multiply":
            return []
        return [r for r in self.registers_of(0) if r is not None and r in self.reads]

    @property
    def stores_registers(self) -> bool:
        """Whether it does nothing with the registers of its value but store them."""
        return self.effects.access == "store" or (self._stores_for_others and not self.effects.reads)

    @property
    def _stores_for_others(self) -> bool:
        """Whether other lanes, or another block, are given what it stores."""
        return self.effects.event in ("matrix store", "remote store")

    @property
    def stored_space(self) -> str:
        """The state space that a store of registers writes."""
        return self.store_space or ("shared" if self._stores_for_others else "")

    def role_of(self, register: Register) -> str:
        """The role of a deciding register: "address", "amount", "guard", "target" or "value"."""
        guard = self.instruction.guard
        if guard is not None and guard.register == register.name:
            return "guard"
        if self.effects.flow == "indexed branch":
            return "target"
        if register in self.address_reads:
            return "address"
        return "amount" if register in self.amount_reads else "value"

    def own_steps(self) -> list[Step]:
        """The steps of an unguarded arithmetic instruction, including conversions."""
        assert isinstance(self.made, Step)
        return [*self.before, self.made, *self.after]

    def constant_of(self, index: int) -> int | None:
        """The value of an immediate operand, None for a register."""
        operand = self.operands[index]
        return operand.value if isinstance(operand, Integer) else None

    def compute(self, function: Compute, sources: Sequence[int], targets: Sequence[int]) -> Step:
        """A step of `function` over rows; only NumPy functions get bare constants."""
        if not isinstance(function, np.ufunc):
            sources = [self.row_slot(source) for source in sources]
        return compute(function, sources, targets)

    def row_slot(self, slot: int) -> int:
        """A slot with one entry for each lane."""
        found = self.table.slots[slot]
        if isinstance(found, ConstantSlot):
            return self.table.spread(slot)
        if isinstance(found, SymbolSlot):
            row = self.temporary(found.dtype)
            self.before.append(compute(copy, (slot,), (row,)))
            return row
        return slot


def float_bits(literal: Float, type_name: str) -> int:
    """The bits of a float literal as `type_name`."""
    bits = TYPES[type_name].bits
    if literal.width == bits or TYPES[type_name].kind not in "fx":
        return literal.bits
    value = np.array(literal.bits, f"uint{literal.width}").view(f"float{literal.width}")
    with np.errstate(all="ignore"):
        return int(value.astype(f"float{bits}").view(f"uint{bits}"))
