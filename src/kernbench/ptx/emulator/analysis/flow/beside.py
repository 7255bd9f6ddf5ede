"""Steps that run beside an instruction: before it or after it, in both forms, wherever in its block it stands."""

from collections.abc import Callable
from typing import Any

import numpy as np

from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.lanes.window import Window
from kernbench.ptx.emulator.program.operands import Decoding
from kernbench.ptx.emulator.program.program import Block

Check = Callable[[Window, "Mask | None"], None]


def active_positions(window: Window, mask: Mask | None, guard: tuple[int, bool] | None) -> Any:
    """The positions that run an instruction."""
    active = np.ones(window.size, bool) if mask is None else mask
    if guard is not None:
        row = window.rows[guard[0]]
        active = active & (~row if guard[1] else row)
    return active


def run_before(block: Block, d: Decoding, check: Check) -> None:
    """Run a check before an instruction."""
    if d.first_step == d.last_step or _is_control(block, d):
        _before_control(block, check)
        return
    direct, general = block.direct[d.first_step], block.general[d.first_step]

    def run_direct(window: Window) -> None:
        check(window, None)
        direct(window)

    def run_general(window: Window, mask: Mask | None) -> None:
        check(window, mask)
        general(window, mask)

    block.direct[d.first_step], block.general[d.first_step] = run_direct, run_general


def _is_control(block: Block, d: Decoding) -> bool:
    return block.control is not None and bool(block.sites) and block.sites[-1] is d.site


def _before_control(block: Block, check: Check) -> None:
    control = block.control
    if control is None:
        return

    def run(scheduler: Any, fragment: Any) -> Any:
        check(fragment.window, fragment.lanes.mask)
        return control(scheduler, fragment)

    block.control = run


def run_after(block: Block, d: Decoding, check: Check) -> None:
    """Run something after an instruction; what ends a block marks its results before it goes on."""
    if d.first_step == d.last_step or _is_control(block, d):
        _before_control(block, check)
        return
    place = d.last_step - 1
    direct, general = block.direct[place], block.general[place]

    # a load that meets an undefined value leaves by an exception, and has been made
    def run_direct(window: Window) -> None:
        try:
            direct(window)
        finally:
            check(window, None)

    def run_general(window: Window, mask: Mask | None) -> None:
        try:
            general(window, mask)
        finally:
            check(window, mask)

    block.direct[place], block.general[place] = run_direct, run_general
