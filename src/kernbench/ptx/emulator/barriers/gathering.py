"""Gathering: an instruction that a warp runs together waits until every living lane that it needs has arrived.

A `.sync` instruction needs the lanes in its mask, an aligned barrier all lanes of the warp. Lanes that are parked or
still running are waited for; only if nothing else can run, lanes that never arrive are reported and left out.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.barriers.hub import BarrierScheduler
from kernbench.ptx.emulator.lanes.fragment import Fragment
from kernbench.ptx.emulator.lanes.lanes import WARP, Lanes, Mask, lane_bits
from kernbench.ptx.emulator.lanes.window import Window
from kernbench.ptx.emulator.program.program import Site
from kernbench.ptx.emulator.program.steps import AnyWindow, Control

FULL = np.uint32(0xFFFFFFFF)


@dataclass(frozen=True, slots=True, eq=False)
class WarpOperation:
    """A gathered operation: `perform(window, lanes)`, the slot of its mask operand, and the block to continue at.

    Without a slot every lane of the warp is needed. `full` says that the operand is a constant naming all lanes.
    """

    perform: Callable[[AnyWindow, Lanes], None]
    members: int | None
    full: bool
    following: int
    site: Site
    # lanes that only reconverge, without exchanging values, may do so from different instructions
    exchanges: bool = True
    # a control that the lanes enter together instead
    enter: Control | None = None
    # whether lanes of the mask that exited before are a fault: votes, reductions and comparisons are of those that have
    # not, and a shuffle reports the values that it takes itself
    misses_ended: bool = True

    @property
    def is_control(self) -> bool:
        """Whether lanes enter a control together."""
        return self.enter is not None

    @property
    def order(self) -> int:
        """The order in which operations are forced when lanes never arrive."""
        return 2 if self.enter is not None else int(not self.exchanges)

    def run(self, scheduler: BarrierScheduler, fragment: Fragment) -> Fragment | None:
        """Perform it, for complete warps."""
        if self.enter is not None:
            return self.enter(scheduler, fragment)
        self.perform(fragment.window, fragment.lanes)
        return fragment.at(self.following)

    def named(self, window: Window) -> Array:
        """The lanes in each position's mask, as bits."""
        if self.members is None:
            return np.full(window.size, FULL)
        return np.broadcast_to(window.rows[self.members], window.size)


@dataclass(eq=False)
class Parked:
    """Lanes that wait for other lanes of their warps."""

    fragment: Fragment
    operation: WarpOperation


def active_bits(lanes: Lanes) -> Array:
    """For each warp of a set, its active lanes as bits."""
    if lanes.mask is None:
        return np.full(lanes.warp_count, FULL)
    return lane_bits(lanes.mask)


def together(enter: Control, following: int, site: Site) -> WarpOperation:
    """A control that all living lanes of a warp enter together."""
    return WarpOperation(_nothing, None, True, following, site, False, enter)


def _nothing(window: Window, lanes: Lanes) -> None:
    """No exchange of values."""


class Gathering:
    """Warp operations of one batch that wait for lanes."""

    def __init__(self, scheduler: BarrierScheduler):
        self._scheduler = scheduler
        self._batch = scheduler.batch
        self._parked: dict[tuple[int, tuple[int, ...]], Parked] = {}

    def arrive(self, fragment: Fragment, operation: WarpOperation) -> Fragment | None:
        """Lanes reach a warp operation; complete warps perform it and continue."""
        if self._batch.launch.fast.gathered_warps and self._is_complete(fragment, operation):
            return operation.run(self._scheduler, fragment)
        earlier = self._parked.pop(fragment.point, None)
        if earlier is not None:
            fragment = self._scheduler.merged(earlier.fragment, fragment)
        return self._sort(fragment, operation)

    def _is_complete(self, fragment: Fragment, operation: WarpOperation) -> bool:
        """Whether all lanes of each warp are here, and named."""
        return fragment.lanes.whole and (operation.full or self._names_all(fragment, operation))

    def _names_all(self, fragment: Fragment, operation: WarpOperation) -> bool:
        """Whether the mask of every active lane names its whole warp."""
        named = operation.named(fragment.window) == FULL
        return bool((named if fragment.lanes.mask is None else named | ~fragment.lanes.mask).all())

    def _sort(self, fragment: Fragment, operation: WarpOperation) -> Fragment | None:
        going, staying = self._scheduler.split(fragment, self._missing(fragment, operation) == 0)
        if staying is not None:
            self._parked[staying.point] = Parked(staying, operation)
        if going is None:
            return None
        self._batch.ended_lanes(going, operation)
        self._batch.masks(going, operation)
        result = operation.run(self._scheduler, going)
        if staying is None or result is None:
            return result
        self._scheduler.push(result)
        return None

    def _missing(self, fragment: Fragment, operation: WarpOperation) -> Array:
        """For each position, the living lanes in its mask that have not arrived, as bits."""
        here = np.repeat(active_bits(fragment.lanes), WARP)
        alive = np.repeat(self._batch.alive_bits[fragment.window.warps], WARP)
        missing: Array = operation.named(fragment.window) & alive & ~here
        return missing

    def recheck(self) -> None:
        """Lanes have exited: a warp that only waited for them may be complete."""
        for point in list(self._parked):
            parked = self._parked.pop(point, None)
            going = None if parked is None else self._sort(parked.fragment, parked.operation)
            if going is not None:
                self._scheduler.push(going)

    def settle(self) -> bool:
        """Nothing else can run: let lanes meet across instructions, or continue without lanes that never arrive.

        First operations that exchange values, then those that only reconverge, last barriers: what waits for them may
        be complete by then. An aligned barrier is only forced if its missing lanes also wait for their warp or at a
        barrier; if they wait for something else, that is the fault to report.
        """
        here = np.zeros(self._batch.warps, np.uint32)
        for one in self._parked.values():
            here[one.fragment.window.warps] |= active_bits(one.fragment.lanes)
        stuck = here | self._scheduler.barriers.waiting_bits()
        ready = {point: one.operation.order for point, one in self._parked.items() if self._settles(one, stuck)}
        chosen = [point for point, order in ready.items() if order == min(ready.values())]
        for one in [self._parked.pop(point) for point in chosen]:
            self._force(one, here)
        return bool(chosen)

    def _settles(self, parked: Parked, stuck: Array) -> bool:
        fragment, operation = parked.fragment, parked.operation
        if operation.enter is None:
            return True
        missing = self._missing(fragment, operation) & ~np.repeat(stuck[fragment.window.warps], WARP)
        return not (missing[fragment.lanes.active()] != 0).any()

    def _force(self, parked: Parked, here: Array) -> None:
        fragment, operation = parked.fragment, parked.operation
        active = fragment.lanes.active()
        if operation.enter is not None:
            self._batch.parted_barrier(fragment, operation.site, self._missing(fragment, operation), active)
        else:
            missing = self._missing(fragment, operation) & ~np.repeat(here[fragment.window.warps], WARP)
            apart: Mask = active & (operation.exchanges | (missing != 0))
            self._batch.missing_lanes(fragment, operation, operation.named(fragment.window), missing, apart)
            self._batch.masks(fragment, operation)
        going = operation.run(self._scheduler, fragment)
        if going is not None:
            self._scheduler.push(going)

    def waiting(self) -> list[Parked]:
        """All parked lanes."""
        return list(self._parked.values())
