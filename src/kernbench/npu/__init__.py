"""The npu target: tile kernels for cube and vector cores, and the task runtime that runs them."""

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
