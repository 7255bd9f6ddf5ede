"""Collectives as `tl` kernels: one module for each algorithm, with its description and the topologies it supports.

A new algorithm is one file here with an `ALGORITHM`; nothing else changes.
"""

import importlib
import pkgutil

from kernbench.common.errors import MisuseError, unknown
from kernbench.mesh.collectives._base import GRID, LINE, RING, Algorithm, Layout

__all__ = ["GRID", "LINE", "RING", "Algorithm", "Layout", "algorithms", "choose"]


def algorithms() -> list[Algorithm]:
    """All algorithms, best first within an operation."""
    names = sorted(m.name for m in pkgutil.iter_modules(__path__) if not m.name.startswith("_"))
    found = [importlib.import_module(f"{__name__}.{name}").ALGORITHM for name in names]
    return sorted(found, key=lambda a: (a.operation, -a.preference, a.name))


def choose(operation: str, topology: str, name: str | None = None) -> Algorithm:
    """The preferred algorithm for an operation on a topology, or the one named `name`."""
    known = [a for a in algorithms() if a.operation == operation]
    serving = [a for a in known if topology in a.topologies and name in (None, a.name)]
    if not serving:
        names = [f"{a.name} ({', '.join(sorted(a.topologies))})" for a in known]
        raise MisuseError(unknown(f"{operation} algorithm for a {topology}", name or "any", names))
    return serving[0]
