"""A device as a bench sees it: arrays, and launches that are remembered, on the emulator or on a real GPU."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from kernbench.common.errors import MisuseError, unknown
from kernbench.ptx.devices.observing import order_observers
from kernbench.ptx.launching.device_base import DeviceArray, kernel_of
from kernbench.ptx.launching.element_types import storage_type
from kernbench.result.checkpoint import Taken
from kernbench.result.launches import joined_metrics
from kernbench.result.run import Run, Status
from kernbench.safety.budget import Budget
from kernbench.safety.stopping import Stopper

DEVICES = ("emulator", "cuda")
_REPETITIONS = 20


class Host:
    """Launches kernels on `device`, "emulator" or "cuda".

    `schedule` and `budget` hold for every launch. `launches` has the Run of each launch, in order; what
    they counted together is in `totals()`.
    """

    def __init__(self, device: str = "emulator", arch: str = "sm_90a", budget: Budget | None = None):
        if device not in DEVICES:
            raise MisuseError(unknown("device", device, DEVICES))
        self.device = _open(device, arch)
        self.kind = device
        self.schedule: str | int = "canonical"
        self.budget = budget or Budget(steps=50_000_000, seconds=600.0)
        self.machine = None
        # set to stop a launch inside a kernel
        self.stop: Stopper | None = None
        # who takes the values that kernels name
        self.checkpoints: Taken | None = None
        self.launches: list[Run] = []

    @property
    def shapes_only(self) -> bool:
        """A kernel's branches and addresses are data: there is no run without them."""
        return False

    @shapes_only.setter
    def shapes_only(self, wanted: bool) -> None:
        if wanted:
            raise MisuseError("PTX runs on data, whose values decide where it goes: leave --shapes-only away")

    def array(self, value: Any, name: str = "") -> Any:
        """A copy of `value` on the device."""
        return self.device.array(value, name)

    def empty(self, shape: Any, dtype: Any = "f32", name: str = "") -> Any:
        """An array to be written."""
        return self.device.empty(shape, storage_type(dtype), name)

    def tensor_map(self, array: Any, dims: Any, strides: Any, box: Any, swizzle: str = "none", **more: Any) -> Any:
        """A tensor map for bulk copies, an argument of launches."""
        return self.device.tensor_map(array, dims, strides, box, swizzle, **more)

    def launch(
        self,
        kernel: Any,
        grid: Any,
        block: Any,
        args: Sequence[Any] = (),
        shared_bytes: int = 0,
        *,
        outputs: Sequence[DeviceArray] | None = None,
        **options: Any,
    ) -> Run:
        """Run a kernel; `outputs` are the arrays to give back by name, without it all that the device knows of.

        `options` are those of the device's launch, among them `checkpoints`, values named from outside.
        """
        if self.kind == "cuda":
            options.setdefault("repetitions", _REPETITIONS)
        settings = {"schedule": self.schedule, "budget": self.budget, **options}
        if self.stop is not None:
            if self.kind == "cuda":
                raise MisuseError("a launch on real hardware cannot be stopped inside: use the emulator")
            settings["stop"] = self.stop
        if self.checkpoints is not None:
            if self.kind == "cuda":
                raise MisuseError("what a kernel holds inside is not known of real hardware: use the emulator")
            settings["taken"] = self.checkpoints
        if self.kind == "cuda":
            settings.pop("checkpoints", None)
        run: Run = self.device.launch(kernel, grid, block, args, shared_bytes, **settings)
        if outputs is not None and run.status is Status.FINISHED:
            run.outputs = {array.name: array.numpy() for array in outputs}
        self.launches.append(replace(run))
        return run

    def order_observers(self, kernel: Any) -> list[str]:
        """What in a kernel may observe the order in which threads run."""
        return order_observers(kernel_of(kernel))

    def totals(self) -> dict[str, Any]:
        """The metrics of all launches, numbers added up."""
        return joined_metrics([launch.metrics for launch in self.launches])


def _open(device: str, arch: str) -> Any:
    """The device; the real one needs libraries that the emulated one does not."""
    if device == "cuda":
        from kernbench.ptx.devices.cuda_device import CudaDevice

        return CudaDevice()
    from kernbench.ptx.devices.device import EmulatedDevice

    return EmulatedDevice(arch)
