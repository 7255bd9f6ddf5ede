"""The driver library in a Python that runs already: `emulated()` has it there, for one session after the other."""

import os
import subprocess
import sys

import pytest
from tests.ptx.doors.driver import packed

from kernbench.ptx.doors.cute_door.door import keep_text
from kernbench.ptx.doors.driver.images.kept import FOLDER as KEPT
from kernbench.ptx.doors.driver.running import compiler_switches

pytestmark = pytest.mark.programs

# what front ends do, by hand
CALLS = f"""
import ctypes, sys
from kernbench import ptx

TEXT = {packed.SCALE!r}.encode()


def call(name, *arguments):
    return getattr(ctypes.CDLL("libcuda.so.1"), name)(*arguments)


def scale(kernel, count=64, room=64):
    x = ctypes.c_uint64()
    assert call("cuMemAlloc_v2", ctypes.byref(x), ctypes.c_size_t(4 * room)) == 0
    host = (ctypes.c_float * room)(*range(room))
    call("cuMemcpyHtoD_v2", x, host, ctypes.c_size_t(4 * room))
    factor, number = ctypes.c_float(2), ctypes.c_uint32(count)
    values = (x, factor, number)
    pointers = (ctypes.c_void_p * 3)(*(ctypes.addressof(value) for value in values))
    code = call("cuLaunchKernel", kernel, 2, 1, 1, 64, 1, 1, 0, None, pointers, None)
    call("cuMemcpyDtoH_v2", host, x, ctypes.c_size_t(4 * room))
    return code, sum(host), x


def begin():
    context, module, kernel = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    assert call("cuInit", 0) == 0
    call("cuDevicePrimaryCtxRetain", ctypes.byref(context), 0)
    call("cuCtxSetCurrent", context)
    assert call("cuModuleLoadData", ctypes.byref(module), TEXT) == 0
    assert call("cuModuleGetFunction", ctypes.byref(kernel), module, b"scale") == 0
    return kernel
"""


@pytest.fixture
def python(library, tmp_path):
    """Runs Python in a process of its own."""

    def run(lines: str) -> subprocess.CompletedProcess[str]:
        path = tmp_path / "program.py"
        path.write_text(CALLS + lines)
        environment = {key: value for key, value in os.environ.items() if not key.startswith("KERNBENCH_")}
        command = [sys.executable, str(path)]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900, check=False)

    return run


def test_the_library_answers_one_session_after_the_other(python):
    done = python("""
with ptx.emulated("sm_90a", driver=True) as first:
    kernel = begin()
    print(scale(kernel)[:2], first.launches[0].title)
    *_, x = scale(kernel)
with ptx.emulated("sm_90a", driver=True) as second:
    print(scale(kernel, 65)[0], len(first.launches), len(second.launches), {f.kind for f in second.findings})
    with ptx.emulated("sm_90a", driver=True) as inner:
        scale(kernel)
    scale(kernel)
    print(len(inner.launches), len(second.launches))
with ptx.emulated("sm_100a", driver=True):
    print(scale(kernel)[0] if call("cuMemFree_v2", x) == 0 else "not freed")
""")
    assert done.stdout.splitlines() == ["(0, 4032.0) scale", "0 2 1 {'out-of-bounds'}", "1 2"], done.stderr
    # the last block asks for another GPU: memory is given back, nothing is allocated
    assert "AssertionError" in done.stderr
    assert "this process has used CUDA's driver on sm_90a" in done.stderr
    assert "use another process for sm_100a" in done.stderr


def test_after_the_block_there_is_no_gpu_and_memory_can_still_be_given_back(python):
    done = python("""
with ptx.emulated("sm_90a", driver=True):
    kernel = begin()
    _, _, x = scale(kernel)
print(call("cuMemFree_v2", x), call("cuLaunchKernel", kernel, 1, 1, 1, 64, 1, 1, 0, None, (ctypes.c_void_p * 3)(*(
    ctypes.addressof(value) for value in (x, ctypes.c_float(2), ctypes.c_uint32(0)))), None))
""")
    assert done.stdout.split() == ["0", "4"], done.stderr
    assert "no emulated GPU is in use any more" in done.stderr


def test_where_another_driver_is_loaded_a_warning_says_what_to_do(python, library, tmp_path):
    other = tmp_path / "libcuda.so.1"
    other.write_bytes((library / "libcuda.so.1").read_bytes())
    done = python(f"""
ctypes.CDLL({str(other)!r})
with ptx.emulated("sm_90a", driver=True) as session:
    print("goes on")
""")
    assert done.stdout.split() == ["goes", "on"], done.stderr
    assert f"{other} is loaded into this process already" in done.stderr
    assert "DriverNotSeenWarning" in done.stderr


def test_torch_counts_as_a_user_of_the_runtime(run_program, tmp_path):
    path = tmp_path / "program.py"
    path.write_text(
        "import ctypes\n"
        "from kernbench.ptx.doors.driver.local import torch_in_use\n"
        "cuda, count, context = ctypes.CDLL('libcuda.so.1'), ctypes.c_int(), ctypes.c_void_p()\n"
        "print(cuda.cuDeviceGetCount(ctypes.byref(count)))\n"
        "torch_in_use()\n"
        "print(cuda.cuDeviceGetCount(ctypes.byref(count)), count.value)\n"
        "print(cuda.cuCtxGetCurrent(ctypes.byref(context)), context.value is not None)\n"
    )
    result = run_program(sys.executable, path)
    assert result.out.splitlines() == ["3", "0 1", "0 True"], result.err


def test_texts_that_a_program_has_written_elsewhere_are_kept(monkeypatch, tmp_path):
    monkeypatch.setenv(KEPT, str(tmp_path))
    keep_text(packed.SCALE)
    keep_text(None)
    keep_text("a path that is no file")
    assert [path.read_text() for path in tmp_path.glob("*.ptx")] == [packed.SCALE]


def test_both_languages_of_cute_dsl_are_asked_for_ptx_with_lines():
    """The experimental one reads the same variables under its own name, and gave machine code alone."""
    given = {"CUTE_EXPERIMENTAL_DSL_KEEP": "ir", "CUTE_DSL_LINEINFO": "0", "CUTE_EXPERIMENTAL_DSL_DUMP_DIR": "/mine"}
    switches = compiler_switches(given, "/kept", "/sources")
    assert {name: value for name, value in switches.items() if name.startswith("CUTE_")} == {
        "CUTE_DSL_KEEP": "ptx",
        "CUTE_DSL_DUMP_DIR": "/kept",
        "CUTE_DSL_LINEINFO": "0",
        "CUTE_DSL_DISABLE_FILE_CACHING": "1",
        "CUTE_EXPERIMENTAL_DSL_KEEP": "ir,ptx",
        "CUTE_EXPERIMENTAL_DSL_DUMP_DIR": "/mine",
        "CUTE_EXPERIMENTAL_DSL_LINEINFO": "1",
        "CUTE_EXPERIMENTAL_DSL_DISABLE_FILE_CACHING": "1",
    }


def test_a_gpu_that_one_session_lost_is_there_for_the_next(python):
    """And for the next test of `pytest --kernbench`, which restores it."""
    done = python("""
from kernbench.ptx.doors.driver.local import restore
GOOD, TEXT = TEXT, b'.version 8.0 .target sm_80 .address_size 64 .visible .entry scale() { trap; }'
with ptx.emulated("sm_90a", driver=True):
    call("cuLaunchKernel", begin(), 1, 1, 1, 32, 1, 1, 0, None, None, None)
    print(call("cuCtxSynchronize"), call("cuMemFree_v2", ctypes.c_uint64(0)))
    restore()
    print(call("cuCtxSynchronize"))
    call("cuLaunchKernel", begin(), 1, 1, 1, 32, 1, 1, 0, None, None, None)
    print(call("cuCtxSynchronize"))
with ptx.emulated("sm_90a", driver=True):
    print(call("cuCtxSynchronize"))
""")
    assert done.stdout.split() == ["719", "719", "0", "719", "0"], done.stderr
