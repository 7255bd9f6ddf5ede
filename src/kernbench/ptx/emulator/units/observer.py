"""What is reported of a whole launch, to the checks or to nobody: see `observer` for that of a batch."""

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
    """What happens in one launch; this one ignores it."""

    checking: ClassVar[bool] = False

    @property
    def keeps_order(self) -> bool:
        """Whether the order of all accesses is kept."""
        return False

    @property
    def quiet(self) -> bool:
        """Whether nothing was found, nor anything that may become a finding."""
        return True

    @property
    def ended_quietly(self) -> bool:
        """Whether that is so to the end of what has run."""
        return True

    def begin(self, launch: "Launch") -> None:
        """A launch is about to run."""

    def abandon(self) -> None:
        """The launch was broken off."""

    def batch(self, batch: "Batch") -> BatchObserver:
        """The observer of one of its batches."""
        return BatchObserver()

    def forget(self, allocation: Allocation) -> None:
        """Memory has a new owner: what was done to it before is over."""

    def unknown_function(self, batch: "Batch", lanes: Array, site: Site, name: str) -> None:
        """A function that is declared only was called."""

    def stray(self, batch: "Batch", lanes: Lanes, site: Site, message: str, kind: str) -> None:
        """Lanes were stopped: control flow left the program, or a trap."""

    def over_budget(self, spent: str, meter: Meter) -> None:
        """The launch was stopped."""

    def endless(self, batch: "Batch", lanes: Lanes, loop: WaitLoop, rounds: int) -> None:
        """Lanes came back to a state in which they were before, and nothing they look at can change."""

    def deadlock(self, batches: "Sequence[Batch]", queued: int, resident: int) -> None:
        """Nothing can go on."""
