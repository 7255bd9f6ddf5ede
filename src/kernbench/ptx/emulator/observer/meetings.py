"""Events of synchronising threads: at CTA barriers, in warp operations, and of exited threads."""

from typing import Protocol

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.lanes.arrays import Bools, Int64s
from kernbench.ptx.emulator.lanes.fragment import Fragment
from kernbench.ptx.emulator.lanes.lanes import Lanes, Mask
from kernbench.ptx.emulator.lanes.window import Window
from kernbench.ptx.emulator.program.program import Site


class Operation(Protocol):
    """An operation for which the lanes of a warp gather."""

    @property
    def site(self) -> Site:
        """The instruction."""

    @property
    def members(self) -> int | None:
        """The slot of its mask operand, None if it needs every lane."""

    @property
    def exchanges(self) -> bool:
        """Whether lanes exchange values, or only reconverge."""

    @property
    def misses_ended(self) -> bool:
        """Whether lanes of the mask are a fault that exited before, and did not go past."""

    @property
    def is_control(self) -> bool:
        """Whether lanes enter a control together, such as an aligned barrier."""

    def named(self, window: Window) -> Array:
        """The lanes in each position's mask, as bits."""


class MeetingPoint(Protocol):
    """One barrier number of all CTAs of a batch: the lanes that have arrived, and how many are expected."""

    number: int
    lanes: Int64s
    expected: Int64s


class EndingsObserver:
    """Warp operations and barriers while some lanes have exited, or wait elsewhere."""

    def parted(self, fragment: Fragment, site: Site, missing: Array, active: Mask) -> None:
        """Part of a warp reaches an aligned barrier, and the rest waits elsewhere for ever."""

    def look(self, fragment: Fragment, operation: Operation) -> None:
        """A warp operation runs in warps some of whose lanes may have exited."""

    def gone_round(self, fragment: Fragment, site: Site) -> None:
        """A barrier of the whole block is complete, and some warps have exited."""

    def masks(self, fragment: Fragment, operation: Operation) -> None:
        """A warp operation runs with masks that do not name whole warps."""


class BarrierObserver:
    """The sixteen barriers of each CTA."""

    def comes_whole(self, number: int, lanes: Lanes, site: Site) -> None:
        """All living lanes arrive at a barrier at once."""

    def comes(self, barrier: MeetingPoint, lanes: Lanes, count: int | None, operation: str, site: Site) -> None:
        """Lanes are about to arrive, with the thread count of the barrier and the reduction."""

    def arrives(self, number: int, lanes: Lanes, waits: bool, site: Site) -> None:
        """Lanes arrive at a barrier."""

    def completes(self, number: int, done: Bools, waiting: Bools, came: Int64s) -> None:
        """A barrier is complete for some CTAs; `waiting` are the warps that wait there, `came` counts arrived lanes."""
