"""Estimate of a thread's registers from PTX: the maximum of live registers, adjusted for what an assembler does."""

from collections import defaultdict
from math import prod

from kernbench.ptx.sass.expansion.pieces import effects_of, label_of, operands
from kernbench.ptx.text.errors import PtxError
from kernbench.ptx.text.module import Function, Instruction, Label, Registers
from kernbench.ptx.text.parser import parse
from kernbench.ptx.text.types import TYPES
from kernbench.ptx.text.walking import statements_of

# the assembler needs registers beside the program's values (stack pointer, addresses, temporaries), but fewer for
# further values: constants, copies and warp-uniform values take none, and it reorders code to shorten live ranges
# (medians of 150 kernels of nvcc, Triton and this project)
_MORE = 8
_SOME, _OF_SOME = 20, 0.45
_MANY, _OF_MANY = 40, 0.85
_MOST = 255
_LEAST = 16
# allocation granularity
_UNIT = 8
# registers of an SM, threads of a warp
_REGISTERS, _WARP = 1 << 16, 32
# control does not reach the next instruction after these, unless they are guarded
_LEAVING = frozenset(("branch", "return", "exit", "trap"))


def registers_of(text: str, entry: str) -> int:
    """Estimated registers per thread of a kernel: the most that are live at once and some more, within the limits.

    Limits are `.maxnreg`, and that a CTA of `.reqntid` or `.maxntid` threads must fit into an SM, as for the assembler.
    """
    try:
        function = parse(text).kernels[entry].function
    except (PtxError, KeyError):
        return _LEAST
    alive = most_alive(function)
    some, many = max(min(alive, _MANY) - _SOME, 0), max(alive - _MANY, 0)
    needed = min(alive, _SOME) + _OF_SOME * some + _OF_MANY * many + _MORE
    return min(max(_LEAST, round(needed / _UNIT) * _UNIT), _bound(dict(function.performance)))


def _bound(declared: dict[str, tuple[int, ...]]) -> int:
    """The most registers per thread that a kernel's declarations allow."""
    threads = prod(declared.get("reqntid") or declared.get("maxntid") or (1,))
    warps = -(-threads // _WARP)
    fitting = _REGISTERS // (warps * _WARP) // _UNIT * _UNIT
    return min(_MOST, fitting, *declared.get("maxnreg", ()))


def most_alive(function: Function) -> int:
    """The most 32-bit registers that are live before one instruction of a function."""
    code, targets, widths = _flat(function)
    facts = [operands(one) for one in code]
    following = _following(code, targets)
    names = {name: number for number, name in enumerate(widths)}
    reads = [_bits(names, read) for read, _ in facts]
    # a guarded write does not kill the old value
    writes = [0 if one.guard is not None else _bits(names, wrote) for one, (_, wrote) in zip(code, facts, strict=True)]
    alive = _alive(reads, writes, following)
    by_width: dict[int, int] = defaultdict(int)
    for name, number in names.items():
        by_width[widths[name]] |= 1 << number
    return max(
        (sum(width * (live & mask).bit_count() for width, mask in by_width.items()) for live in alive), default=0
    )


def _flat(function: Function) -> tuple[list[Instruction], dict[str, int], dict[str, int]]:
    """Instructions in order, positions of labels, and the number of 32-bit registers of each declared name."""
    code: list[Instruction] = []
    targets: dict[str, int] = {}
    widths: dict[str, int] = {}
    for statement in statements_of(function.body):
        if isinstance(statement, Instruction):
            code.append(statement)
        elif isinstance(statement, Label) and not statement.directive:
            targets[statement.name] = len(code)
        elif isinstance(statement, Registers):
            for name, count in statement.names:
                width = _width(statement.type) * statement.vector
                widths.update({f"{name}{number}": width for number in range(count)} if count else {name: width})
    return code, targets, widths


def _width(kind: str) -> int:
    """Number of 32-bit registers of a type; predicates are in a register file of their own."""
    return 0 if kind == "pred" else max(1, TYPES[kind].nbytes // 4) if kind in TYPES else 1


def _following(code: list[Instruction], targets: dict[str, int]) -> list[list[int]]:
    found = []
    for number, one in enumerate(code):
        flow = effects_of(one).flow
        ends = flow in _LEAVING
        ways = [number + 1] if (not ends or one.guard is not None) and number + 1 < len(code) else []
        target = targets.get(label_of(one), len(code))
        if target < len(code):
            ways.append(target)
        if flow == "indexed branch":
            ways += [one_way for one_way in targets.values() if one_way < len(code)]
        found.append(ways)
    return found


def _bits(names: dict[str, int], chosen: frozenset[str]) -> int:
    found = 0
    for name in chosen:
        if name in names:
            found |= 1 << names[name]
    return found


def _alive(reads: list[int], writes: list[int], following: list[list[int]]) -> list[int]:
    """Registers live before each instruction, by iteration to a fixed point."""
    before = list(reads)
    changed = True
    while changed:
        changed = False
        for number in range(len(reads) - 1, -1, -1):
            later = 0
            for there in following[number]:
                later |= before[there]
            now = reads[number] | (later & ~writes[number])
            if now != before[number]:
                before[number], changed = now, True
    return before
