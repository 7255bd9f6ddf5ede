"""The context that a builder program receives, with a method for everything a kernel can do."""

from typing import TYPE_CHECKING

from kernbench.common.errors import unknown
from kernbench.ptx.builder.asynchronous.asynchronous import Asynchronous
from kernbench.ptx.builder.asynchronous.cluster import Cluster
from kernbench.ptx.builder.asynchronous.copies import Copies
from kernbench.ptx.builder.asynchronous.mbarrier import Mbarriers
from kernbench.ptx.builder.instructions.arith import Arithmetic
from kernbench.ptx.builder.instructions.atomics import Atomics
from kernbench.ptx.builder.instructions.barrier import Barrier
from kernbench.ptx.builder.instructions.calls import Calls
from kernbench.ptx.builder.instructions.compare import Compare
from kernbench.ptx.builder.instructions.control import Control
from kernbench.ptx.builder.instructions.convert import Convert
from kernbench.ptx.builder.instructions.logic import Logic
from kernbench.ptx.builder.instructions.special import Special
from kernbench.ptx.builder.instructions.warp import Warp
from kernbench.ptx.builder.matrix.matrix import Matrix
from kernbench.ptx.builder.matrix.tcgen05 import Tcgen05
from kernbench.ptx.builder.naming import Naming
from kernbench.ptx.builder.values.errors import UnknownMethodError

if TYPE_CHECKING:
    from kernbench.ptx.builder.values.operations import Operations

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
    """The kernel that is being built; each topic of instructions is a base class in its own file."""

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> None:
            """Called only for names that the context does not have."""
            if name.startswith("_"):
                raise AttributeError(name)
            known = [n for n in dir(type(self)) if not n.startswith("_")]
            message = unknown("method of the context", name, known)
            raise UnknownMethodError(f'{message} Any instruction works by its full name: ctx.op("add.u32", a, b)')


if TYPE_CHECKING:

    def _as_registers_see_it(context: Context) -> "Operations":
        """Lets type checkers verify that the context has all methods that registers use."""
        return context
