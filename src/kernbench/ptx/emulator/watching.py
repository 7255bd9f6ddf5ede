"""Steps that follow undefined registers: a bool row beside each register that may be used before it is set."""

from typing import Any

import numpy as np

from kernbench.ptx.emulator.lanes import Mask
from kernbench.ptx.emulator.operands import Decoding
from kernbench.ptx.emulator.scopes import Register
from kernbench.ptx.emulator.slots import RegisterSlot
from kernbench.ptx.emulator.steps import Step, action, guarded
from kernbench.ptx.emulator.window import Window


def watch(decoding: Decoding, register: Register, flags: int) -> Step:
    """Report lanes in which an undefined register is about to decide something."""
    site, name, role = decoding.site, register.name, decoding.role_of(register)

    def general(window: Window, mask: Mask | None) -> None:
        checks = window.batch.checks
        if checks is None:
            return
        bad = window.rows[flags]
        bad = bad.copy() if mask is None else bad & mask
        if bad.any():
            checks.undefined(window, site, name, role, bad)

    return _under_guard(decoding, action(general)) if role != "guard" else action(general)


def mark(decoding: Decoding, sources: list[int], targets: list[int], followed: dict[int, int]) -> Step:
    """Results are undefined where a source is; a selection only where the chosen source is."""
    chosen = _selection(decoding, followed) if decoding.resolved.meaning == "selp" else None

    def general(window: Window, mask: Mask | None) -> None:
        if window.batch.checks is None:
            return
        flags: Any = chosen(window) if chosen is not None else _any(window, sources)
        for target in targets:
            window.put(target, flags, mask)

    return _under_guard(decoding, action(general))


def _any(window: Window, sources: list[int]) -> Any:
    flags = np.zeros(window.size, bool)
    for source in sources:
        flags |= window.rows[source]
    return flags


def _selection(decoding: Decoding, followed: dict[int, int]) -> Any:
    """Undefinedness of selp: of the operand that the predicate takes."""
    registers = [decoding.register_at(index) for index in (1, 2, 3)]
    if registers[2] is None:
        return None
    predicate = decoding.table.number(RegisterSlot(registers[2].bank, registers[2].row))
    flags = [followed.get(r.number) if r is not None else None for r in registers]

    def chosen(window: Window) -> Any:
        rows = [np.zeros(window.size, bool) if flag is None else window.rows[flag] for flag in flags]
        return np.where(window.rows[predicate], rows[0], rows[1]) | rows[2]

    return chosen


def _under_guard(decoding: Decoding, step: Step) -> Step:
    guard = decoding.guard()
    return step if guard is None else guarded(step, *guard, own=False)
