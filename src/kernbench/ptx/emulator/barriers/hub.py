"""The batch and its scheduler as barriers see them."""

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
    """The record of what the first CTAs of a launch do with their mbarriers."""

    def arrived(self, kind: str, slots: Array, lanes: Array, amounts: Array, site: Site) -> None:
        """Lanes are about to arrive, or bytes of copies they began."""

    def waited(self, slots: Array, lanes: Array, passed: Array, blocks: bool, site: Site) -> None:
        """Lanes look whether phases have completed."""


class WaitedCopies(Protocol):
    """Copies whose end an mbarrier signals."""

    def passed(self, slots: Array, passed: Array) -> None:
        """Lanes have waited for phases of mbarriers, those that `passed`."""


class BarrierBatch(BatchHub, Protocol):
    """What barriers need of their batch."""

    port: Port
    mbarriers: "Mbarriers"

    @property
    def checks(self) -> Observer:
        """Who looks at what happens."""

    @property
    def recorder(self) -> Recorder:
        """Who records what warps execute."""

    @property
    def copies(self) -> WaitedCopies:
        """Copies on their way."""

    @property
    def journal(self) -> Journal | None:
        """The record of the first CTAs, if it is kept."""

    def barrier_clocks(self) -> None:
        """A barrier of all living warps of all CTAs completed."""

    def parted_barrier(self, fragment: Fragment, site: Site, missing: Array, active: Mask) -> None:
        """An aligned barrier is reached by lanes whose siblings wait elsewhere for ever."""

    def ended_lanes(self, fragment: Fragment, operation: Operation) -> None:
        """A warp operation runs where lanes of its warps may have ended."""

    def masks(self, fragment: Fragment, operation: Operation) -> None:
        """A warp operation runs with masks that do not name whole warps."""

    def missing_lanes(
        self, fragment: Fragment, operation: Operation, members: Array, missing: Array, bad: Mask
    ) -> None:
        """Lanes that a warp operation's mask names never came."""


class BarrierScheduler(Protocol):
    """What barriers need of the scheduler, whose fragments wait at them."""

    ready: dict[tuple[int, ...], Fragment]
    barriers: "Barriers"

    @property
    def batch(self) -> BarrierBatch:
        """The batch it runs."""

    def push(self, fragment: Fragment) -> None:
        """Let a fragment run in its turn."""

    def split(self, fragment: Fragment, chosen: Mask) -> tuple[Fragment | None, Fragment | None]:
        """The lanes where `chosen` holds and the others."""

    def fragment(self, like: Fragment, lanes: Lanes, block: int) -> Fragment:
        """Some lanes of a fragment at a block of their own."""

    def merged(self, one: Fragment, two: Fragment) -> Fragment:
        """Two fragments that stand at the same block, as one."""
