"""The checks of a batch, as the asynchronous checks see them."""

from typing import TYPE_CHECKING, Protocol

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.checks.findings.reporter import Reporter
from kernbench.ptx.emulator.checks.happens_before.clocks import Clocks
from kernbench.ptx.emulator.checks.happens_before.order import BatchLog
from kernbench.ptx.emulator.checks.happens_before.patterns import MemoryOrder
from kernbench.ptx.emulator.checks.happens_before.released_along import ReleasedAlong
from kernbench.ptx.emulator.checks.memory.pending_copies import PendingCopies
from kernbench.ptx.emulator.memory.access_sites import AccessSites
from kernbench.ptx.emulator.memory.shadow import Ranges, Trouble
from kernbench.ptx.emulator.memory.shadow_kernels import GivenMemory
from kernbench.ptx.emulator.observer.definedness import Definedness
from kernbench.ptx.emulator.observer.values import UndefinedObserver
from kernbench.ptx.emulator.program.program import Site

if TYPE_CHECKING:
    from kernbench.ptx.emulator.checks.asynchronous.asynchronous import AsynchronousChecks


class BatchFindings(Protocol):
    """What the checks of one batch share."""

    reporter: Reporter
    sites: AccessSites
    clocks: Clocks
    patterns: MemoryOrder
    along: ReleasedAlong
    log: BatchLog | None
    copies: PendingCopies
    definedness: Definedness
    undefined: UndefinedObserver
    asynchronous: "AsynchronousChecks"

    def shared_name(self, offset: int) -> str:
        """The variable and address of an offset in shared memory."""

    def global_name(self, address: int) -> str:
        """The array of a global address."""

    def agent_memory(self, space: str) -> GivenMemory:
        """Cells, lanes, their first byte, and the states of bytes, for a space that agents access."""

    def agent_meets_copies(self, writes: bool, ranges: Ranges, lanes: Array, site: Site) -> None:
        """Operations that lanes began access ranges of shared memory, which copies of threads may still fill."""

    def agent_trouble(self, space: str, writes: bool, lane: int, site: Site, trouble: Trouble) -> None:
        """An access of an agent is not ordered."""

    def alike(self, lanes: Array, found: Array, site: Site) -> Array:
        """For each race of operations in global memory, why it is formal, as in `released_along`."""

    def released_along(self, lanes: Array, cells: Array) -> Array:
        """For each lane and the cell of an earlier, unordered access: why that access is complete."""

    def shown_along(self, cells: Array, site: Site) -> Array:
        """For the cell of each write without a proxy fence: why that is formal, as in `released_along`."""

    def unknown(self, lane: int, cell: int, mask: int) -> int:
        """The lanes of a cell's access that a lane does not know."""
