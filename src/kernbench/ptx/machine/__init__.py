"""GPUs as machine descriptions: what each consists of and how fast its parts are, read from TOML files with sources."""

from kernbench.ptx.machine.figures import ASSUMED, MEASURED, PUBLISHED, SOURCES, Constant, Figure
from kernbench.ptx.machine.model import NOT_VALIDATED, Gpu, bundled, is_gpu, load

__all__ = [
    "ASSUMED",
    "MEASURED",
    "NOT_VALIDATED",
    "PUBLISHED",
    "SOURCES",
    "Constant",
    "Figure",
    "Gpu",
    "bundled",
    "is_gpu",
    "load",
]
