"""The npu's implementation of the target interface."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kernbench.npu.isa import model
from kernbench.npu.isa.model import ChipModel
from kernbench.npu.recording.record import NpuRecording
from kernbench.npu.recording.work import compared_works
from kernbench.npu.time.causes import FLOORS, GAPS, PIPE_FLOORS, explain
from kernbench.npu.time.joining import joined_tasks
from kernbench.result.run import Run
from kernbench.result.untimed import no_time
from kernbench.targets.target import Measured, Target
from kernbench.targets.work import Work


class Chips:
    """Chips: clusters of a cube core and two vector cores."""

    default = "a2a3"

    def bundled(self) -> list[str]:
        """Names of those that come with kernbench."""
        return model.bundled()

    def load(self, name: Any) -> ChipModel:
        """The chip of a bundled name or a file."""
        return model.load(name)

    def owns(self, name: str) -> bool:
        """Whether a name or file is of a chip."""
        return model.is_chip(name)

    def size(self, machine: ChipModel) -> str:
        """How many clusters."""
        return f"{machine.clusters.count} clusters of a cube core and two vector cores"


class NpuTarget(Target):
    """Tile kernels, and tasks that an orchestration submits. Compiled modules are imported only when times are
    wanted.
    """

    name = model.KIND
    no_clock = "nothing was recorded"
    outputs_are = "what torch.empty made"
    machines = Chips()

    def measured(self) -> Measured:
        """Names in the metrics of a timed run."""
        return Measured(FLOORS, (*PIPE_FLOORS, "mte", "memory"), GAPS)

    def retime(self, run: Run, machine: Any, drawn: bool = True) -> Run:
        """The run timed on a chip."""
        from kernbench.npu.time.measure import retime

        why = no_time(run, self.no_clock)
        timed = run if why else retime(run, machine)
        if "time_ps" in timed.metrics:
            return timed
        return replace(timed, metrics={**timed.metrics, "no_time": why or "it was not checked, or it ran nothing"})

    def time_recording(self, recording: Any, machine: Any) -> Any:
        """A recording timed for the first time."""
        from kernbench.npu.time.clock import time_recording

        return time_recording(recording, machine)

    def summary(self, timing: Any) -> dict[str, object]:
        """The values of a timing that a sweep stores."""
        from kernbench.npu.time.measure import summary

        return summary(timing)

    def explain(self, cause: str) -> str:
        """The sentence for a cause of lost time."""
        return explain(cause)

    def joined_views(self, launches: Sequence[Run], begins: Sequence[int]) -> Mapping[str, object]:
        """The tasks of all launches."""
        return joined_tasks(launches, begins)

    def order_observers(self, host: object, kernel: object) -> list[str]:
        """Operations in the launches of a chip that may observe order: polled signals, sums of floats."""
        launches: list[Run] = getattr(host, "launches", [])
        recordings = [run.recording for run in launches if isinstance(run.recording, NpuRecording)]
        return sorted({name for recording in recordings for name in recording.observers})

    def compared_works(self, first: Run, second: Run) -> tuple[Work, Work] | None:
        """The operations of all lanes, and the commands of the orchestrator."""
        if not isinstance(first.recording, NpuRecording) or not isinstance(second.recording, NpuRecording):
            return None
        return compared_works(first.recording, second.recording)


TARGET = NpuTarget()
