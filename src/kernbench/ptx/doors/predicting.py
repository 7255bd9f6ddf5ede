"""Predicts how long launches take on a GPU: each launch is recorded, and timed by the model.

The model is imported on first use: few sessions predict, and the import takes a tenth of the time a session needs.
"""

from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

from kernbench.common.errors import KernbenchError, MisuseError
from kernbench.result.run import Run, Status
from kernbench.result.untimed import no_time

if TYPE_CHECKING:
    from kernbench.ptx.machine.model import Gpu


@cache
def gpu_that_runs(arch: str, name: str = "") -> "Gpu | None":
    """The named GPU, which must run code for an architecture, or the first bundled one that does, if there is one."""
    from kernbench.ptx.machine.model import Gpu, bundled, load, unfit

    if name:
        gpu = load(name)
        if why := unfit(arch, gpu):
            raise MisuseError(why)
        return gpu
    return next((gpu for gpu in map(load, (Gpu.whole, *bundled())) if not unfit(arch, gpu)), None)


@dataclass
class LaunchTimes:
    """Predicted times of a session's launches on a GPU.

    Recording and timing are expensive. Of launches of the same code with the same grid, block, shared memory and
    numbers among their parameters, only the first safe one is recorded and timed, and later ones are assumed equal.
    Of each kernel the launch that takes longest so far is explained: lines, advice, a timeline.
    """

    gpu: "Gpu"
    # what changes would save, for large launches as well
    sensitivity: bool = False
    _known: dict[Hashable, dict[str, object]] = field(default_factory=dict)
    # the longest time so far, by kernel
    _longest: dict[Hashable, int] = field(default_factory=dict)

    def records(self, alike: Hashable) -> bool:
        """Whether a launch is to be recorded; `alike` is the same for those that take as long."""
        return alike not in self._known

    def of(self, alike: Hashable, kernel: Hashable, number: int, run: Run) -> tuple[dict[str, object], Run | None]:
        """The metrics of a launch's time, or why it has none (wrong and unsafe launches), and the run with its
        explanation if no earlier launch of the kernel takes as long.
        """
        why = no_time(run, "" if alike in self._known else "it was not recorded")
        if why:
            return {"no_time": why}, None
        if alike in self._known:
            return self._known[alike], None
        explained = None
        try:
            timed, explained = self._timed(kernel, run)
        except KernbenchError as problem:
            timed = {"no_time": str(problem)}
        self._known[alike] = {**timed, "timed_launch": number}
        return self._known[alike], explained

    def _timed(self, kernel: Hashable, run: Run) -> tuple[dict[str, object], Run | None]:
        from kernbench.ptx.advice.retiming import explained
        from kernbench.ptx.time.presentation import measure, warned
        from kernbench.ptx.time.retiming import time_recording

        timing = time_recording(run.recording, self.gpu)
        timed = warned(measure(timing.time), run)
        if timed["time_ps"] <= self._longest.get(kernel, 0):
            return timed, None
        self._longest[kernel] = timed["time_ps"]
        return timed, explained(run, timing, self.gpu, sensitivity=self.sensitivity)


@dataclass
class Predictions:
    """The predicted seconds of launches on a GPU, or why one has none."""

    gpu: "Gpu"
    seconds: list[float] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def add(self, run: Run) -> None:
        """Add a recorded launch that has ended."""
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
        """Seconds of all launches; None if there are none, or one could not be timed."""
        return sum(self.seconds) if self.seconds and not self.problems else None
