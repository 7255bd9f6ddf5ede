"""Traversal of a module: the statements of a body at any depth, and the names in operands and initial values."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from kernbench.ptx.text.keeping import Kept
from kernbench.ptx.text.module import (
    Address,
    Block,
    Generic,
    Group,
    Instruction,
    Label,
    Masked,
    Name,
    Not,
    Offset,
    Operand,
    Pair,
    Statement,
    Variable,
    Vector,
)


def statements_of(block: Block | None) -> Iterator[Statement]:
    """All statements of a body, including nested blocks, in the order of the text."""
    waiting = list(reversed(block.statements)) if block is not None else []
    while waiting:
        statement = waiting.pop()
        if isinstance(statement, Block):
            waiting.extend(reversed(statement.statements))
        else:
            yield statement


def instructions_of(block: Block | None) -> Iterator[Instruction]:
    """The instructions among the statements of a body."""
    return (statement for statement in statements_of(block) if isinstance(statement, Instruction))


@dataclass(frozen=True, slots=True)
class Mentions:
    """The names that a body uses, each once in the order of the text, and the variables that it declares.

    `taken` are names used otherwise than as the callee of a call: a function among them has its address taken.
    """

    names: tuple[str, ...]
    taken: frozenset[str]
    callees: frozenset[str]
    targets: tuple[str, ...]
    variables: tuple[Variable, ...]


# by id of the body, which is held so that the id is not reused; the bound counts statements
_MENTIONS: Kept[int, tuple[Block, Mentions]] = Kept(200_000)


def mentions(body: Block) -> Mentions:
    """The names that a body uses and the variables it declares, cached."""
    known = _MENTIONS.get(id(body))
    if known is None:
        known = (body, _mentions(body))
        _MENTIONS.put(id(body), known, len(body.statements))
    return known[1]


def _mentions(body: Block) -> Mentions:
    names: dict[str, None] = {}
    taken: set[str] = set()
    callees: set[str] = set()
    targets: dict[str, None] = {}
    variables = []
    for statement in statements_of(body):
        if isinstance(statement, Instruction):
            found = dict.fromkeys(names_in(statement.operands))
            names.update(found)
            if statement.opcode.partition(".")[0] == "call":
                callee, *others = parts_of_call(statement.operands)
                callees.add(callee)
                found = dict.fromkeys(names_in(tuple(others)))
            taken.update(found)
        elif isinstance(statement, Label):
            targets.update(dict.fromkeys(statement.targets))
        elif isinstance(statement, Variable):
            variables.append(statement)
    return Mentions(tuple(names), frozenset(taken), frozenset(callees), tuple(targets), tuple(variables))


def names_in(value: object) -> Iterator[str]:
    """The names in an operand or an initial value."""
    if isinstance(value, Name):
        yield value.text
    elif type(value) in _PARTS:
        for part in _PARTS[type(value)](value):
            yield from names_in(part)


def parts_of_call(operands: Iterable[Operand]) -> tuple[str, tuple[Operand, ...], tuple[Operand, ...]]:
    """Name of the callee (a function or a register), arguments and results of a call, from its operands."""
    arguments: tuple[Operand, ...] = ()
    results: tuple[Operand, ...] = ()
    callee = ""
    for operand in operands:
        if isinstance(operand, Group):
            if callee:
                arguments = operand.items
            else:
                results = operand.items
        elif isinstance(operand, Name) and not callee:
            callee = operand.text
    return callee, arguments, results


# node type -> its parts
_PARTS: dict[type, Callable[[Any], Iterable[object]]] = {
    Offset: lambda value: (value.base,),
    Generic: lambda value: (value.base,),
    Masked: lambda value: (value.address,),
    Not: lambda value: (value.operand,),
    Vector: lambda value: value.items,
    Group: lambda value: value.items,
    Pair: lambda value: (value.first, value.second),
    Address: lambda value: (value.base, *value.more),
    tuple: lambda value: value,
}
