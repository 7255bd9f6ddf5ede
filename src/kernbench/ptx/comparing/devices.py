"""A side of a comparison that creates the arguments of a launch on its own device, for each run."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import import_module
from typing import NamedTuple, Protocol, cast

from kernbench.common.dtypes import Array
from kernbench.common.errors import KernbenchError, MisuseError
from kernbench.ptx.comparing.launches import Left, NotComparedError
from kernbench.ptx.devices.cuda_driver import CudaUnavailableError
from kernbench.ptx.launching.device_base import DeviceArray, Extent
from kernbench.ptx.text.module import Kernel
from kernbench.result.run import Run, Status

CUDA = "cuda"


class LaunchingDevice(Protocol):
    """The part of a device that a side needs."""

    def array(self, value: object, name: str = "") -> DeviceArray:
        """A copy of `value` on the device."""
        ...

    @property
    def launch(self) -> Callable[..., Run]:
        """Run a kernel: kernel, grid, block, arguments, bytes of shared memory, and options."""
        ...


# opens a device; its context manager closes it
Opening = Callable[[], AbstractContextManager[LaunchingDevice]]


class Given(NamedTuple):
    """The arguments of a launch on one device, and the arrays they refer to, by name."""

    values: Sequence[object]
    arrays: Mapping[str, DeviceArray]


@dataclass
class DeviceSide:
    """A device that is opened anew for each run, so that module variables have their initial values."""

    name: str
    opening: Opening
    given: Callable[[LaunchingDevice], Given]
    grid: Extent
    block: Extent
    shared_bytes: int = 0
    options: Mapping[str, object] = field(default_factory=dict)

    def run(self, kernel: Kernel, rows: Array | None = None) -> Left:
        """Run the launch; a device that cannot be opened at all raises an error of its own."""
        return self._run(kernel, rows, self.options)[0]

    def races(self, kernel: Kernel) -> list[str]:
        """The races of the launch, in words; only for emulated devices."""
        _, run = self._run(kernel, None, {**self.options, "checks": True})
        return races_of(run)

    def _run(self, kernel: Kernel, rows: Array | None, options: Mapping[str, object]) -> tuple[Left, Run]:
        with self.opening() as device:
            try:
                given = self.given(device)
                values = list(given.values)
                buffer = None
                if rows is not None:
                    buffer = device.array(rows, name="record of results")
                    values.append(buffer)
                run = device.launch(kernel, self.grid, self.block, values, self.shared_bytes, **options)
            except CudaUnavailableError:
                raise
            except KernbenchError as problem:
                raise NotComparedError(f"on {self.name}: {problem}") from None
            if run.status is not Status.FINISHED:
                raise NotComparedError(f"on {self.name}: {_why(run)}")
            arrays = {name: array.numpy() for name, array in given.arrays.items()}
            return Left(arrays, None if buffer is None else buffer.numpy()), run


def races_of(run: Run) -> list[str]:
    """The races among a run's findings, in words."""
    return [finding.message for finding in run.findings if finding.kind == "race"]


def _why(run: Run) -> str:
    return "; ".join(finding.message for finding in run.findings[:2]) or f"the launch did not end: {run.status}"


def opening_of(name: str) -> Opening:
    """A device by name: "cuda" for the first GPU, or MODULE:FUNCTION for a function that opens one."""
    if name == CUDA:
        from kernbench.ptx.devices.cuda_device import CudaDevice

        return lambda: CudaDevice(0)
    return cast(Opening, function_of(name))


def function_of(name: str) -> Callable[..., object]:
    """The function of MODULE:FUNCTION."""
    module, colon, function = name.partition(":")
    if not colon:
        raise MisuseError(f"device {name!r}: cuda, or MODULE:FUNCTION that opens one")
    try:
        found: Callable[..., object] = getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as problem:
        raise MisuseError(f"device {name!r}: {problem}") from None
    return found
