"""Address operands of instructions: their state space, and what is valid between the brackets."""

from kernbench.ptx.isa.forms.form import OperandRule, Resolved
from kernbench.ptx.text.module import Variable
from kernbench.ptx.text.types import TYPES
from kernbench.ptx.validation.scopes import Register

TENSOR, TENSOR_MEMORY = "tensor", "tensor memory"
# operands of tcgen05 that are addresses in shared memory
_NOT_TENSOR = frozenset(("dst", "mbar"))


def space_named(resolved: Resolved, rule: OperandRule) -> str:
    """The state space of an address operand: "global", "shared", ..., "tensor"; "" for generic."""
    mods = resolved.mods
    if resolved.effects.acts_on == TENSOR_MEMORY and rule.name not in _NOT_TENSOR:
        return TENSOR
    if rule.name == "mbar" or resolved.effects.acts_on == "mbarrier":
        return "shared"
    named = mods.get(rule.name, "") if rule.name in ("dst", "src") else mods.get("space", "")
    return named.partition("::")[0]


def variable_problem(resolved: Resolved, rule: OperandRule, variable: Variable, name: str) -> str | None:
    """Why a variable is invalid as this address of the instruction `name`, or None."""
    named = space_named(resolved, rule)
    if named == TENSOR:
        return f"{variable.name!r} lies in .{variable.space}, and {name} wants an address of tensor memory there"
    if named and named != variable.space:
        return f"{variable.name!r} lies in .{variable.space}, and {name} accesses .{named}"
    if not named and variable.space == "const":
        return f"{variable.name!r} lies in .const; access it with .const, or make its address generic with cvta.const"
    return None


def register_problem(resolved: Resolved, rule: OperandRule, name: str, register: Register, full: int) -> str | None:
    """Why a register is invalid as this address, or None; `full` is the module's address size in bits."""
    kind, bits = TYPES[register.type].kind, TYPES[register.type].bits
    if kind not in "bus" or register.vector > 1:
        return f"{name!r} is .{register.type}, and an address is an integer or bits"
    space = space_named(resolved, rule)
    whole = resolved.effects.whole_address
    if whole and space in ("", "global") and bits < full:
        return f"{name!r} has {bits} bits, and a {space or 'generic'} address has {full}"
    if space == TENSOR and bits != 32:
        return f"{name!r} has {bits} bits, and an address of tensor memory has 32"
    if bits < 32 and not whole:
        return f"{name!r} has {bits} bits, and an address has at least 32"
    return None


def number_problem(resolved: Resolved, rule: OperandRule, spelling: str) -> str | None:
    """Why a number is invalid as this address, or None."""
    if space_named(resolved, rule) == "local":
        return None
    return f"[{spelling}]: only .local addresses may be plain numbers; move it to a register first"
