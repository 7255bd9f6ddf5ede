"""The emulated GPU on this process's memory: it takes parameters as bytes, and keeps modules with their variables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from kernbench.common.errors import MisuseError
from kernbench.ptx.devices.device import EmulatedDevice, parameter_block
from kernbench.ptx.devices.gpu_process import BytesLaunch, BytesLeft, LaunchFailedError
from kernbench.ptx.doors.memory import DeviceMemory
from kernbench.ptx.emulator.analysis.building import check_valid
from kernbench.ptx.emulator.memory.arena import TRACKED, Allocation, Arena
from kernbench.ptx.emulator.memory.loading import LoadedModule
from kernbench.ptx.launching.blocks import clusters_of
from kernbench.ptx.launching.device_base import Extent, launch_shape
from kernbench.ptx.names.demangling import title
from kernbench.ptx.recording.launch import RecordedLaunch
from kernbench.ptx.text.module import Kernel, Module
from kernbench.result.run import Run, Status
from kernbench.safety.budget import Budget
from kernbench.safety.jobs import wanted_jobs

# step limit of a launch that is rerun for comparison: it is limited by time alone
_STEPS = 1 << 40


@dataclass(frozen=True)
class LaunchRequest:
    """A kernel with its launch arguments; `parameters` are the bytes of each, `names` those of arrays by address."""

    kernel: Kernel
    grid: Any
    block: Any
    parameters: Sequence[bytes]
    shared_bytes: int = 0
    cluster: Any = None
    names: Mapping[int, str] = field(default_factory=dict)

    @cached_property
    def shape(self) -> tuple[Extent, Extent, Extent]:
        """Grid, block and cluster, checked against the kernel's requirements; raises `MisuseError`."""
        return launch_shape(self.grid, self.block, self.cluster, self.kernel)


@dataclass(frozen=True)
class RunSetting:
    """How a launch is run.

    With `blocks` (numbers, x fastest) only the clusters of these blocks run. `progress` is called with the number of
    ended blocks. With `record` the run gets a recording, for timing. With `exact` it rounds as ptxas does.
    """

    checks: bool = True
    schedule: Any = "canonical"
    budget: Budget | None = None
    blocks: tuple[int, ...] | None = None
    progress: Callable[[int], None] | None = None
    record: bool = False
    exact: bool = False


class DoorDevice(EmulatedDevice):
    """An emulated GPU whose memory is the process's own `DeviceMemory`."""

    def __init__(self, arch: str, memory: DeviceMemory):
        self.memory = memory
        super().__init__(arch)

    def _new_memory(self) -> tuple[Arena, Allocation]:
        return self.memory.arena, self.memory.parameters

    def close(self) -> None:
        """Forget programs, and free the variables of modules."""
        for _, loaded in self._modules.values():
            for allocation in loaded.allocations.values():
                if allocation.live:
                    self._arena.free(allocation)
        self._reset()

    def variables(self, module: Module) -> dict[str, Allocation]:
        """The global and constant variables of a module, which is loaded on first use."""
        known = self._modules.get(id(module))
        if known is None:
            check_valid(module)
            known = self._modules[id(module)] = (module, LoadedModule(module, self._arena))
        return known[1].allocations

    def run(self, request: LaunchRequest, how: RunSetting) -> Run:
        """Run a launch on the memory of the process."""
        kernel, shape = request.kernel, request.shape
        _check_parameters(kernel, request.parameters)
        clustered = shape[2] != (1, 1, 1)
        aliased = self._aliased(kernel, _words(request.parameters))
        program = self._program(kernel, clustered, aliased, how.record, how.exact)
        self._check_fit(kernel, program, request.shared_bytes)
        data = parameter_block(kernel, request.parameters)
        setting = self._setting(kernel, shape, data, request.shared_bytes, how.schedule, how.budget)
        chosen = None if how.blocks is None else clusters_of(how.blocks, shape[0], shape[2])
        setting = replace(setting, clusters=chosen, progress=how.progress, jobs=wanted_jobs(None))
        names = self._array_names(request)
        self.memory.settle()
        if not how.checks:
            self._arena.clear_written()
        try:
            recorder = RecordedLaunch(program) if how.record else None
            run = self._perform(program, setting, names, how.checks, recorder=recorder)
        except BaseException:
            self._untrack()
            raise
        finally:
            if not how.checks:
                self.memory.count_stored()
            self.memory.hand_back()
        run.origin.update(self._origin(kernel, shape[0], shape[1], request.shared_bytes, how.schedule, how.exact))
        return run

    def run_bytes(self, kernel: Kernel, launch: BytesLaunch, exact: bool) -> BytesLeft:
        """Run a launch given as bytes, with a kernel that may have been modified; nothing is checked.

        Memory is left as the launch leaves it; the kernel's module is forgotten.
        """
        memory, variables = self.memory, self.variables(kernel.module)
        rows = 0 if launch.rows is None else memory.copied(launch.rows.ctypes.data, launch.rows.nbytes, "results")
        try:
            run = self._run_as_given(kernel, launch, [rows.to_bytes(8, "little")] if rows else [], exact, checks=False)
            if run.status is not Status.FINISHED:
                raise LaunchFailedError(f"the launch did not end: {run.status}")
            held = {address: memory.view(address, data.nbytes).copy() for address, data in launch.memory}
            held |= {at: self._arena.contents(variables[name]).copy() for name, at in launch.variables.items()}
            if launch.rows is None:
                return BytesLeft(list(held.items()), None, False)
            left = memory.view(rows, launch.rows.nbytes).copy().view(launch.rows.dtype)
            return BytesLeft(list(held.items()), left.reshape(launch.rows.shape), False)
        finally:
            if rows:
                memory.free(rows)
            self.forget(kernel.module)

    def check_bytes(self, kernel: Kernel, launch: BytesLaunch) -> Run:
        """Run a launch given as bytes with all checks; memory and module as for `run_bytes`."""
        try:
            return self._run_as_given(kernel, launch, [], exact=True, checks=True)
        finally:
            self.forget(kernel.module)

    def _run_as_given(self, kernel: Kernel, launch: BytesLaunch, more: list[bytes], exact: bool, checks: bool) -> Run:
        """Restore the memory of a launch at its addresses, and run it; `more` are further parameters."""
        variables = self.variables(kernel.module)
        for address, data in launch.memory:
            self.memory.view(address, data.nbytes)[...] = data
            self.memory.written(address, data.nbytes)
        for name, address in launch.variables.items():
            self._arena.contents(variables[name])[...] = self.memory.view(address, variables[name].nbytes)
        cluster = None if launch.cluster == (1, 1, 1) else launch.cluster
        parameters = [*launch.parameters, *more]
        request = LaunchRequest(kernel, launch.grid, launch.block, parameters, launch.shared_bytes, cluster)
        budget = Budget(steps=_STEPS, seconds=launch.seconds)
        return self.run(request, RunSetting(checks=checks, budget=budget, exact=exact))

    def forget(self, module: Module) -> None:
        """Free what is kept for a module that is no longer launched."""
        known = self._modules.pop(id(module), None)
        for allocation in known[1].allocations.values() if known is not None else ():
            if allocation.live:
                self._arena.free(allocation)
        self._programs = {key: kept for key, kept in self._programs.items() if kept[0].module is not module}

    def declared_shared(self, kernel: Kernel) -> int:
        """Bytes of shared memory that a kernel declares."""
        return self._program(kernel, False).declared_shared

    def instructions(self, request: LaunchRequest) -> int:
        """Static number of instructions of a launch's program."""
        return len(self._program(request.kernel, request.shape[2] != (1, 1, 1)).sites)

    def _array_names(self, request: LaunchRequest) -> dict[int, str]:
        """Names of allocations by their first address: arguments may point anywhere into them."""
        names: dict[int, str] = {}
        for address, name in request.names.items():
            held = self._arena.holding(self._arena.real(address))
            if held is not None:
                names.setdefault(held.address, name)
        if request.names.get(0):
            # an empty array has no address
            names[0] = request.names[0]
        return names

    def _untrack(self) -> None:
        """A launch was interrupted: stop tracking races."""
        for allocation in self._arena.allocations():
            if not allocation.sparse:
                self._arena.states(allocation)[...] &= ~np.uint8(TRACKED)


def _check_parameters(kernel: Kernel, parameters: Sequence[bytes]) -> None:
    sizes, wanted = [len(data) for data in parameters], [p.size for p in kernel.params]
    if sizes != wanted:
        raise MisuseError(f"'{title(kernel.name)}' takes parameters of {wanted} bytes; it was given {sizes}")


def _words(parameters: Sequence[bytes]) -> list[int]:
    return [int.from_bytes(data, "little") if len(data) == 8 else 0 for data in parameters]
