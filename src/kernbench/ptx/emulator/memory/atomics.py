"""Compiled atomics: lanes run one after the other by position, each reading what the previous one left.

Conventions are those of `access`. `target` is the row of the old value, negative for a reduction. The result is the
number of lanes that changed memory, so that failed attempts do not count as progress.

Additions of f32 in global memory flush subnormal numbers, those in shared memory do not.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from kernbench.common.compiled import with_numba
from kernbench.common.native.kinds import Scalar
from kernbench.ptx.emulator.lanes.arrays import Bools, Int, Int64s, Word, Words
from kernbench.ptx.emulator.lanes.compiled import kernel, part
from kernbench.ptx.emulator.memory.access import (
    _PAGE,
    _TRACKED,
    _UNWRITTEN,
    _WRITTEN,
    MISALIGNED,
    OUTSIDE,
    UNINITIALISED,
    GivenAddressing,
    _count,
    _shift_of,
    addressing_of,
)
from kernbench.ptx.emulator.memory.cell_entries import note_write
from kernbench.ptx.emulator.memory.cells import Shadow, ShadowArrays, named
from kernbench.ptx.numerics.rows.scalar import bits_of_float32, bits_of_float64, float32_of, float64_of, type_named

OPERATIONS = {
    name: code
    for code, name in enumerate(
        ("add", "and", "or", "xor", "exch", "cas", "inc", "dec", "min.u", "max.u", "min.s", "max.s", "add.f", "add.ftz")
    )
}
_ADD, _AND, _OR, _XOR, _EXCH, _CAS, _INC, _DEC, _MIN_U, _MAX_U, _MIN_S, _MAX_S, _ADD_F, _ADD_FTZ = range(14)
# bytes of an f32
_F32 = 4
_SIGN32, _EXPONENT32 = np.uint32(1 << 31), np.uint32(0xFF << 23)
_NAN32, _NAN64 = np.uint32(0x7FFFFFFF), np.uint64(0x7FFFFFFFFFFFFFFF)


def _float_sum(a: Word, b: Word) -> Word:
    """The sum of two floats given by their bits."""
    raise NotImplementedError("only compiled code adds here")


def _flushing_sum(a: Word, b: Word) -> Word:
    """The same, with subnormal f32 made zeros of their sign before and after."""
    raise NotImplementedError("only compiled code adds here")


@part
def _flushed32(a: Word) -> Word:
    return a if a & _EXPONENT32 else a & _SIGN32


def _sum32(a: Word, b: Word) -> Word:
    total = float32_of(a) + float32_of(b)
    return _NAN32 if total != total else bits_of_float32(total)


def _flushing_sum32(a: Word, b: Word) -> Word:
    total = float32_of(_flushed32(a)) + float32_of(_flushed32(b))
    return _NAN32 if total != total else _flushed32(bits_of_float32(total))


def _sum64(a: Word, b: Word) -> Word:
    total = float64_of(a) + float64_of(b)
    return _NAN64 if total != total else bits_of_float64(total)


def _unused(a: Word, b: Word) -> Word:
    return a


# additions, by the type of the bits
_UNUSED = {Scalar("u", 8): _unused, Scalar("u", 16): _unused}
vars(_float_sum)["by_kind"] = {**_UNUSED, Scalar("u", 32): _sum32, Scalar("u", 64): _sum64}
vars(_flushing_sum)["by_kind"] = {**_UNUSED, Scalar("u", 32): _flushing_sum32, Scalar("u", 64): _unused}


def _compiled_sum(a: Word, b: Word) -> Callable[[Word, Word], Word]:
    """The addition for numba's types; numba wants the parameter annotations of `_float_sum`."""
    found = {type_named("uint32"): _sum32, type_named("uint64"): _sum64}
    return found.get(a, _unused)


def _compiled_flushing_sum(a: Word, b: Word) -> Callable[[Word, Word], Word]:
    return _flushing_sum32 if a == type_named("uint32") else _unused


@with_numba
def _register_with_numba() -> None:
    from numba.extending import overload

    overload(_float_sum)(_compiled_sum)
    overload(_flushing_sum)(_compiled_flushing_sum)


@part
def _result(operation: Int, old: Word, b: Word, c: Word, one: Word, sign: Word) -> Word:
    if operation == _ADD:
        added: Word = old + b
        return added
    if operation == _CAS:
        return c if old == b else old
    if operation == _EXCH:
        return b
    if operation >= _ADD_F:
        return _float_sum(old, b) if operation == _ADD_F else _flushing_sum(old, b)
    if operation == _AND:
        return old & b
    if operation == _OR:
        return old | b
    if operation == _XOR:
        return old ^ b
    if operation == _INC:
        counted: Word = old - old if old >= b else old + one
        return counted
    if operation == _DEC:
        return b if (old == 0 or old > b) else old - one
    if operation == _MIN_U:
        return min(old, b)
    if operation == _MAX_U:
        return max(old, b)
    less = (old ^ sign) < (b ^ sign)
    if operation == _MIN_S:
        return old if less else b
    return b if less else old


def in_space(operation: int, space: str, nbytes: int) -> int:
    """The operation on words of a space."""
    return _ADD_FTZ if operation == _ADD_F and space == "global" and nbytes == _F32 else operation


class Noted(NamedTuple):
    """How an update is entered in the shadow cells: see `cells`. Python passes it as a plain tuple."""

    shadow: ShadowArrays
    site: int
    scope: int
    kind: int


class Updating(NamedTuple):
    """What an update moves: as `Moved`, with the rows of the old value (or -1), of b and of c."""

    bank: Words
    rows: tuple[int, int, int]
    lanes: Int64s
    mask: Bools


@kernel
def atomic(
    memory: Words,
    state: Words,
    dirty: Bools,
    where: GivenAddressing,
    moved: tuple[Words, tuple[int, int, int], Int64s, Bools],
    operation: Int,
    report: Int64s,
    checked: bool,
    noted: tuple[Shadow, int, int, int],
) -> int:
    """Run one atomic for all active lanes; returns how many of them changed memory.

    `moved` holds the parts of `Updating`, `noted` those of `Noted`.
    """
    at, what = addressing_of(where), Updating(moved[0], moved[1], moved[2], moved[3])
    entered = Noted(named(noted[0]), noted[1], noted[2], noted[3])
    bank, (target, source, other) = what.bank, what.rows
    width = np.uint64(memory.itemsize)
    shift = _shift_of(memory.itemsize)
    own = at.origins.size > 0
    masked = what.mask.size > 0
    kind = memory.dtype.type
    written, tracked, unwritten = kind(_WRITTEN), kind(_TRACKED), kind(_UNWRITTEN)
    one, sign = kind(1), kind(1) << kind(8 * memory.itemsize - 1)
    changed = 0
    for i in range(what.lanes.size):
        if masked and not what.mask[i]:
            continue
        lane = what.lanes[i]
        address = at.addresses[i] + at.offset
        start = address - at.window
        if at.size < width or (address & (width - np.uint64(1))) or start > at.size - width:
            _count(report, MISALIGNED if address & (width - np.uint64(1)) else OUTSIDE, i)
            continue
        if own:
            start += at.origins[lane]
        word = start >> shift
        racing = False
        if checked:
            found = state[word]
            racing = (found & tracked) != 0
            if (found & unwritten) != unwritten:
                _count(report, OUTSIDE, i)
                continue
            if (found & ~tracked) != written and operation != _EXCH:
                _count(report, UNINITIALISED, i)
            state[word] = found | written
        if not own:
            dirty[start >> _PAGE] = True
        old = memory[word]
        new = kind(_result(operation, old, bank[source, lane], bank[other, lane], one, sign))
        memory[word] = new
        changed += new != old
        if target >= 0:
            bank[target, lane] = old
        if racing:
            note_write(start, width, lane, i, False, entered.shadow, entered.site, entered.scope, entered.kind, report)
    return changed
