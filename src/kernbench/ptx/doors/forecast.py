"""Forecasts how long a launch will take here: a lower bound before it starts, then from its first blocks.

Before a launch the iteration counts of its loops are unknown, so each instruction counts once: a launch that is too
long even so is refused before it has changed anything. For other launches the first blocks show how long a block takes.
"""

import os
import time
from dataclasses import dataclass, field

from kernbench.common.compiled import seconds_compiling
from kernbench.common.errors import KernbenchError

# thread instructions per second of the emulator if many threads run together; fewer run slower
_CHECKED_RATE, _UNCHECKED_RATE = 2e7, 1e8
# a launch is given up if its forecast exceeds its limit by this factor
_FAR = 10
# seconds before the ended blocks are used for a forecast: one-time work for the kernel takes some of them
_LOOK = 2.0


class LaunchRefusedError(KernbenchError):
    """A launch that would take far too long."""


def clock() -> float:
    """Seconds, except those spent on compiling the emulator's own loops."""
    return time.monotonic() - seconds_compiling()


def cpu_clock() -> float:
    """CPU seconds of this process, and of the workers of ended launches."""
    children = os.times()
    return time.process_time() + children.children_user + children.children_system


@dataclass
class Forecast:
    """The blocks and threads of a launch, and the seconds it may take."""

    title: str
    blocks: int
    threads: int
    checked: bool
    max_seconds: float
    _began: float = field(default_factory=clock)

    def before(self, instructions: int) -> None:
        """Raise an error if a launch is far too long even if each thread runs each instruction once."""
        seconds = self.blocks * self.threads * instructions / (_CHECKED_RATE if self.checked else _UNCHECKED_RATE)
        if seconds > _FAR * self.max_seconds:
            raise LaunchRefusedError(
                f"'{self.title}' with {self.blocks:,} blocks of {self.threads} threads would take {duration(seconds)} "
                f"here at least, {self._remedy()}"
            )
        self._began = clock()

    def during(self, ended: int) -> None:
        """Raise an error if the blocks that have ended show that the launch will take far too long."""
        taken = clock() - self._began
        if not ended or taken < min(_LOOK, self.max_seconds / _FAR):
            return
        seconds = taken * self.blocks / ended
        if seconds > _FAR * self.max_seconds:
            raise LaunchRefusedError(
                f"'{self.title}' was stopped: {ended:,} of its {self.blocks:,} blocks took {duration(taken)}, so all "
                f"would take about {duration(seconds)} here, {self._remedy()}"
            )

    def _remedy(self) -> str:
        return (
            f"and a launch may take {duration(self.max_seconds)}: launch fewer blocks (a smaller problem), run some of "
            "them (--blocks 0-63), leave the kernel out (--skip), or allow more (--max-seconds)"
        )


def duration(seconds: float) -> str:
    """Seconds in words."""
    if seconds < 120:
        return f"{seconds:.2g} seconds" if seconds < 10 else f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:,.0f} hours"
