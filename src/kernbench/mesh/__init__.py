"""The mesh target: PEs that communicate over bounded queues between neighbours, and the host that launches on them.

Names are imported on first use: timing and the target's registration need no host.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernbench.mesh.host import Host
    from kernbench.mesh.programs.tensors import Tensor

_HOMES = {"Host": "host", "Tensor": "programs.tensors"}
__all__ = ["Host", "Tensor"]


def __getattr__(name: str) -> type | None:
    if name in _HOMES:
        found: type | None = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        return found
    raise AttributeError(f"kernbench.mesh has no {name!r}; it has: {', '.join(__all__)}")


def __dir__() -> list[str]:
    return __all__
