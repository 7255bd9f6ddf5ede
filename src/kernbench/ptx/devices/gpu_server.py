"""The process with the GPU: it takes launches as bytes from its parent."""

import os
import sys
from collections.abc import Mapping
from dataclasses import replace
from typing import IO

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.errors import KernbenchError
from kernbench.ptx.devices.cuda_device import CudaDevice
from kernbench.ptx.devices.cuda_driver import CudaError, CudaUnavailableError
from kernbench.ptx.devices.gpu_memory import GpuMemory, Pieces
from kernbench.ptx.devices.gpu_process import BytesLaunch, BytesLeft, Failure, LaunchFailedError, receive, send
from kernbench.ptx.emulator.asynchronous.copies import tensor_maps
from kernbench.ptx.launching.device_base import Extent
from kernbench.ptx.launching.tensor_map import TENSOR_MAP_BYTES
from kernbench.ptx.names.demangling import title
from kernbench.ptx.text.module import Kernel
from kernbench.ptx.text.parser import parse
from kernbench.result.run import Run, Status
from kernbench.safety.budget import Budget


class BytesDevice(CudaDevice):
    """A GPU that takes parameters as bytes, and values of module variables."""

    def memory(self) -> GpuMemory:
        """GPU memory for pieces of another process."""
        self._use()
        return GpuMemory(self._driver, self.index)

    def launch_bytes(
        self,
        kernel: Kernel,
        shape: tuple[Extent, Extent, Extent],
        parameters: list[bytes],
        shared_bytes: int,
        values: Mapping[str, Array],
        budget: Budget,
    ) -> Run:
        """Run a kernel once; `shape` is grid, block and cluster."""
        self._use()
        function = self._function(kernel)
        for name, data in values.items():
            address, nbytes = self._variable(kernel, name)
            if nbytes >= data.nbytes > 0:
                self._call("cuMemcpyHtoD", address, np.ascontiguousarray(data).ctypes.data, data.nbytes)
        self._allow_shared(function, title(kernel.name), shared_bytes)
        explicit = shape[2] != (1, 1, 1) and kernel.cluster is None
        config = self._config(function, *shape, shared_bytes, explicit)
        code = self._wait(self._submit(function, config, parameters, 1), budget)
        if code != "CUDA_SUCCESS":
            return self._failed(title(kernel.name), code, budget, {})
        return Run({}, [], (), Status.FINISHED)

    def variables(self, kernel: Kernel, values: Mapping[str, Array]) -> dict[str, Array]:
        """The values of a module's variables; for variables unknown to the driver, the given ones."""
        found: dict[str, Array] = {}
        for name, given in values.items():
            address, nbytes = self._variable(kernel, name)
            found[name] = given
            if nbytes >= given.nbytes > 0:
                found[name] = np.empty(given.nbytes, np.uint8)
                self.read(address, found[name])
        return found

    def _variable(self, kernel: Kernel, name: str) -> tuple[int, int]:
        """Address and size of a variable; zeros if the driver does not know its name."""
        code, found = self._driver.attempt("cuModuleGetGlobal", self._modules[kernel.emit()], name.encode())
        return (int(found[0]), int(found[1])) if code == "CUDA_SUCCESS" else (0, 0)


class Launcher:
    """Runs launches given as bytes on a GPU."""

    def __init__(self, device: BytesDevice):
        self._device = device
        self._memory = device.memory()

    def run(self, launch: BytesLaunch) -> BytesLeft:
        """Run one launch to its end."""
        kernel = parse(launch.text).kernels[launch.kernel]
        pieces = [(address, data) for address, data in launch.memory if address not in launch.variables.values()]
        self._memory.reserve(pieces)
        held, maps = self._with_maps(pieces)
        self._memory.put(held)
        parameters = [self._encoded(data) for data in self._memory.parameters(launch.parameters)]
        rows = None if launch.rows is None else self._device.array(launch.rows)
        if rows is not None:
            parameters.append(rows.address.to_bytes(8, "little"))
        values = {name: dict(launch.memory)[address] for name, address in launch.variables.items()}
        shape = (launch.grid, launch.block, launch.cluster)
        budget = Budget(seconds=launch.seconds)
        run = self._device.launch_bytes(kernel, shape, parameters, launch.shared_bytes, values, budget)
        if run.status is not Status.FINISHED:
            raise LaunchFailedError(_why(run))
        taken = self._memory.take(held)
        left = self._memory.back([(address, _without_maps(data, maps.get(address, {}))) for address, data in taken])
        left += [(launch.variables[name], data) for name, data in self._device.variables(kernel, values).items()]
        return BytesLeft(left, None if rows is None else rows.numpy(), self._memory.moved)

    def _with_maps(self, pieces: Pieces) -> tuple[Pieces, dict[int, dict[int, tuple[bytes, bytes]]]]:
        """Pieces with the emulator's tensor maps encoded for the hardware; and where they are, before and after."""
        held: list[tuple[int, Array]] = []
        found: dict[int, dict[int, tuple[bytes, bytes]]] = {}
        for address, data in pieces:
            at = tensor_maps.maps_in(data)
            if at:
                data = data.copy()
                found[address] = {}
            for offset in at:
                before = data[offset : offset + TENSOR_MAP_BYTES].tobytes()
                after = self._encoded(before)
                data[offset : offset + TENSOR_MAP_BYTES] = np.frombuffer(after, np.uint8)
                found[address][offset] = before, after
            held.append((address, data))
        return held, found

    def _encoded(self, data: bytes) -> bytes:
        """A tensor map of the emulator in the hardware's encoding; other parameters are unchanged."""
        if len(data) != TENSOR_MAP_BYTES or not tensor_maps.maps_in(np.frombuffer(data, np.uint8)):
            return data
        described = tensor_maps.decode(data)
        return self._device.encode(replace(described, address=self._memory.here(described.address))).encoded


def _without_maps(data: Array, maps: Mapping[int, tuple[bytes, bytes]]) -> Array:
    for offset, (before, after) in maps.items():
        part = data[offset : offset + TENSOR_MAP_BYTES]
        if part.tobytes() == after:
            part[...] = np.frombuffer(before, np.uint8)
    return data


def _why(run: Run) -> str:
    return "; ".join(finding.message for finding in run.findings) or f"the launch did not end: {run.status}"


def serve(source: IO[bytes], target: IO[bytes]) -> None:
    """Answer launches until the other end is closed, or the GPU is lost."""
    launcher: Launcher | None = None
    while True:
        try:
            launch = receive(source)
        except EOFError:
            return
        assert isinstance(launch, BytesLaunch)
        try:
            launcher = launcher or Launcher(BytesDevice(0))
            send(target, launcher.run(launch))
        except CudaUnavailableError as problem:
            send(target, Failure("unavailable", str(problem)))
        except (KernbenchError, CudaError, MemoryError) as problem:
            send(target, Failure("failed", str(problem) or type(problem).__name__))


def main() -> None:
    """`python -m kernbench.ptx.devices.gpu_server`: reads launches, and writes answers."""
    # output of kernels goes to stderr: stdout is for answers
    target = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, target)


if __name__ == "__main__":
    main()
