"""A function as a list of instructions in basic blocks, with the registers that each reads and writes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kernbench.ptx.isa.forms.form import Resolved
from kernbench.ptx.isa.operands import operands_of, resolved_of
from kernbench.ptx.text.module import Block, Function, Instruction, Kernel, Label, Name, Operand, Registers, Statement
from kernbench.ptx.text.walking import names_in, statements_of

SUMS = frozenset(("sum", "difference"))
PRODUCTS = frozenset(("product", "quotient"))
Changes = Mapping[int, Sequence[Instruction]]


@dataclass(frozen=True, slots=True)
class Line:
    """An instruction of a function, with its number in the text and the number of its basic block.

    Blocks are those that ptxas sees first: they end at branches, and at guarded accesses, which become branches around
    the access. Registers are named by their scope, so that no two have the same name; `of` maps a register's name in an
    operand to that unique name.
    """

    number: int
    block: int
    instruction: Instruction
    resolved: Resolved
    written: tuple[str, ...]
    read: tuple[str, ...]
    of: Callable[[str], str]

    def register(self, position: int) -> str | None:
        """The register, if the operand is one, else None."""
        operand = self.instruction.operands[position]
        return self.of(operand.text) if isinstance(operand, Name) else None

    def operand(self, name: str) -> Operand:
        """An operand, by its name in the ISA table."""
        position = self.resolved.operand(name)
        assert position is not None, name
        return self.instruction.operands[position]


def part_of(line: Line) -> str:
    """Its role in a contraction (`Effects.fuses`); empty if it names a rounding mode, or saturates a product."""
    mods, part = line.resolved.mods, line.resolved.effects.fuses
    saturates = "sat" in mods and part in PRODUCTS
    return "" if "rnd" in mods or "atype" in mods or saturates else part


def kind_of(line: Line) -> tuple[str, bool]:
    """The type, and whether subnormals are flushed: these must be equal in all parts of a contraction."""
    return line.resolved.mods["type"], "ftz" in line.resolved.mods


@dataclass(frozen=True)
class Flow:
    """The lines of a function, and the successors of each basic block."""

    lines: list[Line]
    behind: list[set[int]]


def flow_of(function: Function) -> Flow:
    """The lines of a function with a body; instructions that are not in the ISA table are skipped."""
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
            resolved = resolved_of(statement)
            if resolved is not None:
                lines.append(_line(number, block, statement, resolved, of))
                if resolved.effects.flow:
                    leaving[block], open_block = statement, False
                elif statement.guard is not None and not resolved.effects.computes:
                    open_block = False
            number += 1
    behind = [_behind(n, block + 1, leaving.get(n), labels) for n in range(block + 1)]
    return Flow(lines, behind)


def functions_of(kernel: Kernel) -> list[Function]:
    """The kernel's function and all device functions of its module that have a body."""
    called = [item for item in kernel.module.items if isinstance(item, Function) and item.kind != "entry"]
    return [function for function in (kernel.function, *called) if function.body is not None]


def rewritten(kernel: Kernel, rewrite: Callable[[Function], Function]) -> Kernel:
    """The kernel with its function and device functions rewritten; the same object if nothing changes."""
    functions = functions_of(kernel)
    changes = {id(function): rewrite(function) for function in functions}
    if all(changes[id(function)] is function for function in functions):
        return kernel
    items = tuple(changes.get(id(item), item) for item in kernel.module.items)
    return replace(kernel.module, items=items).kernels[kernel.name]


def changed(function: Function, changes: Changes, registers: Sequence[Registers] = ()) -> Function:
    """The function with instructions replaced, by number, and registers added."""
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
    """Labels that may be branched to: all names in operands and lists of labels."""
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
    resolved = resolved_of(last)
    flow = resolved.effects.flow if resolved is not None else ""
    if flow == "indexed branch":
        return set(range(count))
    stays = last.guard is not None or flow == "call"
    return named | (following if stays else set())


def _with_scopes(body: Block) -> Iterator[tuple[Statement, Callable[[str], str]]]:
    """The statements of a body, each with the mapping from names to unique names in its scope."""
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


def _line(number: int, block: int, instruction: Instruction, resolved: Resolved, of: Callable[[str], str]) -> Line:
    operands = operands_of(instruction, resolved)
    written, read = tuple(map(of, operands.written)), tuple(map(of, operands.read))
    return Line(number, block, instruction, resolved, written, read, of)
