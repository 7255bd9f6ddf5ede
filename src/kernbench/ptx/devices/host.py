"""A device for benches: arrays, and launches that are remembered, on the emulator or on a real GPU."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Unpack

from kernbench.common.errors import MisuseError, unknown
from kernbench.ptx.devices.observing import order_observers
from kernbench.ptx.launching.device_base import DeviceArray, Sizes, kernel_of
from kernbench.ptx.launching.element_types import storage_type
from kernbench.ptx.launching.tensor_map import MapOptions, TensorMap
from kernbench.result.checkpoint import Taken
from kernbench.result.launches import joined_metrics
from kernbench.result.run import Run, Status
from kernbench.safety.budget import Budget
from kernbench.safety.stopping import Stopper

DEVICES = ("emulator", "cuda")
_REPETITIONS = 20


class Host:
    """Launches kernels on `device`, "emulator" or "cuda".

    `schedule` and `budget` apply to every launch. `launches` has the Run of each launch, in order; `totals()` are their
    combined metrics. `machine` is the GPU for which launches on the emulator are timed, if `records` is set.
    """

    def __init__(
        self, device: str = "emulator", arch: str = "sm_90a", budget: Budget | None = None, machine: object = None
    ):
        if device not in DEVICES:
            raise MisuseError(unknown("device", device, DEVICES))
        self.device = _open(device, arch)
        self.kind = device
        self.schedule: str | int = "canonical"
        self.budget = budget or Budget(steps=50_000_000, seconds=600.0)
        self.machine = machine
        # whether launches on the emulator are recorded for timing
        self.records = False
        # whether the emulator rounds where ptxas would
        self.exact = False
        # the blocks of each grid that are run, if not all
        self.blocks: tuple[int, ...] | None = None
        # if set, stops a launch inside a kernel
        self.stop: Stopper | None = None
        # receives the values that kernels name
        self.checkpoints: Taken | None = None
        self.launches: list[Run] = []

    @property
    def shapes_only(self) -> bool:
        """Always false: branches and addresses of a kernel depend on data."""
        return False

    @shapes_only.setter
    def shapes_only(self, wanted: bool) -> None:
        if wanted:
            raise MisuseError("PTX runs on data, whose values decide where it goes: leave --shapes-only away")

    def array(self, value: object, name: str = "") -> DeviceArray:
        """A copy of `value` on the device."""
        made: DeviceArray = self.device.array(value, name)
        return made

    def empty(self, shape: Sizes, dtype: object = "f32", name: str = "") -> DeviceArray:
        """An array for an output."""
        made: DeviceArray = self.device.empty(shape, storage_type(dtype), name)
        return made

    def tensor_map(
        self,
        array: DeviceArray,
        dims: Sizes,
        strides: Sizes,
        box: Sizes,
        swizzle: str = "none",
        **more: Unpack[MapOptions],
    ) -> TensorMap:
        """A tensor map for bulk copies, to be passed to launches."""
        made: TensorMap = self.device.tensor_map(array, dims, strides, box, swizzle, **more)
        return made

    def launch(
        self,
        kernel: object,
        grid: Sizes,
        block: Sizes,
        args: Sequence[object] = (),
        shared_bytes: int = 0,
        *,
        outputs: Sequence[DeviceArray] | None = None,
        **options: Any,
    ) -> Run:
        """Run a kernel; `outputs` are the arrays to return by name, by default all that the device knows.

        `options` are those of the device's launch, such as `checkpoints`, values named from outside.
        """
        settings = self._gpu_settings(options) if self.kind == "cuda" else self._settings(options)
        run: Run = self.device.launch(kernel, grid, block, args, shared_bytes, **settings)
        if outputs is not None and run.status is Status.FINISHED:
            run.outputs = {array.name: self.device.output(array) for array in outputs}
        self.launches.append(replace(run))
        return run

    def _settings(self, options: Mapping[str, object]) -> dict[str, object]:
        """Options of a launch on the emulator: its own, and those that apply to all launches."""
        settings = {"schedule": self.schedule, "budget": self.budget, **options}
        if self.stop is not None:
            settings["stop"] = self.stop
        if self.checkpoints is not None:
            settings["taken"] = self.checkpoints
        if self.blocks is not None:
            settings.setdefault("blocks", self.blocks)
        if self.records and self.stop is None and self.checkpoints is None and "blocks" not in settings:
            settings.setdefault("record", True)
        if self.exact:
            settings.setdefault("exact", True)
        return settings

    def _gpu_settings(self, options: Mapping[str, object]) -> dict[str, object]:
        """Options of a launch on a GPU, which runs whole grids and cannot be looked into."""
        if self.stop is not None:
            raise MisuseError("a launch on real hardware cannot be stopped inside: use the emulator")
        if self.checkpoints is not None:
            raise MisuseError("what a kernel holds inside is not known of real hardware: use the emulator")
        if self.blocks is not None:
            raise MisuseError("a GPU runs all blocks of a grid: use the emulator to run some")
        given = {"repetitions": _REPETITIONS, "schedule": self.schedule, "budget": self.budget, **options}
        given.pop("checkpoints", None)
        return given

    def order_observers(self, kernel: object) -> list[str]:
        """Instructions of a kernel that may observe the order of threads."""
        return order_observers(kernel_of(kernel))

    def totals(self) -> dict[str, object]:
        """The combined metrics of all launches."""
        return joined_metrics([launch.metrics for launch in self.launches])


def _open(device: str, arch: str) -> Any:
    """Open the device; the real one needs libraries that the emulated one does not."""
    if device == "cuda":
        from kernbench.ptx.devices.cuda_device import CudaDevice

        return CudaDevice()
    from kernbench.ptx.devices.device import EmulatedDevice

    return EmulatedDevice(arch)
