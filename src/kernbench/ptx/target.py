"""PTX as the other rooms see it."""

from typing import Any

from kernbench.result.run import Run
from kernbench.targets.target import Target


class PtxTarget(Target):
    """PTX on the emulator, which has an order and no clock, or on a GPU, whose time is measured."""

    name = "ptx"
    no_clock = "PTX on the emulator has an order, but no clock"
    outputs_are = "what the kernel wrote, or outputs=[...]"

    def retime(self, run: Run, machine: Any, drawn: bool = True) -> Run:
        """The run as it is where a GPU measured it; otherwise with the reason why it has no time."""
        return run if "gpu_time_ns" in run.metrics else super().retime(run, machine, drawn)

    def order_observers(self, host: Any, kernel: Any) -> list[str]:
        """What in a kernel may observe the order in which threads run."""
        found: list[str] = host.order_observers(kernel)
        return found


TARGET = PtxTarget()
