"""A function as a list of instructions in blocks, each with the registers that it reads and writes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kernbench.ptx.isa.forms.form import Resolved
from kernbench.ptx.isa.resolve import resolve
from kernbench.ptx.text.errors import PtxError
from kernbench.ptx.text.module import Block, Function, Instruction, Label, Name, Operand, Registers, Statement
from kernbench.ptx.text.walking import names_in, statements_of

Changes = Mapping[int, Sequence[Instruction]]


@dataclass(frozen=True, slots=True)
class Line:
    """An instruction of a function, by its number in the text; `block` counts the blocks as ptxas sees them first.

    They end at jumps, and at accesses under a guard: those become jumps around the access.

    Registers are named with the braces that they are declared in, so that no two of them have one name. `of` gives the
    name so of a register of an operand.
    """

    number: int
    block: int
    instruction: Instruction
    resolved: Resolved
    written: tuple[str, ...]
    read: tuple[str, ...]
    of: Callable[[str], str]

    def register(self, position: int) -> str | None:
        """The register that is an operand by itself."""
        operand = self.instruction.operands[position]
        return self.of(operand.text) if isinstance(operand, Name) else None

    def operand(self, name: str) -> Operand:
        """An operand by its name in the table."""
        position = self.resolved.operand(name)
        assert position is not None, name
        return self.instruction.operands[position]


@dataclass(frozen=True)
class Flow:
    """Lines of a function, and the blocks behind each block."""

    lines: list[Line]
    behind: list[set[int]]


def flow_of(function: Function) -> Flow:
    """The lines of a function with a body; instructions that the table lacks are left out."""
    assert function.body is not None
    targets = _targets(function.body)
    lines: list[Line] = []
    labels: dict[str, int] = {}
    block, number, open_block = 0, 0, True
    leaving: dict[int, Instruction] = {}
    for statement, of in _with_scopes(function.body):
        if isinstance(statement, Label):
            if statement.name in targets:
                block, open_block = block + 1, True
                labels[statement.name] = block
        elif isinstance(statement, Instruction):
            if not open_block:
                block, open_block = block + 1, True
            resolved = _resolved(statement)
            if resolved is not None:
                lines.append(_line(number, block, statement, resolved, of))
                if resolved.effects.flow:
                    leaving[block], open_block = statement, False
                elif statement.guard is not None and not resolved.effects.computes:
                    open_block = False
            number += 1
    behind = [_behind(n, block + 1, leaving.get(n), labels) for n in range(block + 1)]
    return Flow(lines, behind)


def changed(function: Function, changes: Changes, registers: Sequence[Registers] = ()) -> Function:
    """The function with some instructions exchanged for others, by number, and more registers."""
    assert function.body is not None
    number = -1

    def of_block(block: Block) -> Block:
        return replace(block, statements=tuple(_spread(block.statements)))

    def _spread(statements: Sequence[Statement]) -> Iterator[Statement]:
        nonlocal number
        for statement in statements:
            if isinstance(statement, Block):
                yield of_block(statement)
            elif isinstance(statement, Instruction):
                number += 1
                yield from changes.get(number, (statement,))
            else:
                yield statement

    body = of_block(function.body)
    return replace(function, body=replace(body, statements=(*registers, *body.statements)))


def _targets(body: Block) -> set[str]:
    """Names that anything may jump to: all that operands and lists of labels name."""
    found: set[str] = set()
    for statement in statements_of(body):
        if isinstance(statement, Instruction):
            found.update(name for operand in statement.operands for name in names_in(operand))
        elif isinstance(statement, Label):
            found.update(statement.targets)
    return found


def _behind(block: int, count: int, last: Instruction | None, labels: Mapping[str, int]) -> set[int]:
    following = {block + 1} & set(range(count))
    if last is None:
        return following
    named = {labels[name] for operand in last.operands for name in names_in(operand) if name in labels}
    resolved = _resolved(last)
    flow = resolved.effects.flow if resolved is not None else ""
    if flow == "indexed branch":
        return set(range(count))
    stays = last.guard is not None or flow == "call"
    return named | (following if stays else set())


def _with_scopes(body: Block) -> Iterator[tuple[Statement, Callable[[str], str]]]:
    """The statements of a body, each with what names are in the braces it stands in."""
    count = 0

    def walk(block: Block, names: Mapping[str, str]) -> Iterator[tuple[Statement, Callable[[str], str]]]:
        nonlocal count
        count += 1
        own = dict(names)
        if count > 1:
            for statement in block.statements:
                if isinstance(statement, Registers):
                    own.update((name, f"{name} in {count}") for name in _declared(statement))
        for statement in block.statements:
            if isinstance(statement, Block):
                yield from walk(statement, own)
            else:
                yield statement, lambda name, own=own: own.get(name, name)  # type: ignore[misc]

    return walk(body, {})


def _declared(statement: Registers) -> Iterator[str]:
    for name, count in statement.names:
        yield from (f"{name}{n}" for n in range(count)) if count else (name,)


def _resolved(instruction: Instruction) -> Resolved | None:
    try:
        return resolve(instruction)
    except PtxError:
        return None


def _line(number: int, block: int, instruction: Instruction, resolved: Resolved, of: Callable[[str], str]) -> Line:
    written: list[str] = []
    read: list[str] = [of(instruction.guard.register)] if instruction.guard is not None else []
    for operand, rule in zip(instruction.operands, resolved.rules, strict=True):
        names = [of(name) for name in names_in(operand) if name != "_"]
        if rule.role in ("d", "da"):
            written += names
        if rule.role != "d":
            read += names
    return Line(number, block, instruction, resolved, tuple(written), tuple(read), of)
