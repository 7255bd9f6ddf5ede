"""The emulated GPU: arrays in its memory, and launches that report what a kernel computed and what is wrong with it."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import prod
from typing import NamedTuple, Unpack
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from kernbench import __version__
from kernbench.common.dtypes import Array, dtype_of
from kernbench.common.errors import MisuseError, OtherHardwareError
from kernbench.ptx.emulator.analysis.building import build, check_valid, program_of
from kernbench.ptx.emulator.analysis.element_types import shared_types
from kernbench.ptx.emulator.asynchronous.copies import tensor_maps
from kernbench.ptx.emulator.checks import Checks
from kernbench.ptx.emulator.engine.launch import Launch, Setting
from kernbench.ptx.emulator.engine.machine import architecture, target_runs_on
from kernbench.ptx.emulator.engine.schedule import schedule_of
from kernbench.ptx.emulator.engine.splitting import Division
from kernbench.ptx.emulator.fast_paths import fast_paths as wanted_fast_paths
from kernbench.ptx.emulator.inspect.given_types import type_hints
from kernbench.ptx.emulator.inspect.naming import ELEMENT_TYPES, Naming
from kernbench.ptx.emulator.inspect.probing import Probe
from kernbench.ptx.emulator.memory.arena import NOTHING, WRITTEN, Allocation, Arena
from kernbench.ptx.emulator.memory.loading import LoadedModule
from kernbench.ptx.emulator.program.program import Program
from kernbench.ptx.emulator.units.observer import LaunchObserver
from kernbench.ptx.executor.running import is_run
from kernbench.ptx.launching.arguments import pack_arguments
from kernbench.ptx.launching.blocks import blocks_of, clusters_of
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
from kernbench.ptx.recording.launch import RecordedLaunch
from kernbench.ptx.text.checkpoints import PtxCheckpoint, with_checkpoints
from kernbench.ptx.text.module import Kernel
from kernbench.ptx.views.pipeline import pipeline_of
from kernbench.result.checkpoint import Taken
from kernbench.result.finding import Finding
from kernbench.result.run import Run, Status
from kernbench.safety.budget import Budget
from kernbench.safety.jobs import wanted_jobs
from kernbench.safety.stopping import Stopper

PARAMETER_BYTES = 32764
BUDGET = Budget(steps=50_000_000, seconds=600.0)


class EmulatedArray(DeviceArray):
    """An array in the memory of an emulated device."""

    def __init__(
        self,
        device: "EmulatedDevice",
        allocation: Allocation,
        shape: tuple[int, ...],
        dtype: np.dtype[np.generic],
        name: str,
    ):
        super().__init__(allocation.address, shape, dtype, name)
        self._device = device
        self.allocation = allocation

    def numpy(self) -> Array:
        """A copy of the contents."""
        self.check_usable()
        return self._device.read(self.allocation).view(self.dtype).reshape(self.shape)

    def free(self) -> None:
        """Free the memory; a kernel that still uses it gets a finding."""
        self.check_usable()
        self._device.release(self.allocation)

    def check_usable(self) -> None:
        """Raise an error if the array was freed."""
        if not self.allocation.live:
            raise MisuseError(f"{self!r} was freed: make a new array")


class _Made(NamedTuple):
    """How an allocation was created.

    It does not refer to the array itself, which refers to its device: such a cycle would keep both alive until Python's
    cyclic collector runs, which in a large process is rare, and a device has hundreds of megabytes.
    """

    allocation: Allocation
    shape: tuple[int, ...]
    dtype: np.dtype[np.generic]
    name: str


class EmulatedDevice(Device):
    """An emulated GPU of architecture `arch`; `launch` runs a kernel with every check.

    `fast_paths` says which fast paths of the emulator its launches may take, by default as KERNBENCH_FAST_PATHS says:
    "all", or "none" for plain code, which gives the same result later.
    """

    def __init__(self, arch: str = "sm_90a", fast_paths: str | None = None):
        self.arch = arch
        self._fast = wanted_fast_paths(fast_paths)
        self.machine = architecture(arch)
        # how the last launch was divided over processes
        self.division = Division()
        self._reset()

    def _new_memory(self) -> tuple[Arena, Allocation]:
        """Global memory, with space for the parameters of a kernel."""
        arena = Arena(self.machine.memory_bytes)
        return arena, arena.allocate(PARAMETER_BYTES, "kernel parameters", "param")

    def _reset(self) -> None:
        self._arena, self._parameters = self._new_memory()
        # shape and type of each allocation, for outputs
        self._arrays: dict[int, _Made] = {}
        # copies of arrays that the last launch returned, while they are referenced
        self._copied: WeakValueDictionary[int, Array] = WeakValueDictionary()
        self._programs: dict[tuple[int, bool, bool, bool, bool], tuple[Kernel, Program]] = {}
        self._modules: dict[int, tuple[object, LoadedModule]] = {}
        self._launches = 0

    def __repr__(self) -> str:
        return f"<EmulatedDevice {self.arch}: {self._arena.live_bytes:,} bytes in use>"

    def synchronize(self) -> None:
        """No operation: launches are synchronous."""

    def close(self) -> None:
        """Drop all arrays and programs."""
        self._reset()

    def array(self, value: object, name: str = "") -> EmulatedArray:
        """A copy of `value` (NumPy, torch, anything with `__dlpack__`) on the device."""
        if isinstance(value, EmulatedArray):
            return value
        host = host_array(value)
        return self._made(host.shape, host.dtype, name, host.reshape(-1).view(np.uint8))

    def empty(self, shape: Sizes, dtype: npt.DTypeLike = np.float32, name: str = "") -> EmulatedArray:
        """An unwritten array: it contains poison, and reading it is a finding."""
        return self._made(shape_of(shape), dtype_of(dtype), name, None)

    def _made(
        self, shape: tuple[int, ...], dtype: np.dtype[np.generic], name: str, data: Array | None
    ) -> EmulatedArray:
        nbytes = prod(shape) * dtype.itemsize
        allocation = self._arena.allocate(nbytes, name or "array", "global", data)
        self._arrays[allocation.offset] = _Made(allocation, shape, dtype, name)
        return EmulatedArray(self, allocation, shape, dtype, name)

    def tensor_map(
        self,
        array: DeviceArray,
        dims: Sizes,
        strides: Sizes,
        box: Sizes,
        swizzle: str = "none",
        **more: Unpack[MapOptions],
    ) -> TensorMap:
        """A tensor map for bulk copies, checked as by the real encoder."""
        return self.encode(describe_tensor_map(array, dims, strides, box, swizzle, **more))

    def encode(self, description: TensorMapDescription) -> TensorMap:
        """The 128 bytes a kernel receives; their layout is the emulator's own."""
        return TensorMap(description, tensor_maps.encode(description))

    def read(self, allocation: Allocation) -> Array:
        """A copy of an allocation's bytes."""
        return self._arena.copy(allocation)

    def output(self, array: DeviceArray) -> Array:
        """The content of an array that was not changed since the last launch: the launch's own copy if it has one."""
        if not isinstance(array, EmulatedArray) or array._device is not self:
            return array.numpy()
        array.check_usable()
        found = self._copied.get(array.allocation.offset)
        return array.numpy() if found is None else found

    def release(self, allocation: Allocation) -> None:
        """Free an allocation."""
        self._arena.free(allocation)
        del self._arrays[allocation.offset]
        self._copied.pop(allocation.offset, None)

    def launch(
        self,
        kernel: object,
        grid: Sizes,
        block: Sizes,
        args: Sequence[object] = (),
        shared_bytes: int = 0,
        *,
        cluster: Sizes | None = None,
        checks: bool = True,
        schedule: str | int = "canonical",
        budget: Budget | None = None,
        order: bool | str = False,
        stop: Stopper | None = None,
        checkpoints: Sequence[PtxCheckpoint] = (),
        taken: Taken | None = None,
        record: bool = False,
        exact: bool = False,
        jobs: int | None = None,
        blocks: str | Iterable[int] | None = None,
    ) -> Run:
        """Run `kernel` on every block of `grid` and wait for it.

        `schedule` is one legal order of many: "canonical", "eager" (asynchronous operations complete as early as
        possible instead of as late as possible), "reversed" or a seed. `budget.steps` counts instructions, each for all
        lanes that run it together. With `order`, `recording` is the happens-before relation of all accesses
        (`AccessOrder`), to be compared with that of another run; "conflicts" adds the conflicts at every word of
        memory. With `record`, it is what every warp executed (`LaunchRecording`), for timing, if the launch finished.
        `stop` ends the launch inside the kernel: `views["stopped"]` is the state there. `taken` receives every value
        that the kernel names, and those that `checkpoints` name by line. With `exact`, rounding is that of the
        instructions that ptxas generates. Independent blocks run in `jobs` processes (0: one for each core), with the
        same outcome; by default as many as KERNBENCH_JOBS says, or one. `division` says how it was divided. With
        `blocks`, numbers or a text such as "0-3,17", clusters without one of these are left out: `views["part"]` says
        so, and unwritten outputs are no finding then.
        """
        _check_asked(order, checks, record, stop is not None or taken is not None, blocks is not None)
        kernel = kernel_of(kernel)
        shape = grids, threads, clusters = launch_shape(grid, block, cluster, kernel)
        chosen = None if blocks is None else clusters_of(blocks_of(blocks), grids, clusters)
        given, clustered = [self._usable(arg) for arg in args], clusters != (1, 1, 1)
        looked_into = _looked_into(kernel, clustered, stop, taken, checkpoints)
        if looked_into is None:
            program = self._program(kernel, clustered, self._aliased(kernel, given), record, exact)
            looked_into = program, None, None
        program, probe, naming = looked_into
        self._check_fit(kernel, program, shared_bytes)
        parameters = parameter_block(kernel, pack_arguments(kernel.params, given))
        names = {**self._mapped_names(kernel, given), **_names(kernel, given)}
        setting = self._setting(kernel, shape, parameters, shared_bytes, schedule, budget)
        setting = replace(setting, jobs=wanted_jobs(jobs), clusters=chosen)
        self._arena.clear_written()
        recorder = RecordedLaunch(program) if record else None
        run = self._perform(program, setting, names, checks, order, probe, naming, recorder)
        run.origin.update(self._origin(kernel, grids, threads, shared_bytes, schedule, exact))
        if hints := type_hints(program, given):
            run.views["hints"] = hints
        return run

    def _perform(
        self,
        program: Program,
        setting: Setting,
        names: dict[int, str],
        checks: bool,
        order: bool | str = False,
        probe: Probe | None = None,
        naming: Naming | None = None,
        recorder: RecordedLaunch | None = None,
    ) -> Run:
        """Run a program that fits the device; `names` are those of arrays, by address."""
        self._pass(setting.parameters)
        checker = Checks(program, self._arena, names, order) if checks else None
        observer = checker or LaunchObserver()
        launch = Launch(program, self._arena, self.machine, setting, observer, probe, naming, recorder, is_run)
        if probe is not None and checker is not None:
            checker.reporter.log.on_finding = probe.found
        try:
            status = launch.run()
        except BaseException:
            observer.abandon()
            raise
        finally:
            launch.close()
        self.division = launch.division
        run = _run_of(launch, checker, status, self._outputs(names))
        if recorder is not None and status is Status.FINISHED:
            run.recording = recorder.recording(setting.grid, setting.block, setting.cluster, setting.dynamic_shared)
        # values taken from inside name their threads lazily
        if probe is None and naming is None:
            launch.forget()
        return run

    def element_types(self, kernel: object) -> dict[str, np.dtype[np.generic]]:
        """The element types that the kernel uses for its pointers, by parameter, if known."""
        kinds = self._program(kernel_of(kernel), False).parameter_types
        return {name: ELEMENT_TYPES[kind] for name, (kind, _) in kinds.items() if kind in ELEMENT_TYPES}

    def _setting(
        self,
        kernel: Kernel,
        shape: tuple[Extent, Extent, Extent],
        parameters: bytes,
        shared_bytes: int,
        schedule: str | int,
        budget: Budget | None,
    ) -> Setting:
        self._launches += 1
        addresses, chosen = self._loaded(kernel).addresses, schedule_of(schedule)
        where = self._parameters.address
        steps, number = budget or BUDGET, self._launches
        return Setting(*shape, parameters, where, addresses, shared_bytes, chosen, steps, number, fast=self._fast)

    def _pass(self, parameters: bytes) -> None:
        """Write the parameters to the kernel's parameter memory."""
        contents, states = self._arena.contents(self._parameters), self._arena.states(self._parameters)
        if len(parameters) > len(contents):
            raise MisuseError(f"the parameters have {len(parameters)} bytes; a kernel has {len(contents)} at most")
        contents[: len(parameters)] = np.frombuffer(parameters, np.uint8)
        states[: len(parameters)] = WRITTEN
        states[len(parameters) :] = NOTHING

    def _aliased(self, kernel: Kernel, given: Sequence[object]) -> bool:
        """Whether several arguments of Triton's code point to one array, as in an in-place kernel."""
        if kernel.module.compiler != "LLVM":
            return False
        sizes = [parameter.size for parameter in kernel.params]
        addresses = [getattr(arg, "address", arg) for arg, size in zip(given, sizes, strict=False) if size == 8]
        held = [self._arena.holding(address) for address in addresses if isinstance(address, int)]
        arrays = [allocation for allocation in held if allocation is not None]
        return len(set(map(id, arrays))) < len(arrays)

    def _program(
        self, kernel: Kernel, clustered: bool, aliased: bool = False, recorded: bool = False, exact: bool = False
    ) -> Program:
        key = (id(kernel), clustered, aliased, recorded, exact)
        known = self._programs.get(key)
        if known is None:
            self._loaded(kernel)
            known = self._programs[key] = (kernel, program_of(kernel, clustered, aliased, recorded, exact))
        return known[1]

    def _loaded(self, kernel: Kernel) -> LoadedModule:
        known = self._modules.get(id(kernel.module))
        if known is None:
            check_valid(kernel.module)
            known = self._modules[id(kernel.module)] = (kernel.module, LoadedModule(kernel.module, self._arena))
        return known[1]

    def most_shared(self, kernel: object) -> int:
        """The most bytes of dynamic shared memory for a launch; 0 for a kernel that declares none."""
        program = self._program(kernel_of(kernel), False)
        uses = any(variable.size is None for variable in program.shared)
        return self.machine.shared_per_block - program.declared_shared if uses else 0

    def _check_fit(self, kernel: Kernel, program: Program, shared_bytes: int) -> None:
        if not isinstance(shared_bytes, int) or shared_bytes < 0:
            raise MisuseError(f"shared_bytes={shared_bytes!r}: give a whole number of bytes, 0 or more")
        most = self.machine.shared_per_block
        if program.declared_shared + shared_bytes > most:
            raise MisuseError(
                f"'{title(kernel.name)}' declares {program.declared_shared} bytes of shared memory and is launched "
                f"with {shared_bytes} more; a block of {self.arch} has {most}"
            )
        if not target_runs_on(kernel.module.arch, self.arch):
            raise OtherHardwareError(
                f"'{title(kernel.name)}' is for {kernel.module.arch} and does not run on {self.arch}: "
                f"use EmulatedDevice(arch={kernel.module.arch!r}), or change the .target"
            )

    def _usable(self, arg: object) -> object:
        if isinstance(arg, EmulatedArray) and arg._device is not self:
            raise MisuseError(f"{arg!r} lies on another device: make it with this device's array()")
        return arg

    def _mapped_names(self, kernel: Kernel, given: Sequence[object]) -> dict[int, str]:
        """Names of the arrays behind tensor maps: by address, their own name or the parameter's."""
        starts = {array.allocation.address: array for array in self._arrays.values()}
        return {
            arg.description.address: starts[arg.description.address].name or parameter.name
            for parameter, arg in zip(kernel.params, given, strict=True)
            if isinstance(arg, TensorMap) and arg.description.address in starts
        }

    def _outputs(self, names: dict[int, str]) -> dict[str, Array]:
        """Copies of the arrays the kernel wrote, by their own name or the parameter's."""
        outputs: dict[str, Array] = {}
        self._copied.clear()
        made = [array.allocation for array in self._arrays.values() if array.allocation.nbytes]
        for allocation in self._arena.written_since(made):
            array = self._arrays[allocation.offset]
            name = array.name or names.get(allocation.address, f"array at {allocation.address:#x}")
            outputs[name] = self.read(allocation).view(array.dtype).reshape(array.shape)
            self._copied[allocation.offset] = outputs[name]
        return outputs

    def _origin(
        self,
        kernel: Kernel,
        grid: Extent,
        block: Extent,
        shared_bytes: int,
        schedule: str | int,
        exact: bool = False,
    ) -> dict[str, object]:
        return {
            "target": "ptx",
            **named(kernel.name),
            "device": "emulator",
            "arch": self.arch,
            "grid": grid,
            "block": block,
            "shared_bytes": shared_bytes,
            "schedule": schedule,
            "exact": exact,
            "kernbench": __version__,
        }


def _check_asked(order: bool | str, checks: bool, record: bool, looks_inside: bool, part: bool) -> None:
    """Raise an error for options that exclude each other."""
    if order not in (False, True, "conflicts"):
        raise MisuseError(f"order={order!r}: True, or 'conflicts' to follow every word")
    if order and not checks:
        raise MisuseError("order=True asks the checks what they know: leave checks=False out")
    if record and (order or looks_inside):
        raise MisuseError("record=True has a launch of its own: leave order, stop and taken out")
    if record and part:
        raise MisuseError("record=True is for the time of a whole grid: leave blocks out")


def _looked_into(
    kernel: Kernel, clustered: bool, stop: Stopper | None, taken: Taken | None, checkpoints: Sequence[PtxCheckpoint]
) -> tuple[Program, Probe | None, Naming | None] | None:
    """A program that can be stopped or passes on its values, with the object that does it; None without either."""
    if stop is not None and stop.met is None:
        return *_probed(kernel, clustered, stop), None
    if taken is not None:
        program, naming = _named(with_checkpoints(kernel, checkpoints), clustered, taken)
        return program, None, naming
    return None


def _probed(kernel: Kernel, clustered: bool, stop: Stopper) -> tuple[Program, Probe]:
    """A program that can be stopped at every instruction, with its probe."""
    program, bodies = build(kernel, clustered, probed=True)
    registers = {body.code.name: body.all_registers() for body in bodies}
    return program, Probe(stop, title(kernel.name), program.sites, registers, shared_types(bodies))


def _named(kernel: Kernel, clustered: bool, taken: Taken) -> tuple[Program, Naming]:
    """A program that passes on the values it names, with their receiver."""
    program, _ = build(kernel, clustered, named=True)
    return program, Naming(taken, f"<ptx {title(kernel.name)}>")


def _run_of(launch: Launch, checker: Checks | None, status: Status, outputs: dict[str, Array]) -> Run:
    """The run of a launch that has ended."""
    heap = launch.arena.heap
    views: dict[str, object] = {"printf": launch.printed} if launch.printed else {}
    if launch.part is not None:
        views["part"] = dict(zip(("run", "of"), launch.part, strict=True))
    if launch.probe is not None and launch.probe.stopped is not None:
        views["stopped"] = launch.probe.stopped.view()
    found: list[Finding] = checker.end() if checker is not None else []
    metrics = launch.meter.metrics(launch.program.measures)
    if heap is not None and heap.live():
        views["heap"] = heap.live_names()
    checked = checker.checked if checker is not None else ()
    run = Run(outputs, found, checked, status, metrics=metrics, views=views)
    if launch.journal is not None and launch.journal.barriers and checker is not None:
        pipeline = pipeline_of(launch.journal, checker, launch.grid)
        views["pipeline"], run.timeline = pipeline.view(), pipeline.timeline()
    if checker is not None and checker.order is not None:
        recording = run.recording = checker.order.order()
        views["order"] = {"digest": recording.digest, "flow": recording.flow, "accesses": len(recording)}
    return run


def _names(kernel: Kernel, given: Sequence[object]) -> dict[int, str]:
    """Names of the arrays that are passed: by address, their own name or the parameter's."""
    return {
        arg.address: arg.name or parameter.name
        for parameter, arg in zip(kernel.params, given, strict=True)
        if isinstance(arg, DeviceArray)
    }


def parameter_block(kernel: Kernel, packed: Sequence[bytes]) -> bytes:
    """All parameters in one block, each at its offset."""
    block = bytearray()
    for parameter, data in zip(kernel.params, packed, strict=True):
        block += bytes(parameter.offset - len(block)) + data
    return bytes(block)
