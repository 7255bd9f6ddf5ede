"""PTX in Python: parse, build, check, run on an emulator or a real GPU, and assemble.

Names are imported when they are first used, so that one works where another's dependences are missing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from kernbench.ptx.text.keeping import no_collections

if TYPE_CHECKING:
    from kernbench.ptx.builder import PtxBuildError, PtxFunction, PtxKernel, PtxModule
    from kernbench.ptx.devices.assembler import assemble
    from kernbench.ptx.devices.cuda_device import CudaDevice
    from kernbench.ptx.devices.device import EmulatedDevice
    from kernbench.ptx.devices.host import Host
    from kernbench.ptx.doors.opening.emulated import emulated
    from kernbench.ptx.doors.session import Session
    from kernbench.ptx.launching.device_base import DeviceArray
    from kernbench.ptx.text.checkpoints import PtxCheckpoint
    from kernbench.ptx.text.errors import PtxError, PtxSyntaxError
    from kernbench.ptx.text.module import Kernel, Module
    from kernbench.ptx.text.parser import parse
    from kernbench.ptx.validation.validation import validate

_HOMES = {
    "parse": "text.parser",
    "Module": "text.module",
    "Kernel": "text.module",
    "PtxError": "text.errors",
    "PtxSyntaxError": "text.errors",
    "validate": "validation.validation",
    "PtxKernel": "builder",
    "PtxModule": "builder",
    "PtxFunction": "builder",
    "PtxBuildError": "builder",
    "PtxCheckpoint": "text.checkpoints",
    "EmulatedDevice": "devices.device",
    "DeviceArray": "launching.device_base",
    "CudaDevice": "devices.cuda_device",
    "Host": "devices.host",
    "assemble": "devices.assembler",
    "Session": "doors.session",
    "emulated": "doors.opening.emulated",
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
    "Session",
    "assemble",
    "emulated",
    "parse",
    "validate",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        # hundreds of modules, beside all that the program has made
        with no_collections():
            return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"kernbench.ptx has no {name!r}; it has: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return __all__
