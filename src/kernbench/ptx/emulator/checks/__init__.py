"""The checks of a launch: memory, races, barriers, warps, registers; each fault becomes a `Finding`."""

from kernbench.ptx.emulator.checks.batch_checks import BatchChecks
from kernbench.ptx.emulator.checks.checks import CHECKED, Checks

__all__ = ["CHECKED", "BatchChecks", "Checks"]
