"""Undefined-value tracking through copies: which bytes of a result come from which bytes of a source."""

from collections.abc import Callable
from typing import Any

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.flags import COMPUTED, Key, whole_of
from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.lanes.slots import RegisterSlot
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.scopes import Register
from kernbench.ptx.emulator.units.batch import Window
from kernbench.ptx.numerics.integers.permute import picks
from kernbench.ptx.text.types import TYPES

# bit of a selector nibble that replicates the sign of the byte
_SIGN = 8
_BYTE_BITS = 8
Bits = Callable[[Window], "Array | None"]


def key_of(register: Register) -> Key:
    """The key of a register's bits."""
    return register.bank, register.row


def undefined(window: Window, register: Register) -> Any:
    """Positions at which a register is undefined as a whole; None if there are none."""
    bits = window.batch.checks.definedness.flags.get(window, key_of(register))
    if bits is None:
        return None
    whole = whole_of(register)
    found = bits & whole == whole
    return found if found.any() else None


def lose(window: Window, register: Register, bad: Mask, mask: Mask | None) -> None:
    """Make a register undefined as a whole at some active positions."""
    bits = np.where(bad, whole_of(register) | COMPUTED, np.uint32(0))
    window.batch.checks.definedness.flags.put(window, key_of(register), bits, bad if mask is None else bad & mask)


def in_part(window: Window, register: Register, nbytes: int) -> Any:
    """Positions at which any of a register's lower bytes is undefined; None if there are none."""
    bits = window.batch.checks.definedness.flags.get(window, key_of(register))
    if bits is None:
        return None
    found = bits & np.uint32((1 << nbytes) - 1) != 0
    return found if found.any() else None


def as_whole(computed: Callable[[Window], Any], target: Register) -> Bits:
    """The bits of a result that is undefined as a whole at the positions given by `computed`."""
    bits = whole_of(target) | COMPUTED

    def result(window: Window) -> Array | None:
        found = computed(window)
        return None if found is None else np.where(found, bits, np.uint32(0))

    return result


def copies(decoding: Decoding) -> dict[Key, Bits] | None:
    """How the bits of each result follow from those of the sources; None if the instruction copies no bytes."""
    copying = _COPYING.get(decoding.effects.law)
    return None if copying is None else copying(decoding)


def _copy_of(source: Register | None, target: Register) -> Bits:
    """The bits of a copy: a register that is undefined as a whole stays so, whatever the width."""

    def result(window: Window) -> Array | None:
        bits = None if source is None else window.batch.checks.definedness.flags.get(window, key_of(source))
        if bits is None or source is None:
            return None
        same = source.type == target.type
        found: Array = bits if same else _fitted(bits, whole_of(source), target)
        return found

    return result


def _fitted(bits: Array, whole: Any, target: Register) -> Any:
    cut = bits & (whole_of(target) | COMPUTED)
    return np.where(bits & whole == whole, cut | whole_of(target), cut)


def _moved(decoding: Decoding) -> dict[Key, Bits]:
    pairs = zip(decoding.registers_of(0), decoding.registers_of(1), strict=True)
    return {key_of(target): _copy_of(source, target) for target, source in pairs if target is not None}


def _packed(decoding: Decoding) -> dict[Key, Bits]:
    (target,), parts = decoding.registers_of(0), decoding.registers_of(1)
    width = TYPES[decoding.mod("type")].nbytes // len(parts)
    low = np.uint32((1 << width) - 1)

    def result(window: Window) -> Array | None:
        flags, total = window.batch.checks.definedness.flags, None
        for number, part in enumerate(parts):
            bits = None if part is None else flags.get(window, key_of(part))
            if bits is not None:
                moved = (bits & low) << np.uint32(number * width) | np.where(bits & low, bits & COMPUTED, np.uint32(0))
                total = moved if total is None else total | moved
        return total

    return {} if target is None else {key_of(target): result}


def _unpacked(decoding: Decoding) -> dict[Key, Bits]:
    (source,), targets = decoding.registers_of(1), decoding.registers_of(0)
    width = TYPES[decoding.mod("type")].nbytes // len(targets)
    low = np.uint32((1 << width) - 1)

    def part(number: int, target: Register) -> Bits:
        def result(window: Window) -> Array | None:
            bits = None if source is None else window.batch.checks.definedness.flags.get(window, key_of(source))
            if bits is None:
                return None
            cut = bits >> np.uint32(number * width) & low
            found: Array = _fitted(np.where(cut, cut | bits & COMPUTED, cut), low, target)
            return found

        return result

    return {key_of(target): part(number, target) for number, target in enumerate(targets) if target is not None}


def _selected(decoding: Decoding) -> dict[Key, Bits]:
    """selp: the bits of the selected operand; undefined as a whole if the predicate is."""
    target, *operands, predicate = [decoding.register_at(index) for index in (0, 1, 2, 3)]
    if target is None or predicate is None:
        return {}
    slot = decoding.table.number(RegisterSlot(predicate.bank, predicate.row))
    copies = [_copy_of(operand, target) for operand in operands]
    none = np.uint32(0)

    def result(window: Window) -> Array | None:
        first, second = (copy(window) for copy in copies)
        unsure = undefined(window, predicate)
        if first is None and second is None and unsure is None:
            return None
        chosen: Array = np.where(
            window.rows[slot], none if first is None else first, none if second is None else second
        )
        return chosen if unsure is None else np.where(unsure, whole_of(target) | COMPUTED, chosen)

    return {key_of(target): result}


def _permuted(decoding: Decoding) -> dict[Key, Bits] | None:
    """prmt with a constant selector: the bits of the selected bytes; other bytes do not matter."""
    selector, target = decoding.constant_of(3), decoding.register_at(0)
    if selector is None or target is None:
        return None
    sources = [decoding.register_at(1), decoding.register_at(2)]
    picked = list(enumerate(picks(decoding.mod("mode") if decoding.has("mode") else "", selector)))

    def result(window: Window) -> Array | None:
        rows = [_bits_of(window, source) for source in sources]
        if all(row is None for row in rows):
            return None
        found = np.zeros(window.size, np.uint32)
        for byte, nibble in picked:
            row = rows[nibble >> 2 & 1]
            if row is None:
                continue
            lost = row >> np.uint32(nibble & 3) & np.uint32(1)
            # a replicated sign is computed, not a copy
            how = row & COMPUTED if nibble < _SIGN else COMPUTED
            found |= np.where(lost, np.uint32(1 << byte) | how, np.uint32(0))
        return found

    return {key_of(target): result}


def _inserted(decoding: Decoding) -> dict[Key, Bits] | None:
    """bfi with a constant field: bytes of the field come from the first register, others from the second."""
    first, length, target = decoding.constant_of(3), decoding.constant_of(4), decoding.register_at(0)
    if first is None or length is None or target is None:
        return None
    nbytes = TYPES[target.type].nbytes
    end = min((first & 0xFF) + (length & 0xFF), 8 * nbytes)
    # a byte with bits from both counts as defined if either is
    whole, partly = _bytes_within(first & 0xFF, end, nbytes)
    field, source = decoding.register_at(1), decoding.register_at(2)

    def result(window: Window) -> Array | None:
        inner, outer = _bits_of(window, field), _bits_of(window, source)
        if inner is None and outer is None:
            return None
        none = np.zeros(window.size, np.uint32)
        mine, other = none if inner is None else inner, none if outer is None else outer
        # the field is shifted, so undefined bytes of its register are only tracked if it is undefined as a whole
        lost = np.where(mine & whole_of(target) == whole_of(target), whole | partly, 0).astype(np.uint32)
        kept = other & whole_of(target)
        found: Array = lost & (kept | whole) | kept & ~(whole | partly)
        return np.where(found, found | COMPUTED, none)

    return {key_of(target): result}


def _converted(decoding: Decoding) -> dict[Key, Bits] | None:
    """Conversions to several numbers in a register: each is undefined if what it is made of is."""
    target, name = decoding.register_at(0), decoding.mod("dtype")
    # random bits for rounding are not a part
    last = len(decoding.operands) - (decoding.mod("rnd") == "rs")
    sources = [part for index in range(1, last) for part in decoding.registers_of(index)]
    width = _element_bytes(name)
    if target is None or width is None:
        return None
    # each element of the result with the bytes that it is made of, the lowest first: the first operand is the upper one
    made: list[tuple[Register | None, int]]
    if len(sources) == 1:
        size = _element_bytes(decoding.mod("atype"))
        if size is None:
            return None
        mask = (1 << size) - 1
        made = [(sources[0], mask), (sources[0], mask << size)]
    elif decoding.has("ctype"):
        # below what the third operand has: as much of it as goes above
        kept = [(sources[2], 1 << byte) for byte in range(TYPES[target.type].nbytes // width - 2)]
        made = [(sources[1], 0), (sources[0], 0), *kept]
    else:
        made = [(source, 0) for source in reversed(sources)]

    def result(window: Window) -> Array | None:
        rows = [_bits_of(window, source) for source, _ in made]
        if all(row is None for row in rows):
            return None
        found = np.zeros(window.size, np.uint32)
        for number, ((source, within), row) in enumerate(zip(made, rows, strict=True)):
            if source is None or row is None:
                continue
            wanted = np.uint32(within) if within else whole_of(source)
            part = np.uint32(((1 << width) - 1) << number * width)
            found |= np.where(row & wanted == wanted, part | COMPUTED, np.uint32(0))
        return found

    return {key_of(target): result}


def _element_bytes(name: str) -> int | None:
    """The bytes of one element of a type; None if an element has no whole bytes."""
    found = TYPES.get(name)
    bits = 0 if found is None else found.bits // found.lanes
    return bits // _BYTE_BITS or None


def _bytes_within(first: int, end: int, nbytes: int) -> "tuple[np.uint32, np.uint32]":
    """The bytes that are completely in a bit field, and those that are partly in it."""
    whole = partly = 0
    for byte in range(nbytes):
        inside = min(end, 8 * byte + 8) - max(first, 8 * byte)
        whole |= (inside >= _BYTE_BITS) << byte
        partly |= (0 < inside < _BYTE_BITS) << byte
    return np.uint32(whole), np.uint32(partly)


def _bits_of(window: Window, register: Register | None) -> Array | None:
    """The bits of a register; None if it is completely defined, or if there is no register."""
    found: Array | None = (
        None if register is None else window.batch.checks.definedness.flags.get(window, key_of(register))
    )
    return found


# by the data-flow law of an instruction that moves bytes; a function returns None if the mapping is not constant
_COPYING: dict[str, Callable[[Decoding], dict[Key, Bits] | None]] = {
    "copy": _moved,
    "pack": _packed,
    "unpack": _unpacked,
    "select": _selected,
    "permute": _permuted,
    "insert": _inserted,
    "convert and pack": _converted,
}
