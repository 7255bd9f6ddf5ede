"""Runs the launches of a program on another device as well, from the same bytes, and compares the results.

Before a launch all device memory is copied. The launch runs here as usual, and the program continues with its results;
the other device gets the copy. If the results differ, both rerun the launch with a trace, and memory is then restored
to what the launch left.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.common.errors import KernbenchError
from kernbench.ptx.comparing.devices import CUDA, function_of, races_of
from kernbench.ptx.comparing.launches import Left, NotComparedError, judged
from kernbench.ptx.comparing.outside import outside_environment
from kernbench.ptx.comparing.search import Launched
from kernbench.ptx.comparing.verdicts import NOT_COMPARED, Verdict
from kernbench.ptx.devices.cuda_driver import CudaUnavailableError
from kernbench.ptx.devices.gpu_process import BytesLaunch, BytesLeft, GpuProcess
from kernbench.ptx.emulator.asynchronous.copies import tensor_maps
from kernbench.ptx.emulator.memory.arena import Allocation, Arena
from kernbench.ptx.launching.device_base import Extent
from kernbench.ptx.launching.tensor_map import TENSOR_MAP_BYTES
from kernbench.ptx.text.module import Kernel, Module
from kernbench.ptx.text.parser import parse
from kernbench.result.run import Run, Status

# most memory that is copied for a launch
MOST_BYTES = 8 << 30


class Elsewhere(Protocol):
    """Another device, which takes launches as bytes."""

    name: str

    def run(self, launch: BytesLaunch) -> BytesLeft:
        """Run a launch; raises a `KernbenchError` if it does not run to its end."""
        ...

    def close(self) -> None:
        """Release the device."""


class SessionMemory(Protocol):
    """The memory of a session's device."""

    @property
    def arena(self) -> Arena:
        """Its allocations and their bytes."""
        ...

    def settle(self) -> None:
        """Mark what the host wrote as written."""

    def array_at(self, address: int) -> Allocation | None:
        """The allocation that contains an address."""
        ...


class SessionRequest(Protocol):
    """A launch of a session."""

    @property
    def kernel(self) -> Kernel:
        """The kernel."""
        ...

    @property
    def parameters(self) -> Sequence[bytes]:
        """The bytes of each parameter."""
        ...

    @property
    def shared_bytes(self) -> int:
        """Bytes of dynamic shared memory."""
        ...

    @property
    def names(self) -> Mapping[int, str]:
        """Names of arrays by address."""
        ...

    @property
    def shape(self) -> tuple[Extent, Extent, Extent]:
        """Grid, block and cluster."""
        ...


class SessionDevice(Protocol):
    """The device of a session."""

    @property
    def memory(self) -> SessionMemory:
        """Its memory."""
        ...

    def variables(self, module: Module) -> Mapping[str, Allocation]:
        """The variables of a module."""
        ...

    def element_types(self, kernel: object) -> dict[str, np.dtype[np.generic]]:
        """The element types that a kernel uses for its pointers."""
        ...

    def run_bytes(self, kernel: Kernel, launch: BytesLaunch, exact: bool) -> BytesLeft:
        """Run a launch given as bytes, with another kernel."""
        ...

    def check_bytes(self, kernel: Kernel, launch: BytesLaunch) -> Run:
        """Run a launch given as bytes with all checks."""
        ...


@dataclass(frozen=True)
class Snapshot:
    """The memory of a device: allocations, their bytes, and the state of each byte."""

    pieces: tuple[tuple[Allocation, Array, Array], ...]

    def put_back(self, device: SessionDevice) -> None:
        """Restore memory."""
        arena = device.memory.arena
        for allocation, contents, states in self.pieces:
            arena.contents(allocation)[...] = contents
            arena.states(allocation)[...] = states


class SecondEmulator:
    """The emulator itself as the other device; `change` modifies each kernel, `exact` is that of launches."""

    name = "a second emulator"

    def __init__(self, device: SessionDevice, change: Callable[[Kernel], Kernel] | None = None, exact: bool = True):
        self._device, self._change, self._exact = device, change, exact

    def run(self, launch: BytesLaunch) -> BytesLeft:
        """Run in the device's own memory, which is left as the launch leaves it."""
        kernel = parse(launch.text).kernels[launch.kernel]
        return self._device.run_bytes(kernel if self._change is None else self._change(kernel), launch, self._exact)

    def races(self, launch: BytesLaunch) -> list[str]:
        """The races of a launch, in words."""
        return races_of(self._device.check_bytes(parse(launch.text).kernels[launch.kernel], launch))

    def close(self) -> None:
        """No operation."""


class LaunchComparison:
    """Compares the launches of a session with another device."""

    def __init__(self, device: SessionDevice, other: str, search: bool = True, seconds: float = 600.0):
        self._device, self._named, self._search, self._seconds = device, other, search, seconds
        self._other: Elsewhere | None = None
        # why the other device is not available
        self._missing = ""

    def before(self) -> Snapshot:
        """The memory before a launch."""
        self._device.memory.settle()
        return self._snapshot()

    def after(self, request: SessionRequest, run: Run, before: Snapshot) -> Verdict:
        """The verdict on a launch that has run here; memory is left as the launch left it."""
        if self._missing:
            return Verdict(NOT_COMPARED, reason=self._missing)
        if run.status is not Status.FINISHED:
            return Verdict(NOT_COMPARED, reason=f"the launch did not end here: {run.status}")
        total = sum(contents.nbytes for _, contents, _ in before.pieces)
        if total > MOST_BYTES:
            return Verdict(NOT_COMPARED, reason=f"{total >> 20:,} MiB of memory are too much to copy for each launch")
        left = self._snapshot()
        try:
            return self._judged(request, before, left)
        except CudaUnavailableError as problem:
            self._missing = str(problem)
            return Verdict(NOT_COMPARED, reason=self._missing)
        except NotComparedError as problem:
            return Verdict(NOT_COMPARED, reason=str(problem))
        finally:
            left.put_back(self._device)

    def close(self) -> None:
        """Release the other device."""
        if self._other is not None:
            self._other.close()

    def _judged(self, request: SessionRequest, before: Snapshot, left: Snapshot) -> Verdict:
        reading = _Reading(self._device, request, before, left)
        theirs = _Side(self._elsewhere(), reading, self._seconds)
        others = theirs.run(request.kernel).arrays
        after = {allocation.address: contents for allocation, contents, _ in left.pieces}
        mine = reading.arrays({address: after.get(address, data) for address, data in reading.memory})
        addresses = tuple(p.name for p in request.kernel.params if p.size == 8) if theirs.moved else ()
        grid, block, _ = request.shape
        launched = Launched(request.kernel, grid, block, addresses, theirs.moved)
        ours = _OurSide(SecondEmulator(self._device), reading, self._seconds)
        return judged(launched, mine, others, ours, theirs, self._search)

    def _elsewhere(self) -> Elsewhere:
        if self._other is None:
            named = self._named
            made = GpuProcess(outside_environment()) if named == CUDA else function_of(named)(self._device)
            self._other = cast(Elsewhere, made)
        return self._other

    def _snapshot(self) -> Snapshot:
        arena = self._device.memory.arena
        live = [one for one in arena.allocations() if one.live and one.space != "param"]
        if sum(one.nbytes for one in live) > MOST_BYTES:
            live = []
        return Snapshot(tuple((one, arena.contents(one).copy(), arena.states(one).copy()) for one in live))


class _Reading:
    """The initial memory of a launch, and the names and element types of its pieces."""

    def __init__(self, device: SessionDevice, request: SessionRequest, before: Snapshot, left: Snapshot):
        self.request = request
        # tensor maps in the memory that the launch left here: address of a piece -> offset -> bytes
        self._maps = {allocation.address: _maps_of(contents) for allocation, contents, _ in left.pieces}
        self.memory = tuple((allocation.address, contents) for allocation, contents, _ in before.pieces)
        self.variables = {name: held.address for name, held in device.variables(request.kernel.module).items()}
        known = {address for address, _ in self.memory}
        self.variables = {name: address for name, address in self.variables.items() if address in known}
        self._names = {allocation.address: allocation.name for allocation, _, _ in before.pieces}
        self._types: dict[int, np.dtype[np.generic]] = {}
        types = device.element_types(request.kernel)
        for parameter, data in zip(request.kernel.params, request.parameters, strict=True):
            held = device.memory.array_at(int.from_bytes(data, "little")) if len(data) == 8 else None
            if held is not None:
                self._names[held.address] = request.names.get(held.address, parameter.name)
                if parameter.name in types:
                    self._types.setdefault(held.address, types[parameter.name])

    def with_maps(self, address: int, data: Array) -> Array:
        """A piece left by another device, with tensor maps replaced by ours if they are equivalent."""
        for offset, ours in self._maps.get(address, {}).items():
            part = data[offset : offset + TENSOR_MAP_BYTES]
            if len(part) == len(ours) and part.tobytes() != ours and tensor_maps.say_the_same(ours, part.tobytes()):
                data = data.copy()
                data[offset : offset + TENSOR_MAP_BYTES] = np.frombuffer(ours, np.uint8)
        return data

    def arrays(self, memory: Mapping[int, Array]) -> dict[str, Array]:
        """Pieces by name, with the kernel's element types."""
        found: dict[str, Array] = {}
        for address, data in memory.items():
            kind = self._types.get(address, np.dtype(np.uint8))
            name = self._names.get(address, "memory")
            name = name if name not in found else f"{name} at {address:#x}"
            found[name] = data.view(kind) if data.nbytes % kind.itemsize == 0 else data
        return found


class _Side:
    """A device as a side of the comparison."""

    def __init__(self, other: Elsewhere, reading: _Reading, seconds: float):
        self.name, self._other, self._reading, self._seconds = other.name, other, reading, seconds
        self.moved = False

    def run(self, kernel: Kernel, rows: Array | None = None) -> Left:
        """Run the launch with a kernel that may be traced."""
        reading = self._reading
        try:
            left = self._other.run(self._launch(kernel, rows))
        except CudaUnavailableError:
            raise
        except KernbenchError as problem:
            raise NotComparedError(f"on {self.name}: {problem}") from None
        self.moved = left.moved
        order = {address: number for number, (address, _) in enumerate(reading.memory)}
        pieces = sorted(left.memory, key=lambda piece: order[piece[0]])
        return Left(reading.arrays({address: reading.with_maps(address, data) for address, data in pieces}), left.rows)

    def _launch(self, kernel: Kernel, rows: Array | None) -> BytesLaunch:
        reading, request = self._reading, self._reading.request
        return BytesLaunch(
            kernel.emit(), kernel.name, *request.shape, request.shared_bytes, tuple(request.parameters),
            reading.memory, reading.variables, rows, self._seconds,
        )  # fmt: skip


class _OurSide(_Side):
    """The emulator, which detects races as well."""

    def __init__(self, emulator: SecondEmulator, reading: _Reading, seconds: float):
        super().__init__(emulator, reading, seconds)
        self._emulator = emulator

    def races(self, kernel: Kernel) -> list[str]:
        """The races of the launch, in words."""
        try:
            return self._emulator.races(self._launch(kernel, None))
        except KernbenchError as problem:
            raise NotComparedError(f"on {self.name}: {problem}") from None


def _maps_of(contents: Array) -> dict[int, bytes]:
    """The tensor maps of a piece by their offsets."""
    return {at: contents[at : at + TENSOR_MAP_BYTES].tobytes() for at in tensor_maps.maps_in(contents)}
