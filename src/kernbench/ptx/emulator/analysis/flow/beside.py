"""The positions that a check beside an instruction applies to."""

from typing import Any

import numpy as np

from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.units.batch import Window


def active_positions(window: Window, mask: Mask | None, guard: tuple[int, bool] | None) -> Any:
    """The positions that run an instruction."""
    active = np.ones(window.size, bool) if mask is None else mask
    if guard is not None:
        row = window.rows[guard[0]]
        active = active & (~row if guard[1] else row)
    return active
