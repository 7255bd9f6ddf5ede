"""The batch and its scheduler, as barriers see them."""

from typing import TYPE_CHECKING, Protocol

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.fragment import Fragment
from kernbench.ptx.emulator.lanes.lanes import Lanes, Mask
from kernbench.ptx.emulator.memory.port import Port
from kernbench.ptx.emulator.observer.meetings import Operation
from kernbench.ptx.emulator.observer.observer import Observer
from kernbench.ptx.emulator.observer.recorder import Recorder
from kernbench.ptx.emulator.program.hub import BatchHub
from kernbench.ptx.emulator.program.program import Site

if TYPE_CHECKING:
    from kernbench.ptx.emulator.barriers.barriers import Barriers
    from kernbench.ptx.emulator.barriers.mbarriers import Mbarriers


class Journal(Protocol):
    """The record of the mbarrier operations of a launch's first CTAs."""

    def arrived(self, kind: str, slots: Array, lanes: Array, amounts: Array, site: Site) -> None:
        """Lanes are about to arrive, or bytes of copies they began."""

    def waited(self, slots: Array, lanes: Array, passed: Array, blocks: bool, site: Site) -> None:
        """Lanes test whether phases have completed."""


class WaitedCopies(Protocol):
    """Copies whose completion an mbarrier signals."""

    def passed(self, slots: Array, passed: Array) -> None:
        """Lanes have waited for phases of mbarriers; some `passed`."""


class BarrierBatch(BatchHub, Protocol):
    """What barriers need from their batch."""

    port: Port
    mbarriers: "Mbarriers"

    @property
    def checks(self) -> Observer:
        """The observer of the batch."""

    @property
    def recorder(self) -> Recorder:
        """The recorder of executed instructions."""

    @property
    def copies(self) -> WaitedCopies:
        """Copies in flight."""

    @property
    def journal(self) -> Journal | None:
        """The record of the first CTAs, if kept."""

    def barrier_clocks(self) -> None:
        """A barrier of all living warps of all CTAs completed."""

    def parted_barrier(self, fragment: Fragment, site: Site, missing: Array, active: Mask) -> None:
        """Lanes reach an aligned barrier while other lanes of their warps wait elsewhere for ever."""

    def ended_lanes(self, fragment: Fragment, operation: Operation) -> None:
        """A warp operation runs in warps some of whose lanes may have exited."""

    def masks(self, fragment: Fragment, operation: Operation) -> None:
        """A warp operation runs with masks that do not name whole warps."""

    def missing_lanes(
        self, fragment: Fragment, operation: Operation, members: Array, missing: Array, bad: Mask
    ) -> None:
        """Lanes that a warp operation's mask names never arrived."""


class BarrierScheduler(Protocol):
    """What barriers need from the scheduler."""

    ready: dict[tuple[int, ...], Fragment]
    barriers: "Barriers"

    @property
    def batch(self) -> BarrierBatch:
        """The batch it runs."""

    def push(self, fragment: Fragment) -> None:
        """Make a fragment ready."""

    def split(self, fragment: Fragment, chosen: Mask) -> tuple[Fragment | None, Fragment | None]:
        """The lanes where `chosen` holds and the others."""

    def fragment(self, like: Fragment, lanes: Lanes, block: int) -> Fragment:
        """A fragment of some lanes of `like`, at another basic block."""

    def merged(self, one: Fragment, two: Fragment) -> Fragment:
        """Two fragments at the same block as one."""
