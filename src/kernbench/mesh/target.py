"""The mesh's implementation of the target interface."""

from collections.abc import Mapping, Sequence
from typing import Any

from kernbench import machine
from kernbench.common.errors import BenchError, MachineError
from kernbench.machine import Machine
from kernbench.mesh.causes import SENTENCES
from kernbench.mesh.joining import joined_messages
from kernbench.mesh.work import compared_works
from kernbench.result.finding import SourceLocation, rank_ranges
from kernbench.result.recording import Recording
from kernbench.result.run import Run
from kernbench.targets.target import Measured, Target
from kernbench.targets.work import Work

KIND = "mesh"
# floors that can bind a run
FLOORS = ("compute", "exp", "hbm", "link")
ENGINES = ("gemm", "math", "dma", "link")


class MeshMachines:
    """Packages of cubes of PEs."""

    default = "reference"

    def bundled(self) -> list[str]:
        """Names of those that come with kernbench."""
        return machine.bundled()

    def load(self, name: Any) -> Machine:
        """The machine of a bundled name or a file."""
        return machine.load(name)

    def owns(self, name: str) -> bool:
        """Whether a name or file is of a mesh."""
        try:
            return machine.kind_of(name) == KIND
        except MachineError:
            return False

    def size(self, machine: Machine) -> str:
        """How many cubes and PEs."""
        cubes = machine.cubes_per_package
        return f"{cubes} {'cube' if cubes == 1 else 'cubes'} of {machine.pes_per_cube} PEs"


class MeshTarget(Target):
    """`tl` kernels, one program on each PE. Compiled modules are imported only when times are wanted."""

    name = KIND
    no_clock = "nothing was recorded"
    outputs_are = "what torch.empty made"
    machines = MeshMachines()

    def measured(self) -> Measured:
        """Names in the metrics of a timed run."""
        from kernbench.mesh.time import CAUSES

        return Measured(FLOORS, ENGINES, CAUSES)

    def retime(self, run: Run, machine: Any, drawn: bool = True) -> Run:
        """The run timed on a machine."""
        from kernbench.mesh.time import retime

        return retime(run, machine, drawn)

    def time_recording(self, recording: Any, machine: Any) -> Any:
        """A recording timed for the first time."""
        from kernbench.mesh.time import time_recording

        return time_recording(recording, machine)

    def summary(self, timing: Any) -> dict[str, object]:
        """The values of a timing that a sweep stores."""
        from kernbench.mesh.time import summary

        return summary(timing)

    def joined_views(self, launches: Sequence[Run], begins: Sequence[int]) -> Mapping[str, object]:
        """The messages of all launches over the links of all."""
        return joined_messages(launches, begins)

    def explain(self, cause: str) -> str:
        """The sentence for a cause of lost time."""
        return SENTENCES.get(cause, "")

    def commands_of(self, run: Run, rank: int) -> Sequence[object] | None:
        """The commands that a rank dispatched."""
        stream: Sequence[object] | None = run.recording.of_rank(rank) if run.recording is not None else None
        if stream is None:
            ranks = rank_ranges(s.rank for s in run.recording.streams) if run.recording else "none"
            raise BenchError(f"rank {rank} dispatched no command; those that did: {ranks}")
        return stream

    def writer_of(self, host: Any, run: Run, output: str, index: tuple[int, ...]) -> SourceLocation | None:
        """The kernel's line that last stored an element of an output."""
        found: SourceLocation | None = host.writer_of(run, output, index)
        return found

    def compared_works(self, first: Run, second: Run) -> tuple[Work, Work] | None:
        """The commands of all ranks."""
        if not isinstance(first.recording, Recording) or not isinstance(second.recording, Recording):
            return None
        return compared_works(first.recording, second.recording)


TARGET = MeshTarget()
