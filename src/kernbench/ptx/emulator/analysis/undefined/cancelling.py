"""What is left of undefined values that are added and subtracted again: `(x + u) - u` is x, whatever u is.

Registers and words of memory that are undefined have forms (`lanes.forms`), which copies keep and sums and differences
of integers add up. A result of which the form is 0 is defined. All other results are new unknown numbers.
"""

from collections.abc import Callable

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.analysis.undefined.copying import key_of
from kernbench.ptx.emulator.lanes.arrays import UInt64s
from kernbench.ptx.emulator.lanes.flags import Key
from kernbench.ptx.emulator.lanes.forms import added, halves, joined, subtracted
from kernbench.ptx.emulator.lanes.slots import RegisterSlot
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.scopes import Register
from kernbench.ptx.emulator.units.batch import Window
from kernbench.ptx.text.types import TYPES

# sums of these types wrap around, so that what is added can be subtracted again
_WRAPPING = ("s32", "u32", "s64", "u64")
_WORD, _HALVES = 4, 2
Result = tuple["Array | None", "UInt64s | None"]
# of undefined bits of a result, those that are left, and its forms
Cancels = Callable[[Window, "Array | None"], Result]
_Forms = Callable[[Window], UInt64s]


def unknown(window: Window, bits: Array | None) -> Result:
    """A result of which nothing is known."""
    return bits, None


def cancelling(decoding: Decoding) -> dict[Key, Cancels]:
    """For results of instructions that copy, add or subtract: what is known of them."""
    law = decoding.effects.law
    if law in _SUMS:
        return {key: _left(forms) for key, forms in _sum(decoding).items()}
    copied = _COPYING.get(law)
    return {} if copied is None else {key: _kept(forms) for key, forms in copied(decoding).items()}


def loaded_forms(decoding: Decoding, nbytes: int) -> Callable[[Window, int, "UInt64s | None"], "UInt64s | None"]:
    """A function for the forms of a load's elements of some bytes, by their index, from those of all its words."""
    registers = decoding.registers_of(0)

    def forms(window: Window, index: int, words: UInt64s | None) -> UInt64s | None:
        register = registers[index]
        if words is None or register is None or TYPES[register.type].nbytes != nbytes:
            return None
        if nbytes == _WORD:
            return words[:, index]
        if nbytes == _HALVES * _WORD:
            return joined(
                words[:, _HALVES * index], words[:, _HALVES * index + 1], _numbers(decoding, register, window)
            )
        return None

    return forms


def _kept(forms: _Forms) -> Cancels:
    def keep(window: Window, bits: Array | None) -> Result:
        return (None, None) if bits is None or not bits.any() else (bits, forms(window))

    return keep


def _left(forms: _Forms) -> Cancels:
    def leave(window: Window, bits: Array | None) -> Result:
        if bits is None or not bits.any():
            return None, None
        found = forms(window)
        return np.where(found == 0, np.uint32(0), bits), found

    return leave


def _forms_of(window: Window, register: Register | None) -> UInt64s:
    found: UInt64s | None = None
    if register is not None:
        found = window.batch.checks.definedness.flags.forms_of(window, key_of(register))
    return np.zeros(window.size, np.uint64) if found is None else found


def _numbers(decoding: Decoding, register: Register, window: Window) -> UInt64s:
    numbers: UInt64s = window.rows[decoding.table.number(RegisterSlot(register.bank, register.row))]
    return numbers


def _sum(decoding: Decoding) -> dict[Key, _Forms]:
    target, one, other = (decoding.register_at(index) for index in range(3))
    if target is None or decoding.has("sat") or decoding.mod("type") not in _WRAPPING:
        return {}
    combined = _SUMS[decoding.effects.law]
    return {key_of(target): lambda window: combined(_forms_of(window, one), _forms_of(window, other))}


def _moved(decoding: Decoding) -> dict[Key, _Forms]:
    pairs = zip(decoding.registers_of(0), decoding.registers_of(1), strict=True)
    return {key_of(target): _copy(source) for target, source in pairs if target and source and _alike(target, source)}


def _alike(one: Register, other: Register) -> bool:
    return TYPES[one.type].nbytes == TYPES[other.type].nbytes


def _copy(source: Register) -> _Forms:
    return lambda window: _forms_of(window, source)


def _selected(decoding: Decoding) -> dict[Key, _Forms]:
    target, one, other, predicate = (decoding.register_at(index) for index in range(4))
    if target is None or predicate is None or not all(_alike(target, r) for r in (one, other) if r is not None):
        return {}

    def forms(window: Window) -> UInt64s:
        chosen = window.rows[decoding.table.number(RegisterSlot(predicate.bank, predicate.row))]
        return np.where(chosen, _forms_of(window, one), _forms_of(window, other))

    return {key_of(target): forms}


def _unpacked(decoding: Decoding) -> dict[Key, _Forms]:
    (source,), targets = decoding.registers_of(1), decoding.registers_of(0)
    if source is None or not _are_halves(source, targets):
        return {}

    def half(number: int) -> _Forms:
        return lambda window: halves(_forms_of(window, source), _numbers(decoding, source, window))[number]

    return {key_of(target): half(number) for number, target in enumerate(targets) if target is not None}


def _packed(decoding: Decoding) -> dict[Key, _Forms]:
    (target,), parts = decoding.registers_of(0), decoding.registers_of(1)
    if target is None or not _are_halves(target, parts):
        return {}
    low, high = parts

    def forms(window: Window) -> UInt64s:
        if low is None or high is None:
            return np.zeros(window.size, np.uint64)
        upper = _numbers(decoding, high, window).astype(np.uint64) << np.uint64(8 * _WORD)
        numbers = upper | _numbers(decoding, low, window)
        return joined(_forms_of(window, low), _forms_of(window, high), numbers)

    return {key_of(target): forms}


def _are_halves(whole: Register, parts: list[Register | None]) -> bool:
    sizes = {TYPES[part.type].nbytes for part in parts if part is not None}
    return TYPES[whole.type].nbytes == _HALVES * _WORD and len(parts) == _HALVES and sizes <= {_WORD}


_SUMS = {"sum": added, "difference": subtracted}
_COPYING: dict[str, Callable[[Decoding], dict[Key, _Forms]]] = {
    "copy": _moved,
    "select": _selected,
    "unpack": _unpacked,
    "pack": _packed,
}
