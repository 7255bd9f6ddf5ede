"""Where PTX may observe in which order threads run: such a kernel may give other results in another legal order.

Atomics (sums of floats round differently, tickets differ), strong accesses (a flag is set, or not yet), tests of
barriers, and registers that tell time or place.
"""

from kernbench.ptx.text.module import Function, Instruction, Kernel
from kernbench.ptx.text.walking import instructions_of, names_in

_OPCODES = {"atom", "red", "multimem"}
_TESTS = {"try_wait", "test_wait"}
_STRONG = {"relaxed", "acquire", "release", "volatile", "mmio"}
_REDUCING = {"reduce"}
_REGISTERS = ("%clock", "%globaltimer", "%smid", "%nsmid", "%warpid", "%gridid", "%pm")


def order_observers(kernel: Kernel) -> list[str]:
    """The instructions of a kernel, and of the functions beside it, that may observe order: 'atom.global.add.f32'."""
    functions = [item for item in kernel.module.items if isinstance(item, Function) and item.kind != "entry"]
    found = [
        instruction.name
        for function in (kernel.function, *functions)
        for instruction in instructions_of(function.body)
        if _observes(instruction)
    ]
    return list(dict.fromkeys(found))


def _observes(instruction: Instruction) -> bool:
    modifiers = set(instruction.modifiers)
    if instruction.opcode in _OPCODES or modifiers & _TESTS:
        return True
    if instruction.opcode in ("ld", "st") and modifiers & _STRONG:
        return True
    if instruction.opcode == "cp" and modifiers & _REDUCING:
        return True
    return any(name.startswith(_REGISTERS) for name in names_in(instruction.operands))
