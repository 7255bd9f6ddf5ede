"""Multiplications and additions that an assembler may fuse: with no rounding modifier, PTX leaves that to it.

`mul.f32` and an `add.f32` of its result become one instruction of a GPU that rounds once, where two would round twice.
So do `div.full.f32` or `div.approx.f32`, which end with a multiplication by the reciprocal, and an `add.f32`. Which
pairs ptxas fuses is its own affair. But with `.rn` at each of them it may fuse none: if a GPU then leaves the bytes of
the emulator, the fusing was all the difference.
"""

from dataclasses import dataclass, replace

from kernbench.ptx.comparing.registers import operands_of, resolved_of
from kernbench.ptx.text.module import Block, Function, Instruction, Kernel, Statement
from kernbench.ptx.text.printer import instruction_text
from kernbench.ptx.text.walking import instructions_of

_FUSED = ("mul", "add", "sub")
_MULTIPLY_AT_LAST = frozenset(("full", "approx"))
_TYPES = frozenset(("f16", "f16x2", "bf16", "bf16x2", "f32", "f32x2", "f64"))
_ROUNDINGS = frozenset(("rn", "rz", "rm", "rp"))


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
            if _open(instruction) and instruction.opcode != "mul":
                of = [products[name] for name in operands.read if name in products]
                found += [Pair(of[0], instruction)] if of and _same_type(of[0], instruction) else []
            for name in operands.written:
                products.pop(name, None)
            if _multiplies(instruction):
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


def _open(instruction: Instruction) -> bool:
    """Whether it may be fused: no rounding is named."""
    modifiers = instruction.modifiers
    return (
        instruction.opcode in _FUSED
        and modifiers[-1:] != ()
        and modifiers[-1] in _TYPES
        and not (_ROUNDINGS & set(modifiers))
    )


def _multiplies(instruction: Instruction) -> bool:
    """Whether the last thing that it does is a multiplication which may be fused."""
    if instruction.opcode == "div":
        return bool(_MULTIPLY_AT_LAST & set(instruction.modifiers))
    return instruction.opcode == "mul" and _open(instruction)


def _same_type(product: Instruction, addition: Instruction) -> bool:
    kept = [modifier for modifier in product.modifiers if modifier not in _MULTIPLY_AT_LAST]
    return kept == list(addition.modifiers)


def _rounded(function: Function) -> Function:
    assert function.body is not None
    return replace(function, body=_block(function.body))


def _block(block: Block) -> Block:
    return replace(block, statements=tuple(map(_statement, block.statements)))


def _statement(statement: Statement) -> Statement:
    if isinstance(statement, Block):
        return _block(statement)
    if isinstance(statement, Instruction) and _open(statement):
        return replace(statement, modifiers=("rn", *statement.modifiers))
    return statement
