"""How long a launch will take here: the least of it before it begins, and what its first blocks took once they ended.

Before a launch nobody knows how often its loops go round, so that each instruction counts once: a launch that is too
long even so is refused before it has changed anything. Of the others the first blocks show what a block takes.
"""

import os
import time
from dataclasses import dataclass, field

from kernbench.common.compiled import seconds_compiling
from kernbench.common.errors import KernbenchError

# instructions of threads that the emulator runs in a second where many threads run together; fewer run slower
_CHECKED_RATE, _UNCHECKED_RATE = 2e7, 1e8
# how many times what a launch may take it must be foreseen to take before it is given up
_FAR = 10
# seconds after which the blocks that have ended are looked at: what is done once for a kernel takes some of them
_LOOK = 2.0


class LaunchRefusedError(KernbenchError):
    """A launch that would take far too long."""


def clock() -> float:
    """Seconds, but for those in which loops of the emulator itself were compiled."""
    return time.monotonic() - seconds_compiling()


def cpu_clock() -> float:
    """Seconds that processors worked for this process, and for the workers of launches that have ended."""
    children = os.times()
    return time.process_time() + children.children_user + children.children_system


@dataclass
class Forecast:
    """The blocks and threads of a launch, and the seconds that it may take."""

    title: str
    blocks: int
    threads: int
    checked: bool
    max_seconds: float
    _began: float = field(default_factory=clock)

    def before(self, instructions: int) -> None:
        """Raise where a launch is far too long even if each thread ran each of the kernel's instructions once."""
        seconds = self.blocks * self.threads * instructions / (_CHECKED_RATE if self.checked else _UNCHECKED_RATE)
        if seconds > _FAR * self.max_seconds:
            raise LaunchRefusedError(
                f"'{self.title}' with {self.blocks:,} blocks of {self.threads} threads would take {duration(seconds)} "
                f"here at least, {self._remedy()}"
            )
        self._began = clock()

    def during(self, ended: int) -> None:
        """Raise where the blocks that have ended show that the others will take far too long."""
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
    """Seconds as people say them."""
    if seconds < 120:
        return f"{seconds:.2g} seconds" if seconds < 10 else f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:,.0f} hours"
