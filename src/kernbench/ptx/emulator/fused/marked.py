"""Runs of steps with steps between them that track undefined values: those are skipped while nothing is undefined."""

from kernbench.ptx.emulator.lanes.flags import Registers
from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.program.steps import AnyWindow, Direct, General, Step


class Marked:
    """Steps that compute or load, between steps that track definedness; `direct` and `general` are without the latter.

    A tracking step makes a register undefined only if one of its sources is. So if all sources are defined before the
    first step, all targets are defined after the last, and tracking is skipped. An undefined value from memory leaves
    the block at its load, after all tracking steps before it. So if there are loads, targets must be defined in advance
    as well.
    """

    def __init__(self, steps: tuple[Step, ...], direct: tuple[Direct, ...], general: tuple[General, ...]):
        self._steps, self._direct, self._general = steps, direct, general
        wanted: dict[tuple[str, int], None] = {}
        defined: dict[tuple[str, int], None] = {}
        loads = any(step.loaded is not None for step in steps)
        for marks in [step.marks for step in steps if step.marks is not None]:
            wanted.update((key, None) for key in marks.sources if key not in defined)
            (wanted if marks.guarded or loads else defined).update(dict.fromkeys(marks.targets))
        # registers that must be defined before, and registers that are then defined afterwards
        self._wanted, self._defined = Registers(wanted), Registers(defined)

    def __reduce__(self) -> tuple[object, ...]:
        return Marked, (self._steps, self._direct, self._general)

    def direct(self, window: AnyWindow) -> None:
        """Run for all lanes of a window of a run of warps."""
        flags = window.batch.checks.definedness.flags
        if flags.known(window, self._wanted):
            for step in self._steps:
                step.direct(window)
            return
        for one in self._direct:
            one(window)
        flags.define(window, self._defined, None)

    def general(self, window: AnyWindow, mask: Mask | None) -> None:
        """Run for the active lanes of any window."""
        flags = window.batch.checks.definedness.flags
        if flags.known(window, self._wanted):
            for step in self._steps:
                step.general(window, mask)
            return
        for one in self._general:
            one(window, mask)
        flags.define(window, self._defined, mask)
