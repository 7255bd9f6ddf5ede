"""The driver for Triton: which GPU there is, how kernels are loaded, and who launches them."""

import sys
from typing import Any

from triton.backends.compiler import GPUTarget
from triton.backends.driver import GPUDriver

from kernbench.ptx.doors.gpus import Gpu, gpu_of
from kernbench.ptx.doors.lost import cuda_error
from kernbench.ptx.doors.session import Session
from kernbench.ptx.doors.triton_door.compiling import text_of
from kernbench.ptx.doors.triton_door.descriptors import Pixels, fill_plain_descriptor, tensor_map
from kernbench.ptx.doors.triton_door.launching import Launcher
from kernbench.ptx.doors.triton_door.tuning import Dry, once


class Utils:
    """Triton's compiled helper module: loading, properties, descriptors."""

    def __init__(self, session: Session, gpu: Gpu, loaded_values: int):
        self._session, self._gpu, self._loaded_values = session, gpu, loaded_values

    def load_binary(self, name: str, binary: Any, shared: int, device: int) -> tuple[Any, ...]:
        """Load PTX: module and function, registers, spills, and the most threads of a block.

        The module is None: otherwise Triton would unload it after this driver is gone.
        """
        loaded = self._session.load(text_of(binary))
        return (None, loaded, 64, 0, 1024)[: self._loaded_values]

    def unload_module(self, module: Any) -> None:
        """No operation: the session keeps modules."""

    def get_device_properties(self, device: int = 0) -> dict[str, int]:
        """Limits and clocks."""
        return {
            "max_shared_mem": self._gpu.shared_per_block,
            "multiprocessor_count": self._gpu.sms,
            "max_num_regs": 65536,
            "warpSize": 32,
            "sm_clock_rate": 1_755_000,
            "mem_clock_rate": 2_619_000,
            "mem_bus_width": 5120,
        }

    def get_current_device(self) -> int:
        """Device 0, the only one."""
        return 0

    def set_current_device(self, device: int) -> None:
        """Check that the device is the only one."""
        if device > 0:
            raise cuda_error(f"Triton Error [CUDA]: invalid device ordinal: {device}; the emulated machine has one GPU")

    def get_default_stream(self, device: int = 0) -> int:
        """Stream 0, the only one."""
        return 0

    def is_stream_capturing(self, stream: Any) -> bool:
        """False: nothing is captured."""
        return False

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        """The compute capability as major and minor."""
        return self._gpu.version

    def cuOccupancyMaxActiveClusters(self, *args: Any) -> int:  # noqa: N802 - Triton's name
        """Clusters of the largest size that are resident at once."""
        return max(1, self._gpu.sms // 16)

    def set_printf_fifo_size(self, size: int) -> None:
        """No operation: printf output is never dropped."""

    def fill_1d_tma_descriptor(self, address: int, dim: int, block: int, element_bytes: int, at: int) -> None:
        """A map of a vector, for releases before 3.4."""
        fill_plain_descriptor(address, [dim], [block], element_bytes, at)

    def fill_2d_tma_descriptor(
        self, address: int, dim1: int, dim0: int, block1: int, block0: int, element_bytes: int, at: int
    ) -> None:
        """A map of a matrix, for releases before 3.4."""
        fill_plain_descriptor(address, [dim1, dim0], [block1, block0], element_bytes, at)

    def fill_tma_descriptor_tiled(self, *description: Any) -> bytes:
        """A map of a tensor: address, swizzle, element bytes and type, box, shape, strides, padding."""
        return tensor_map(*description)

    def fill_tma_descriptor_im2col(self, *description: Any) -> bytes:
        """An im2col map: the same, then the corners of the pixel box and the steps of each dimension."""
        *of_tensor, lower, upper, steps = description
        return tensor_map(*[*of_tensor, Pixels(lower, upper, steps)])


class EmulatedDriver(GPUDriver):  # type: ignore[misc]
    """Triton's driver for a session."""

    def __init__(self, session: Session, dry: Dry, loaded_values: int):
        self._session = session
        self._gpu = gpu_of(session.arch, session.options.sms)
        # JIT functions compiled for this session
        self.functions: set[Any] = set()
        self.utils = Utils(session, self._gpu, loaded_values)

        def launcher(source: Any, metadata: Any) -> Launcher:
            if hasattr(source, "fn"):
                self.functions.add(source.fn)
            return Launcher(session, source, metadata, dry)

        self.launcher_cls = launcher
        self.get_device_capability = self.utils.get_device_capability
        self.get_current_device = self.utils.get_current_device
        self.set_current_device = self.utils.set_current_device
        self.get_current_stream = self.utils.get_default_stream

    @staticmethod
    def is_active() -> bool:
        """Always active."""
        return True

    def get_current_target(self) -> GPUTarget:
        """The architecture that kernels are compiled for."""
        return GPUTarget("cuda", self._gpu.capability, 32)

    def get_active_torch_device(self) -> Any:
        """The torch device of tensors."""
        import torch

        return torch.device("cuda", 0)

    def get_device_interface(self) -> Any:
        """The module with streams and events."""
        import torch

        return torch.cuda

    def map_python_to_cpp_type(self, kind: str) -> str:
        """The type's name, unchanged."""
        return kind

    def get_benchmarker(self) -> Any:
        """The function that times a kernel."""
        return once

    def get_empty_cache_for_benchmark(self) -> Any:
        """A buffer to clear before a benchmark; there is no cache."""
        return sys.modules["torch"].empty(1) if "torch" in sys.modules else None

    def clear_cache(self, cache: Any) -> None:
        """No operation: there is no cache."""
