"""Gathering: a `.sync` instruction of a warp waits until every living lane its mask names has come to it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.fragment import Fragment
from kernbench.ptx.emulator.lanes import WARP, Lanes, Mask
from kernbench.ptx.emulator.program import Site
from kernbench.ptx.emulator.window import Window

FULL = np.uint32(0xFFFFFFFF)


@dataclass(frozen=True, slots=True, eq=False)
class WarpOperation:
    """What a gathered warp does: `perform(window, lanes)`, the slot of its mask operand, and where lanes go on.

    `full` tells that the operand is a constant that names every lane.
    """

    perform: Callable[[Window, Lanes], None]
    members: int
    full: bool
    following: int
    site: Site
    # lanes that only meet, without exchanging values, may do so from different instructions
    exchanges: bool = True


@dataclass(eq=False)
class Parked:
    """Lanes that wait for others of their warps."""

    fragment: Fragment
    operation: WarpOperation


def active_bits(lanes: Lanes) -> Array:
    """For each warp of a set, its active lanes as bits."""
    if lanes.mask is None:
        return np.full(lanes.warp_count, FULL)
    packed = np.packbits(lanes.mask.reshape(-1, WARP), axis=1, bitorder="little")
    return np.ascontiguousarray(packed).view(np.uint32).reshape(-1)


class Gathering:
    """Warp operations of one batch that wait for lanes."""

    def __init__(self, scheduler: Any):
        self._scheduler = scheduler
        self._batch = scheduler.batch
        self._parked: dict[tuple[Any, ...], Parked] = {}

    def arrive(self, fragment: Fragment, operation: WarpOperation) -> Fragment | None:
        """Lanes come to a warp operation; those whose warps are complete perform it and go on."""
        if fragment.lanes.whole and (operation.full or self._names_all(fragment, operation)):
            operation.perform(fragment.window, fragment.lanes)
            return fragment.at(operation.following)
        earlier = self._parked.pop(fragment.place, None)
        if earlier is not None:
            fragment = self._scheduler.merged(earlier.fragment, fragment)
        return self._sort(fragment, operation)

    def _names_all(self, fragment: Fragment, operation: WarpOperation) -> bool:
        """Whether the mask of every active lane names its whole warp."""
        named = fragment.window.rows[operation.members] == FULL
        return bool((named if fragment.lanes.mask is None else named | ~fragment.lanes.mask).all())

    def _sort(self, fragment: Fragment, operation: WarpOperation) -> Fragment | None:
        complete = self._complete(fragment, operation)
        going, staying = self._scheduler.split(fragment, complete)
        if staying is not None:
            self._parked[staying.place] = Parked(staying, operation)
        if going is None:
            return None
        operation.perform(going.window, going.lanes)
        going = going.at(operation.following)
        if staying is None:
            return going if isinstance(going, Fragment) else None
        self._scheduler.push(going)
        return None

    def _complete(self, fragment: Fragment, operation: WarpOperation) -> Mask:
        """For each position, whether all living lanes that its mask names are here."""
        here = np.repeat(active_bits(fragment.lanes), WARP)
        alive = np.repeat(self._batch.alive_bits[fragment.window.warps], WARP)
        members = np.broadcast_to(fragment.window.rows[operation.members], here.shape)
        missing: Mask = (members & alive & ~here) == 0
        return missing

    def recheck(self) -> None:
        """Lanes have ended: a warp that waited for them only may be complete."""
        for place in list(self._parked):
            parked = self._parked.pop(place)
            going = self._sort(parked.fragment, parked.operation)
            if going is not None:
                self._scheduler.push(going)

    def settle(self) -> bool:
        """Nothing else can run: let lanes meet across instructions, or go on without those that never come."""
        if not self._parked:
            return False
        parked, self._parked = list(self._parked.values()), {}
        here = np.zeros(self._batch.warps, np.uint32)
        for one in parked:
            here[one.fragment.window.warps] |= active_bits(one.fragment.lanes)
        for one in parked:
            self._force(one, here)
        return True

    def _force(self, parked: Parked, here: Array) -> None:
        fragment, operation = parked.fragment, parked.operation
        members = np.broadcast_to(fragment.window.rows[operation.members], fragment.window.size)
        alive = np.repeat(self._batch.alive_bits[fragment.window.warps], WARP)
        around = np.repeat(here[fragment.window.warps], WARP)
        missing = members & alive & ~around
        apart = operation.exchanges | (missing != 0)
        self._batch.missing_lanes(fragment, operation, members, missing, fragment.lanes.active() & apart)
        operation.perform(fragment.window, fragment.lanes)
        self._scheduler.push(fragment.at(operation.following))

    def waiting(self) -> list[Parked]:
        """Everything that waits."""
        return list(self._parked.values())
