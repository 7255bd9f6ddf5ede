"""Multiplications and additions that ptxas may contract: without a rounding modifier, PTX permits it.

`mul.f32` and a dependent `add.f32` may become one fused instruction that rounds once instead of twice. The same holds
for `div.full.f32` or `div.approx.f32`, which end with a multiplication by the reciprocal, and an `add.f32`. ptxas
decides which pairs to fuse. With `.rn` on each it may fuse none: if a GPU then gives the emulator's bytes, fusing was
the only difference.
"""

from dataclasses import dataclass, replace

from kernbench.ptx.assembled.lines import (
    PRODUCTS,
    SUMS,
    Line,
    changed,
    flow_of,
    functions_of,
    kind_of,
    part_of,
    rewritten,
)
from kernbench.ptx.text.module import Function, Instruction, Kernel
from kernbench.ptx.text.printer import instruction_text


@dataclass(frozen=True)
class Pair:
    """A multiplication and the addition that uses its result."""

    mul: Instruction
    add: Instruction

    def __str__(self) -> str:
        mul, add = (f"line {one.line}, `{instruction_text(one)}`" for one in (self.mul, self.add))
        return f"{mul}, and {add}"


def pairs_to_fuse(kernel: Kernel) -> list[Pair]:
    """Multiplications and additions of a kernel that may be fused."""
    found: list[Pair] = []
    for function in functions_of(kernel):
        products: dict[str, Line] = {}
        for line in flow_of(function).lines:
            part = part_of(line)
            if part in SUMS:
                of = [products[name] for name in line.read if name in products]
                found += [Pair(of[0].instruction, line.instruction)] if of and kind_of(of[0]) == kind_of(line) else []
            for name in line.written:
                products.pop(name, None)
            if part in PRODUCTS:
                products.update((name, line) for name in line.written)
    return found


def with_roundings(kernel: Kernel) -> Kernel:
    """The kernel with `.rn` on everything that may be fused; an approximate quotient cannot have it."""
    return rewritten(kernel, _rounded)


def _rounded(function: Function) -> Function:
    changes = {
        line.number: (replace(line.instruction, modifiers=("rn", *line.instruction.modifiers)),)
        for line in flow_of(function).lines
        if part_of(line) == "product" or part_of(line) in SUMS
    }
    return changed(function, changes) if changes else function
