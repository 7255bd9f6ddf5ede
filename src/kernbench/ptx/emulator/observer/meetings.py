"""What is reported of threads that meet: at barriers of a CTA, in operations of a warp, and of those that ended."""

from typing import Protocol

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.arrays import Bools, Int64s
from kernbench.ptx.emulator.lanes.fragment import Fragment
from kernbench.ptx.emulator.lanes.lanes import Lanes, Mask
from kernbench.ptx.emulator.lanes.window import Window
from kernbench.ptx.emulator.program.program import Site


class Operation(Protocol):
    """An operation for which lanes of a warp gather."""

    @property
    def site(self) -> Site:
        """The instruction."""

    @property
    def members(self) -> int | None:
        """The slot of its mask operand, None where it needs every lane."""

    @property
    def exchanges(self) -> bool:
        """Whether lanes exchange values, or only meet."""

    @property
    def is_control(self) -> bool:
        """Whether lanes enter a control together, such as an aligned barrier."""

    def named(self, window: Window) -> Array:
        """The lanes that each position's mask names, as bits."""


class MeetingPoint(Protocol):
    """One barrier number of all CTAs of a batch: lanes that have come, and how many are expected."""

    number: int
    lanes: Int64s
    expected: Int64s


class EndingsObserver:
    """Meetings of lanes of which some have ended, or stand elsewhere."""

    def parted(self, fragment: Fragment, site: Site, missing: Array, active: Mask) -> None:
        """An aligned barrier is reached by part of a warp, and the rest waits somewhere else for ever."""

    def look(self, fragment: Fragment, operation: Operation) -> None:
        """A warp operation runs where lanes of its warps may have ended."""

    def gone_round(self, fragment: Fragment, site: Site) -> None:
        """A barrier of the whole block is over, and some warps have ended."""

    def masks(self, fragment: Fragment, operation: Operation) -> None:
        """A warp operation runs with masks that do not name whole warps."""


class BarrierObserver:
    """The sixteen barriers of each CTA."""

    def comes_whole(self, number: int, lanes: Lanes, site: Site) -> None:
        """All living lanes come to a barrier at once."""

    def comes(self, barrier: MeetingPoint, lanes: Lanes, count: int | None, operation: str, site: Site) -> None:
        """Lanes are about to arrive: they name the number of threads that a barrier is for, and the reduction."""

    def arrives(self, number: int, lanes: Lanes, waits: bool, site: Site) -> None:
        """Lanes arrive at a barrier."""

    def completes(self, number: int, done: Bools, waiting: Bools) -> None:
        """A barrier is complete for some CTAs; which warps of each wait there."""
