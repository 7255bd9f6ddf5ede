"""The arrays that an access is meant for: the kernel parameters in its address.

An address is a pointer and an offset, and PTX does not say which is which. A value loaded from memory may be a pointer,
half of one, or the distance of two arrays in elements, unless it is scaled by more than an element's size, as a row
index is. A value computed from pointers, such as their difference, keeps their origins, however it is scaled.
"""

from collections.abc import Mapping
from collections.abc import Set as AnySet
from typing import TypeVar

from kernbench.ptx.emulator.analysis.flow.dataflow import origins_of
from kernbench.ptx.emulator.instructions.decode import Body
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.program import Word
from kernbench.ptx.text.module import Address, Integer, Kernel

Origin = TypeVar("Origin")
_NOBODY: frozenset[Word] = frozenset()
# the origin of a value that may be any pointer
_ANYBODY = frozenset((Word("?", 0),))
# the largest element: an index scaled by up to this size may still be a distance
_ELEMENT_BYTES = 16
PRODUCTS = frozenset(("product", "product and sum", "shift left"))
_SPACES = ("global", "generic", "")
_POINTER_BYTES = 8


def meant_parameters(body: Body, kernel: Kernel) -> Mapping[int, frozenset[Word]]:
    """By site of an access: the parameters in its address, if all are known.

    Each is a word of a parameter: its name and its offset. Those that are no pointers, such as a 64-bit stride, are
    included: their values show it at launch.
    """
    sources = origins_of(body, _origin)
    pointers = {Word(one.name, at) for one in kernel.params for at in range(0, one.size - 7, _POINTER_BYTES)}
    found: dict[int, frozenset[Word]] = {}
    for decoding in (d for decodings in body.decodings for d in decodings):
        if not decoding.address_reads or not _reaches_arrays(decoding):
            continue
        origin = _NOBODY.union(*(sources.get(register.number, _NOBODY) for register in decoding.address_reads))
        if origin and origin <= pointers:
            found[decoding.site.number] = origin
    return found


def _reaches_arrays(decoding: Decoding) -> bool:
    """Whether an instruction may access global memory by an address in registers; this includes threads' copies."""
    if decoding.effects.access in ("load", "store", "atomic"):
        return decoding.address_space in _SPACES
    return decoding.effects.carries_undefined and decoding.traffic is not None and decoding.traffic[0] == "global"


def _origin(decoding: Decoding, sources: Mapping[int, AnySet[Word]]) -> frozenset[Word]:
    effects = decoding.effects
    wide = any(register.type[-2:] in ("64", "28") for register in decoding.writes)
    if effects.access == "load":
        if decoding.parameter:
            return _words(decoding) if wide else _NOBODY
        return _ANYBODY
    # from another lane, an atomic or a function, or packed from halves
    if not effects.forwards or (effects.law == "pack" and wide):
        return _ANYBODY
    origin = _NOBODY.union(*(sources.get(register.number, _NOBODY) for register in decoding.reads))
    if effects.law in PRODUCTS and is_index(decoding, _ELEMENT_BYTES):
        return added_origin(decoding, sources) | (origin - _ANYBODY)
    # the address of a parameter, or of a module variable; a shorter one is in shared memory
    return _ANYBODY if decoding.parameter or (decoding.names_variable and wide) else origin


def _words(decoding: Decoding) -> frozenset[Word]:
    """The words of a parameter that a load reads."""
    operand = decoding.operands[1]
    first = operand.offset if isinstance(operand, Address) else 0
    return frozenset(
        Word(decoding.parameter, first + at) for at in range(0, _POINTER_BYTES * len(decoding.writes), _POINTER_BYTES)
    )


def is_index(decoding: Decoding, element_bytes: int) -> bool:
    """Whether a product can be neither a pointer nor a distance of pointers in elements of this size."""
    if decoding.effects.law == "shift left":
        by = decoding.operands[2]
        return isinstance(by, Integer) and 0 <= by.value < 32 and 1 << by.value > element_bytes
    factors = [operand.value for operand in decoding.operands[1:3] if isinstance(operand, Integer)]
    return not factors or abs(factors[0]) > element_bytes


def added_origin(decoding: Decoding, sources: Mapping[int, AnySet[Origin]]) -> frozenset[Origin]:
    """The origins of the summand that an instruction adds to a product."""
    if decoding.effects.law != "product and sum":
        return frozenset()
    added = [register for register in decoding.registers_of(3) if register is not None]
    return frozenset[Origin]().union(*(sources.get(register.number, frozenset()) for register in added))
