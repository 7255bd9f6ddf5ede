"""How long launches would take on a GPU: while a session predicts, each launch is recorded, and timed by the model.

The model is imported when it is asked for the first time: few sessions predict, and it takes as long to import as a
tenth of all that a session needs.
"""

from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from kernbench.common.errors import KernbenchError
from kernbench.result.run import Run, Status

if TYPE_CHECKING:
    from kernbench.ptx.machine.model import Gpu


@cache
def gpu_that_runs(arch: str) -> "Gpu | None":
    """The first bundled GPU on which code for an architecture runs."""
    from kernbench.ptx.machine.model import Gpu, bundled, load, unfit

    return next((gpu for gpu in map(load, (Gpu.whole, *bundled())) if not unfit(arch, gpu)), None)


@dataclass
class Predictions:
    """The predicted seconds of launches on a GPU; of one that has none, why."""

    gpu: "Gpu"
    seconds: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def add(self, run: Run) -> None:
        """A launch that was recorded has ended."""
        from kernbench.ptx.time.retiming import time_recording

        if run.status is not Status.FINISHED:
            self.problems.append(f"a launch did not run to its end: {run.status}")
            return
        try:
            self.seconds.append(time_recording(run.recording, self.gpu).time.seconds)
        except KernbenchError as problem:
            self.problems.append(str(problem))

    @property
    def total(self) -> float | None:
        """Seconds of all launches; None where there are none, or one could not be timed."""
        return sum(self.seconds) if self.seconds and not self.problems else None
