"""The npu target: tile kernels for cube and vector cores, and the task runtime that runs them.

Names are imported on first use, so that the commands can be listed where packages that launches need are missing.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kernbench.npu.chip import Chip
    from kernbench.npu.core.tiles import Tile
    from kernbench.npu.core.transfers import KernelCore
    from kernbench.npu.isa.model import ChipModel, bundled, is_chip, load
    from kernbench.npu.isa.units import ALL, FIX, L0A, L0B, L0C, L1, MTE1, MTE2, MTE3, UB, M, S, V
    from kernbench.npu.runtime.runtime import Runtime
    from kernbench.npu.tasks.fifo import FifoState
    from kernbench.npu.tasks.predicates import PREDICATE
    from kernbench.npu.tasks.task import CREATE, IN, INOUT, NO_DEP, OUT
    from kernbench.npu.tasks.tensors import Tensor

_HOMES = {
    "Chip": "chip",
    "Tile": "core.tiles",
    "KernelCore": "core.transfers",
    "ChipModel": "isa.model",
    "bundled": "isa.model",
    "is_chip": "isa.model",
    "load": "isa.model",
    "ALL": "isa.units",
    "FIX": "isa.units",
    "L0A": "isa.units",
    "L0B": "isa.units",
    "L0C": "isa.units",
    "L1": "isa.units",
    "MTE1": "isa.units",
    "MTE2": "isa.units",
    "MTE3": "isa.units",
    "UB": "isa.units",
    "M": "isa.units",
    "S": "isa.units",
    "V": "isa.units",
    "Runtime": "runtime.runtime",
    "FifoState": "tasks.fifo",
    "PREDICATE": "tasks.predicates",
    "CREATE": "tasks.task",
    "IN": "tasks.task",
    "INOUT": "tasks.task",
    "NO_DEP": "tasks.task",
    "OUT": "tasks.task",
    "Tensor": "tasks.tensors",
}

__all__ = [
    "ALL",
    "CREATE",
    "FIX",
    "IN",
    "INOUT",
    "L0A",
    "L0B",
    "L0C",
    "L1",
    "MTE1",
    "MTE2",
    "MTE3",
    "NO_DEP",
    "OUT",
    "PREDICATE",
    "UB",
    "Chip",
    "ChipModel",
    "FifoState",
    "KernelCore",
    "M",
    "Runtime",
    "S",
    "Tensor",
    "Tile",
    "V",
    "bundled",
    "is_chip",
    "load",
]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
