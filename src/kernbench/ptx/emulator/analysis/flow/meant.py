"""Which arrays an access can be meant for: the parameters of the kernel that its address is made of.

An address is a pointer and an offset, and PTX does not say which is which. Of what was loaded from memory nobody knows
whether it is a pointer, half of one, or the distance of two arrays in elements, unless it is scaled by more than an
element, as the number of a row is. What is computed of pointers, as their difference, stays made of them, however it
is scaled.
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
# where a value comes from that could be any pointer
_ANYBODY = frozenset((Word("?", 0),))
# the largest element: an index is scaled by so much and may still be a distance
_ELEMENT_BYTES = 16
PRODUCTS = frozenset(("product", "product and sum", "shift left"))
_SPACES = ("global", "generic", "")
_POINTER_BYTES = 8


def meant_parameters(body: Body, kernel: Kernel) -> Mapping[int, frozenset[Word]]:
    """By the site of an access, the parameters that its address is made of; only where all of them are known.

    Each is a word of a parameter: its name and the byte at which it begins in it. Those that are no pointers, as a
    stride of 64 bits, are among them: what they hold shows it when they are launched.
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
    """Whether an instruction accesses global memory, or may, by an address in registers; copies by threads do."""
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
    # of another lane, of an atomic or of a function, or put together of halves
    if not effects.forwards or (effects.law == "pack" and wide):
        return _ANYBODY
    origin = _NOBODY.union(*(sources.get(register.number, _NOBODY) for register in decoding.reads))
    if effects.law in PRODUCTS and is_index(decoding, _ELEMENT_BYTES):
        return added_origin(decoding, sources) | (origin - _ANYBODY)
    # the address of a parameter, or of a variable of the module: a shorter one is of shared memory
    return _ANYBODY if decoding.parameter or (decoding.names_variable and wide) else origin


def _words(decoding: Decoding) -> frozenset[Word]:
    """The words of a parameter that a load reads."""
    operand = decoding.operands[1]
    first = operand.offset if isinstance(operand, Address) else 0
    return frozenset(
        Word(decoding.parameter, first + at) for at in range(0, _POINTER_BYTES * len(decoding.writes), _POINTER_BYTES)
    )


def is_index(decoding: Decoding, element_bytes: int) -> bool:
    """Whether the product of an instruction cannot be a pointer, nor a distance of two in elements of so many bytes."""
    if decoding.effects.law == "shift left":
        by = decoding.operands[2]
        return isinstance(by, Integer) and 0 <= by.value < 32 and 1 << by.value > element_bytes
    factors = [operand.value for operand in decoding.operands[1:3] if isinstance(operand, Integer)]
    return not factors or abs(factors[0]) > element_bytes


def added_origin(decoding: Decoding, sources: Mapping[int, AnySet[Origin]]) -> frozenset[Origin]:
    """What the number is made of that an instruction adds to a product."""
    if decoding.effects.law != "product and sum":
        return frozenset()
    added = [register for register in decoding.registers_of(3) if register is not None]
    return frozenset[Origin]().union(*(sources.get(register.number, frozenset()) for register in added))
