"""A real NVIDIA GPU with the interface of the emulated one: arrays, tensor maps, launches that return a Run."""

import ctypes
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from math import prod
from operator import index as whole_number
from statistics import median
from typing import Unpack

import numpy as np
import numpy.typing as npt

from kernbench import __version__
from kernbench.common.dtypes import Array, dtype_of
from kernbench.common.errors import MisuseError, OtherHardwareError
from kernbench.ptx.devices.assembler import refusal
from kernbench.ptx.devices.cuda_driver import CudaError, DeviceLostError, Driver, Handle, open_device
from kernbench.ptx.devices.cuda_memory import Borrowed, CudaArray, borrow
from kernbench.ptx.devices.prepared import PreparedLaunch
from kernbench.ptx.emulator.engine.machine import target_runs_on
from kernbench.ptx.launching.arguments import Parameter, pack_arguments
from kernbench.ptx.launching.device_base import (
    Device,
    DeviceArray,
    Extent,
    Sizes,
    host_array,
    kernel_of,
    launch_shape,
    shape_of,
)
from kernbench.ptx.launching.tensor_map import MapOptions, TensorMap, TensorMapDescription, describe_tensor_map
from kernbench.ptx.names.demangling import named, title
from kernbench.ptx.text.module import Kernel
from kernbench.result.finding import Finding
from kernbench.result.run import Run, Status
from kernbench.safety.budget import Budget

LEGACY_STREAM = 1
POISON = 0xFF
_JIT_LOG_BYTES = 1 << 16
_PLAIN_SHARED_BYTES = 48 << 10
_PORTABLE_CLUSTER = 8

# fatal errors of a kernel -> finding
_FAULTS = {
    "CUDA_ERROR_ILLEGAL_ADDRESS": ("out-of-bounds", "an access to memory that is not there"),
    "CUDA_ERROR_MISALIGNED_ADDRESS": ("misaligned", "an access that is not aligned to its size"),
    "CUDA_ERROR_INVALID_ADDRESS_SPACE": ("out-of-bounds", "an access to another space than the instruction names"),
    "CUDA_ERROR_INVALID_PC": ("kernel-error", "a jump to no instruction"),
    "CUDA_ERROR_ILLEGAL_INSTRUCTION": ("kernel-error", "an illegal instruction or operand"),
    "CUDA_ERROR_HARDWARE_STACK_ERROR": ("kernel-error", "a corrupted or overflowing call stack"),
    "CUDA_ERROR_ASSERT": ("kernel-error", "a device-side assert or trap"),
    "CUDA_ERROR_LAUNCH_TIMEOUT": ("over-budget", "the driver's own time limit"),
}
_UNKNOWN_FAULT = ("kernel-error", "an exception on the device")
_FIND_IT = "run it on ptx.EmulatedDevice, which names the line, thread and array, or under compute-sanitizer"
_RESTART = "start a new process: the driver lets nothing run in this one any more, other libraries included"


class CudaDevice(Device):
    """GPU `index`, through its primary context, which torch, CuPy and JAX share.

    Work goes to `stream` (a handle, such as `torch.cuda.current_stream().cuda_stream`); by default to the default
    stream, which is ordered with every ordinary stream. After a fault the device is `lost`, with the reason.
    """

    def __init__(self, index: int = 0, stream: int | None = None, driver: Driver | None = None):
        self.index = whole_number(index)
        self.stream = LEGACY_STREAM if stream is None else whole_number(stream)
        self.lost = ""
        self._driver = driver or Driver()
        self._device = open_device(self._driver, self.index)
        self._context = self._driver.call("cuDevicePrimaryCtxRetain", self._device)
        self._open = True
        self._modules: dict[str, object] = {}
        self._call("cuCtxSetCurrent", self._context)
        raw: bytes = self._call("cuDeviceGetName", 128, self._device)
        self.name = raw.split(b"\0")[0].decode(errors="replace")
        self.arch = f"sm_{self._attribute('COMPUTE_CAPABILITY_MAJOR')}{self._attribute('COMPUTE_CAPABILITY_MINOR')}"

    def __repr__(self) -> str:
        state = f", lost: {self.lost}" if self.lost else ("" if self._open else ", closed")
        return f"<ptx.CudaDevice {self.index}: {self.name}, {self.arch}{state}>"

    def synchronize(self) -> None:
        """Wait until all work on this device's stream is done."""
        self._use()
        self._call("cuStreamSynchronize", self.stream)

    def close(self) -> None:
        """Release the GPU and the arrays made here; closing twice is no error."""
        if not self._open:
            return
        self._open = False
        if self.lost:
            return
        self._call("cuCtxSetCurrent", self._context)
        for module in self._modules.values():
            self._driver.attempt("cuModuleUnload", module)
        self._modules.clear()
        self._driver.attempt("cuDevicePrimaryCtxRelease", self._device)

    # Memory

    def array(self, value: object, name: str = "") -> CudaArray:
        """`value` on this GPU: without a copy if it is already there (torch, CuPy, JAX, any DLPack), else a copy."""
        self._use()
        if isinstance(value, CudaArray):
            self._on_device(value)
            return value
        found = borrow(value, self.stream)
        if found is not None:
            return self._borrowed(found, name)
        host = host_array(value)
        made = self._allocated(host.shape, host.dtype, name)
        if host.nbytes:
            self._call("cuMemcpyHtoDAsync", made.address, host.ctypes.data, host.nbytes, self.stream)
            self._call("cuStreamSynchronize", self.stream)
        return made

    def empty(self, shape: Sizes, dtype: npt.DTypeLike = np.float32, name: str = "") -> CudaArray:
        """Memory for an output, poisoned: every byte is 0xff, so floats are NaN. It becomes one of a run's outputs."""
        self._use()
        made = self._allocated(shape_of(shape), dtype_of(dtype), name, fresh=True)
        if made.nbytes:
            self._call("cuMemsetD8Async", made.address, POISON, made.nbytes, self.stream)
        return made

    def tensor_map(
        self,
        array: object,
        dims: Sizes,
        strides: Sizes,
        box: Sizes,
        swizzle: str = "none",
        **options: Unpack[MapOptions],
    ) -> TensorMap:
        """A tensor map of `array`, innermost dimension first; `options` are those of `describe_tensor_map`."""
        self._use()
        there = self.array(array)
        made = self.encode(describe_tensor_map(there, dims, strides, box, swizzle, **options))
        return replace(made, array=there)

    def encode(self, description: TensorMapDescription) -> TensorMap:
        """The 128 bytes that the hardware reads for `description`."""
        api = self._driver.api
        box: tuple[object, ...] = ([api.cuuint32_t(n) for n in description.box],)
        if description.im2col:
            box = (list(description.lower or ()), list(description.upper or ()), *description.box)
        made = self._call(
            "cuTensorMapEncodeIm2col" if description.im2col else "cuTensorMapEncodeTiled",
            getattr(api.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_DATA_TYPES[description.element]}"),
            description.rank,
            description.address,
            [api.cuuint64_t(n) for n in description.dims],
            # the driver wants a pointer even where there is no stride to read
            [api.cuuint64_t(n) for n in description.strides or (0,)],
            *box,
            [api.cuuint32_t(n) for n in description.element_strides],
            getattr(api.CUtensorMapInterleave, f"CU_TENSOR_MAP_INTERLEAVE_{description.interleave.upper()}"),
            getattr(api.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{_SWIZZLES[description.swizzle]}"),
            getattr(api.CUtensorMapL2promotion, f"CU_TENSOR_MAP_L2_PROMOTION_{_PROMOTIONS[description.l2_promotion]}"),
            getattr(api.CUtensorMapFloatOOBfill, f"CU_TENSOR_MAP_FLOAT_OOB_FILL_{_FILLS[description.oob_fill]}"),
        )
        return TensorMap(description, ctypes.string_at(int(made.getPtr()), 128))

    def read(self, address: int, into: Array) -> None:
        """Copy from the GPU into `into`, a contiguous host array; used by arrays."""
        self._use()
        self._call("cuMemcpyDtoHAsync", into.ctypes.data, address, into.nbytes, self.stream)
        self._call("cuStreamSynchronize", self.stream)

    def release(self, address: int) -> None:
        """Free an allocation; used by arrays."""
        if self._open and not self.lost:
            self._call("cuCtxSetCurrent", self._context)
            self._call("cuMemFree", address)

    def _allocated(
        self, shape: tuple[int, ...], dtype: np.dtype[np.generic], name: str, fresh: bool = False
    ) -> CudaArray:
        nbytes = prod(shape) * dtype.itemsize
        address = int(self._call("cuMemAlloc", nbytes)) if nbytes else 0
        return CudaArray(self, address, shape, dtype, name, fresh=fresh)

    def _borrowed(self, found: Borrowed, name: str) -> CudaArray:
        if found.device is not None and found.device != self.index:
            raise MisuseError(f"the array lies on GPU {found.device}, this device is GPU {self.index}: move it first")
        if found.stream is not None:
            self._call("cuStreamSynchronize", found.stream)
        return CudaArray(self, found.address, found.shape, found.dtype, name, owner=found.owner)

    # Launches

    def launch(
        self,
        kernel: object,
        grid: Sizes,
        block: Sizes,
        args: Sequence[object] = (),
        shared_bytes: int = 0,
        *,
        cluster: Sizes | None = None,
        repetitions: int = 1,
        budget: Budget | None = None,
        checks: bool = True,
        schedule: object = None,
    ) -> Run:
        """Run `kernel` on every block of `grid`, `repetitions` times, and wait for it.

        `metrics` has the GPU time of one launch in nanoseconds, measured with events: the median of the repetitions.
        Outputs are the arguments made by `empty`. A kernel that faults, or exceeds `budget.seconds`, becomes a finding,
        and the device is lost. `checks` and `schedule` only apply to the emulator.
        """
        self._use()
        kernel = kernel_of(kernel)
        given = [self._on_device(arg) for arg in args]
        blocks, threads, clusters = launch_shape(grid, block, cluster, kernel)
        if repetitions < 1:
            raise MisuseError(f"repetitions {repetitions}: at least 1")
        packed = pack_arguments(kernel.params, given)
        function = self._function(kernel)
        self._allow_shared(function, title(kernel.name), shared_bytes)
        config = self._config(function, blocks, threads, clusters, shared_bytes, explicit=cluster is not None)
        events = self._submit(function, config, packed, repetitions)
        code = self._wait(events, budget or Budget())
        origin = self._origin(kernel, blocks, threads, clusters, shared_bytes)
        if code != "CUDA_SUCCESS":
            return self._failed(title(kernel.name), code, budget or Budget(), origin)
        outputs = _named_outputs(kernel.params, given)
        return Run(outputs, [], (), Status.FINISHED, metrics=self._timing(events), origin=origin)

    def prepare(self, kernel: object, block: Sizes, shared_bytes: int = 0) -> PreparedLaunch:
        """`kernel` loaded, with its shared memory permitted, to be launched on any stream at minimal cost."""
        self._use()
        kernel = kernel_of(kernel)
        _, threads, _ = launch_shape(1, block, None, kernel)
        function = self._function(kernel)
        self._allow_shared(function, title(kernel.name), shared_bytes)
        return PreparedLaunch(self._driver, function, kernel.params, threads, shared_bytes)

    def _on_device(self, arg: object) -> object:
        """Wraps an array of another library on this GPU; other arguments are unchanged."""
        if isinstance(arg, DeviceArray):
            if not isinstance(arg, CudaArray) or arg.memory.index != self.index:
                raise MisuseError(f"{arg!r} belongs to another device: make it with this one's array() or empty()")
            arg.check_usable()
            return arg
        found = borrow(arg, self.stream)
        return arg if found is None else self._borrowed(found, "")

    def _function(self, kernel: Kernel) -> Handle:
        if not target_runs_on(kernel.module.arch, f"{self.arch}a"):
            raise OtherHardwareError(
                f"'{title(kernel.name)}' is for {kernel.module.arch} and does not run on {self.name}, which is "
                f"{self.arch}; the emulator runs it"
            )
        text = kernel.emit()
        if text not in self._modules:
            self._modules[text] = self._load(text)
        return self._call("cuModuleGetFunction", self._modules[text], kernel.name.encode())

    def _load(self, text: str) -> Handle:
        """Compile with the driver; its log becomes the error."""
        option = self._driver.api.CUjit_option
        # the bindings take the buffer as bytes, into which the driver writes
        log = bytes(_JIT_LOG_BYTES)
        image = ctypes.create_string_buffer(text.encode())
        code, module = self._driver.attempt(
            "cuModuleLoadDataEx",
            ctypes.addressof(image),
            2,
            [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES],
            [log, _JIT_LOG_BYTES],
        )
        if code == "CUDA_SUCCESS":
            return module
        message = log.split(b"\0")[0].decode(errors="replace")
        if message.strip():
            raise refusal(text, message, code)
        raise self._driver.error("cuModuleLoadDataEx", code)

    def _allow_shared(self, function: Handle, name: str, dynamic: int) -> None:
        """Permit dynamic shared memory beyond 48 KiB; beyond the GPU's limit it is an error."""
        attribute = self._driver.api.CUfunction_attribute
        static = int(self._call("cuFuncGetAttribute", attribute.CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES, function))
        most = self._attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN")
        if not 0 <= dynamic <= most - static:
            raise MisuseError(
                f"shared_bytes {dynamic} beside {static} static bytes of '{name}': a block here has {most} in all"
            )
        if static + dynamic > _PLAIN_SHARED_BYTES:
            key = attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            self._call("cuFuncSetAttribute", function, key, dynamic)

    def _config(
        self, function: Handle, grid: Extent, block: Extent, cluster: Extent, shared_bytes: int, explicit: bool
    ) -> Handle:
        api = self._driver.api
        if prod(cluster) > _PORTABLE_CLUSTER:
            key = api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED
            self._call("cuFuncSetAttribute", function, key, 1)
        config = api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = grid
        config.blockDimX, config.blockDimY, config.blockDimZ = block
        config.sharedMemBytes = shared_bytes
        config.hStream = self.stream
        # a cluster size required by the kernel itself needs no attribute
        if explicit:
            config.attrs = [self._cluster_attribute(cluster)]
            config.numAttrs = 1
        return config

    def _cluster_attribute(self, cluster: Extent) -> Handle:
        api = self._driver.api
        attribute = api.CUlaunchAttribute()
        attribute.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        value = api.CUlaunchAttributeValue()
        value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = cluster
        attribute.value = value
        return attribute

    def _submit(self, function: Handle, config: Handle, packed: list[bytes], repetitions: int) -> list[Handle]:
        """Enqueue the launches, with an event before the first and after each."""
        values = [ctypes.create_string_buffer(data, len(data)) for data in packed]
        pointers = (ctypes.c_void_p * max(1, len(values)))(*(ctypes.addressof(v) for v in values))
        events = [self._call("cuEventCreate", 0) for _ in range(repetitions + 1)]
        self._call("cuEventRecord", events[0], self.stream)
        for event in events[1:]:
            self._call("cuLaunchKernelEx", config, function, ctypes.addressof(pointers), 0)
            self._call("cuEventRecord", event, self.stream)
        return events

    def _wait(self, events: list[Handle], budget: Budget) -> str:
        """Wait for the last event with a timeout; returns the driver's code, CUDA_ERROR_NOT_READY after the timeout."""
        deadline = time.monotonic() + budget.seconds * len(events[1:])
        pause = 0.0
        while True:
            code, _ = self._driver.attempt("cuEventQuery", events[-1])
            if code != "CUDA_ERROR_NOT_READY" or time.monotonic() > deadline:
                return code
            time.sleep(pause)
            pause = min(pause + 1e-5, 1e-3)

    def _timing(self, events: list[Handle]) -> dict[str, object]:
        times = [round(self._call("cuEventElapsedTime", start, stop) * 1e6) for start, stop in pairwise(events)]
        for event in events:
            self._call("cuEventDestroy", event)
        return {"gpu_time_ns": round(median(times)), "gpu_time_min_ns": min(times), "repetitions": len(times)}

    def _failed(self, name: str, code: str, budget: Budget, origin: dict[str, object]) -> Run:
        """The run of a kernel that faulted or did not end; the device is lost."""
        if code == "CUDA_ERROR_NOT_READY":
            kind, status = "over-budget", Status.OVER_BUDGET
            message = f"'{name}' did not end within {budget.seconds:g} seconds on {self.name}; it still runs"
        else:
            kind, what = _FAULTS.get(code, _UNKNOWN_FAULT)
            status = Status.FAILED
            message = f"'{name}' died on {self.name} of {what} ({code})"
        self.lost = message
        finding = Finding(kind, message, hint=f"{_FIND_IT}. To go on, {_RESTART}.")
        return Run({}, [finding], (kind,), status, origin=origin)

    def _origin(
        self, kernel: Kernel, grid: Extent, block: Extent, cluster: Extent, shared_bytes: int
    ) -> dict[str, object]:
        return {
            "target": "ptx",
            **named(kernel.name),
            "device": self.name,
            "arch": self.arch,
            "driver": self._call("cuDriverGetVersion"),
            "grid": grid,
            "block": block,
            "cluster": cluster,
            "shared_bytes": shared_bytes,
            "kernbench": __version__,
        }

    # The driver

    def _use(self) -> None:
        """Make this device's context current; an error if it is closed or lost."""
        if self.lost:
            raise DeviceLostError(f"GPU {self.index} is lost since {self.lost}. To go on, {_RESTART}.")
        if not self._open:
            raise MisuseError(f"GPU {self.index} was closed: open a new CudaDevice")
        self._call("cuCtxSetCurrent", self._context)

    def _call(self, name: str, *args: object) -> Handle:
        try:
            return self._driver.call(name, *args)
        except CudaError as error:
            if error.code in _FAULTS:
                # another library's kernel faulted in the shared context
                self.lost = str(error)
            raise

    def _attribute(self, name: str) -> int:
        return self._driver.attribute(self._device, name)


_DATA_TYPES = {
    "u8": "UINT8",
    "u16": "UINT16",
    "u32": "UINT32",
    "s32": "INT32",
    "u64": "UINT64",
    "s64": "INT64",
    "f16": "FLOAT16",
    "f32": "FLOAT32",
    "f64": "FLOAT64",
    "bf16": "BFLOAT16",
    "f32.ftz": "FLOAT32_FTZ",
    "tf32": "TFLOAT32",
    "tf32.ftz": "TFLOAT32_FTZ",
    "b4x16": "16U4_ALIGN8B",
    "b4x16_p64": "16U4_ALIGN16B",
    "b6x16_p32": "16U6_ALIGN16B",
}
_SWIZZLES = {
    "none": "NONE",
    "32B": "32B",
    "64B": "64B",
    "128B": "128B",
    "128B.atom32B": "128B_ATOM_32B",
    "128B.atom32B.flip8B": "128B_ATOM_32B_FLIP_8B",
    "128B.atom64B": "128B_ATOM_64B",
}
_PROMOTIONS = {"none": "NONE", "64B": "L2_64B", "128B": "L2_128B", "256B": "L2_256B"}
_FILLS = {"zero": "NONE", "nan": "NAN_REQUEST_ZERO_FMA"}


def _named_outputs(params: Sequence[Parameter], given: Sequence[object]) -> dict[str, Array]:
    """Copies of the arrays made as outputs, by their own name or the parameter's."""
    return {
        arg.name or param.name: arg.numpy()
        for param, arg in zip(params, given, strict=True)
        if isinstance(arg, CudaArray) and arg.fresh
    }
