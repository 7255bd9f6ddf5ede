"""Loads from constant tables at an index that a mask bounds, as `sin` loads its coefficients by the lowest bit of one.

Whatever the index holds, such a load reads a variable of the module that the kernel cannot write, and stays inside of
it. So an undefined index has no other effect than that what is loaded is undefined.
"""

from collections.abc import Callable
from dataclasses import dataclass

from kernbench.ptx.emulator.instructions.decode import Body
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.scopes import Register
from kernbench.ptx.isa.forms.effects import Law
from kernbench.ptx.text.module import Integer, Name, Operand, Variable
from kernbench.ptx.text.types import TYPES

# numbers beyond this may wrap around
_LARGEST = 1 << 31
# steps from an address back to its variable
_DEEPEST = 32


@dataclass(frozen=True, slots=True)
class _Bounded:
    """A number from `low` to `high`, added to the address of a variable, if there is one."""

    variable: str
    low: int
    high: int


def table_loads(body: Body) -> dict[int, Register]:
    """By site, the register with the address of each such load."""
    loads = [d for d in body if d.effects.access == "load" and _is_constant(d)]
    if not loads:
        return {}
    found, definitions = {}, _definitions(body)
    for load in loads:
        register = load.address_reads[0] if len(load.address_reads) == 1 else None
        where = None if register is None else _bounds(register, definitions, _DEEPEST)
        if register is not None and where is not None and _is_inside(load, where):
            found[load.site.number] = register
    return found


def _is_constant(load: Decoding) -> bool:
    return load.has("nc") or load.mod("space") == "const"


def _is_inside(load: Decoding, where: _Bounded) -> bool:
    variable = _variable(load, where.variable)
    nbytes = TYPES[load.mod("type")].nbytes * len(load.registers_of(0))
    first, last = where.low + load.address_offset, where.high + load.address_offset + nbytes
    return variable is not None and first >= 0 and last <= (variable.size or 0)


def _variable(decoding: Decoding, name: str) -> Variable | None:
    found = decoding.linker.variables.get(name)
    return found if found is not None and found.space in ("global", "const") else None


def _definitions(body: Body) -> dict[int, Decoding | None]:
    """By register number, the only instruction that sets it, always; None if there are several."""
    found: dict[int, Decoding | None] = {}
    for decoding in body:
        for register in decoding.writes:
            once = register.number not in found and decoding.guard() is None
            found[register.number] = decoding if once else None
    return found


def _bounds(register: Register, definitions: dict[int, Decoding | None], depth: int) -> _Bounded | None:
    decoding = definitions.get(register.number)
    combine = None if decoding is None or not depth else _COMBINED.get(decoding.effects.law)
    if decoding is None or combine is None or not _is_of_integers(decoding):
        return None
    parts = [_operand(decoding, operand, definitions, depth - 1) for operand in decoding.operands[1:3]]
    found = combine(decoding, *parts)
    return found if found is not None and found.low >= 0 and found.high < _LARGEST else None


def _is_of_integers(decoding: Decoding) -> bool:
    return all(TYPES[name].kind in ("s", "u", "b") and TYPES[name].bits >= 32 for name in decoding.types[:2])


def _operand(
    decoding: Decoding, operand: Operand, definitions: dict[int, Decoding | None], depth: int
) -> _Bounded | None:
    if isinstance(operand, Integer):
        return _Bounded("", operand.value, operand.value)
    register = decoding.scope.register(operand.text) if isinstance(operand, Name) else None
    if register is not None:
        return _bounds(register, definitions, depth)
    named = isinstance(operand, Name) and _variable(decoding, operand.text) is not None
    return _Bounded(operand.text, 0, 0) if isinstance(operand, Name) and named else None


def _same(decoding: Decoding, one: _Bounded | None, other: _Bounded | None = None) -> _Bounded | None:
    return one


def _masked(decoding: Decoding, one: _Bounded | None, other: _Bounded | None) -> _Bounded | None:
    """What a mask leaves, whatever the other operand is."""
    masks = [part.high for part in (one, other) if part is not None and not part.variable and part.low >= 0]
    return _Bounded("", 0, min(masks)) if masks else None


def _scaled(decoding: Decoding, one: _Bounded | None, other: _Bounded | None) -> _Bounded | None:
    if one is None or other is None or one.variable or other.variable or decoding.mod("mode") == "hi":
        return None
    return _Bounded("", one.low * other.low, one.high * other.high) if min(one.low, other.low) >= 0 else None


def _shifted(decoding: Decoding, one: _Bounded | None, other: _Bounded | None) -> _Bounded | None:
    if other is None or other.low != other.high or not 0 <= other.low < TYPES["b32"].bits:
        return None
    return _scaled(decoding, one, _Bounded("", 1 << other.low, 1 << other.low))


def _added(decoding: Decoding, one: _Bounded | None, other: _Bounded | None) -> _Bounded | None:
    if one is None or other is None or (one.variable and other.variable):
        return None
    return _Bounded(one.variable or other.variable, one.low + other.low, one.high + other.high)


_COMBINED: dict[Law, Callable[[Decoding, _Bounded | None, _Bounded | None], _Bounded | None]] = {
    "copy": _same,
    "convert": _same,
    "address": _same,
    "and": _masked,
    "product": _scaled,
    "shift left": _shifted,
    "sum": _added,
}
