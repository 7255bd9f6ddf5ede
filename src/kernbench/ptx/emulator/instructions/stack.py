"""Dynamic stack memory of threads: alloca, stacksave, stackrestore."""

from collections.abc import Callable, Mapping

import numpy as np

from kernbench.ptx.emulator.lanes.lanes import Mask, from_mask
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.steps import Step, action
from kernbench.ptx.emulator.units.batch import Window

_ALIGNMENT = 16


def allocate(d: Decoding) -> Step:
    """alloca: the local address of fresh memory that lasts until the function returns."""
    d.linker.takes_stack = True
    target, size = d.target(0), d.row_slot(d.source(1))
    alignment = d.constant_of(2) if d.position("alignment") is not None else None
    step, site = alignment or _ALIGNMENT, d.site

    def general(window: Window, mask: Mask | None) -> None:
        stack = window.batch.frames.stack
        starts, failed = stack.take(window.lane_numbers, window.rows[size].astype(np.int64), step, mask)
        if failed is not None:
            bad = np.zeros(window.batch.lanes, bool)
            bad[window.lane_numbers[failed]] = True
            lanes = from_mask(bad)
            assert lanes is not None
            window.batch.stray(lanes, site, f"alloca finds no room: a thread's stack has {stack.nbytes} bytes")
        window.put(target, starts.astype(np.uint64), mask)

    return action(general)


def save(d: Decoding) -> Step:
    """stacksave: the current top of the stack."""
    d.linker.takes_stack = True
    target = d.target(0)

    def general(window: Window, mask: Mask | None) -> None:
        window.put(target, window.batch.frames.stack.tops(window.lane_numbers).astype(np.uint64), mask)

    return action(general)


def restore(d: Decoding) -> Step:
    """stackrestore: free everything allocated since."""
    d.linker.takes_stack = True
    saved = d.row_slot(d.source(0))

    def general(window: Window, mask: Mask | None) -> None:
        window.batch.frames.stack.restore(window.lane_numbers, window.rows[saved].astype(np.int64), mask)

    return action(general)


MEANINGS: Mapping[str, Callable[[Decoding], Step]] = {"alloca": allocate, "stacksave": save, "stackrestore": restore}
