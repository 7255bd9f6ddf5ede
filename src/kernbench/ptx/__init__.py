"""PTX in Python: parse, build, check, run on an emulator or a real GPU, and assemble.

Names are imported when they are first used, so that one works where another's dependences are missing.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    "parse": "parser",
    "Module": "module",
    "Kernel": "module",
    "PtxError": "errors",
    "PtxSyntaxError": "errors",
    "validate": "validate",
    "PtxKernel": "builder",
    "EmulatedDevice": "device",
    "DeviceArray": "device_base",
    "CudaDevice": "cuda_device",
    "assemble": "assembler",
}
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"kernbench.ptx has no {name!r}; it has: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return __all__
