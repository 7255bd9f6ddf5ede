"""Validates variables of a module or a block as ptxas does: spaces, types, sizes and initial values."""

from collections.abc import Iterator, Mapping

from kernbench.ptx.isa.targets import target_number
from kernbench.ptx.names.demangling import title
from kernbench.ptx.text.errors import PtxError
from kernbench.ptx.text.module import (
    Directive,
    Float,
    Function,
    Integer,
    Masked,
    Module,
    Registers,
    Variable,
)
from kernbench.ptx.text.types import TYPES
from kernbench.ptx.text.walking import mentions, names_in
from kernbench.ptx.validation.directives import problem_at

CONSTANT_BYTES = 65536
_WIDEST_VECTOR = 128
_INITIALISED = frozenset(("global", "const"))
_OF_THE_MODULE = frozenset(("global", "const", "shared"))
_OPAQUE = frozenset(("texref", "samplerref", "surfref"))


def module_variable_problems(module: Module) -> Iterator[PtxError]:
    """Problems of the module's variables."""
    constant, seen = 0, dict[str, Function | Variable]()
    for variable in (item for item in module.items if not isinstance(item, Directive)):
        seen.setdefault(variable.name, variable)
        if isinstance(variable, Function):
            continue
        messages = [*_module_messages(variable), *_messages(variable), *_address_messages(variable, seen)]
        if variable.space == "const" and variable.linkage != "extern":
            constant += variable.size or 0
            if constant > CONSTANT_BYTES >= constant - (variable.size or 0):
                messages.append(f"constants up to {variable.name!r} have {constant} bytes; there are {CONSTANT_BYTES}")
        for message in messages:
            yield problem_at(module, variable.line, message, variable.name)


def block_variable_problems(module: Module, variable: Variable) -> Iterator[PtxError]:
    """Problems of a variable in a function's block."""
    for message in (*_block_messages(variable), *_messages(variable)):
        yield problem_at(module, variable.line, message, variable.name)


def register_problems(module: Module, registers: Registers) -> Iterator[PtxError]:
    """Problems of a block's registers."""
    if (message := _vector_message(registers.type, registers.vector)) is not None:
        yield problem_at(module, registers.line, message, f".{registers.type}")


def _module_messages(variable: Variable) -> Iterator[str]:
    if variable.space not in _OF_THE_MODULE:
        remedy = "declare it in a function" if variable.space != "tex" else "use a .global .texref"
        yield f"{variable.name!r}: .{variable.space} variables do not stand outside functions; {remedy}"
    if variable.linkage == "common" and variable.space != "global":
        yield f"{variable.name!r} is .common, which only .global variables may be"


def _block_messages(variable: Variable) -> Iterator[str]:
    if variable.linkage:
        yield f"{variable.name!r} is .{variable.linkage}, which only variables outside functions may be"
    if variable.type in _OPAQUE:
        yield f"{variable.name!r}: a .{variable.type} stands outside functions, or is a kernel's parameter"


def _messages(variable: Variable) -> Iterator[str]:
    if variable.type == "pred":
        yield f"{variable.name!r}: predicates live in registers only"
    if variable.linkage != "extern" and not variable.size and variable.type not in _OPAQUE:
        yield f"{variable.name!r} needs a size; only .extern arrays go without"
    if None in variable.dims[1:]:
        yield f"{variable.name!r}: only the first dimension may be left open"
    if (message := _vector_message(variable.type, variable.vector)) is not None:
        yield message
    if variable.initial is not None and variable.type not in _OPAQUE:
        yield from _initial_messages(variable)


def _vector_message(type_name: str, vector: int) -> str | None:
    bits = TYPES[type_name].bits * vector if type_name in TYPES else 0
    if vector > 1 and type_name == "pred":
        return "predicates come one by one, not as vectors"
    if vector > 4 or (vector > 1 and bits > _WIDEST_VECTOR):
        return f".v{vector} .{type_name} has {bits} bits; a vector has at most 4 elements and {_WIDEST_VECTOR} bits"
    return None


def _initial_messages(variable: Variable) -> Iterator[str]:
    if variable.space not in _INITIALISED:
        yield f"{variable.name!r} lies in .{variable.space}, which has no initial values; store them in the kernel"
    elif variable.linkage == "extern":
        yield f"{variable.name!r} is .extern; its initial value stands where it is defined"
    elif variable.type == "f16":
        yield f"{variable.name!r}: .f16 takes no initial value; declare .b16 and give the bits"
    else:
        shape = [*variable.dims, *((variable.vector,) if variable.vector > 1 else ())]
        message = _value_message(variable, variable.initial, shape)
        if message is not None:
            yield message


def _value_message(variable: Variable, value: object, shape: list[int | None]) -> str | None:
    """A message on the first value of an initialiser that does not fit."""
    items = value if isinstance(value, tuple) else None
    if (items is not None) != bool(shape):
        what = "takes a list in braces" if shape else "takes one value, not a list"
        return f"the initial value of {variable.name!r} {what} there"
    if items is None:
        return _scalar_message(variable, value)
    if shape[0] is not None and len(items) > shape[0]:
        return f"the initial value of {variable.name!r} has {len(items)} elements where {shape[0]} fit"
    return next((m for m in (_value_message(variable, item, shape[1:]) for item in items) if m is not None), None)


def _scalar_message(variable: Variable, value: object) -> str | None:
    kind = TYPES[variable.type].kind
    if isinstance(value, Integer):
        return f"{value.spelling} is an integer, and {variable.name!r} is .{variable.type}" if kind == "f" else None
    if isinstance(value, Float):
        return f"{value.spelling} is a float, and {variable.name!r} is .{variable.type}" if kind in "us" else None
    wanted = ("u8",) if isinstance(value, Masked) else ("u32", "u64")
    if variable.type not in wanted:
        what, better = "one byte of an address" if isinstance(value, Masked) else "an address", wanted[-1]
        return (
            f"{what} cannot be the initial value of {variable.name!r}, which is .{variable.type}; declare it .{better}"
        )
    return None


def _address_messages(variable: Variable, seen: Mapping[str, Function | Variable]) -> Iterator[str]:
    """Messages on names in an initial value: they must be declared before it, and have a known address."""
    for name in names_in(variable.initial):
        found = seen.get(name)
        if found is None:
            yield f"the initial value of {variable.name!r} names {name!r}, which is not declared before it"
        elif isinstance(found, Variable) and found.space not in _INITIALISED:
            yield f"the initial value of {variable.name!r} names {name!r}; a .{found.space} address is not known then"


def shared_problems(module: Module, kernel: Function) -> Iterator[PtxError]:
    """Check a kernel's shared variables against the limit of the target."""
    most = next((size for first, size in _SHARED_BYTES if target_number(module.arch) >= first), 0)
    if kernel.body is None or not most:
        return
    outside = {v.name: v for v in module.variables.values() if v.space == "shared" and v.size}
    found = mentions(kernel.body)
    used = [outside[name] for name in sorted(outside.keys() & set(found.names))]
    inside = [variable for variable in found.variables if variable.space == "shared"]
    total = 0
    for variable in (*used, *inside):
        total = -(-total // variable.natural_alignment) * variable.natural_alignment + (variable.size or 0)
        if total > most:
            name = variable.name
            message = f"shared variables of {title(kernel.name)!r} up to {name!r} have {total:,} bytes"
            message += f"; a block of {module.arch} has"
            yield problem_at(module, variable.line, f"{message} {most:,}: use .extern .shared memory, or less", name)
            return


# limit of shared variables of a kernel in bytes, by the first target
_SHARED_BYTES = ((120, 99 << 10), (90, 227 << 10), (10, 48 << 10))
