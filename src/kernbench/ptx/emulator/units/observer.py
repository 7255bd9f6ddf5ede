"""Events of a whole launch, for the checks or a null observer: see `observer` for those of a batch."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.asynchronous.matrix.observer import BatchObserver
from kernbench.ptx.emulator.lanes.lanes import Lanes
from kernbench.ptx.emulator.memory.arena import Allocation
from kernbench.ptx.emulator.program.meter import Meter
from kernbench.ptx.emulator.program.program import Site, WaitLoop

if TYPE_CHECKING:
    from kernbench.ptx.emulator.units.batch import Batch, Launch


class LaunchObserver:
    """The observer of one launch; this one does nothing."""

    checking: ClassVar[bool] = False

    @property
    def keeps_order(self) -> bool:
        """Whether the order of all accesses is kept."""
        return False

    @property
    def quiet(self) -> bool:
        """Whether there is no finding, and nothing that may become one."""
        return True

    @property
    def ended_quietly(self) -> bool:
        """As `quiet`, after what has run so far has ended."""
        return True

    def begin(self, launch: "Launch") -> None:
        """A launch is about to run."""

    def abandon(self) -> None:
        """The launch was aborted."""

    def batch(self, batch: "Batch") -> BatchObserver:
        """The observer of one of its batches."""
        return BatchObserver()

    def forget(self, allocation: Allocation) -> None:
        """Memory has a new owner: remove its earlier accesses."""

    def unknown_function(self, batch: "Batch", lanes: Array, site: Site, name: str) -> None:
        """The kernel called a function that is only declared."""

    def stray(self, batch: "Batch", lanes: Lanes, site: Site, message: str, kind: str) -> None:
        """Lanes were stopped: control flow left the program, or a trap."""

    def over_budget(self, spent: str, meter: Meter) -> None:
        """The launch was stopped."""

    def endless(self, batch: "Batch", lanes: Lanes, loop: WaitLoop, rounds: int) -> None:
        """Lanes are in an earlier state again, and nothing they read can change."""

    def deadlock(self, batches: "Sequence[Batch]", queued: int, resident: int) -> None:
        """Nothing can continue."""
