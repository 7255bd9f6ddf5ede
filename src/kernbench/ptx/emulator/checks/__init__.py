"""The checks of a launch: memory, races, barriers, warps, registers; everything found becomes a `Finding`."""

from kernbench.ptx.emulator.checks.checks import CHECKED, BatchChecks, Checks

__all__ = ["CHECKED", "BatchChecks", "Checks"]
