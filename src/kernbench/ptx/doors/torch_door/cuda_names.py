"""The names of `torch.cuda` and `torch.accelerator` that programs use, implemented for one synchronous GPU."""

import functools
from collections import defaultdict
from collections.abc import Callable
from types import FunctionType, SimpleNamespace
from typing import Any

import torch

from kernbench.ptx.doors.gpus import Gpu
from kernbench.ptx.doors.memory import DeviceMemory
from kernbench.ptx.doors.torch_door.generators import DeviceGenerator
from kernbench.ptx.doors.torch_door.graphs import Graphs, graph_class
from kernbench.ptx.doors.torch_door.ordinals import of_device, require_device, with_device
from kernbench.ptx.doors.torch_door.streams import (
    DeviceContext,
    Event,
    ExternalStream,
    Stream,
    current_stream,
    default_stream,
    set_stream,
)

# attributes by name
Names = dict[str, Any]
_COUNTED = ("allocated_bytes", "reserved_bytes", "active_bytes")
# torch's names for memory in use
_IN_USE = tuple(f"{what}.all.{when}" for what in _COUNTED for when in ("current", "peak"))


def properties_of(gpu: Gpu) -> SimpleNamespace:
    """The result of `torch.cuda.get_device_properties`."""
    machine, (major, minor) = gpu.machine, gpu.version
    return SimpleNamespace(
        name=gpu.name,
        major=major,
        minor=minor,
        total_memory=machine.memory_bytes,
        multi_processor_count=gpu.sms,
        warp_size=32,
        max_threads_per_block=1024,
        max_threads_per_multi_processor=machine.threads_per_sm,
        regs_per_multiprocessor=65536,
        shared_memory_per_block=48 << 10,
        shared_memory_per_block_optin=machine.shared_per_block,
        shared_memory_per_multiprocessor=machine.shared_per_sm,
        L2_cache_size=50 << 20,
        is_integrated=0,
        is_multi_gpu_board=0,
        gcnArchName="",
        uuid="GPU-00000000-0000-0000-0000-000000000000",
        clock_rate=1_755_000,
        memory_clock_rate=2_619_000,
        memory_bus_width=5120,
        pci_bus_id=0,
        pci_device_id=0,
        pci_domain_id=0,
    )


def own_functions(names: Names) -> Names:
    """The same with a separate function for each name: torch's compiler keeps rules by function, not by name."""
    return {
        name: FunctionType(value.__code__, value.__globals__, name, value.__defaults__, value.__closure__)
        if isinstance(value, FunctionType)
        else value
        for name, value in names.items()
    }


def cuda_names(gpu: Gpu, memory: DeviceMemory) -> Names:
    """Names of `torch.cuda` and their replacements."""
    return {
        **_device_names(gpu),
        **_stream_names(),
        **_generator_names(),
        **_memory_names(memory, gpu.machine.memory_bytes),
    }


def _device_names(gpu: Gpu) -> Names:
    """The device itself: there is one, and it is always ready."""
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": _nothing,
        "_lazy_init": _nothing,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: require_device(device),
        "_exchange_device": lambda device: 0,
        "_maybe_exchange_device": lambda device: 0,
        "empty_cache": _nothing,
        "ipc_collect": _nothing,
        "get_device_capability": lambda device=None: of_device(device, gpu.version),
        "get_device_properties": lambda device=None: of_device(device, properties_of(gpu)),
        "get_device_name": lambda device=None: of_device(device, gpu.name),
        "get_arch_list": lambda: [f"sm_{gpu.capability}"],
        "can_device_access_peer": lambda *args: False,
        "is_bf16_supported": lambda *args, **kwargs: gpu.capability >= 80,
        "is_tf32_supported": lambda: gpu.capability >= 80,
        "set_per_process_memory_fraction": _nothing,
        "set_sync_debug_mode": _nothing,
        "get_sync_debug_mode": lambda: 0,
        "utilization": lambda device=None: 0,
        "clock_rate": lambda device=None: 1755,
    }


def _stream_names() -> Names:
    """Contexts, streams and events."""
    return {
        "device": DeviceContext,
        "device_of": DeviceContext,
        "_DeviceGuard": DeviceContext,
        "Stream": Stream,
        "ExternalStream": ExternalStream,
        "Event": Event,
        "stream": lambda stream=None: stream if isinstance(stream, Stream) else DeviceContext(),
        "StreamContext": DeviceContext,
        "set_stream": lambda stream=None: set_stream(stream),
        "current_stream": lambda device=None: with_device(device, current_stream()),
        "default_stream": lambda device=None: with_device(device, default_stream()),
    }


def graph_names(graphs: Graphs) -> Names:
    """Names of `torch.cuda` and `torch.cuda.graphs`: CUDA graphs."""
    return {
        "CUDAGraph": graph_class(graphs),
        "graph_pool_handle": lambda: (0, 0),
        "is_current_stream_capturing": lambda: graphs.now is not None,
        "synchronize": lambda device=None: with_device(device, graphs).wait(),
    }


def _generator_names() -> Names:
    """Random numbers."""
    generator = DeviceGenerator(torch.default_generator)
    return {
        # one generator serves both: seeding the device's also seeds the host's
        "manual_seed": lambda seed: generator.manual_seed(seed),
        "manual_seed_all": lambda seed: generator.manual_seed(seed),
        "seed": lambda: generator.seed(),
        "seed_all": lambda: generator.seed(),
        "initial_seed": lambda: generator.initial_seed(),
        "get_rng_state": lambda device=None: with_device(device, generator).get_state(),
        "set_rng_state": lambda state, device=None: with_device(device, generator).set_state(state),
        "get_rng_state_all": lambda: [generator.get_state()],
        "set_rng_state_all": lambda states: generator.set_state(states[0]),
        "default_generators": (generator,),
    }


def _memory_names(memory: DeviceMemory, capacity: int) -> Names:
    """Memory in use on the device."""

    def in_use(device: object = None) -> int:
        return with_device(device, memory.arena.live_bytes)

    return {
        "memory_allocated": in_use,
        "max_memory_allocated": in_use,
        "memory_reserved": in_use,
        "max_memory_reserved": in_use,
        "memory_stats": lambda device=None: defaultdict(int, dict.fromkeys(_IN_USE, in_use(device))),
        "memory_stats_as_nested_dict": lambda device=None: {},
        "memory_summary": lambda *args, **kwargs: "",
        "reset_peak_memory_stats": _nothing,
        "reset_max_memory_allocated": _nothing,
        "mem_get_info": lambda device=None: (capacity - in_use(device), capacity),
    }


def nvtx_names() -> Names:
    """Names of `torch.cuda.nvtx`, annotations for a profiler that does not exist here."""
    return {
        "mark": _nothing,
        "range_push": lambda message: 0,
        "range_pop": lambda: 0,
        "range_start": lambda message: 0,
        "range_end": _nothing,
    }


def profiled_on_the_host(make: Callable[..., None]) -> Callable[..., None]:
    """The constructor of torch's profiler, changed to profile the host when GPU times are requested."""

    @functools.wraps(make)
    def on_the_host(self: object, *args: Any, **kwargs: Any) -> None:
        if kwargs.pop("use_cuda", False) or kwargs.get("use_device") == "cuda":
            kwargs |= {"use_device": None, "use_cpu": True}
        make(self, *args, **kwargs)

    return on_the_host


def accelerator_names() -> Names:
    """Names of `torch.accelerator` and their replacements."""
    device = torch.device("cuda", 0)
    return {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_accelerator": lambda check_available=False: torch.device("cuda"),
        "current_device_index": lambda: 0,
        "current_device_idx": lambda: 0,
        "set_device_index": lambda device: require_device(device),
        "set_device_idx": lambda device: require_device(device),
        "current_stream": lambda device=None: with_device(device, current_stream()),
        "set_stream": lambda stream=None: set_stream(stream),
        "synchronize": lambda device=None: torch.cuda.synchronize(device),
        "device_index": DeviceContext,
        "empty_cache": _nothing,
        "empty_host_cache": _nothing,
        "_device": device,
        "memory_allocated": lambda device=None: torch.cuda.memory_allocated(device),
        "max_memory_allocated": lambda device=None: torch.cuda.max_memory_allocated(device),
        "memory_reserved": lambda device=None: torch.cuda.memory_reserved(device),
        "max_memory_reserved": lambda device=None: torch.cuda.max_memory_reserved(device),
        "memory_stats": lambda device=None: torch.cuda.memory_stats(device),
        "reset_peak_memory_stats": _nothing,
        "reset_accumulated_memory_stats": _nothing,
        "get_memory_info": lambda device=None: torch.cuda.mem_get_info(device),
    }


def device_module(known: Callable[..., object]) -> Callable[..., object]:
    """`torch.get_device_module`; without a device it returns that of the accelerator."""

    @functools.wraps(known)
    def module(device: object = None) -> object:
        # torch caches its results for good, and would return them when the device is gone
        return torch.cuda if device is None else known(device)

    return module


def _nothing(*args: object, **kwargs: object) -> None:
    """No operation: every call is complete when it returns."""
