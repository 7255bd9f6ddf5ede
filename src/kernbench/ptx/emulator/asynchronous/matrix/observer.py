"""The observer interface for matrix products and tensor memory: see `observer`."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.asynchronous.hub import AsynchronousBatch
from kernbench.ptx.emulator.asynchronous.matrix.tensor_memory import TensorMemory
from kernbench.ptx.emulator.observer.observer import Observer
from kernbench.ptx.emulator.program.program import Site

if TYPE_CHECKING:
    from kernbench.ptx.emulator.asynchronous.matrix.tensor_core import CopyForm, Products
    from kernbench.ptx.emulator.asynchronous.matrix.tensor_unit import Access
    from kernbench.ptx.emulator.asynchronous.matrix.warpgroups import Crew, Issued

# called when a commit arrives on mbarriers: their slots, and positions in the committing lanes
Committed = Callable[[Array, Array], Array | None]


def _ignore(slots: Array, owners: Array) -> None:
    """Do nothing: nobody asks what is known."""


class WarpgroupObserver:
    """The wgmma operations of one batch."""

    def issued(self, event: "Issued", crew: "Crew") -> None:
        """Warps, the `crew`, issue an operation."""

    def waited(self, warps: Array, leaders: Array, done: Array) -> None:
        """Warps have waited for all groups before `done`."""

    def touched(self, warps: Array, name: str, verb: str, as_operand: bool, owner: Site, site: Site) -> None:
        """Warps access a register of an operation, issued at `owner`, that they have not waited for."""

    def unfenced(self, lanes: Array, name: str, site: Site) -> None:
        """Lanes have accessed a register that an operation uses, without a wgmma.fence in between."""


class TensorObserver:
    """The tensor memory of one batch, and its operations."""

    def allocates(self, warp: int, columns: int, site: Site) -> bool:
        """A warp allocates columns; returns whether the request is legal."""
        return True

    def frees(self, warp: int, address: int, columns: int, site: Site) -> None:
        """A warp frees columns."""

    def multiplies(self, operations: "Products", lanes: Array) -> None:
        """Lanes begin products."""

    def copies(self, form: "CopyForm", ctas: Array, lanes: Array, addresses: Array, descriptors: Array) -> None:
        """Lanes begin copies from shared memory."""

    def shifts(self, ctas: Array, lanes: Array, addresses: Array, site: Site) -> None:
        """Lanes begin shifts."""

    def loads(self, access: "Access", warps: Array, addresses: Array) -> None:
        """Warps load registers."""

    def stores(self, access: "Access", warps: Array, addresses: Array) -> None:
        """Warps begin to store registers."""

    def commits(self, lanes: Array) -> Committed:
        """Lanes commit; returns a function to call when that arrives on mbarriers, which says how it is known."""
        return _ignore

    def waited(self, warps: Array, loads: bool) -> None:
        """Warps have waited for their loads or stores."""

    def used(self, load: int, warps: Array) -> None:
        """Warps use registers written by the load at a site."""

    def fenced(self, warps: Array, before: bool) -> None:
        """Warps pass fence::before_thread_sync or fence::after_thread_sync."""

    def ended(self) -> None:
        """All threads have exited."""


class BatchObserver(Observer):
    """Everything that happens in one batch, including its matrix units."""

    def __init__(self) -> None:
        super().__init__()
        self.warpgroups: WarpgroupObserver = WarpgroupObserver()

    def tensor(self, memory: TensorMemory) -> TensorObserver:
        """The observer of the batch's tensor memory, created on first use."""
        return TensorObserver()


class MatrixBatch(AsynchronousBatch, Protocol):
    """What matrix units need from their batch."""

    @property
    def checks(self) -> BatchObserver:
        """The observer."""
