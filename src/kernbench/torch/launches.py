"""Launches for torch: prepared ones on a GPU, on torch's stream; with all checks on the emulator for the CPU."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from math import prod

import torch

from kernbench.common.errors import KernbenchError, MisuseError
from kernbench.kernels.arrays import MapMaker
from kernbench.ptx.devices.cuda_device import CudaDevice
from kernbench.ptx.devices.device import EmulatedDevice
from kernbench.ptx.devices.prepared import PreparedLaunch
from kernbench.ptx.launching.device_base import Extent
from kernbench.ptx.text.module import Kernel
from kernbench.torch.tensors import from_array, signature

# the architecture that kernels are emulated for
ARCH = "sm_90a"
# the SMs of an emulated GPU: few, so that small problems are cut as large ones are
EMULATED_SMS = 4
# tensor maps of one launch that are kept, by address
_MOST_MAPS = 4096

# by name, without those that are not given
Tensors = Mapping[str, torch.Tensor]


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


def direct(*tensors: torch.Tensor) -> bool:
    """Whether nobody listens: ordinary tensors, nothing traced. Then an operator may be called without torch's
    dispatcher, which takes as long as the launch itself.
    """
    return (
        not torch.compiler.is_compiling()
        and not torch._C._len_torch_dispatch_stack()
        and all(type(tensor) is torch.Tensor for tensor in tensors)
    )


class Operation:
    """An operator's launches: checks and the kernel are made once for all calls with tensors and options alike.

    It is called as the operator is: with the tensors of `names`, None for one that is not given, then options.
    """

    def __init__(self, names: Sequence[str], build: Callable[..., Built | list[Built]]):
        self._names, self._build = tuple(names), build
        self._ready: dict[tuple[object, ...], list[_OnGpu] | list[_OnEmulator]] = {}

    def __call__(self, *given: object) -> None:
        """Launch, one kernel or several one after the other."""
        options = given[len(self._names) :]
        named = zip(self._names, given, strict=False)
        tensors: dict[str, torch.Tensor] = {name: tensor for name, tensor in named if tensor is not None}
        key = (*tensors, *signature(tensors.values()), *options)
        ready = self._ready.get(key)
        if ready is None:
            made = self._build(tensors, *options)
            all_made = made if isinstance(made, list) else [made]
            # a grid of no CTAs is nothing to launch
            worked = [built for built in all_made if prod(built.grid)]
            first = next(iter(tensors.values()))
            if first.is_cuda:
                ready = self._ready[key] = [_OnGpu(built, first.get_device()) for built in worked]
            else:
                ready = self._ready[key] = [_OnEmulator(built) for built in worked]
        for launch in ready:
            launch.run(tensors)


@cache
def _device(index: int) -> CudaDevice:
    """GPU `index`, in the context that torch has."""
    return CudaDevice(index)


def _slow_stream(index: int) -> int:
    """torch's current stream on a GPU, as the driver knows it."""
    return int(torch.cuda.current_stream(index).cuda_stream)


# the same without an object around it, where torch offers that
_stream: Callable[[int], int] = getattr(torch._C, "_cuda_getCurrentRawStream", _slow_stream)


class _OnGpu:
    """Launches on one GPU."""

    def __init__(self, built: Built, index: int):
        self.built, self.index, self._device = built, index, _device(index)
        with torch.cuda.device(self.index):
            self.prepared: PreparedLaunch = self._device.prepare(built.kernel, built.threads, built.shared_bytes)
        self.maps: dict[str, dict[int, bytes]] = {name: {} for name in built.maps}

    def run(self, tensors: Tensors) -> None:
        """Queue the launch on torch's current stream; with several GPUs, the tensors' own is made current."""
        if self.index == torch.cuda.current_device():
            self._queue(tensors)
        else:
            with torch.cuda.device(self.index):
                self._queue(tensors)

    def _queue(self, tensors: Tensors) -> None:
        maps = [self._map(name, tensors[name]) for name in self.maps]
        pointers = [tensors[name].data_ptr() + offset if name else 0 for name, offset in self.built.pointers]
        self.prepared.launch(self.built.grid, _stream(self.index), *maps, *pointers, *self.built.numbers)

    def _map(self, name: str, tensor: torch.Tensor) -> bytes:
        """A map by the tensor's address: all else is the same in every call."""
        kept, address = self.maps[name], tensor.data_ptr()
        found = kept.get(address)
        if found is None:
            if len(kept) >= _MOST_MAPS:
                kept.clear()
            found = self.built.maps[name](self._device, self._device.array(tensor)).encoded
            kept[address] = found
        return found


class _OnEmulator:
    """Launches on the emulator with all checks; what the kernel wrote is copied into the tensors."""

    def __init__(self, built: Built):
        self.built = built

    def run(self, tensors: Tensors) -> None:
        """Run it, or raise UnsafeLaunchError with what was found."""
        built = self.built
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
