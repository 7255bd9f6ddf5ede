"""Walking through a module: the statements of a body however deep, and the names in operands and initial values."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from kernbench.ptx.text.module import (
    Address,
    Block,
    Generic,
    Group,
    Instruction,
    Masked,
    Name,
    Not,
    Offset,
    Operand,
    Pair,
    Statement,
    Vector,
)


def statements_of(block: Block | None) -> Iterator[Statement]:
    """The statements of a body and of the blocks in it, in the order of the text."""
    waiting = list(reversed(block.statements)) if block is not None else []
    while waiting:
        statement = waiting.pop()
        if isinstance(statement, Block):
            waiting.extend(reversed(statement.statements))
        else:
            yield statement


def instructions_of(block: Block | None) -> Iterator[Instruction]:
    """The instructions among them."""
    return (statement for statement in statements_of(block) if isinstance(statement, Instruction))


def names_in(value: object) -> Iterator[str]:
    """Names in an operand or an initial value."""
    if isinstance(value, Name):
        yield value.text
    elif type(value) in _PARTS:
        for part in _PARTS[type(value)](value):
            yield from names_in(part)


def parts_of_call(operands: Iterable[Operand]) -> tuple[str, tuple[Operand, ...], tuple[Operand, ...]]:
    """Of the operands of a call: the name of the callee (a function or a register), the arguments and the results."""
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


# what those are made of that are made of others
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
