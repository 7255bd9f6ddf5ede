"""PTX as the other rooms see it."""

from os import PathLike
from typing import Any

from kernbench.machine.description import Description
from kernbench.ptx.machine import model
from kernbench.ptx.machine.model import NOT_VALIDATED, Gpu
from kernbench.result.run import Run
from kernbench.targets.target import Target


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
        caveat = f", {NOT_VALIDATED}" if machine.predictions == NOT_VALIDATED else ""
        return f"{sms} SMs, {hbm.capacity / 1e9:.0f} GB of HBM at {hbm.bandwidth / 1e3:g} TB/s{caveat}"


class PtxTarget(Target):
    """PTX on the emulator, which has an order and no clock, or on a GPU, whose time is measured."""

    name = "ptx"
    no_clock = "PTX on the emulator has an order, but no clock"
    outputs_are = "what the kernel wrote, or outputs=[...]"
    machines = Gpus()

    def retime(self, run: Run, machine: Description, drawn: bool = True) -> Run:
        """The run as it is where a GPU measured it; otherwise with the reason why it has no time."""
        return run if "gpu_time_ns" in run.metrics else super().retime(run, machine, drawn)

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
