"""Waiting for mbarriers: a wait that does not pass parks its lanes on the barrier's phase until that completes."""

from dataclasses import dataclass

import numpy as np

from kernbench.common.dtypes import Array
from kernbench.ptx.emulator.barriers.hub import BarrierScheduler
from kernbench.ptx.emulator.barriers.mbarrier_kernels import TOKEN_SHIFT
from kernbench.ptx.emulator.lanes.fragment import Fragment
from kernbench.ptx.emulator.lanes.lanes import Mask
from kernbench.ptx.emulator.program.program import Site


@dataclass(frozen=True, slots=True, eq=False)
class Wait:
    """A wait instruction: slots of its address (plus `offset`), of the phase it names and of its result.

    `parity` says that it names a phase by its parity, not by the state of an arrival; `blocks` that it is tried until
    it succeeds.
    """

    address: int
    offset: int
    value: int
    parity: bool
    target: int
    blocks: bool
    acquires: bool
    # acquires by a later fence
    relaxed: bool
    # of other blocks, too
    wide: bool
    following: int
    site: Site


@dataclass(eq=False, slots=True)
class Parked:
    """Lanes that wait."""

    fragment: Fragment
    wait: Wait


class Waiting:
    """The waits of one batch."""

    def __init__(self, scheduler: BarrierScheduler):
        self._scheduler = scheduler
        self._batch = scheduler.batch
        self.parked: list[Parked] = []

    def arrive(self, fragment: Fragment, wait: Wait) -> Fragment | None:
        """Lanes come to a wait: those whose phase has completed go on; the others park, or go on with false."""
        passed = self._test(fragment, wait, True)
        active = fragment.lanes.mask
        if (passed if active is None else passed | ~active).all():
            fragment.window.put(wait.target, np.array(True), active)
            return fragment.at(wait.following)
        if not wait.blocks:
            fragment.window.put(wait.target, passed, active)
            return fragment.at(wait.following)
        going, staying = self._scheduler.split(fragment, passed)
        assert staying is not None
        self.parked.append(Parked(staying, wait))
        if going is not None:
            self._pass(going, wait, True)
        return None

    def _pass(self, fragment: Fragment, wait: Wait, result: bool) -> None:
        fragment.window.put(wait.target, np.array(result), fragment.lanes.mask)
        self._scheduler.push(fragment.at(wait.following))

    def _test(self, fragment: Fragment, wait: Wait, comes: bool = False) -> Mask:
        """Whether each position's phase has completed; lanes that pass learn what the arrivals knew."""
        batch, window, mask = self._batch, fragment.window, fragment.lanes.mask
        addresses, wanted = self.operands(fragment, wait)
        lanes = window.lane_numbers if mask is None else window.lane_numbers[mask]
        slots, passed = batch.mbarriers.test(addresses, lanes, wanted, wait.parity, wait.site)
        if comes and batch.recorder.recording:
            phases = batch.mbarriers.phases(slots) - passed if wait.parity else wanted >> TOKEN_SHIFT
            waited = passed | wait.blocks
            batch.recorder.mbarrier(wait.site, slots, lanes, np.where(waited, phases, -1))
        if batch.journal is not None:
            batch.journal.waited(slots, lanes, passed, wait.blocks, wait.site)
        if wait.acquires and passed.any():
            if wait.parity:
                batch.checks.asynchronous.passed_by_parity(slots, lanes, passed, wait.site)
            batch.mbarriers.acquire(slots, lanes, passed, wait.wide)
        elif wait.relaxed and passed.any():
            batch.mbarriers.see(slots, lanes, passed, wait.wide)
        if mask is None:
            return np.asarray(passed)
        spread = np.zeros(window.size, bool)
        spread[mask] = passed
        return spread

    def operands(self, fragment: Fragment, wait: Wait) -> tuple[Array, Array]:
        """The barrier's address and the phase that each active lane names."""
        window, mask = fragment.window, fragment.lanes.mask
        addresses = _wide(window.rows[wait.address], window.size, np.uint64) + np.uint64(wait.offset)
        wanted = _wide(window.rows[wait.value], window.size, np.int64)
        return (addresses, wanted) if mask is None else (addresses[mask], wanted[mask])

    def wake(self) -> bool:
        """Nothing else can run: lanes whose phase has completed by now go on."""
        if not self.parked:
            return False
        parked, self.parked = self.parked, []
        woken = False
        for one in parked:
            passed = self._test(one.fragment, one.wait)
            going, staying = self._scheduler.split(one.fragment, passed)
            if staying is not None:
                self.parked.append(Parked(staying, one.wait))
            if going is not None:
                woken = True
                self._pass(going, one.wait, True)
        return woken


def _wide(row: Array, size: int, dtype: type[np.generic]) -> Array:
    """A row, or one value for all positions, as another type."""
    return row.astype(dtype) if row.ndim else np.full(size, row).astype(dtype)
