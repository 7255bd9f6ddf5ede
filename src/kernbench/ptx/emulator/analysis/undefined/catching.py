"""Steps after instructions whose results may be undefined: loads, and divisions in compiled code."""

from collections.abc import Callable
from typing import Any

import numpy as np

from kernbench.ptx.emulator.analysis.undefined.cancelling import loaded_forms
from kernbench.ptx.emulator.analysis.undefined.copying import key_of, lose, undefined
from kernbench.ptx.emulator.analysis.undefined.warpgroup_products import mark_product
from kernbench.ptx.emulator.analysis.undefined.watching import under_guard
from kernbench.ptx.emulator.instructions.matrix.matrix import has_plain_rows
from kernbench.ptx.emulator.lanes.flags import COMPUTED, whole_of
from kernbench.ptx.emulator.lanes.lanes import WARP, Mask
from kernbench.ptx.emulator.observer.origins import CONTESTED, Origin
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.scopes import Register
from kernbench.ptx.emulator.program.steps import Step, action
from kernbench.ptx.emulator.units.batch import Window
from kernbench.ptx.text.types import TYPES

_OWN_MEMORY = frozenset(("", "local", "param::func"))
Mark = Callable[[Window, "Mask | None"], None]


def may_be_undefined(decoding: Decoding, compiled: bool, local: bool) -> bool:
    """Whether an instruction's result may be undefined, and is reported where it has an effect.

    This holds for loads of tensor memory, of local memory if the program has any and, in `compiled` code, for all loads
    (of matrices those of 16-bit elements), products of warpgroups, and integer divisions whose divisor is not constant.
    """
    source = decoding.effects.undefined_from
    if source == "division":
        # compilers divide speculatively, and do not use the result if the divisor is zero
        return compiled and not decoding.constant_of(2)
    if source == "tiles":
        return compiled
    if source == "rows":
        return compiled and has_plain_rows(decoding)
    if source != "memory":
        return source == "tensor memory"
    space = decoding.address_space or decoding.mod("space")
    return compiled or (local and space in _OWN_MEMORY)


def leaves_at_once(decoding: Decoding) -> bool:
    """Whether the instruction itself leaves the plain steps of its block at an undefined value."""
    return decoding.effects.undefined_from in ("memory", "rows", "tiles")


def first_step(decoding: Decoding) -> Step:
    """A step after an instruction without tracking: the first undefined value switches tracking on."""
    site = decoding.site

    def general(window: Window, mask: Mask | None) -> None:
        window.batch.checks.definedness.follow(site)

    return under_guard(decoding, action(general))


def exchanges_values(decoding: Decoding) -> bool:
    """Whether an instruction gives values of lanes to other lanes, in which they are tracked."""
    return decoding.effects.law in ("shuffle", "reduction")


def first_exchange(decoding: Decoding, register: Register) -> Step:
    """A step before such an instruction without tracking: a value that was never set switches tracking on."""
    site = decoding.site

    def general(window: Window, mask: Mask | None) -> None:
        bad = undefined(window, register)
        if bad is not None and (bad if mask is None else bad & mask).any():
            window.batch.checks.definedness.begin(site)

    return under_guard(decoding, action(general))


def following_step(decoding: Decoding) -> Step:
    """A step after an instruction with tracking: marks its results."""
    marks = _KINDS[decoding.effects.undefined_from](decoding)

    def general(window: Window, mask: Mask | None) -> None:
        marks(window, mask)

    return under_guard(decoding, action(general))


def _targets(decoding: Decoding) -> list[tuple[int, Register]]:
    return [(n, register) for n, register in enumerate(decoding.registers_of(0)) if register is not None]


def _mark_loaded(decoding: Decoding) -> Mark:
    """Mark undefined bytes of a load's results; without any defined byte a result is undefined as a whole."""
    # rows of matrices fill words
    wide = decoding.effects.undefined_from == "rows"
    nbytes, targets = 4 if wide else TYPES[decoding.mod("type")].nbytes, _targets(decoding)
    weights, forms_of = (1 << np.arange(nbytes)).astype(np.uint32), loaded_forms(decoding, nbytes)

    def marks(window: Window, mask: Mask | None) -> None:
        definedness = window.batch.checks.definedness
        found = definedness.take_loaded()
        for index, target in targets:
            bits: Any = None
            forms = None if found is None else forms_of(window, index, found.forms)
            if found is not None:
                part = found.undefined[:, index * nbytes : (index + 1) * nbytes]
                bits = np.where(part.all(axis=1), whole_of(target), (part * weights).sum(axis=1, dtype=np.uint32))
                if found.origin.kind == CONTESTED:
                    # never counts as padding
                    bits = np.where(bits, bits | COMPUTED, bits)
                definedness.origins[key_of(target)] = found.origin
            definedness.flags.put(window, key_of(target), bits, mask, forms)

    return marks


def _mark_tensor(decoding: Decoding) -> Mark:
    """Mark loads of unwritten tensor memory."""
    targets, origin = _targets(decoding), Origin(decoding.site, "tensor")

    def marks(window: Window, mask: Mask | None) -> None:
        definedness = window.batch.checks.definedness
        warps = definedness.take_empty()
        empty = np.isin(window.lane_numbers // WARP, warps) if warps else None
        for _, target in targets:
            bits = None if empty is None else np.where(empty, whole_of(target) | COMPUTED, np.uint32(0))
            definedness.flags.put(window, key_of(target), bits, mask)
            if empty is not None:
                definedness.origins[key_of(target)] = origin

    return marks


def _mark_divided(decoding: Decoding) -> Mark:
    """Mark results of integer divisions by zero; those of undefined operands have been marked before."""
    targets, origin = _targets(decoding), Origin(decoding.site, "division")

    def marks(window: Window, mask: Mask | None) -> None:
        definedness = window.batch.checks.definedness
        lanes = definedness.take_divided()
        for _, target in targets if lanes else ():
            key, whole = key_of(target), whole_of(target)
            before = definedness.flags.get(window, key)
            bits = np.zeros(window.size, np.uint32) if before is None else before
            divided = np.isin(window.lane_numbers, lanes) & (bits & whole != whole)
            if divided.any():
                lose(window, target, divided, mask)
                definedness.origins[key] = origin

    return marks


# by the source of an undefined result
_KINDS: dict[str, Callable[[Decoding], Mark]] = {
    "memory": _mark_loaded,
    "rows": _mark_loaded,
    "tiles": mark_product,
    "tensor memory": _mark_tensor,
    "division": _mark_divided,
}
