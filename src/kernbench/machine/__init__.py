"""Machine descriptions: the parts of a mesh machine and the speed of each, read from TOML files."""

from kernbench.machine.grid import OPPOSITE, STEPS, Grid
from kernbench.machine.loader import bundled, kind_of, load
from kernbench.machine.model import (
    MOST_PES,
    Channel,
    Cube,
    CubeLink,
    Dma,
    Gemm,
    Hbm,
    Ipcq,
    Link,
    Machine,
    MacRates,
    Math,
    Package,
    Pe,
    SpecialRates,
)
from kernbench.machine.schema import KeyInfo

__all__ = [
    "MOST_PES",
    "OPPOSITE",
    "STEPS",
    "Channel",
    "Cube",
    "CubeLink",
    "Dma",
    "Gemm",
    "Grid",
    "Hbm",
    "Ipcq",
    "KeyInfo",
    "Link",
    "MacRates",
    "Machine",
    "Math",
    "Package",
    "Pe",
    "SpecialRates",
    "bundled",
    "kind_of",
    "load",
]
