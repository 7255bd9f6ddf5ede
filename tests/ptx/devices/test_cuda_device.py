"""What CudaDevice does around the driver, shown on a driver made of Python: absence, faults, logs, borrowed arrays."""

import ctypes
import gc
import sys
from enum import Enum
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

from kernbench import ptx
from kernbench.common.errors import MisuseError
from kernbench.ptx.devices.assembler import AssemblyError
from kernbench.ptx.devices.cuda_device import CudaDevice
from kernbench.ptx.devices.cuda_driver import CudaError, CudaUnavailableError, DeviceLostError, Driver, unavailable
from kernbench.ptx.devices.cuda_memory import borrow
from kernbench.ptx.launching.device_base import DeviceArray
from kernbench.result import Status
from kernbench.safety.budget import Budget

TEXT = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 p, .param .u32 n)\n{\n  ret;\n}\n"
KERNEL = ptx.parse(TEXT).kernels["k"]


class CUresult(Enum):
    CUDA_SUCCESS = 0
    CUDA_ERROR_OUT_OF_MEMORY = 2
    CUDA_ERROR_NO_DEVICE = 100
    CUDA_ERROR_INVALID_PTX = 218
    CUDA_ERROR_NOT_READY = 600
    CUDA_ERROR_ILLEGAL_ADDRESS = 700
    CUDA_ERROR_UNKNOWN = 999


class Names:
    """Any enumerator by its own name."""

    def __getattr__(self, name):
        return name


class Bindings:
    """A driver with host memory for a GPU; `fails` gives functions another status, `calls` keeps what was called."""

    CUresult = CUresult
    CUdevice_attribute = CUfunction_attribute = CUjit_option = CUlaunchAttributeID = Names()
    CUtensorMapDataType = CUtensorMapInterleave = CUtensorMapSwizzle = Names()
    CUtensorMapL2promotion = CUtensorMapFloatOOBfill = Names()
    cuuint32_t = cuuint64_t = int

    def __init__(self, **fails):
        self.fails = fails
        self.calls = []
        self.memory = {}
        self.log = b""

    def __getattr__(self, name):
        if not name.startswith("cu"):
            raise AttributeError(name)

        def call(*args):
            self.calls.append((name, *args))
            values = self.values(name, args)
            return (CUresult[self.fails.get(name, "CUDA_SUCCESS")], *values)

        return call

    def values(self, name, args):
        match name:
            case "cuDeviceGetCount" | "cuEventElapsedTime":
                return (1,)
            case "cuDeviceGetAttribute":
                return (232448 if "SHARED" in args[0] else 9,)
            case "cuDeviceGetName":
                return (b"Pretend GPU\0\0",)
            case "cuGetErrorString":
                return (b"in the driver's words",)
            case "cuMemAlloc":
                block = ctypes.create_string_buffer(args[0])
                self.memory[ctypes.addressof(block)] = block
                return (ctypes.addressof(block),)
            case "cuMemcpyHtoDAsync" | "cuMemcpyDtoHAsync":
                ctypes.memmove(*args[:3])
            case "cuMemsetD8Async":
                ctypes.memset(*args[:3])
            case "cuModuleLoadDataEx":
                ctypes.memmove(args[3][0], self.log, len(self.log))
                return ("module",)
            case "cuFuncGetAttribute":
                return (1024,)
            case "cuDriverGetVersion" | "cuDeviceGet" | "cuDevicePrimaryCtxRetain" | "cuModuleGetFunction":
                return (13,)
            case "cuTensorMapEncodeTiled":
                encoded = ctypes.create_string_buffer(128)
                return (SimpleNamespace(getPtr=lambda: ctypes.addressof(encoded)),)
            case "cuEventCreate":
                return (f"event {len(self.calls)}",)
        return ()

    def CUlaunchConfig(self):  # noqa: N802
        return SimpleNamespace()

    def CUlaunchAttribute(self):  # noqa: N802
        return SimpleNamespace()

    def CUlaunchAttributeValue(self):  # noqa: N802
        return SimpleNamespace(clusterDim=SimpleNamespace())

    def named(self, name):
        return [call[1:] for call in self.calls if call[0] == name]


def opened(**fails):
    bindings = Bindings(**fails)
    return CudaDevice(driver=Driver(bindings)), bindings


def test_without_the_bindings_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.bindings.driver", None)
    monkeypatch.setitem(sys.modules, "cuda", None)
    with pytest.raises(CudaUnavailableError, match="cuda-bindings is missing: install kernbench with its extra 'gpu'"):
        CudaDevice()
    assert "cuda-bindings is missing" in unavailable()


def test_without_a_gpu_or_driver_it_says_so():
    with pytest.raises(CudaUnavailableError, match=r"no GPU to run on: cuInit: CUDA_ERROR_NO_DEVICE \(in the driver"):
        Driver(Bindings(cuInit="CUDA_ERROR_NO_DEVICE"))

    class Broken:
        def cuInit(self, flags):  # noqa: N802
            raise RuntimeError("libcuda.so.1 was not found.\nsearched everywhere")

    with pytest.raises(
        CudaUnavailableError, match=r"driver is missing: libcuda\.so\.1 was not found\. Run on the emulator"
    ):
        Driver(Broken())
    with pytest.raises(MisuseError, match="GPU 3: this machine has 1, numbered from 0"):
        CudaDevice(3, driver=Driver(Bindings()))


def test_a_device_says_what_it_is():
    device, bindings = opened()
    assert repr(device) == "<ptx.CudaDevice 0: Pretend GPU, sm_99>"
    device.close()
    device.close()
    assert repr(device).endswith("closed>")
    assert len(bindings.named("cuDevicePrimaryCtxRelease")) == 1
    with pytest.raises(MisuseError, match="GPU 0 was closed: open a new CudaDevice"):
        device.empty(3)


def test_arrays_go_there_and_back_and_are_freed_once():
    device, bindings = opened()
    given = np.arange(12, dtype=np.int16).reshape(3, 4)
    there = device.array(given.T)
    assert np.array_equal(there.numpy(), given.T)
    assert device.array(there) is there
    there.free()
    there.free()
    fresh = device.empty(4)
    assert np.isnan(fresh.numpy()).all()
    del fresh
    gc.collect()
    assert len(bindings.named("cuMemFree")) == 2
    assert device.array(np.empty((0, 2))).numpy().shape == (0, 2)


def test_what_a_tensor_map_describes_lives_as_long_as_the_map():
    device, bindings = opened()
    given = np.zeros((8, 32), np.float32)
    kept = device.tensor_map(given, (32, 8), (128,), (32, 8))
    gc.collect()
    assert not bindings.named("cuMemFree")
    del kept
    gc.collect()
    assert len(bindings.named("cuMemFree")) == 1


def test_a_launch_is_described_to_the_driver():
    device, bindings = opened()
    out = device.empty(8, name="result")
    run = device.launch(KERNEL, (4, 2), 64, [out, 5], shared_bytes=100_000, cluster=2, repetitions=3)
    ((config, *_), *_) = launches = bindings.named("cuLaunchKernelEx")
    assert len(launches) == 3
    assert (config.gridDimX, config.gridDimY, config.gridDimZ) == (4, 2, 1)
    assert (config.blockDimX, config.sharedMemBytes, config.hStream) == (64, 100_000, 1)
    assert config.attrs[0].value.clusterDim.x == 2
    assert bindings.named("cuFuncSetAttribute")[0][1:] == (
        "CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES",
        100_000,
    )
    assert run.metrics == {"gpu_time_ns": 1_000_000, "gpu_time_min_ns": 1_000_000, "repetitions": 3}
    assert list(run.outputs) == ["result"]
    assert run.safe is None
    device.launch(KERNEL, 1, 1, [out, 5])
    assert len(bindings.named("cuModuleLoadDataEx")) == 1
    assert len(bindings.named("cuEventDestroy")) == len(bindings.named("cuEventCreate"))


def test_what_the_driver_cannot_do_is_refused_first():
    device, bindings = opened()
    with pytest.raises(
        MisuseError, match=r"shared_bytes 232000 beside 1024 static bytes of 'k': a block here has 232448"
    ):
        device.launch(KERNEL, 1, 1, [0, 1], shared_bytes=232_000)
    with pytest.raises(MisuseError, match="repetitions 0: at least 1"):
        device.launch(KERNEL, 1, 1, [0, 1], repetitions=0)
    assert bindings.named("cuLaunchKernelEx") == []


def test_a_module_with_one_kernel_will_do():
    device, bindings = opened()
    device.launch(ptx.parse(TEXT), 1, 1, [0, 1])
    assert len(bindings.named("cuLaunchKernelEx")) == 1
    with pytest.raises(MisuseError, match=r"has 2 kernels: pass module\.kernels\[name\], one of \['k', 'other'\]"):
        device.launch(ptx.parse(TEXT + ".visible .entry other()\n{\n  ret;\n}\n"), 1, 1)
    with pytest.raises(MisuseError, match=r"a str is no kernel: pass ptx\.parse"):
        device.launch(TEXT, 1, 1)


def test_arrays_of_other_devices_are_refused():
    class Elsewhere(DeviceArray):
        def numpy(self):
            return np.zeros(self.shape)

        def free(self):
            pass

    device, _ = opened()
    with pytest.raises(MisuseError, match=r"<Elsewhere 3 float32 at 0x40> belongs to another device"):
        device.launch(KERNEL, 1, 1, [Elsewhere(64, (3,), np.dtype(np.float32)), 1])


def test_the_compilers_log_is_the_error():
    device, bindings = opened(cuModuleLoadDataEx="CUDA_ERROR_INVALID_PTX")
    bindings.log = (
        b"ptxas application ptx input, line 7; error   : Unknown symbol '%f9'\nptxas fatal   : Ptx assembly aborted"
    )
    with pytest.raises(AssemblyError, match=r"ptxas: line 7: Unknown symbol '%f9'\n    ret;"):
        device.launch(KERNEL, 1, 1, [0, 1])
    bindings.log = b""
    with pytest.raises(CudaError, match="cuModuleLoadDataEx: CUDA_ERROR_INVALID_PTX"):
        device.launch(KERNEL, 1, 1, [0, 1])


def test_memory_that_is_not_there_comes_with_advice():
    device, _ = opened(cuMemAlloc="CUDA_ERROR_OUT_OF_MEMORY")
    with pytest.raises(CudaError, match="free arrays, or use smaller ones") as caught:
        device.empty(8)
    assert caught.value.code == "CUDA_ERROR_OUT_OF_MEMORY"
    assert device.lost == ""


@pytest.mark.parametrize(
    ("code", "kind", "status", "words"),
    [
        ("CUDA_ERROR_ILLEGAL_ADDRESS", "out-of-bounds", Status.FAILED, "died on Pretend GPU of an access to memory"),
        ("CUDA_ERROR_UNKNOWN", "kernel-error", Status.FAILED, "an exception on the device (CUDA_ERROR_UNKNOWN)"),
        ("CUDA_ERROR_NOT_READY", "over-budget", Status.OVER_BUDGET, "did not end within 0.01 seconds"),
    ],
)
def test_a_fault_is_a_finding_and_the_device_stays_lost(code, kind, status, words):
    device, bindings = opened()
    out = device.empty(4)
    bindings.fails = {"cuEventQuery": code}
    run = device.launch(KERNEL, 1, 1, [out, 4], budget=Budget(seconds=0.01))
    (finding,) = run.findings
    assert (finding.kind, run.status, run.safe, run.outputs) == (kind, status, False, {})
    assert words in finding.message
    assert "run it on ptx.EmulatedDevice" in finding.hint
    bindings.fails = {}
    for use in (device.synchronize, out.numpy, lambda: device.launch(KERNEL, 1, 1, [out, 4])):
        with pytest.raises(DeviceLostError, match=r"GPU 0 is lost since 'k' .* start a new process"):
            use()
    assert "lost: 'k'" in repr(device)
    out.free()
    device.close()
    assert bindings.named("cuMemFree") == []


def test_somebody_elses_fault_loses_the_device_too():
    device, bindings = opened()
    bindings.fails = {"cuStreamSynchronize": "CUDA_ERROR_ILLEGAL_ADDRESS"}
    with pytest.raises(CudaError):
        device.synchronize()
    with pytest.raises(DeviceLostError):
        device.empty(1)


class OnGpu:
    """An array that says it lies on a GPU."""

    def __init__(self, shape, strides=None, stream=None):
        interface = {"shape": shape, "typestr": "<f4", "data": (4096, False), "strides": strides, "version": 3}
        self.__cuda_array_interface__ = interface | {"stream": stream}


def test_arrays_on_the_gpu_are_borrowed():
    device, bindings = opened()
    theirs = OnGpu((2, 3), (12, 4), stream=7)
    there = device.array(theirs, name="x")
    assert (there.address, there.shape, there.dtype, there.borrowed) == (4096, (2, 3), np.float32, True)
    assert bindings.named("cuStreamSynchronize") == [(7,)]
    assert there.__cuda_array_interface__["data"] == (4096, False)
    device.launch(KERNEL, 1, 1, [theirs, 3])
    there.free()
    assert bindings.named("cuMemFree") == []
    with pytest.raises(MisuseError, match="a OnGpu with gaps or another order of axes"):
        device.array(OnGpu((2, 3), (4, 8)))
    assert device.array(OnGpu((1, 3), (999, 4))).shape == (1, 3)


class OnOtherGpu:
    def __init__(self, array, kind=2, number=0):
        self.array, self.where = array, (kind, number)

    def __dlpack__(self, stream=None):
        assert stream == 1
        return self.array.__dlpack__()

    def __dlpack_device__(self):
        return self.where


def test_a_dlpack_capsule_is_read_without_a_copy():
    device, _ = opened()
    array = np.arange(10, dtype=np.int64)[2:]
    there = device.array(OnOtherGpu(array))
    assert (there.address, there.shape, there.dtype) == (array.ctypes.data, (8,), np.int64)
    held = sys.getrefcount(array)
    there.free()
    assert sys.getrefcount(array) < held
    with pytest.raises(MisuseError, match="lies on GPU 5, this device is GPU 0"):
        device.array(OnOtherGpu(array, number=5))
    with pytest.raises(MisuseError, match="make it contiguous"):
        device.array(OnOtherGpu(np.zeros((4, 4)).T[:, ::2]))
    assert borrow(OnOtherGpu(array, kind=1), 1) is None
    assert borrow(np.zeros(3), 1) is None
    assert device.array(np.ones(2, ml_dtypes.bfloat16)).numpy().tolist() == [1, 1]


def test_a_prepared_launch_packs_its_values_and_waits_for_nothing():
    device, bindings = opened()
    prepared = device.prepare(KERNEL, 128, shared_bytes=100_000)
    bindings.calls.clear()
    taken = []

    def launched(function, *rest):
        where = ctypes.cast(rest[8], ctypes.POINTER(ctypes.c_void_p))
        taken.append(
            (*rest[:8], ctypes.c_uint64.from_address(where[0]).value, ctypes.c_uint32.from_address(where[1]).value)
        )
        return (CUresult.CUDA_SUCCESS,)

    prepared._launch = launched
    packed = prepared.pack(1 << 40, 5)
    for _ in range(2):
        prepared.launch((3, 1, 1), 77, packed)
    assert taken == [(3, 1, 1, 128, 1, 1, 100_000, 77, 1 << 40, 5)] * 2
    assert not bindings.calls
    with pytest.raises(MisuseError, match="values of a prepared launch"):
        prepared.pack(1)


def test_a_prepared_launch_that_the_driver_refuses():
    device, _ = opened(cuLaunchKernel="CUDA_ERROR_UNKNOWN")
    prepared = device.prepare(KERNEL, 32)
    with pytest.raises(CudaError, match=r"cuLaunchKernel: CUDA_ERROR_UNKNOWN \(in the driver's words\)"):
        prepared.launch((1, 1, 1), 0, prepared.pack(0, 0))
