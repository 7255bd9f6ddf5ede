"""Validates a module against the ISA table: instructions, operands, names, versions and calls."""

from collections.abc import Callable, Iterator
from weakref import WeakValueDictionary

from kernbench.ptx.isa.forms.form import EITHER, OperandRule, Resolved
from kernbench.ptx.isa.parts import is_part, split_part
from kernbench.ptx.isa.resolve import TEXTURES, resolve
from kernbench.ptx.isa.since import has_target, since, targets
from kernbench.ptx.isa.special import SpecialRegister, special_register
from kernbench.ptx.isa.values import values_of
from kernbench.ptx.text.errors import PtxError
from kernbench.ptx.text.module import (
    Address,
    Block,
    Float,
    Function,
    Group,
    Instruction,
    Integer,
    Label,
    Module,
    Name,
    Not,
    Offset,
    Operand,
    Pair,
    Registers,
    Statement,
    Variable,
    Vector,
)
from kernbench.ptx.text.printer import instruction_text, operand_text
from kernbench.ptx.text.types import TYPES
from kernbench.ptx.validation.addresses import number_problem, register_problem, variable_problem
from kernbench.ptx.validation.agreement import literal_agrees, registers_agree
from kernbench.ptx.validation.directives import function_problems, head_problems, name_problems
from kernbench.ptx.validation.scopes import Register, Scope, block_scope, function_scope, module_scope
from kernbench.ptx.validation.variables import (
    block_variable_problems,
    module_variable_problems,
    register_problems,
    shared_problems,
)

# valid modules by id; modules are immutable, and a device receives what a builder has already validated
_VALID: WeakValueDictionary[int, Module] = WeakValueDictionary()


def validate(module: Module) -> None:
    """Raise the first problem of a module as a `PtxError`, with its line, column and text."""
    if _VALID.get(id(module)) is module:
        return
    for problem in problems(module):
        raise problem
    _VALID[id(module)] = module


def problems(module: Module) -> Iterator[PtxError]:
    """All problems of a module, in textual order."""
    yield from head_problems(module)
    yield from name_problems(module)
    yield from module_variable_problems(module)
    top = module_scope(module)
    for item in module.items:
        if isinstance(item, Function):
            yield from function_problems(module, item)
            if item.body is not None:
                yield from _Checker(module, item).block(item.body, function_scope(item, top))
            if item.kind == "entry":
                yield from shared_problems(module, item)


class _Checker:
    """Checks the body of one function."""

    def __init__(self, module: Module, function: Function):
        self.module = module
        self.function = function

    def block(self, block: Block, parent: Scope) -> Iterator[PtxError]:
        scope, twice = block_scope(block, parent)
        for name, statement in twice:
            yield self._at(statement, f"{name!r} is declared twice in this block")
        for statement in block.statements:
            if isinstance(statement, Block):
                yield from self.block(statement, scope)
            elif isinstance(statement, Instruction):
                try:
                    self._instruction(statement, scope)
                except PtxError as problem:
                    yield self._with_line(problem)
            elif isinstance(statement, Label) and statement.directive == "branchtargets":
                yield from self._targets(statement, scope)
            elif isinstance(statement, Variable):
                yield from block_variable_problems(self.module, statement)
            elif isinstance(statement, Registers):
                yield from register_problems(self.module, statement)

    def _at(self, statement: Statement, message: str) -> PtxError:
        line = getattr(statement, "line", 0)
        return PtxError(message, line, 0, self.module.line_text(line))

    def _with_line(self, problem: PtxError) -> PtxError:
        """The problem with the source line from the module's text, if there is one."""
        text = self.module.line_text(problem.line)
        return PtxError(problem.message, problem.line, problem.column, text) if text else problem

    def _targets(self, label: Label, scope: Scope) -> Iterator[PtxError]:
        for name in label.targets:
            if not isinstance(scope.find(name), Label):
                yield self._at(label, f"{name!r} is not a label of this function")

    def _instruction(self, instruction: Instruction, scope: Scope) -> None:
        if instruction.opcode in TEXTURES:
            return
        resolved = resolve(instruction)
        check = _OperandChecker(instruction, resolved, scope, self.module)
        check.availability()
        if instruction.guard is not None:
            check.register(instruction.guard.register, "pred", False)
        for operand, rule in zip(instruction.operands, resolved.rules, strict=True):
            check.operand(operand, rule)
        if resolved.effects.flow == "call":
            check.call()


class _OperandChecker:
    """Checks the operands of one instruction."""

    def __init__(self, instruction: Instruction, resolved: Resolved, scope: Scope, module: Module):
        self.instruction = instruction
        self.resolved = resolved
        self.scope = scope
        self.module = module

    def _problem(self, message: str) -> PtxError:
        at = self.instruction
        return PtxError(message, at.line, at.column, instruction_text(at))

    def availability(self) -> None:
        """Check that the module's version and target have the instruction."""
        form, name = self.resolved.form, self.instruction.name
        operands = zip(self.resolved.rules, self.instruction.operands, strict=True)
        first = since(self.resolved, (rule.name for rule, one in operands if self._is_either(rule, one)))
        if self.module.version < first.version:
            has = ".".join(map(str, self.module.version))
            needs = ".".join(map(str, first.version))
            raise self._problem(f"{name} needs .version {needs}, and the module says {has}")
        if not has_target(form, first.sm, self.module.arch):
            wanted = targets(form) if form.family not in ("", "a") else f"sm_{first.sm}{form.family} or later"
            raise self._problem(f"{name} needs {wanted}, and the module's target is {self.module.arch}")

    def operand(self, operand: Operand, rule: OperandRule) -> None:
        """Check one operand against its rule."""
        _BY_KIND[type(operand)](self, operand, rule)

    def _name(self, operand: Name, rule: OperandRule) -> None:
        name, found = operand.text, self.scope.find(operand.text)
        if rule.shape in ("label", "callee"):
            self._target(name, rule)
        elif name == "_":
            self._discard(rule)
        elif found is None and (special := special_register(name)) is not None:
            self._special(name, special, rule)
        elif rule.shape == "sym" and isinstance(found, (Variable, Function)):
            self._symbol(found, rule)
        elif found is None and rule.parts and "." in name:
            self._part(name, rule)
        else:
            self._register_or_vector(name, rule)

    def _discard(self, rule: OperandRule) -> None:
        if rule.role != "d" or not self.resolved.effects.discardable:
            raise self._problem(f"{self.instruction.opcode} cannot throw a value away with '_'")

    def _symbol(self, found: Variable | Function, rule: OperandRule) -> None:
        if isinstance(found, Variable) and self.resolved.effects.law == "address":
            self._refuse(variable_problem(self.resolved, rule, found, self.instruction.name))

    def _is_either(self, rule: OperandRule, operand: Operand) -> bool:
        """Whether a predicate is given where a value is also possible."""
        if rule.shape != EITHER or not isinstance(operand, (Name, Not)):
            return False
        found = self.scope.find(operand.text) if isinstance(operand, Name) else None
        return isinstance(operand, Not) or (isinstance(found, Register) and found.type == "pred")

    def _register_or_vector(self, name: str, rule: OperandRule) -> None:
        if self._is_either(rule, Name(name)):
            self.register(name, "pred", False)
        elif rule.shape.startswith("vec"):
            self._vector_register(name, rule)
        else:
            self.register(name, rule.type, rule.wider)

    def _part(self, name: str, rule: OperandRule) -> None:
        base, part = split_part(name)
        if not is_part(self.instruction.opcode, rule.role == "d", part):
            raise self._problem(f".{part} is no part of {base!r} that {self.instruction.opcode} can name there")
        if rule.role == "d" and not self.instruction.opcode[-1].isdigit() and len(self.instruction.operands) < 4:
            raise self._problem(f"{name} leaves the rest of {base!r} open: give a fourth operand that holds it")
        self.register(base, rule.type, rule.wider)

    def _special(self, name: str, register: SpecialRegister, rule: OperandRule) -> None:
        kind = register.type
        if rule.shape not in ("sym", "pred") or self.resolved.effects.of_variables:
            raise self._problem(f"{name} is a special register, which only mov can read; move it to a register first")
        if register.components and not rule.shape.startswith("vec") and "vec" not in self.resolved.mods:
            raise self._problem(f"{name} has components; name one, as in {name}.x")
        wide = rule.type in TYPES and TYPES[kind].bits > TYPES[rule.type].bits
        narrow = wide and self.resolved.effects.law == "copy"
        if not (narrow or registers_agree(rule.type, kind, False)):
            raise self._problem(f"{name} is .{kind}, and {self.instruction.name} wants .{rule.type}")

    def _target(self, name: str, rule: OperandRule) -> None:
        found = self.scope.find(name)
        if rule.shape == "callee":
            if not isinstance(found, (Function, Register)):
                raise self._problem(f"{name!r} is neither a function of this module nor a register; declare it")
        elif not isinstance(found, Label):
            raise self._problem(f"{name!r} is not a label that can be reached from here")

    def _vector_register(self, name: str, rule: OperandRule) -> None:
        found = self.scope.find(name)
        length = 0 if rule.shape == "vec{any}" else int(rule.shape[3:])
        if not isinstance(found, Register):
            raise self._problem(f"{name!r} is not declared")
        if length and (found.vector != length or length == 1):
            raise self._problem(f"{self.instruction.name} wants a vector of {length} in braces, not {name!r}")

    def register(self, name: str, wanted: str, wider: bool) -> None:
        """Check that a register is declared with a compatible type."""
        found = self.scope.find(name)
        if found is None:
            raise self._problem(f"{name!r} is not declared in this block or around it")
        if isinstance(found, Variable) and found.space == "param":
            raise self._problem(f"{name!r} is a parameter, not a register; load it with ld.param")
        if not isinstance(found, Register):
            raise self._problem(f"{name!r} is a {type(found).__name__.lower()}, not a register")
        if found.vector > 1:
            raise self._problem(f"{name!r} is a vector register; name one component, as in {name}.x")
        if not registers_agree(wanted, found.type, wider):
            raise self._problem(f"{name!r} is .{found.type}, and {self.instruction.name} wants .{wanted} there")

    def _literal(self, operand: Integer | Float, rule: OperandRule) -> None:
        if not literal_agrees(rule.type, operand):
            kind = "an integer" if isinstance(operand, Integer) else "a float"
            raise self._problem(f"{operand.spelling} is {kind}, and {self.instruction.name} wants .{rule.type} there")
        taken = values_of(self.resolved, rule.name) if isinstance(operand, Integer) else None
        if taken is not None and isinstance(operand, Integer) and not taken.holds(operand.value):
            raise self._problem(f"{self.instruction.name} takes {taken.words} as {rule.name}, not {operand.spelling}")

    def _offset(self, operand: Offset, rule: OperandRule) -> None:
        if not isinstance(self.scope.find(operand.base.text), (Variable, Function)):
            raise self._problem(
                f"{operand.base.text!r} is not a variable, and only a variable's address takes an offset"
            )

    def _not(self, operand: Not, rule: OperandRule) -> None:
        self.register(operand.operand.text, "pred", False)

    def _vector(self, operand: Vector, rule: OperandRule) -> None:
        for item in operand.items:
            if isinstance(item, Name) and item.text != "_":
                self.register(item.text, rule.type, rule.wider)
            elif isinstance(item, (Integer, Float)):
                if rule.role != "a":
                    raise self._problem(f"{item.spelling} cannot be written to; put a register or '_' there")
                self._literal(item, rule)
            elif not isinstance(item, Name):
                raise self._problem(f"{operand_text(item)} cannot stand in a vector")

    def _pair(self, operand: Pair, rule: OperandRule) -> None:
        second = rule.second
        for half, wanted in ((operand.first, rule.type), (operand.second, second.type if second else "")):
            if not isinstance(half, Name):
                raise self._problem(f"{operand_text(half)} cannot stand in a pair")
            if half.text != "_":
                self.register(half.text, wanted, False)

    def _address(self, operand: Address, rule: OperandRule) -> None:
        base = operand.base
        accessed = self.resolved.effects.access in ("load", "atomic")
        if operand.unified and not (accessed and self.resolved.mods.get("space", "global") == "global"):
            raise self._problem(f"{self.instruction.name} takes no .unified: loads and atomics of global memory do")
        if isinstance(base, Name):
            self._refuse(self._address_base(base.text, rule))
        elif isinstance(base, Integer):
            self._refuse(number_problem(self.resolved, rule, base.spelling))
        else:
            raise self._problem(f"{operand_text(base)} cannot be an address")
        for item in operand.more:
            if isinstance(item, Vector):
                self._vector(item, OperandRule("coordinates", "a", "u32", "vec{any}"))

    def _refuse(self, message: str | None) -> None:
        if message is not None:
            raise self._problem(message)

    def _address_base(self, name: str, rule: OperandRule) -> str | None:
        found = self.scope.find(name)
        if found is None:
            return f"{name!r} is not declared in this block or around it"
        if isinstance(found, Register):
            return register_problem(self.resolved, rule, name, found, self.module.address_size)
        if isinstance(found, Variable):
            return variable_problem(self.resolved, rule, found, self.instruction.name)
        return f"{name!r} is a {type(found).__name__.lower()}, not an address"

    def _group(self, operand: Group, rule: OperandRule) -> None:
        for item in operand.items:
            if isinstance(item, Name) and item.text != "_" and self.scope.find(item.text) is None:
                raise self._problem(f"{item.text!r} is not declared in this block or around it")

    def call(self) -> None:
        """Check arguments and results against the function's signature, or the prototype of an indirect call."""
        parts = dict(zip((rule.name for rule in self.resolved.rules), self.instruction.operands, strict=True))
        signature = self._signature(parts)
        if signature is None:
            return
        for what, variables in (("results", signature.returns), ("args", signature.params)):
            group = parts.get(what)
            items = group.items if isinstance(group, Group) else ()
            unsized = any(None in variable.dims for variable in variables)
            if len(items) != len(variables) and not unsized:
                word = "results" if what == "results" else "arguments"
                raise self._problem(f"{signature.name!r} has {len(variables)} {word}, and this call gives {len(items)}")
            for item, variable in zip(items, variables, strict=False):
                if what == "results" and not isinstance(item, Name):
                    raise self._problem(f"{operand_text(item)} cannot take a result: a register or a parameter can")
                self._argument(item, variable)

    def _signature(self, parts: dict[str, Operand]) -> Function | None:
        callee, prototype = parts["callee"], parts.get("prototype")
        found = self.scope.find(callee.text) if isinstance(callee, Name) else None
        if isinstance(found, Function):
            return found
        label = self.scope.find(prototype.text) if isinstance(prototype, Name) else None
        return label.prototype if isinstance(label, Label) else None

    def _argument(self, item: Operand, variable: Variable) -> None:
        found = self.scope.find(item.text) if isinstance(item, Name) else None
        if isinstance(found, Variable) and variable.size is not None and found.size != variable.size:
            raise self._problem(
                f"{found.name!r} has {found.size} bytes, and {variable.name!r} of the callee {variable.size}"
            )


_BY_KIND: dict[type, Callable[..., None]] = {
    Name: _OperandChecker._name,
    Integer: _OperandChecker._literal,
    Float: _OperandChecker._literal,
    Offset: _OperandChecker._offset,
    Not: _OperandChecker._not,
    Vector: _OperandChecker._vector,
    Pair: _OperandChecker._pair,
    Address: _OperandChecker._address,
    Group: _OperandChecker._group,
}
