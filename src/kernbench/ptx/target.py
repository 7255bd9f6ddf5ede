"""The PTX implementation of the target interface."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any, cast

from kernbench.common.errors import MachineError
from kernbench.machine.description import Description
from kernbench.ptx.machine import model
from kernbench.ptx.machine.model import NOT_VALIDATED, Gpu, unfit
from kernbench.ptx.time.causes import FLOORS, GAPS, LATENCY, LAUNCH, explain
from kernbench.result.run import Run
from kernbench.result.untimed import no_time
from kernbench.targets.target import Measured, Target, Timing

if TYPE_CHECKING:
    from kernbench.ptx.devices.host import Host
    from kernbench.ptx.recording.recording import LaunchRecording
    from kernbench.ptx.time.retiming import LaunchTiming


class Gpus:
    """GPUs: SMs behind one L2 and one HBM."""

    default = "h200"

    def bundled(self) -> list[str]:
        """Names of those that come with kernbench."""
        return model.bundled()

    def load(self, name: object) -> Gpu:
        """The GPU of a bundled name or a file."""
        return model.load(name if isinstance(name, Gpu | PathLike) else str(name))

    def owns(self, name: str) -> bool:
        """Whether a name or file is of a GPU."""
        return model.is_gpu(name)

    def size(self, machine: Gpu) -> str:
        """How many SMs, how much memory at what rate, and whether times were held to one."""
        sms, hbm = int(machine.chip.sms), machine.hbm
        caveat = f", {NOT_VALIDATED}" if machine.validity == NOT_VALIDATED else ""
        return f"{sms} SMs, {hbm.capacity / 1e9:.0f} GB of HBM at {hbm.bandwidth / 1e3:g} TB/s{caveat}"


class PtxTarget(Target):
    """PTX on the emulator, timed by a model of a GPU where it was recorded, or on a GPU, whose time is measured."""

    name = "ptx"
    no_clock = "nothing was recorded: its bench has no parameter gpu, or the launch no record=True"
    outputs_are = "what the kernel wrote, or outputs=[...]"
    machines = Gpus()

    def measured(self) -> Measured:
        """Names in the metrics of a timed run."""
        return Measured(FLOORS, FLOORS, GAPS, (LATENCY, LAUNCH))

    def record_for_time(self, host: "Host") -> None:
        """What every warp executes is recorded only where its time is wanted."""
        host.records = True

    def compute_exactly(self, host: object) -> None:
        """Launches round as ptxas's code does; on a GPU there is nothing to do."""
        cast("Host", host).exact = True

    def run_part(self, host: object, part: str) -> None:
        """Blocks of each grid, as in "0-3,17"; the others are left out."""
        from kernbench.ptx.launching.blocks import read_blocks

        cast("Host", host).blocks = read_blocks(part)

    def retime(self, run: Run, machine: Description, drawn: bool = True) -> Run:
        """The run as it is where a GPU measured it; otherwise with its time by the model of `machine`."""
        return self._retimed(run, machine, drawn, False)

    def retime_with_changes(self, run: Run, machine: Description, drawn: bool = True) -> Run:
        """The same; the launch is timed again for each change, however large it is."""
        return self._retimed(run, machine, drawn, True)

    def _retimed(self, run: Run, machine: Description, drawn: bool, sensitivity: bool) -> Run:
        if "gpu_time_ns" in run.metrics:
            return run
        why = no_time(run, self.no_clock)
        if not why and not isinstance(machine, Gpu):
            why = "its bench names no GPU: give it a parameter gpu, and its host the machine"
        if isinstance(machine, Gpu) and not why:
            why = unfit(run.recording.arch, machine) or _unknown(run.recording)
        if why:
            return replace(run, metrics={**run.metrics, "no_time": why})
        from kernbench.ptx.advice.retiming import retime

        return retime(run, cast(Gpu, machine), drawn, sensitivity)

    def time_recording(self, recording: object, machine: object) -> Timing:
        """A recording timed for the first time."""
        from kernbench.ptx.time.retiming import time_recording

        launch, gpu = cast("LaunchRecording", recording), cast(Gpu, machine)
        if why := unfit(launch.arch, gpu):
            raise MachineError(why)
        return time_recording(launch, gpu)

    def summary(self, timing: object) -> dict[str, object]:
        """What a sweep keeps of a timing."""
        from kernbench.ptx.time.presentation import measure

        return measure(cast("LaunchTiming", timing).time)

    def joined_views(self, launches: Sequence[Run], begins: Sequence[int]) -> Mapping[str, object]:
        """The lines of the launch that takes longest."""
        longest = max(launches, key=lambda one: int(one.metrics["time_ps"]))
        return {name: longest.views[name] for name in ("stalls", "by_source") if name in longest.views}

    def explain(self, cause: str) -> str:
        """The sentence for a cause of lost time."""
        return explain(cause)

    def check_device(self, device: str) -> None:
        """Raise the reason where there is no GPU to run on."""
        if device == "cuda":
            from kernbench.ptx import CudaDevice

            CudaDevice(0)

    def order_observers(self, host: Any, kernel: object) -> list[str]:
        """What in a kernel may observe the order in which threads run."""
        found: list[str] = host.order_observers(kernel)
        return found


TARGET = PtxTarget()


def _unknown(recording: "LaunchRecording") -> str:
    """Why nobody can say how long a launch takes; empty for others."""
    from kernbench.ptx.time.waits import why_unknown

    return why_unknown(recording)
