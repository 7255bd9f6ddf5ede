"""Python front ends that find the GPU by way of CUDA's driver: their programs run under `exec` and in `emulated()`.

Each is tried in a process of its own, as a process has one driver. They are skipped where the front end is not there
(`pip install cupy-cuda13x 'numba-cuda[cu13]' cuda-core nvidia-cutlass-dsl`) and where it cannot be used: it fails to
compile the kernel even by itself, without a driver, as with a NumPy that it does not know.
"""

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest

from kernbench.ptx.doors.driver.library import LibraryError, library_folder

# a string of CUDA C++ as people write it, in a string of Python
TWICE = '''"""
extern "C" __global__ void twice(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n)
    y[i] = 2 * x[i];
}
"""'''
# programs: `n` threads write to arrays of 128 floats
CUPY = f"""
import sys, numpy, cupy
n = int(sys.argv[1])
kernel = cupy.RawKernel({TWICE}, "twice")
x = cupy.arange(128, dtype=cupy.float32)
y = cupy.zeros_like(x)
kernel((4,), (64,), (x, y, numpy.int32(n)))
numpy.testing.assert_array_equal(cupy.asnumpy(y), 2.0 * numpy.arange(128))
"""
NUMBA_KERNEL = """
import sys, numpy
from numba import cuda

def twice(x, y, n):
    i = cuda.grid(1)
    if i < n:
        y[i] = 2 * x[i]
"""
NUMBA = f"""{NUMBA_KERNEL}
twice = cuda.jit(twice)
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
kernel = Program({TWICE}, code_type="c++", options=options).compile("cubin").get_kernel("twice")
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
program = check(nvrtc.nvrtcCreateProgram({TWICE}.encode(), b"twice.cu", 0, [], []))
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
CUTE_KERNEL = """
import sys, numpy
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

def pointers(*addresses):
    return [make_ptr(cutlass.Float32, int(at), cute.AddressSpace.gmem, assumed_align=16) for at in addresses]
"""
CUTE = f"""{CUTE_KERNEL}
from cuda.bindings import driver

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
run(*pointers(x, y), n)
check(driver.cuMemcpyDtoH(host.ctypes.data, y, 512))
numpy.testing.assert_array_equal(host, 2.0 * numpy.arange(128))
"""
# the same kernels, compiled by what each front end compiles with, and nothing else: no driver is needed for it
NUMBA_COMPILES = f"""{NUMBA_KERNEL}
from numba import float32, int32
cuda.compile_ptx(twice, (float32[:], float32[:], int32), cc=(9, 0))
"""
CUPY_COMPILES = f"""
import cupy
from cupy.cuda import nvrtc
nvrtc.compileProgram(nvrtc.createProgram({TWICE}, "twice.cu", (), ()), ("--gpu-architecture=compute_90",))
"""
NVRTC_COMPILES = f"""
from cuda.bindings import nvrtc
program = nvrtc.nvrtcCreateProgram({TWICE}.encode(), b"twice.cu", 0, [], [])[1]
assert not int(nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=sm_90a"])[0])
"""
CUTE_COMPILES = f"""
import os
os.environ["CUTE_DSL_ARCH"] = "sm_90a"
{CUTE_KERNEL}
cute.compile(run, *pointers(4096, 8192), 128)
"""


@dataclass(frozen=True)
class FrontEnd:
    """A front end: the module that it needs, a program, and one that only compiles the program's kernel."""

    module: str
    program: str
    compiles: str

    def succeeds(self, done: subprocess.CompletedProcess[str]) -> None:
        """The program must have ended well, unless its front end cannot compile the kernel by itself either."""
        if done.returncode == 0:
            return
        alone = run(sys.executable, "-c", self.compiles)
        if alone.returncode:
            reason = (alone.stderr.strip().splitlines() or [f"exit code {alone.returncode}"])[-1]
            pytest.skip(f"{self.module} cannot compile its own kernel here: {reason}")
        pytest.fail(done.stdout + done.stderr)


FRONT_ENDS = {
    "cupy": FrontEnd("cupy", CUPY, CUPY_COMPILES),
    "numba": FrontEnd("numba_cuda", NUMBA, NUMBA_COMPILES),
    "cuda.core": FrontEnd("cuda.core", CORE, f"import cuda.core{NVRTC_COMPILES}"),
    "cuda.bindings": FrontEnd("cuda.bindings", BINDINGS, NVRTC_COMPILES),
    "cute": FrontEnd("cutlass", CUTE, CUTE_COMPILES),
}
# a Python program as others write it, with the block around it
AROUND = """
import sys
from kernbench import ptx
with ptx.emulated("sm_90a") as session:
{program}
print([(launch.title.split("(")[0], launch.status, len(launch.findings)) for launch in session.launches])
"""
AGAIN = """
import sys
from kernbench import ptx
for _ in range(2):
    with ptx.emulated("sm_90a") as session:
{program}
    print([(launch.title.split("(")[0], launch.status, len(launch.findings)) for launch in session.launches])
"""


@pytest.fixture(params=FRONT_ENDS)
def front_end(request) -> FrontEnd:
    """A front end; skipped where there is no such front end, or no C compiler."""
    chosen = FRONT_ENDS[request.param]
    try:
        found = find_spec(chosen.module)
    except ModuleNotFoundError:
        found = None
    if found is None:
        pytest.skip(f"{chosen.module} is not installed")
    if "nvrtc" in chosen.program:
        pathfinder = pytest.importorskip("cuda.pathfinder")
        try:
            pathfinder.load_nvidia_dynamic_lib("nvrtc")
        except RuntimeError:
            pytest.skip("NVRTC is not installed: pip install nvidia-cuda-nvrtc")
    try:
        library_folder()
    except LibraryError as problem:
        pytest.skip(f"no C compiler: {problem}")
    return chosen


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("KERNBENCH_")}
    command = [str(word) for word in words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)


def test_it_runs_under_exec_and_what_it_does_wrong_is_found(front_end, tmp_path):
    path, report = tmp_path / "program.py", tmp_path / "report.json"
    path.write_text(front_end.program)
    command = [sys.executable, "-m", "kernbench.cli", "exec", "--arch", "sm_90a", "--json", report, "--"]
    clean = run(*command, sys.executable, path, "128")
    front_end.succeeds(clean)
    # no compiler is too new, and no runtime cannot be replaced
    assert not any(words in clean.stderr for words in ("CUDA error", "driver version", "linked in"))
    launched = [kernel for kernel in json.loads(report.read_text())["kernels"] if "twice" in kernel["kernel"]]
    assert [kernel["launches"] for kernel in launched] == [1]
    wrong = run(*command, sys.executable, path, "200")
    assert wrong.returncode == 1, wrong.stdout + wrong.stderr
    line = next(n for n, text in enumerate(front_end.program.splitlines(), 1) if "y[i] = 2 * x[i]" in text)
    assert f"program.py:{line}: out-of-bounds" in wrong.stderr


def test_it_runs_inside_an_emulated_gpu_of_its_own_process(front_end, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(AROUND.format(program=textwrap.indent(front_end.program, "    ")))
    done = run(sys.executable, path, "128")
    front_end.succeeds(done)
    assert "twice" in done.stdout
    assert "'finished', 0)" in done.stdout


def test_it_runs_inside_a_second_emulated_gpu_of_its_process(front_end, tmp_path):
    """What a front end read of its environment when it was imported still holds."""
    path = tmp_path / "program.py"
    path.write_text(AGAIN.format(program=textwrap.indent(front_end.program, "        ")))
    done = run(sys.executable, path, "128")
    front_end.succeeds(done)
    assert done.stdout.count("'finished', 0)") == 2, done.stdout + done.stderr


def test_a_front_end_that_cannot_compile_is_skipped_and_no_other():
    failed = subprocess.CompletedProcess([], 1, "", "its program failed")
    broken = FrontEnd("broken", "", "raise AttributeError(\"module 'numpy' has no attribute 'row_stack'\")")
    with pytest.raises(pytest.skip.Exception, match=r"broken cannot compile its own kernel here: .*row_stack"):
        broken.succeeds(failed)
    with pytest.raises(pytest.fail.Exception, match="its program failed"):
        FrontEnd("sound", "", "").succeeds(failed)
