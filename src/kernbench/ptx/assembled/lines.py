"""A function as a list of instructions in blocks, each with the registers that it reads and writes."""

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


def part_of(line: Line) -> str:
    """What it may be of a contraction (`Effects.fuses`), or "" where it names its rounding, or saturates first."""
    mods, part = line.resolved.mods, line.resolved.effects.fuses
    saturates = "sat" in mods and part in PRODUCTS
    return "" if "rnd" in mods or "atype" in mods or saturates else part


def kind_of(line: Line) -> tuple[str, bool]:
    """The type, and whether subnormal numbers are flushed: what is the same of all parts of a contraction."""
    return line.resolved.mods["type"], "ftz" in line.resolved.mods


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
    """The kernel's function, and those that it may call."""
    called = [item for item in kernel.module.items if isinstance(item, Function) and item.kind != "entry"]
    return [function for function in (kernel.function, *called) if function.body is not None]


def rewritten(kernel: Kernel, rewrite: Callable[[Function], Function]) -> Kernel:
    """The kernel with its function, and those that it may call, rewritten; the same one where nothing changes."""
    functions = functions_of(kernel)
    changes = {id(function): rewrite(function) for function in functions}
    if all(changes[id(function)] is function for function in functions):
        return kernel
    items = tuple(changes.get(id(item), item) for item in kernel.module.items)
    return replace(kernel.module, items=items).kernels[kernel.name]


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
    resolved = resolved_of(last)
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


def _line(number: int, block: int, instruction: Instruction, resolved: Resolved, of: Callable[[str], str]) -> Line:
    operands = operands_of(instruction, resolved)
    written, read = tuple(map(of, operands.written)), tuple(map(of, operands.read))
    return Line(number, block, instruction, resolved, written, read, of)
