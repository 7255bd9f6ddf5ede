"""PTX in Python: parse, build, check, run on an emulator or a real GPU, and assemble.

Names are imported when they are first used, so that one works where another's dependences are missing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kernbench.ptx.assembler import assemble
    from kernbench.ptx.builder import PtxBuildError, PtxFunction, PtxKernel, PtxModule
    from kernbench.ptx.checkpoints import PtxCheckpoint
    from kernbench.ptx.cuda_device import CudaDevice
    from kernbench.ptx.device import EmulatedDevice
    from kernbench.ptx.device_base import DeviceArray
    from kernbench.ptx.errors import PtxError, PtxSyntaxError
    from kernbench.ptx.host import Host
    from kernbench.ptx.module import Kernel, Module
    from kernbench.ptx.parser import parse
    from kernbench.ptx.validation import validate

_HOMES = {
    "parse": "parser",
    "Module": "module",
    "Kernel": "module",
    "PtxError": "errors",
    "PtxSyntaxError": "errors",
    "validate": "validation",
    "PtxKernel": "builder",
    "PtxModule": "builder",
    "PtxFunction": "builder",
    "PtxBuildError": "builder",
    "PtxCheckpoint": "checkpoints",
    "EmulatedDevice": "device",
    "DeviceArray": "device_base",
    "CudaDevice": "cuda_device",
    "Host": "host",
    "assemble": "assembler",
}
__all__ = [
    "CudaDevice",
    "DeviceArray",
    "EmulatedDevice",
    "Host",
    "Kernel",
    "Module",
    "PtxBuildError",
    "PtxCheckpoint",
    "PtxError",
    "PtxFunction",
    "PtxKernel",
    "PtxModule",
    "PtxSyntaxError",
    "assemble",
    "parse",
    "validate",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"kernbench.ptx has no {name!r}; it has: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return __all__
