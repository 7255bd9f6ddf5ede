"""Streams of torch: which is the current one, and handles that the driver library knows."""

import subprocess
import sys
import threading

import pytest

from kernbench.ptx.doors.driver.library import LibraryError, library_folder

torch = pytest.importorskip("torch", reason="torch is not installed: make test-doors installs it")
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def session(emulated):
    return emulated()


def test_a_stream_is_the_current_one_inside_its_block_and_in_its_thread(session):
    cuda = torch.cuda
    one, two = cuda.Stream(), cuda.Stream(priority=-1)
    assert (one == one, one == two, one == cuda.default_stream()) == (True, False, False)
    assert len({one, two, cuda.current_stream()}) == 3
    seen = []
    with cuda.stream(one):
        with cuda.stream(two), cuda.stream(two):
            assert cuda.current_stream() == torch.accelerator.current_stream() == two
        assert cuda.current_stream() == one
        thread = threading.Thread(target=lambda: seen.append(cuda.current_stream()))
        thread.start()
        thread.join()
        with cuda.stream(None):
            assert cuda.current_stream() == one
    assert seen == [cuda.default_stream()]
    assert cuda.current_stream() == cuda.default_stream()
    cuda.set_stream(two)
    assert cuda.current_stream() == two
    cuda.set_stream(cuda.default_stream())
    assert cuda.current_stream().cuda_stream == 0
    assert cuda.ExternalStream(4711).cuda_stream == 4711


def test_a_tensor_is_said_to_be_used_on_a_stream(session):
    x = torch.ones(4, device="cuda")
    stream = torch.cuda.Stream()
    assert x.record_stream(stream) is None
    x.record_stream(torch.cuda.current_stream())
    assert x.tolist() == [1] * 4


CAPTURED = """
import ctypes, torch
driver = ctypes.CDLL("libcuda.so.1")
one, two = torch.cuda.Stream(), torch.cuda.Stream()
assert one.cuda_stream and one.cuda_stream == one.cuda_stream != two.cuda_stream
stream, graph, executable = ctypes.c_void_p(one.cuda_stream), ctypes.c_void_p(), ctypes.c_void_p()
x = torch.zeros(8, dtype=torch.int32, device="cuda")
at = ctypes.c_uint64(x.data_ptr())
assert driver.cuStreamBeginCapture_v2(stream, 1) == 0
assert driver.cuMemsetD32Async(at, 7, 8, stream) == 0
assert driver.cuStreamEndCapture(stream, ctypes.byref(graph)) == 0
assert x.tolist() == [0] * 8
assert driver.cuGraphInstantiateWithFlags(ctypes.byref(executable), graph, ctypes.c_uint64(0)) == 0
assert driver.cuGraphLaunch(executable, stream) == 0
assert x.tolist() == [7] * 8
"""


# torch makes the driver's event when it is first recorded
RECORDED = """
import ctypes, torch
driver = ctypes.CDLL("libcuda.so.1")
one, two = torch.cuda.Event(), torch.cuda.Event(enable_timing=True)
assert one.cuda_event == 0
one.record()
two.record(torch.cuda.Stream())
assert one.cuda_event and one.cuda_event == one.cuda_event != two.cuda_event
event = ctypes.c_void_p(one.cuda_event)
assert driver.cuEventRecord(event, None) == driver.cuEventSynchronize(event) == driver.cuEventQuery(event) == 0
assert one.device == torch.device("cuda", 0)
"""


@pytest.mark.parametrize("text", [CAPTURED, RECORDED], ids=["captured", "recorded"])
def test_the_driver_knows_streams_and_events_of_torch(tmp_path, text):
    try:
        library_folder()
    except LibraryError as problem:
        pytest.skip(f"no C compiler: {problem}")
    program = tmp_path / "program.py"
    program.write_text(text)
    command = [sys.executable, "-m", "kernbench.cli", "exec", "--allow-no-launches", "--", sys.executable, str(program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=900, check=False)
    assert done.returncode == 0, done.stderr
