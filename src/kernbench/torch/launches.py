"""Launches for torch: prepared ones on a GPU, on torch's stream; for CPU tensors checked ones on the emulator."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import prod
from operator import itemgetter
from typing import Protocol, cast

import torch

from kernbench.common.errors import KernbenchError, MisuseError
from kernbench.kernels.arrays import MapMaker
from kernbench.ptx.devices.cuda_device import CudaDevice
from kernbench.ptx.devices.device import EmulatedDevice
from kernbench.ptx.devices.prepared import PackedValues
from kernbench.ptx.launching.device_base import Extent
from kernbench.ptx.text.module import Kernel
from kernbench.torch.seen import read, seen
from kernbench.torch.tensors import from_array

# architecture of the emulated GPU
ARCH = "sm_90a"
# SMs of the emulated GPU: few, so that small problems are divided as large ones are
EMULATED_SMS = 4
# most cached sets of parameters, and tensor maps, of one launch
_MOST_KEPT = 4096

# by name, without absent ones
Tensors = Mapping[str, torch.Tensor]
# in an operator's order, None for absent ones
MaybeTensors = Sequence[torch.Tensor | None]
# enqueues a kernel with a grid on a stream, with packed parameters
_Queue = Callable[[Extent, int, PackedValues], None]


class UnsafeLaunchError(KernbenchError):
    """A launch on the emulator had findings, or did not finish."""


@dataclass(frozen=True)
class Built:
    """A kernel and its launch configuration, made once for each signature of tensors.

    Its parameters are tensor maps, then pointers (a tensor's name and an offset in bytes; an empty name is a null
    pointer), then numbers. `written` are the tensors that it writes.
    """

    kernel: Kernel
    threads: int
    grid: Extent
    pointers: Sequence[tuple[str, int]]
    numbers: Sequence[object]
    shared_bytes: int = 0
    maps: Mapping[str, MapMaker] = field(default_factory=dict)
    written: Sequence[str] = ()


def sms_of(device: torch.device) -> int:
    """Number of SMs of a device; a fixed one for the emulator."""
    if device.type == "cpu":
        return EMULATED_SMS
    if device.type != "cuda":
        raise MisuseError(f"kernels run on a GPU, or on the emulator with tensors on the CPU; not on {device}")
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


class Operation:
    """The implementation of an operator: checks and kernels are made once for each signature of tensors and options.

    It is called as the operator is: with the tensors of `names`, None for absent ones, then options.
    """

    def __init__(self, names: Sequence[str], build: Callable[..., Built | list[Built]]):
        self._names, self._build = tuple(names), build
        self._ready: dict[tuple[object, ...], OnGpu | OnEmulator] = {}

    def __call__(self, *given: object) -> None:
        """Launch the kernels, in order."""
        tensors = cast("MaybeTensors", given[: len(self._names)])
        options = given[len(self._names) :]
        key = (*map(read, tensors), options)
        ready = self._ready.get(key)
        if ready is None:
            ready = self._ready[key] = self._made(tensors, options)
        ready.at(ready.given(tensors)).launch()

    def known(self, tensors: MaybeTensors, options: tuple[object, ...]) -> "Launch | None":
        """The prepared launch for these tensors, which bypasses torch's dispatcher and repeated checks.

        None for a new signature, for tensors on the CPU, and where torch must see the operator: under torch.compile and
        in dispatch modes.
        """
        if torch.compiler.is_compiling() or torch._C._len_torch_dispatch_stack():
            return None
        numbers = seen(tensors)
        ready = self._ready.get((*numbers, options))
        if type(ready) is not OnGpu:
            return None
        given = ready.given(tensors)
        return ready.kept(given) or (ready.at(given) if numbers == [*map(read, tensors)] else None)

    def _made(self, tensors: MaybeTensors, options: Sequence[object]) -> "OnGpu | OnEmulator":
        named = {name: tensor for name, tensor in zip(self._names, tensors, strict=True) if tensor is not None}
        made = self._build(named, *options)
        # a grid of no CTAs is not launched
        worked = [built for built in (made if isinstance(made, list) else [made]) if prod(built.grid)]
        positions = {name: position for position, name in enumerate(self._names) if name in named}
        first = next(iter(named.values()))
        return OnGpu(positions, worked, first.get_device()) if first.is_cuda else OnEmulator(positions, worked)


class Launch(Protocol):
    """Kernels bound to the tensors that they run on."""

    @property
    def ready(self) -> object:
        """What is shared by all launches with tensors of the same signatures."""

    def launch(self) -> None:
        """Run the kernels, in order."""


class _Ready:
    """Kernels for tensors of given signatures; `positions` are those of the present tensors, by name."""

    def __init__(self, positions: Mapping[str, int]):
        self.names = tuple(positions)
        # selects the present tensors; itemgetter gives a tuple since every operator has at least two
        self.given: Callable[[MaybeTensors], Sequence[torch.Tensor]] = itemgetter(*positions.values())


@cache
def _device(index: int) -> CudaDevice:
    """GPU `index`, in torch's context."""
    return CudaDevice(index)


def _slow_stream(index: int) -> int:
    """torch's current stream on a GPU, as a handle of the driver."""
    return int(torch.cuda.current_stream(index).cuda_stream)


def _slow_current_device() -> int:
    """The index of the current GPU."""
    return int(torch.cuda.current_device())


# torch's faster internal functions, where they exist: no stream object, no check that CUDA is initialised
_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _slow_stream)
_current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", _slow_current_device)
_address, _strides = torch.Tensor.data_ptr, torch.Tensor.stride


def _as_it_lies(given: Sequence[torch.Tensor]) -> tuple[object, ...]:
    """Addresses and strides of tensors: these change if a tensor is resized or transposed in place."""
    return (*map(_address, given), *map(_strides, given))


class OnGpu(_Ready):
    """Kernels on one GPU; their parameters are packed once for each set of addresses and strides."""

    def __init__(self, positions: Mapping[str, int], built: Sequence[Built], index: int):
        super().__init__(positions)
        self.index = index
        with torch.cuda.device(index):
            self._kernels = [_Kernel(one, _device(index)) for one in built]
        self._packed: dict[tuple[object, ...], _Packed] = {}

    def kept(self, given: Sequence[torch.Tensor]) -> "_Packed | None":
        """The cached launch with these addresses and strides, if there is one."""
        return self._packed.get(_as_it_lies(given))

    def at(self, given: Sequence[torch.Tensor]) -> "_Packed":
        """The launch with these tensors at their current addresses."""
        found = self.kept(given)
        if found is None:
            if len(self._packed) >= _MOST_KEPT:
                self._packed.clear()
            tensors = dict(zip(self.names, given, strict=True))
            found = _Packed(self, [(kernel.queue, kernel.built.grid, kernel.pack(tensors)) for kernel in self._kernels])
            self._packed[_as_it_lies(given)] = found
        return found


class _Packed:
    """Kernels with packed parameters."""

    def __init__(self, ready: OnGpu, parts: list[tuple[_Queue, Extent, PackedValues]]):
        self.ready, self._index, self._parts = ready, ready.index, parts

    def launch(self) -> None:
        """Enqueue the kernels on torch's current stream; makes the tensors' GPU the current one if it is not."""
        if self._index != _current_device():
            with torch.cuda.device(self._index):
                self.launch()
            return
        stream = _stream(self._index)
        for queue, grid, values in self._parts:
            queue(grid, stream, values)


class _Kernel:
    """A kernel loaded on one GPU, which must be the current one."""

    def __init__(self, built: Built, device: CudaDevice):
        self.built, self._device = built, device
        prepared = device.prepare(built.kernel, built.threads, built.shared_bytes)
        self.queue: _Queue = prepared.launch
        self._pack = prepared.pack
        self._maps: dict[str, dict[int, bytes]] = {name: {} for name in built.maps}

    def pack(self, tensors: Tensors) -> PackedValues:
        """Pack the kernel's parameters, with the tensors' current addresses."""
        maps = [self._map(name, tensors[name]) for name in self._maps]
        pointers = [tensors[name].data_ptr() + offset if name else 0 for name, offset in self.built.pointers]
        return self._pack(*maps, *pointers, *self.built.numbers)

    def _map(self, name: str, tensor: torch.Tensor) -> bytes:
        """A tensor map, cached by address: everything else is the same in every call."""
        kept, address = self._maps[name], tensor.data_ptr()
        found = kept.get(address)
        if found is None:
            if len(kept) >= _MOST_KEPT:
                kept.clear()
            found = self.built.maps[name](self._device, self._device.array(tensor)).encoded
            kept[address] = found
        return found


class OnEmulator(_Ready):
    """Kernels on the emulator, with all checks."""

    def __init__(self, positions: Mapping[str, int], built: Sequence[Built]):
        super().__init__(positions)
        self._built = built

    def at(self, given: Sequence[torch.Tensor]) -> "_Emulated":
        """The launch with these tensors."""
        return _Emulated(self, self._built, dict(zip(self.names, given, strict=True)))


class _Emulated:
    """Kernels with their tensors, into which results are copied."""

    def __init__(self, ready: OnEmulator, built: Sequence[Built], tensors: Tensors):
        self.ready, self._built, self._tensors = ready, built, tensors

    def launch(self) -> None:
        """Run the kernels; raises UnsafeLaunchError if there are findings."""
        for built in self._built:
            self._run(built)

    def _run(self, built: Built) -> None:
        tensors = self._tensors
        with EmulatedDevice(ARCH) as device:
            arrays = {name: device.array(tensor, name) for name, tensor in tensors.items()}
            maps = [made(device, arrays[name]) for name, made in built.maps.items()]
            pointers = [arrays[name].address + offset if name else 0 for name, offset in built.pointers]
            given = [*maps, *pointers, *built.numbers]
            run = device.launch(built.kernel, built.grid, built.threads, given, built.shared_bytes)
            if not run.ok:
                reason = run.findings[0] if run.findings else run.status
                raise UnsafeLaunchError(f"{built.kernel.name} on the emulator: {reason}")
            for name in set(built.written) & set(tensors):
                tensors[name].copy_(from_array(arrays[name].numpy()))
