"""Instructions whose result depends on the order of threads: two correct devices may differ there.

Float sums round differently in another order; the old value that an atomic returns depends on the order; the last
exchange wins. Sums, extremes and bit operations of integers whose old value is unused are the same in every order.
"""

from dataclasses import dataclass

from kernbench.ptx.isa.forms.form import Resolved
from kernbench.ptx.isa.operands import operands_of, resolved_of
from kernbench.ptx.text.module import Function, Instruction, Kernel
from kernbench.ptx.text.printer import instruction_text
from kernbench.ptx.text.types import TYPES
from kernbench.ptx.text.walking import instructions_of, names_in

_SAME_IN_ANY_ORDER = frozenset(("add", "min", "max", "and", "or", "xor"))
_TIME = ("%clock", "%globaltimer", "%smid", "%warpid")


@dataclass(frozen=True)
class OrderShows:
    """An instruction whose result depends on the order of threads, and why."""

    line: int
    text: str
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}, `{self.text}`: {self.reason}"


def where_order_shows(kernel: Kernel) -> list[OrderShows]:
    """The order-dependent instructions of a kernel and of the functions it may call."""
    functions = [item for item in kernel.module.items if isinstance(item, Function) and item.kind != "entry"]
    found: list[OrderShows] = []
    for function in (kernel.function, *functions):
        instructions = list(instructions_of(function.body))
        read = _read_names(instructions)
        for instruction in instructions:
            if reason := _reason(instruction, read):
                found.append(OrderShows(instruction.line, instruction_text(instruction), reason))
    return found


def _read_names(instructions: list[Instruction]) -> set[str]:
    read: set[str] = set()
    for instruction in instructions:
        resolved = resolved_of(instruction)
        read.update(names_in(instruction.operands) if resolved is None else operands_of(instruction, resolved).read)
    return read


def _reason(instruction: Instruction, read: set[str]) -> str:
    if any(name.startswith(_TIME) for name in names_in(instruction.operands)):
        return "the time, or where a thread runs, is the device's own"
    resolved = resolved_of(instruction)
    if resolved is None or not resolved.effects.observes_order:
        return ""
    if any(name in read for name in operands_of(instruction, resolved).written):
        return "the old value, which is used, depends on who came before" if resolved.effects.updates else ""
    return _of_update(resolved)


def _of_update(resolved: Resolved) -> str:
    """Why the memory that an update leaves depends on the order."""
    operation, effects = resolved.mods.get("op"), resolved.effects
    if operation is None or not (effects.writes or effects.asynchronous):
        return ""
    if operation not in _SAME_IN_ANY_ORDER:
        return f"what {operation} leaves depends on who came last"
    if operation == "add" and _floats(resolved):
        return "a sum of floats rounds differently in another order"
    return ""


def _floats(resolved: Resolved) -> bool:
    """Whether floats are added; assumed for tensor copies, whose map has the type."""
    kind = TYPES.get(resolved.mods.get("type", ""))
    return kind is None or kind.kind == "f" or (kind.kind == "x" and TYPES[kind.lane].kind == "f")
