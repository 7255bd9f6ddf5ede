"""Python front ends that find the GPU by way of CUDA's driver: their programs run under `exec` and in `emulated()`.

Each is tried in a process of its own, as a process has one driver. They are skipped where the front end is not there:
`pip install cupy-cuda13x 'numba-cuda[cu13]' cuda-core nvidia-cutlass-dsl`.
"""

import json
import os
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import pytest

from kernbench.ptx.doors.driver.library import LibraryError, library_folder

TWICE = """
extern "C" __global__ void twice(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
"""
# programs: `n` threads write to arrays of 128 floats
CUPY = f"""
import sys, numpy, cupy
n = int(sys.argv[1])
kernel = cupy.RawKernel({TWICE!r}, "twice")
x = cupy.arange(128, dtype=cupy.float32)
y = cupy.zeros_like(x)
kernel((4,), (64,), (x, y, numpy.int32(n)))
numpy.testing.assert_array_equal(cupy.asnumpy(y), 2.0 * numpy.arange(128))
"""
NUMBA = """
import sys, numpy
from numba import cuda

@cuda.jit
def twice(x, y, n):
    i = cuda.grid(1)
    if i < n:
        y[i] = 2 * x[i]

n = int(sys.argv[1])
x, y = cuda.to_device(numpy.arange(128, dtype=numpy.float32)), cuda.device_array(128, numpy.float32)
twice[4, 64](x, y, n)
numpy.testing.assert_array_equal(y.copy_to_host(), 2.0 * numpy.arange(128))
"""
CORE = f"""
import sys, numpy
from cuda.core import Device, LaunchConfig, LegacyPinnedMemoryResource, Program, ProgramOptions, launch

n = int(sys.argv[1])
device = Device()
device.set_current()
stream = device.create_stream()
options = ProgramOptions(std="c++17", arch="sm_" + device.arch, lineinfo=True)
kernel = Program({TWICE!r}, code_type="c++", options=options).compile("cubin").get_kernel("twice")
x, y = device.allocate(512, stream=stream), device.allocate(512, stream=stream)
pinned = LegacyPinnedMemoryResource().allocate(512)
host = numpy.from_dlpack(pinned).view(numpy.float32)
host[...] = numpy.arange(128)
x.copy_from(pinned, stream=stream)
launch(stream, LaunchConfig(grid=4, block=64), kernel, x, y, numpy.int32(n))
y.copy_to(pinned, stream=stream)
stream.sync()
numpy.testing.assert_array_equal(host, 2.0 * numpy.arange(128))
"""
BINDINGS = f"""
import sys, numpy
from cuda.bindings import driver, nvrtc

def check(result):
    if int(result[0]):
        raise SystemExit(str(result[0]))
    return result[1] if len(result) == 2 else result[1:]

n = int(sys.argv[1])
check(driver.cuInit(0))
check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(0))))
program = check(nvrtc.nvrtcCreateProgram({TWICE!r}.encode(), b"twice.cu", 0, [], []))
check(nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=sm_90a"]))
code = b" " * check(nvrtc.nvrtcGetCUBINSize(program))
check(nvrtc.nvrtcGetCUBIN(program, code))
kernel = check(driver.cuModuleGetFunction(check(driver.cuModuleLoadData(code)), b"twice"))
x, y = check(driver.cuMemAlloc(512)), check(driver.cuMemAlloc(512))
host = numpy.arange(128, dtype=numpy.float32)
check(driver.cuMemcpyHtoD(x, host.ctypes.data, 512))
values = [numpy.array([int(x)], numpy.uint64), numpy.array([int(y)], numpy.uint64), numpy.array([n], numpy.int32)]
pointers = numpy.array([value.ctypes.data for value in values], numpy.uint64)
check(driver.cuLaunchKernel(kernel, 4, 1, 1, 64, 1, 1, 0, 0, pointers.ctypes.data, 0))
check(driver.cuMemcpyDtoH(host.ctypes.data, y, 512))
numpy.testing.assert_array_equal(host, 2.0 * numpy.arange(128))
"""
CUTE = """
import sys, numpy
from cuda.bindings import driver
import cutlass
from cutlass import cute
from cutlass.cute.runtime import make_ptr

@cute.kernel
def twice(x: cute.Tensor, y: cute.Tensor, n: cutlass.Int32):
    block, _, _ = cute.arch.block_idx()
    thread, _, _ = cute.arch.thread_idx()
    i = block * 64 + thread
    if i < n:
        y[i] = 2 * x[i]

@cute.jit
def run(x: cute.Pointer, y: cute.Pointer, n: cutlass.Int32):
    layout = cute.make_layout(128)
    twice(cute.make_tensor(x, layout), cute.make_tensor(y, layout), n).launch(grid=[4, 1, 1], block=[64, 1, 1])

def check(result):
    if int(result[0]):
        raise SystemExit(str(result[0]))
    return result[1] if len(result) == 2 else None

n = int(sys.argv[1])
check(driver.cuInit(0))
check(driver.cuCtxSetCurrent(check(driver.cuDevicePrimaryCtxRetain(0))))
x, y = check(driver.cuMemAlloc(512)), check(driver.cuMemAlloc(512))
host = numpy.arange(128, dtype=numpy.float32)
check(driver.cuMemcpyHtoD(x, host.ctypes.data, 512))
pointers = [make_ptr(cutlass.Float32, int(at), cute.AddressSpace.gmem, assumed_align=16) for at in (x, y)]
run(*pointers, n)
check(driver.cuMemcpyDtoH(host.ctypes.data, y, 512))
numpy.testing.assert_array_equal(host, 2.0 * numpy.arange(128))
"""
# name -> module that it needs, its program
PROGRAMS = {
    "cupy": ("cupy", CUPY),
    "numba": ("numba_cuda", NUMBA),
    "cuda.core": ("cuda.core", CORE),
    "cuda.bindings": ("cuda.bindings", BINDINGS),
    "cute": ("cutlass", CUTE),
}
# a Python program as others write it, with the block around it
AROUND = """
import sys
from kernbench import ptx
with ptx.emulated("sm_90a") as session:
{program}
print([(launch.title.split("(")[0], launch.status, len(launch.findings)) for launch in session.launches])
"""


@pytest.fixture(params=PROGRAMS)
def program(request) -> str:
    """A front end's program; skipped where there is no such front end, or no C compiler."""
    module, text = PROGRAMS[request.param]
    try:
        found = find_spec(module)
    except ModuleNotFoundError:
        found = None
    if found is None:
        pytest.skip(f"{module} is not installed")
    try:
        library_folder()
    except LibraryError as problem:
        pytest.skip(f"no C compiler: {problem}")
    return text


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("KERNBENCH_")}
    command = [str(word) for word in words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)


def test_it_runs_under_exec_and_what_it_does_wrong_is_found(program, tmp_path):
    path, report = tmp_path / "program.py", tmp_path / "report.json"
    path.write_text(program)
    command = [sys.executable, "-m", "kernbench.cli", "exec", "--arch", "sm_90a", "--json", report, "--"]
    clean = run(*command, sys.executable, path, "128")
    assert clean.returncode == 0, clean.stdout + clean.stderr
    assert "CUDA error" not in clean.stderr
    launched = [kernel for kernel in json.loads(report.read_text())["kernels"] if "twice" in kernel["kernel"]]
    assert [kernel["launches"] for kernel in launched] == [1]
    wrong = run(*command, sys.executable, path, "200")
    assert wrong.returncode == 1, wrong.stdout + wrong.stderr
    assert "out-of-bounds" in wrong.stderr


def test_it_runs_inside_an_emulated_gpu_of_its_own_process(program, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(AROUND.format(program=textwrap.indent(program, "    ")))
    done = run(sys.executable, path, "128")
    assert done.returncode == 0, done.stderr
    assert "twice" in done.stdout
    assert "'finished', 0)" in done.stdout
