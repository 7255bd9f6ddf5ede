"""Multiplications and additions that an assembler may fuse: with no rounding modifier, PTX leaves that to it.

`mul.f32` and an `add.f32` of its result become one instruction of a GPU that rounds once, where two would round twice.
So do `div.full.f32` or `div.approx.f32`, which end with a multiplication by the reciprocal, and an `add.f32`. Which
pairs ptxas fuses is its own affair. But with `.rn` at each of them it may fuse none: if a GPU then leaves the bytes of
the emulator, the fusing was all the difference.
"""

from dataclasses import dataclass, replace

from kernbench.ptx.comparing.registers import operands_of, resolved_of
from kernbench.ptx.isa.forms.form import Resolved
from kernbench.ptx.isa.resolve import resolve
from kernbench.ptx.text.module import Block, Function, Instruction, Kernel, Statement
from kernbench.ptx.text.printer import instruction_text
from kernbench.ptx.text.walking import instructions_of


@dataclass(frozen=True)
class Pair:
    """A multiplication and the addition that takes its result."""

    mul: Instruction
    add: Instruction

    def __str__(self) -> str:
        mul, add = (f"line {one.line}, `{instruction_text(one)}`" for one in (self.mul, self.add))
        return f"{mul}, and {add}"


def pairs_to_fuse(kernel: Kernel) -> list[Pair]:
    """Multiplications and additions of a kernel that may become one instruction."""
    found: list[Pair] = []
    for function in _functions(kernel):
        products: dict[str, Instruction] = {}
        for instruction in instructions_of(function.body):
            resolved = resolved_of(instruction)
            if resolved is None:
                continue
            operands = operands_of(instruction, resolved)
            part = _part(resolved)
            if part in ("sum", "difference"):
                of = [products[name] for name in operands.read if name in products]
                found += [Pair(of[0], instruction)] if of and _same_type(of[0], instruction) else []
            for name in operands.written:
                products.pop(name, None)
            if part in ("product", "quotient"):
                products.update((name, instruction) for name in operands.written)
    return found


def with_roundings(kernel: Kernel) -> Kernel:
    """The kernel with `.rn` at all that may be fused."""
    changed = {id(function): _rounded(function) for function in _functions(kernel)}
    items = tuple(changed.get(id(item), item) for item in kernel.module.items)
    return replace(kernel.module, items=items).kernels[kernel.name]


def _functions(kernel: Kernel) -> list[Function]:
    """The kernel, and the functions that it may call."""
    others = [item for item in kernel.module.items if isinstance(item, Function) and item.kind != "entry"]
    return [function for function in (kernel.function, *others) if function.body is not None]


def _part(resolved: Resolved) -> str:
    """What of a fused multiplication and addition it may become, or "" where a rounding is named."""
    return "" if "rnd" in resolved.mods else resolved.effects.fuses


def _may_round(resolved: Resolved) -> bool:
    """Whether a rounding may be named that would keep it by itself: not so of an approximate quotient."""
    return _part(resolved) in ("product", "sum", "difference")


def _same_type(product: Instruction, addition: Instruction) -> bool:
    """Whether both have the same type and treat subnormal numbers alike."""
    one, other = resolve(product).mods, resolve(addition).mods
    return {**one, "mode": ""} == {**other, "mode": ""}


def _rounded(function: Function) -> Function:
    assert function.body is not None
    return replace(function, body=_block(function.body))


def _block(block: Block) -> Block:
    return replace(block, statements=tuple(map(_statement, block.statements)))


def _statement(statement: Statement) -> Statement:
    if isinstance(statement, Block):
        return _block(statement)
    if isinstance(statement, Instruction):
        resolved = resolved_of(statement)
        if resolved is not None and _may_round(resolved):
            return replace(statement, modifiers=("rn", *statement.modifiers))
    return statement
