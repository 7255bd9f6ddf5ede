"""Instructions that may observe the order of threads: then another legal order may give other results.

These are atomics (float sums round differently, tickets differ), strong accesses (a flag is set, or not yet), barrier
tests, and special registers with the time, or where a thread runs.
"""

from kernbench.ptx.isa.resolve import resolve
from kernbench.ptx.text.errors import PtxError
from kernbench.ptx.text.module import Function, Instruction, Kernel
from kernbench.ptx.text.walking import instructions_of, names_in

_STRONG = {"relaxed", "acquire", "release", "volatile", "mmio"}
_REGISTERS = ("%clock", "%globaltimer", "%smid", "%nsmid", "%warpid", "%gridid", "%pm")


def order_observers(kernel: Kernel) -> list[str]:
    """The instructions of a kernel, and of its module's functions, that may observe order: 'atom.global.add.f32'."""
    functions = [item for item in kernel.module.items if isinstance(item, Function) and item.kind != "entry"]
    found = [
        instruction.name
        for function in (kernel.function, *functions)
        for instruction in instructions_of(function.body)
        if _observes(instruction)
    ]
    return list(dict.fromkeys(found))


def _observes(instruction: Instruction) -> bool:
    return _reads_order(instruction) or any(name.startswith(_REGISTERS) for name in names_in(instruction.operands))


def _reads_order(instruction: Instruction) -> bool:
    try:
        effects = resolve(instruction).effects
    except PtxError:
        # textures are not supported
        return False
    strong = effects.access in ("load", "store") and not _STRONG.isdisjoint(instruction.modifiers)
    return effects.observes_order or strong
