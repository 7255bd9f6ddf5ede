"""The shared variables that an access is meant for: those whose addresses its own is computed from.

Only the assembler knows the layout of variables, so no program may reach one from the address of another. A value
loaded from memory, from another lane, or from a function's caller may be any address, unless it is scaled.
"""

from collections.abc import Mapping
from collections.abc import Set as AnySet
from functools import partial

from kernbench.ptx.emulator.analysis.flow.dataflow import origins_of
from kernbench.ptx.emulator.analysis.flow.meant import PRODUCTS, added_origin, is_index
from kernbench.ptx.emulator.instructions.decode import Decoded
from kernbench.ptx.emulator.memory.port import space_of
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.program import SharedVariable
from kernbench.ptx.text.module import Address, Name

# variables are identified by offset
_NOBODY: frozenset[int] = frozenset()
# the origin of a value that may be any address
_ANYBODY = frozenset((-1,))
# a value scaled by 1 may be an address
_BYTE = 1


def meant_variables(decoded: Decoded) -> Mapping[int, tuple[SharedVariable, ...]]:
    """By site of an access: the variables in its address, if all are known and there are others."""
    begins = {variable.offset: variable for variable in decoded.shared}
    if len(begins) < 2:
        return {}
    found: dict[int, tuple[SharedVariable, ...]] = {}
    for body in decoded.bodies:
        sources = origins_of(body, partial(_origin, body.entry))
        for decoding in (d for decodings in body.decodings for d in decodings if _reaches_shared(d)):
            origin = _address_origin(decoding, sources)
            if origin and origin <= begins.keys() and len(origin) < len(begins):
                found[decoding.site.number] = tuple(begins[start] for start in sorted(origin))
    return found


def _reaches_shared(decoding: Decoding) -> bool:
    """Whether threads may access shared memory by an instruction; this includes the targets of threads' copies."""
    effects = decoding.effects
    if effects.asynchronous or effects.acts_on or not (effects.reads or effects.writes):
        return False
    if not any(isinstance(operand, Address) for operand in decoding.operands):
        return False
    return effects.carries_undefined or space_of(decoding.address_space) in ("shared", "generic")


def _address_origin(decoding: Decoding, sources: Mapping[int, AnySet[int]]) -> frozenset[int]:
    """The origins of an access's address; of a copy, that of its target, which comes first."""
    base = next(operand.base for operand in decoding.operands if isinstance(operand, Address))
    register = decoding.scope.register(base.text) if isinstance(base, Name) else None
    if register is None:
        return frozenset(decoding.shared_variables)
    return frozenset(sources.get(register.number, _NOBODY))


def _origin(entry: bool, decoding: Decoding, sources: Mapping[int, AnySet[int]]) -> frozenset[int]:
    effects = decoding.effects
    if effects.access == "load":
        # kernel arguments are numbers: nobody outside knows a shared address
        return _NOBODY if decoding.parameter and entry else _ANYBODY
    wide = any(register.type.endswith("64") for register in decoding.writes)
    # from another lane, an atomic or a function, or packed from halves
    if not effects.forwards or (effects.law == "pack" and wide):
        return _ANYBODY
    origin = frozenset(decoding.shared_variables).union(
        *(sources.get(register.number, _NOBODY) for register in decoding.reads)
    )
    if effects.law in PRODUCTS and is_index(decoding, _BYTE):
        return added_origin(decoding, sources) | (origin - _ANYBODY)
    return origin
