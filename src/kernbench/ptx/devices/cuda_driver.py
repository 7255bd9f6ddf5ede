"""The CUDA driver: calls with checked results, error messages, and an explanation if it is missing."""

from importlib import import_module
from types import ModuleType
from typing import Any

from kernbench.common.errors import KernbenchError, MisuseError


class CudaUnavailableError(KernbenchError):
    """There is no GPU here, or no driver for it."""


class CudaError(KernbenchError):
    """A driver call failed; `code` is the driver's name for the error."""

    def __init__(self, message: str, code: str = ""):
        super().__init__(message)
        self.code = code


class DeviceLostError(CudaError):
    """After an earlier launch the device accepts no more work in this process."""


# error code -> remedy, if the driver's message does not name one
_REMEDIES = {
    "CUDA_ERROR_OUT_OF_MEMORY": "free arrays, or use smaller ones; other processes may hold memory of this GPU",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": "a smaller block, or `.maxntid` so that fewer registers are used per thread",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "write an older `.version`, or install a newer driver",
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "write a `.target` that this GPU has",
    "CUDA_ERROR_INVALID_CLUSTER_SIZE": "a smaller cluster, or one that divides the grid",
    "CUDA_ERROR_NOT_FOUND": "the module has no kernel of that name",
}


# results of driver calls: a number, a handle, or several of them
Handle = Any


class Driver:
    """`cuda.bindings.driver` with checked results: `driver.call("cuMemAlloc", 64)` returns the address or raises."""

    def __init__(self, bindings: ModuleType | None = None):
        self.api = bindings or _bindings()
        try:
            self.call("cuInit", 0)
        except CudaError as error:
            raise CudaUnavailableError(f"no GPU to run on: {error}. {_INSTEAD}") from None
        except (RuntimeError, OSError) as error:
            words = (str(error).strip() or type(error).__name__).splitlines()[0].rstrip(".")
            raise CudaUnavailableError(f"the NVIDIA driver is missing: {words}. {_INSTEAD}") from None

    def call(self, name: str, *args: object) -> Handle:
        """Call a driver function; returns its results: None, one value, or a tuple."""
        status, values = self.attempt(name, *args)
        if status != "CUDA_SUCCESS":
            raise self.error(name, status)
        return values

    def attempt(self, name: str, *args: object) -> tuple[str, Handle]:
        """Call a driver function; returns the name of its status, and its results."""
        status, *values = getattr(self.api, name)(*args)
        return status.name, (None, values[0] if values else None, tuple(values))[min(len(values), 2)]

    def error(self, name: str, code: str) -> CudaError:
        """The error for `code`, with the driver's message and a remedy if known."""
        _, text = self.attempt("cuGetErrorString", getattr(self.api.CUresult, code))
        words = text.decode(errors="replace") if isinstance(text, bytes) else "no description"
        remedy = f"; {_REMEDIES[code]}" if code in _REMEDIES else ""
        return CudaError(f"{name}: {code} ({words}){remedy}", code)

    def attribute(self, device: Handle, name: str) -> int:
        """A device attribute, such as `MULTIPROCESSOR_COUNT`."""
        key = getattr(self.api.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
        return int(self.call("cuDeviceGetAttribute", key, device))


_EMULATOR = "the emulator (without --compare or --device; in Python ptx.EmulatedDevice)"
_INSTEAD = f"Run on {_EMULATOR}, or on a machine with an NVIDIA GPU"


def _bindings() -> ModuleType:
    try:
        return import_module("cuda.bindings.driver")
    except ImportError:
        raise CudaUnavailableError(
            f"the package cuda-bindings is missing: install kernbench with its extra 'gpu', or run on {_EMULATOR}"
        ) from None


def open_device(driver: Driver, index: int) -> Handle:
    """The driver's handle of GPU `index`."""
    count = driver.call("cuDeviceGetCount")
    if not 0 <= index < count:
        raise MisuseError(f"GPU {index}: this machine has {count}, numbered from 0")
    return driver.call("cuDeviceGet", index)


def unavailable(index: int = 0) -> str:
    """Why GPU `index` cannot be used; empty if it can."""
    try:
        open_device(Driver(), index)
    except KernbenchError as error:
        return str(error)
    return ""
