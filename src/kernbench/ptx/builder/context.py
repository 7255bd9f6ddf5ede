"""What a builder program is handed: one method for each thing a kernel can do."""

from typing import TYPE_CHECKING

from kernbench.common.errors import unknown
from kernbench.ptx.builder.arith import Arithmetic
from kernbench.ptx.builder.asynchronous import Asynchronous
from kernbench.ptx.builder.atomics import Atomics
from kernbench.ptx.builder.barrier import Barrier
from kernbench.ptx.builder.calls import Calls
from kernbench.ptx.builder.cluster import Cluster
from kernbench.ptx.builder.compare import Compare
from kernbench.ptx.builder.control import Control
from kernbench.ptx.builder.convert import Convert
from kernbench.ptx.builder.copies import Copies
from kernbench.ptx.builder.errors import UnknownMethodError
from kernbench.ptx.builder.logic import Logic
from kernbench.ptx.builder.matrix import Matrix
from kernbench.ptx.builder.mbarrier import Mbarriers
from kernbench.ptx.builder.naming import Naming
from kernbench.ptx.builder.special import Special
from kernbench.ptx.builder.tcgen05 import Tcgen05
from kernbench.ptx.builder.warp import Warp

__kernbench_internal__ = True


class Context(
    Arithmetic,
    Logic,
    Compare,
    Convert,
    Atomics,
    Calls,
    Warp,
    Barrier,
    Matrix,
    Asynchronous,
    Mbarriers,
    Copies,
    Cluster,
    Tcgen05,
    Special,
    Naming,
    Control,
):
    """The kernel that is being built; a topic of instructions is a class of its own, and a file."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> None:
            """Only what the context does not have comes here."""
            if name.startswith("_"):
                raise AttributeError(name)
            known = [n for n in dir(type(self)) if not n.startswith("_")]
            told = unknown("method of the context", name, known)
            raise UnknownMethodError(f'{told} Any instruction works by its full name: ctx.op("add.u32", a, b)')
