"""A PTX module to its canonical text: one statement a line, four spaces a level, literals as they were spelled."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kernbench.ptx.text.module import (
    Address,
    Block,
    Directive,
    Float,
    Function,
    Generic,
    Group,
    Instruction,
    Integer,
    Label,
    Loc,
    Masked,
    Module,
    Name,
    Not,
    Offset,
    Pair,
    Registers,
    Statement,
    Variable,
    Vector,
)


def module_text(module: Module) -> str:
    """The whole module."""
    major, minor = module.version
    lines = [f".version {major}.{minor}", f".target {', '.join(module.target)}", f".address_size {module.address_size}"]
    for item in module.items:
        lines.append("")
        lines.extend(_statement_lines(item, ""))
    return "\n".join(lines) + "\n"


def statements_text(statements: Iterable[Statement]) -> str:
    """Statements of a function's body."""
    return "\n".join(line for statement in statements for line in _statement_lines(statement, ""))


def instruction_text(instruction: Instruction) -> str:
    """One instruction, with its guard and semicolon."""
    guard = f"@{'!' if instruction.guard.negated else ''}{instruction.guard.register} " if instruction.guard else ""
    operands = ", ".join(map(operand_text, instruction.operands))
    return f"{guard}{instruction.name}{' ' if operands else ''}{operands};"


def operand_text(operand: object) -> str:
    """One operand, or one part of an initialiser."""
    return _OPERANDS[type(operand)](operand)


def signature_text(function: Function) -> str:
    """`(returns) name (params)`, as a prototype and a definition have it."""
    returns = f"({', '.join(map(_declaration, function.returns))}) " if function.returns else ""
    params = ", ".join(map(_declaration, function.params))
    return f"{returns}{function.name} ({params})" if params or function.kind != "entry" else f"{returns}{function.name}"


def _items(items: tuple[object, ...]) -> str:
    return ", ".join(map(operand_text, items))


def _shifted(base: str, offset: int) -> str:
    return f"{base}+{offset}" if offset else base


def _address(operand: Address) -> str:
    inside = [_shifted(operand_text(operand.base), operand.offset), *map(operand_text, operand.more)]
    return f"[{', '.join(inside)}]" + (".unified" if operand.unified else "")


_OPERANDS: dict[type, Callable[[Any], str]] = {
    Name: lambda o: o.text,
    Integer: lambda o: o.spelling,
    Float: lambda o: o.spelling,
    Offset: lambda o: f"{o.base.text}+{o.offset}",
    Not: lambda o: f"!{o.operand.text}",
    Vector: lambda o: f"{{{_items(o.items)}}}",
    Pair: lambda o: f"{operand_text(o.first)}|{operand_text(o.second)}",
    Address: _address,
    Group: lambda o: f"({_items(o.items)})",
    Generic: lambda o: _shifted(f"generic({o.base.text})", o.offset),
    Masked: lambda o: f"{o.mask.spelling}({operand_text(o.address)})",
    tuple: lambda o: f"{{{_items(o)}}}",
}


def _declaration(variable: Variable) -> str:
    """A variable without its initialiser and semicolon."""
    words = [f".{variable.linkage}"] if variable.linkage else []
    words.append(f".{variable.space}")
    if variable.attributes:
        words.append(f".attribute({', '.join(variable.attributes)})")
    if variable.alignment is not None:
        words.append(f".align {variable.alignment}")
    if variable.vector > 1:
        words.append(f".v{variable.vector}")
    words.append(f".{variable.type}")
    if variable.pointer:
        words.append(variable.pointer)
    dims = "".join("[]" if size is None else f"[{size}]" for size in variable.dims)
    return " ".join([*words, f"{variable.name}{dims}"])


def _variable(variable: Variable) -> str:
    initial = "" if variable.initial is None else f" = {operand_text(variable.initial)}"
    return f"{_declaration(variable)}{initial};"


def _registers(registers: Registers) -> str:
    names = ", ".join(f"{name}<{count}>" if count else name for name, count in registers.names)
    vector = f".v{registers.vector} " if registers.vector > 1 else ""
    return f".reg {vector}.{registers.type} {names};"


def _label(label: Label) -> str:
    if label.prototype is not None:
        return f"{label.name}: .{label.directive} {signature_text(label.prototype)}{_performance(label.prototype)};"
    if label.directive:
        return f"{label.name}: .{label.directive} {', '.join(label.targets)};"
    return f"{label.name}:"


def _loc(loc: Loc) -> str:
    return f".loc {loc.file} {loc.source_line} {loc.source_column}{loc.more}"


def _directive(directive: Directive) -> str:
    return f".{directive.name} {directive.text}"


def _performance(function: Function) -> str:
    words = [f" .{name} {', '.join(map(str, numbers))}".rstrip() for name, numbers in function.performance]
    return "".join([*words, *(f" .pragma {text};" for text in function.pragmas)])


def _block(block: Block, indent: str) -> Iterator[str]:
    yield f"{indent}{{"
    for statement in block.statements:
        yield from _statement_lines(statement, indent + "    ")
    yield f"{indent}}}"


def _function(function: Function, indent: str) -> Iterator[str]:
    linkage = f".{function.linkage} " if function.linkage else ""
    attributes = f".attribute({', '.join(function.attributes)}) " if function.attributes else ""
    head = f"{linkage}.{function.kind} {attributes}{signature_text(function)}{_performance(function)}"
    if function.body is None:
        yield f"{indent}{head};"
        return
    yield f"{indent}{head}"
    yield from _block(function.body, indent)


_LINES: dict[type, Callable[[Any], str]] = {
    Instruction: instruction_text,
    Registers: _registers,
    Variable: _variable,
    Label: _label,
    Loc: _loc,
    Directive: _directive,
}
_NESTED: dict[type, Callable[[Any, str], Iterator[str]]] = {Block: _block, Function: _function}


def _statement_lines(statement: object, indent: str) -> Iterator[str]:
    if (nested := _NESTED.get(type(statement))) is not None:
        yield from nested(statement, indent)
    else:
        yield indent + _LINES[type(statement)](statement)
