"""Undefined-value tracking through products of a warp's matrices.

An undefined element of A makes its row of the product undefined, one of B its column.
"""

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.analysis.undefined.copying import Bits, key_of, undefined
from kernbench.ptx.emulator.lanes.flags import COMPUTED, Key, whole_of
from kernbench.ptx.emulator.lanes.lanes import WARP
from kernbench.ptx.emulator.observer.origins import is_followed
from kernbench.ptx.emulator.program.operands import ADDED, Decoding
from kernbench.ptx.emulator.program.scopes import Register
from kernbench.ptx.emulator.units.batch import Window
from kernbench.ptx.numerics.matrix.layout import accumulator, dimensions, operand_a, operand_b

_A, _B = 1, 2


def product(decoding: Decoding) -> dict[Key, Bits]:
    """How the elements of a product follow from the rows of A, the columns of B, and what is added in the same lane."""
    targets, added = decoding.registers_of(0), decoding.registers_of(ADDED)
    factors = _Factors(decoding) if decoding.factors() else None
    return {
        key_of(target): _element(target, number, added[number] if len(added) == len(targets) else None, factors)
        for number, target in enumerate(targets)
        if target is not None
    }


def _element(target: Register, number: int, addend: Register | None, factors: "_Factors | None") -> Bits:
    whole = whole_of(target)

    def result(window: Window) -> Array | None:
        lost = None if addend is None else undefined(window, addend)
        found = None if lost is None else np.where(lost, whole | COMPUTED, np.uint32(0))
        more = None if factors is None else factors.bits(window, number)
        return found if more is None else more if found is None else found | more

    return result


class _Factors:
    """The lines of a product that undefined elements of A and B make undefined."""

    def __init__(self, decoding: Decoding):
        shape, self._m = decoding.mod("shape"), dimensions(decoding.mod("shape"))[0]
        self._a = _lines(decoding, _A, operand_a(shape, decoding.mod("atype")).rows)
        self._b = _lines(decoding, _B, operand_b(shape, decoding.mod("btype")).columns)
        layout = accumulator(shape)
        # elements of C and D in each register
        self._count = layout.elements // len(decoding.registers_of(0))
        self._rows, self._columns = layout.rows.T, layout.columns.T

    def bits(self, window: Window, number: int) -> Array | None:
        """The undefined bits of a register of the product; None if there are none."""
        rows, columns = undefined_lines(window, self._a, self._m), undefined_lines(window, self._b, 8)
        return element_bits(window, (rows, self._rows), (columns, self._columns), number, self._count)


def element_bits(
    window: Window,
    rows: tuple[Array | None, Array],
    columns: tuple[Array | None, Array],
    number: int,
    count: int,
) -> Array | None:
    """The undefined bits of a register, the index `number` of a product, with `count` elements; None if there are none.

    `rows` and `columns` are those that are undefined, [warps, lines] or None, and the line of each element,
    [elements, lanes].
    """
    known = [(lost, lines) for lost, lines in (rows, columns) if lost is not None]
    if not known:
        return None
    found = np.zeros((window.size // WARP, WARP), np.uint32)
    for part in range(count):
        element = number * count + part
        lost = np.logical_or.reduce([lost[:, lines[element]] for lost, lines in known])
        within = np.uint32(3 << 2 * part if count > 1 else 0xFF)
        found |= np.where(lost, within | COMPUTED, np.uint32(0))
    return found.reshape(-1)


def _lines(decoding: Decoding, operand: int, lines: Array) -> list[tuple[Register, Array]]:
    """The registers of an operand, each with the line (row of A, column of B) of each lane's elements in it."""
    registers = decoding.registers_of(operand)
    per = lines.shape[1] // len(registers)
    return [(r, lines[:, number * per]) for number, r in enumerate(registers) if r is not None]


def undefined_lines(window: Window, registers: list[tuple[Register, Array]], count: int) -> Array | None:
    """The lines with undefined elements, [warps, lines]; None if there are none."""
    definedness = window.batch.checks.definedness
    found: Array | None = None
    for register, lines in registers:
        key = key_of(register)
        bits = definedness.flags.get(window, key)
        # registers that compilers leave unset count as defined, as in shuffles
        if bits is None or not is_followed(definedness.origins.get(key)):
            continue
        lost = (bits & whole_of(register) != 0).reshape(-1, WARP)
        if not lost.any():
            continue
        found = np.zeros((len(lost), count), bool) if found is None else found
        warps, lanes = np.nonzero(lost)
        found[warps, lines[lanes]] = True
    return found
