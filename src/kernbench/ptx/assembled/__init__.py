"""What ptxas makes of a kernel's arithmetic where PTX leaves it free: which roundings there are, and of what constants.

The emulator runs PTX as it is written. A GPU runs what ptxas made of it: a multiplication and the additions that take
its result are one instruction each that rounds once, and approximate functions of constants are replaced by the rounded
value. `assembled` writes a kernel so, by the rules that ptxas follows; `exact` launches run it.
"""

from dataclasses import replace

from kernbench.ptx.assembled.contraction import contracted
from kernbench.ptx.assembled.folding import folded
from kernbench.ptx.text.module import Function, Kernel


def assembled(kernel: Kernel) -> Kernel:
    """The kernel with the roundings that ptxas gives it; the same one where nothing changes."""
    called = [item for item in kernel.module.items if isinstance(item, Function) and item.kind != "entry"]
    functions = [function for function in (kernel.function, *called) if function.body is not None]
    changed = {id(function): contracted(folded(function)) for function in functions}
    if all(changed[id(function)] is function for function in functions):
        return kernel
    items = tuple(changed.get(id(item), item) for item in kernel.module.items)
    return replace(kernel.module, items=items).kernels[kernel.name]
