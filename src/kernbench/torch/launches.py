"""Launches for torch: prepared ones on a GPU, on torch's stream; with all checks on the emulator for the CPU."""

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

# the architecture that kernels are emulated for
ARCH = "sm_90a"
# the SMs of an emulated GPU: few, so that small problems are cut as large ones are
EMULATED_SMS = 4
# parameters and tensor maps of one launch that are kept, by address
_MOST_KEPT = 4096

# by name, without those that are not given
Tensors = Mapping[str, torch.Tensor]
# in an operator's order, None for those that are not given
MaybeTensors = Sequence[torch.Tensor | None]
# puts a kernel's grid on a stream with values of its parameters
_Queue = Callable[[Extent, int, PackedValues], None]


class UnsafeLaunchError(KernbenchError):
    """The emulator found a fault in a launch."""


@dataclass(frozen=True)
class Built:
    """A kernel with what its launch needs, made once for a signature of tensors.

    Its parameters are maps of tensors, then pointers (a tensor's name and bytes behind its begin; no name for none),
    then numbers. `written` are the tensors that it writes.
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
    """SMs of a device."""
    if device.type == "cpu":
        return EMULATED_SMS
    if device.type != "cuda":
        raise MisuseError(f"kernels run on a GPU, or on the emulator with tensors on the CPU; not on {device}")
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


class Operation:
    """An operator's launches: checks and the kernel are made once for all calls with tensors and options alike.

    It is called as the operator is: with the tensors of `names`, None for one that is not given, then options.
    """

    def __init__(self, names: Sequence[str], build: Callable[..., Built | list[Built]]):
        self._names, self._build = tuple(names), build
        self._ready: dict[tuple[object, ...], OnGpu | OnEmulator] = {}

    def __call__(self, *given: object) -> None:
        """Launch, one kernel or several one after the other."""
        tensors = cast("MaybeTensors", given[: len(self._names)])
        options = given[len(self._names) :]
        key = (*map(read, tensors), options)
        ready = self._ready.get(key)
        if ready is None:
            ready = self._ready[key] = self._made(tensors, options)
        ready.at(ready.given(tensors)).launch()

    def known(self, tensors: MaybeTensors, options: tuple[object, ...]) -> "Launch | None":
        """What launches at once, without torch's dispatcher and without another look at tensors.

        None for a signature that is new and for tensors on the CPU, and where somebody listens and is to see the
        operator: under torch.compile, or in a mode of torch's.
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
        # a grid of no CTAs is nothing to launch
        worked = [built for built in (made if isinstance(made, list) else [made]) if prod(built.grid)]
        positions = {name: position for position, name in enumerate(self._names) if name in named}
        first = next(iter(named.values()))
        return OnGpu(positions, worked, first.get_device()) if first.is_cuda else OnEmulator(positions, worked)


class Launch(Protocol):
    """Kernels with the tensors that they run on."""

    @property
    def ready(self) -> object:
        """What all tensors of their signatures share."""

    def launch(self) -> None:
        """Run them, one after the other."""


class _Ready:
    """Kernels for tensors of given signatures. `positions` are those of the tensors that are given, by name."""

    def __init__(self, positions: Mapping[str, int]):
        self.names = tuple(positions)
        # without those that are not given; every operator has two tensors at least
        self.given: Callable[[MaybeTensors], Sequence[torch.Tensor]] = itemgetter(*positions.values())


@cache
def _device(index: int) -> CudaDevice:
    """GPU `index`, in the context that torch has."""
    return CudaDevice(index)


def _slow_stream(index: int) -> int:
    """torch's current stream on a GPU, as the driver knows it."""
    return int(torch.cuda.current_stream(index).cuda_stream)


def _slow_current_device() -> int:
    """The GPU that is current."""
    return int(torch.cuda.current_device())


# these without an object around them or a look at whether torch has begun, where torch offers that
_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _slow_stream)
_current_device: Callable[[], int] = getattr(torch._C, "_cuda_getDevice", _slow_current_device)
_address, _strides = torch.Tensor.data_ptr, torch.Tensor.stride


def _as_it_lies(given: Sequence[torch.Tensor]) -> tuple[object, ...]:
    """Addresses and strides, by which a tensor that was moved or turned in place is known to have changed."""
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
        """A launch with these addresses that there was already."""
        return self._packed.get(_as_it_lies(given))

    def at(self, given: Sequence[torch.Tensor]) -> "_Packed":
        """A launch with these tensors, where they lie."""
        found = self.kept(given)
        if found is None:
            if len(self._packed) >= _MOST_KEPT:
                self._packed.clear()
            tensors = dict(zip(self.names, given, strict=True))
            found = _Packed(self, [(kernel.queue, kernel.built.grid, kernel.pack(tensors)) for kernel in self._kernels])
            self._packed[_as_it_lies(given)] = found
        return found


class _Packed:
    """Kernels with their parameters."""

    def __init__(self, ready: OnGpu, parts: list[tuple[_Queue, Extent, PackedValues]]):
        self.ready, self._index, self._parts = ready, ready.index, parts

    def launch(self) -> None:
        """Queue them on torch's current stream; with several GPUs, the tensors' own is made current."""
        if self._index != _current_device():
            with torch.cuda.device(self._index):
                self.launch()
            return
        stream = _stream(self._index)
        for queue, grid, values in self._parts:
            queue(grid, stream, values)


class _Kernel:
    """A kernel on one GPU, which is current when it is made."""

    def __init__(self, built: Built, device: CudaDevice):
        self.built, self._device = built, device
        prepared = device.prepare(built.kernel, built.threads, built.shared_bytes)
        self.queue: _Queue = prepared.launch
        self._pack = prepared.pack
        self._maps: dict[str, dict[int, bytes]] = {name: {} for name in built.maps}

    def pack(self, tensors: Tensors) -> PackedValues:
        """Its parameters for tensors where they lie now."""
        maps = [self._map(name, tensors[name]) for name in self._maps]
        pointers = [tensors[name].data_ptr() + offset if name else 0 for name, offset in self.built.pointers]
        return self._pack(*maps, *pointers, *self.built.numbers)

    def _map(self, name: str, tensor: torch.Tensor) -> bytes:
        """A map by the tensor's address: all else is the same in every call."""
        kept, address = self._maps[name], tensor.data_ptr()
        found = kept.get(address)
        if found is None:
            if len(kept) >= _MOST_KEPT:
                kept.clear()
            found = self.built.maps[name](self._device, self._device.array(tensor)).encoded
            kept[address] = found
        return found


class OnEmulator(_Ready):
    """Kernels on the emulator with all checks."""

    def __init__(self, positions: Mapping[str, int], built: Sequence[Built]):
        super().__init__(positions)
        self._built = built

    def at(self, given: Sequence[torch.Tensor]) -> "_Emulated":
        """A launch with these tensors."""
        return _Emulated(self, self._built, dict(zip(self.names, given, strict=True)))


class _Emulated:
    """Kernels with their tensors; what a kernel wrote is copied into them."""

    def __init__(self, ready: OnEmulator, built: Sequence[Built], tensors: Tensors):
        self.ready, self._built, self._tensors = ready, built, tensors

    def launch(self) -> None:
        """Run them, or raise UnsafeLaunchError with what was found."""
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
