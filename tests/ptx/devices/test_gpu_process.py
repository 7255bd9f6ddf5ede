"""Launches as bytes on a GPU: shown on a driver made of Python, and the process that serves them."""

import ctypes
import io
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from tests.ptx.devices.test_cuda_device import KERNEL, TEXT, Bindings

from kernbench.ptx.devices import gpu_process, gpu_server
from kernbench.ptx.devices.cuda_driver import CudaError, CudaUnavailableError, Driver
from kernbench.ptx.devices.gpu_memory import GpuMemory
from kernbench.ptx.devices.gpu_process import (
    BytesLaunch,
    BytesLeft,
    Failure,
    GpuProcess,
    LaunchFailedError,
    receive,
    send,
)
from kernbench.ptx.devices.gpu_server import BytesDevice, Launcher, serve
from kernbench.ptx.emulator.asynchronous.copies import tensor_maps
from kernbench.ptx.launching.tensor_map import TensorMapDescription

UNIT = 4096


class Mapping(Bindings):
    """A driver that gives memory at the addresses that are asked for, if `exactly`."""

    def __init__(self, exactly=True, **fails):
        super().__init__(**fails)
        self.exactly = exactly
        self.variable = ctypes.create_string_buffer(4)

    def values(self, name, args):
        match name:
            case "cuMemGetAllocationGranularity":
                return (UNIT,)
            case "cuMemAddressReserve":
                return (args[2] if self.exactly else args[2] + UNIT,)
            case "cuMemcpyHtoD" | "cuMemcpyDtoH":
                ctypes.memmove(*args[:3])
                return ()
            case "cuModuleGetGlobal":
                return (ctypes.addressof(self.variable), 4)
            case "cuMemCreate":
                return ("memory",)
        return super().values(name, args)

    def CUmemAllocationProp(self):  # noqa: N802
        return SimpleNamespace(location=SimpleNamespace())

    CUmemAccessDesc = CUmemAllocationProp
    CUmemAllocationGranularity_flags = CUmemAllocationType = CUmemLocationType = CUmemAccess_flags = (
        Bindings.CUdevice_attribute
    )


def room(pages=3):
    """Memory whose first page begins at a multiple of pages, as a GPU would map it, and its address."""
    raw = ctypes.create_string_buffer((pages + 1) * UNIT)
    return raw, -(-ctypes.addressof(raw) // UNIT) * UNIT


def test_memory_lies_at_the_addresses_that_it_has_elsewhere():
    raw, start = room()
    bindings = Mapping()
    memory = GpuMemory(Driver(bindings), 0)
    pieces = [(start + 16, np.arange(100, dtype=np.uint8)), (start + UNIT - 8, np.full(16, 7, np.uint8))]
    for _ in range(2):
        memory.reserve(pieces)
        memory.put(pieces)
    assert not memory.moved
    # two pages, each mapped once
    assert [call[2] for call in bindings.named("cuMemAddressReserve")] == [start, start + UNIT]
    assert ctypes.string_at(start + 16, 3) == bytes((0, 1, 2))
    ctypes.memset(start + 16, 9, 1)
    assert memory.take(pieces)[0][1][0] == 9
    assert memory.parameters([start.to_bytes(8, "little")]) == [start.to_bytes(8, "little")]
    assert memory.back(pieces)[0][1] is pieces[0][1]
    assert raw is not None


@pytest.mark.parametrize("bindings", [Mapping(exactly=False), Mapping(cuMemMap="CUDA_ERROR_UNKNOWN")])
def test_where_the_driver_refuses_pointers_are_changed(bindings):
    memory = GpuMemory(Driver(bindings), 0)
    data, table = np.arange(64, dtype=np.uint8), np.zeros(36, np.uint8)
    # a table that begins in the midst of a word: a pointer into the data, one to the table, a number, half a word
    pointers = [(1 << 44) + 60, (1 << 45) + 4, 12345]
    table[4:28] = np.array(pointers, np.uint64).view(np.uint8)
    pieces = [(1 << 44, data), ((1 << 45) + 4, table), (1 << 46, np.zeros(0, np.uint8))]
    memory.reserve(pieces)
    memory.put(pieces)
    assert memory.moved
    inside, outside = pointers[0].to_bytes(8, "little"), (12345).to_bytes(8, "little")
    moved = memory.parameters([inside, outside, b"\1\2", outside + inside])
    assert moved[1:3] == [outside, b"\1\2"]
    assert moved[3] == outside + moved[0]
    assert ctypes.string_at(int.from_bytes(moved[0], "little"), 1) == bytes((60,))
    taken = memory.take(pieces)
    there = taken[1][1][4:28].view(np.uint64)
    assert ctypes.string_at(int(there[0]), 1) == bytes((60,))
    assert ctypes.string_at(int(there[1]) + 20, 8) == outside
    assert there[2] == 12345
    for (address, wanted), (found, got) in zip(pieces, memory.back(taken), strict=True):
        assert address == found
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize("seed", range(20))
def test_pointers_into_random_pieces_lead_where_they_led(seed):
    rng = np.random.default_rng(seed)
    pieces, at = [], 1 << 44
    for _ in range(6):
        at += int(rng.integers(1, 200))
        data = rng.integers(0, 256, int(rng.integers(0, 120)), dtype=np.uint8)
        pieces.append((at, data))
        at += data.nbytes
    known = [address + offset for address, data in pieces for offset in range(data.nbytes)]
    for address, data in pieces:
        words = data[-address % 8 :][: (data.nbytes - -address % 8) // 8 * 8].view(np.uint64)
        words[rng.random(len(words)) < 0.5] = rng.choice(known or [0])
    memory = GpuMemory(Driver(Mapping(exactly=False)), 0)
    memory.reserve(pieces)
    memory.put(pieces)
    taken = memory.take(pieces)
    for (address, data), (_, there) in zip(pieces, taken, strict=True):
        # one word after the other, by the list of all addresses
        for offset in range(-address % 8, data.nbytes - 7, 8):
            before, after = (int.from_bytes(one[offset : offset + 8].tobytes(), "little") for one in (data, there))
            assert after == (memory.here(before) if before in known else before)
    for (_, wanted), (_, got) in zip(pieces, memory.back(taken), strict=True):
        np.testing.assert_array_equal(got, wanted)


def test_too_little_memory_is_an_error():
    memory = GpuMemory(Driver(Mapping(cuMemCreate="CUDA_ERROR_OUT_OF_MEMORY")), 0)
    with pytest.raises(CudaError, match="free arrays, or use smaller ones"):
        memory.reserve([(1 << 44, np.zeros(8, np.uint8))])


def launch_of(start, text=TEXT, **more):
    words = start.to_bytes(8, "little"), (3).to_bytes(4, "little")
    memory = [(start, np.arange(256, dtype=np.uint8)), *more.pop("memory", [])]
    return BytesLaunch(text, "k", (2, 1, 1), (64, 1, 1), (1, 1, 1), 0, words, memory, **more)


def test_a_launch_is_given_as_bytes_and_gives_bytes_back():
    raw, start = room()
    bindings = Mapping()
    launcher = Launcher(BytesDevice(driver=Driver(bindings)))
    rows = np.arange(8, dtype=np.uint32)
    value = (5, np.array([1, 2, 3, 4], np.uint8))
    left = launcher.run(launch_of(start, memory=[value], variables={"v": 5}, rows=rows))
    assert [address for address, _ in left.memory] == [start, 5]
    np.testing.assert_array_equal(left.memory[1][1], value[1])
    np.testing.assert_array_equal(left.rows, rows)
    ((config, *_),) = bindings.named("cuLaunchKernelEx")
    assert (config.gridDimX, config.blockDimX) == (2, 64)
    # the variable is no memory that is mapped: the module has it
    assert len(bindings.named("cuMemAddressReserve")) == 1
    assert raw is not None


def test_tensor_maps_of_the_emulator_become_the_hardwares():
    raw, start = room()
    described = TensorMapDescription(start, "f32", (32, 8), (128,), (32, 8), (1, 1))
    held = np.zeros(256, np.uint8)
    held[64:192] = np.frombuffer(tensor_maps.encode(described), np.uint8)
    bindings = Mapping()
    launcher = Launcher(BytesDevice(driver=Driver(bindings)))
    left = launcher.run(
        BytesLaunch(TEXT, "k", (1, 1, 1), (32, 1, 1), (1, 1, 1), 0, (b"\0" * 8, b"\0" * 4), [(start, held)])
    )
    assert len(bindings.named("cuTensorMapEncodeTiled")) == 1
    # what the kernel leaves as it was is given back as it was
    np.testing.assert_array_equal(left.memory[0][1], held)
    assert raw is not None


def test_a_kernel_that_faults_says_what_happened():
    raw, start = room()
    launcher = Launcher(BytesDevice(driver=Driver(Mapping(cuEventQuery="CUDA_ERROR_ILLEGAL_ADDRESS"))))
    with pytest.raises(LaunchFailedError, match="'k' died on Pretend GPU of an access to memory that is not there"):
        launcher.run(launch_of(start))
    assert raw is not None


def answers(monkeypatch, device):
    """What the process sends for one launch."""
    monkeypatch.setattr(gpu_server, "BytesDevice", device)
    raw, start = room()
    source, target = io.BytesIO(), io.BytesIO()
    send(source, launch_of(start))
    source.seek(0)
    serve(source, target)
    target.seek(0)
    assert raw is not None
    return receive(target)


def test_the_process_answers_each_launch(monkeypatch):
    assert isinstance(answers(monkeypatch, lambda index: BytesDevice(driver=Driver(Mapping()))), BytesLeft)

    def broken(index):
        raise CudaUnavailableError("no GPU to run on")

    assert answers(monkeypatch, broken) == Failure("unavailable", "no GPU to run on")
    lost = answers(
        monkeypatch, lambda index: BytesDevice(driver=Driver(Mapping(cuMemAlloc="CUDA_ERROR_OUT_OF_MEMORY")))
    )
    assert isinstance(lost, BytesLeft), "nothing is allocated where memory is mapped"


def test_a_process_that_ends_is_an_error_and_is_started_again(monkeypatch, tmp_path):
    import sys

    monkeypatch.setattr(sys, "executable", "/bin/false")
    process = GpuProcess({})
    for _ in range(2):
        with pytest.raises(LaunchFailedError, match="ended in the midst of a launch"):
            process.run(launch_of(1 << 44))
    process.close()
    assert KERNEL.name == "k"


def silent(monkeypatch, tmp_path):
    """A process in place of the GPU's that takes launches and never answers."""
    import sys

    server = tmp_path / "server"
    server.write_text("#!/bin/sh\nexec sleep 600\n")
    server.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(server))


def test_a_process_that_gives_no_answer_is_ended(monkeypatch, tmp_path):
    silent(monkeypatch, tmp_path)
    monkeypatch.setattr(gpu_process, "_ASSEMBLING", 0.0)
    process = GpuProcess({})
    started = process._started()
    with pytest.raises(LaunchFailedError, match=r"'k' gave no answer within 0.01 s, and 0 s more"):
        process.run(replace(launch_of(1 << 44), seconds=0.01))
    assert started.poll() is not None


def test_an_interrupt_ends_the_process(monkeypatch, tmp_path):
    silent(monkeypatch, tmp_path)

    def interrupted(stream, seconds):
        raise KeyboardInterrupt

    monkeypatch.setattr(gpu_process, "_answers", interrupted)
    process = GpuProcess({})
    started = process._started()
    with pytest.raises(KeyboardInterrupt):
        process.run(launch_of(1 << 44))
    assert started.poll() is not None
