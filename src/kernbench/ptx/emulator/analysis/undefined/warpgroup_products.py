"""Undefined-value tracking through products of warpgroups (wgmma), as `matrices` does it for those of warps.

An undefined element of A makes its row of the product undefined, one of B its column, whether they are in registers or
in shared memory.
"""

from collections.abc import Callable

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.analysis.undefined.copying import key_of
from kernbench.ptx.emulator.analysis.undefined.matrices import element_bits, undefined_lines
from kernbench.ptx.emulator.lanes.flags import Registers
from kernbench.ptx.emulator.lanes.lanes import WARP, Mask
from kernbench.ptx.emulator.observer.definedness import Definedness, LostLines
from kernbench.ptx.emulator.observer.origins import Origin, is_followed, product_of
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.scopes import Register
from kernbench.ptx.emulator.units.batch import Window
from kernbench.ptx.numerics.matrix.layout import dimensions, wgmma_accumulator

# rows of D in a warp
_ROWS = 16


def mark_product(decoding: Decoding) -> Callable[[Window, Mask | None], None]:
    """Mark the elements of D whose row or column is undefined, and those that are added to undefined ones."""
    _, n, _ = dimensions(decoding.mod("shape"))
    layout, scale = wgmma_accumulator(n), decoding.position("scale_d")
    assert scale is not None
    adds, added = decoding.source(scale), decoding.added()
    elements, rows_of, columns_of = decoding.registers_of(0), layout.rows.T, layout.columns.T
    targets, count = [(n, one) for n, one in enumerate(elements) if one is not None], layout.elements // len(elements)
    left = [(register, _rows_of(number)) for number, register in enumerate(decoding.factors())]
    registers = Registers(map(key_of, [*(target for _, target in targets), *decoding.factors()]))

    def marks(window: Window, mask: Mask | None) -> None:
        definedness = window.batch.checks.definedness
        lost = definedness.take_lines()
        if not lost and not definedness.flags.known(window, registers):
            return
        rows = _lines(window, lost, "A", _ROWS, undefined_lines(window, left, _ROWS))
        columns = _lines(window, lost, "B", n, None)
        origin = _origin_of(definedness, window, lost, decoding.factors())
        adding = np.broadcast_to(window.rows[adds] != 0, window.size)
        for number, target in targets:
            key = key_of(target)
            found = element_bits(window, (rows, rows_of), (columns, columns_of), number, count)
            before = definedness.flags.get(window, key) if target in added else None
            if before is not None and is_followed(definedness.origins.get(key)) and (before[adding] != 0).any():
                kept = np.where(adding, before, np.uint32(0))
                found = kept if found is None else found | kept
            elif found is not None and origin is not None:
                definedness.origins[key] = origin
            definedness.flags.put(window, key, found, mask)

    return marks


def _rows_of(number: int) -> Array:
    """The row of A of each lane's elements in a register."""
    found: Array = np.arange(WARP) // 4 + 8 * (number % 2)
    return found


def _lines(window: Window, lost: list[LostLines], operand: str, count: int, found: Array | None) -> Array | None:
    """The undefined lines, [warps, lines], those in memory and those `found` in registers; None if there are none."""
    position: Array = np.full(window.batch.warps, -1)
    position[window.warps] = np.arange(len(window.warps))
    for one in lost:
        if one.operand == operand:
            found = np.zeros((len(window.warps), count), bool) if found is None else found
            # warps that issued the operation earlier are elsewhere
            here = position[one.warps] >= 0
            found[position[one.warps[here]]] |= one.lines[here]
    return found


def _origin_of(
    definedness: Definedness, window: Window, lost: list[LostLines], factors: list[Register]
) -> Origin | None:
    """Where the undefined lines come from."""
    known = definedness.flags.get
    origins = (definedness.origins.get(key_of(one)) for one in factors if known(window, key_of(one)) is not None)
    return product_of(one for one in (*(each.origin for each in lost), *origins) if is_followed(one))
